"""What has come up again, as far as we watch it: where it runs, whether it is ready, and the
moments that KubeVirt told of it."""

import msgspec

from backstay.apis.pods import OwnedMeta, Owner, controller_of


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class _Transition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str = ""
    phase_transition_timestamp: str = ""


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str | None = None
    node_name: str | None = None
    conditions: list[_Condition] | None = None
    phase_transition_timestamps: list[_Transition] | None = None


class Arriving(msgspec.Struct, frozen=True, gc=False):
    """A VirtualMachineInstance on its way up."""

    metadata: OwnedMeta
    status: _Status = _Status()

    @property
    def running_on(self) -> str:
        """The node; empty as long as it does not run."""
        return (self.status.node_name or "") if self.status.phase == "Running" else ""

    @property
    def ready(self) -> bool:
        conditions = self.status.conditions or ()
        return any((each.type, each.status) == ("Ready", "True") for each in conditions)

    @property
    def transitions(self) -> tuple[tuple[str, str], ...]:
        """Phase and moment of each, in the order in which they were told."""
        told = self.status.phase_transition_timestamps or ()
        return tuple((each.phase, each.phase_transition_timestamp) for each in told)

    @property
    def owner(self) -> Owner | None:
        return controller_of(self.metadata.owner_references)
