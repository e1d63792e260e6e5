"""Evidence: what shows that a node, or what ran on it, can no longer write.

Evidence belongs to one boot of one node, and was had at a moment of our own monotonic clock. It is
never inherited: a new leader observes again, and what is recorded of it is history. Where it is
looked at again after the barrier (docs/safety.md), it is a new piece of evidence.

What sources hand in is **testimony**: what somebody said or something showed, and when we saw it.
Whether it amounts to evidence is for ``decide/proof.py`` to say.
"""

from enum import StrEnum

import msgspec

from backstay.model.drbd import ResourceSight, Unheard
from backstay.model.power import PowerSight


class Scope(StrEnum):
    """What a piece of evidence speaks of."""

    NODE = "Node"
    """Nothing of this boot runs any more."""
    VOLUMES = "Volumes"
    """The storage refuses the node: these volumes cannot be written from there."""
    GUEST = "Guest"
    """One guest has stopped, whatever else runs."""


class Strength(StrEnum):
    """How it is known, the strongest first."""

    OBSERVED = "Observed"
    """Something that would not say so if it were not true: a power supply, a storage, a boot id."""
    CONFIRMED = "Confirmed"
    """A person vouches for it."""
    PRESUMED = "Presumed"
    """Silence, or the word of another program: it takes the owner's consent to act on it."""

    def suffices(self, minimum: "Strength") -> bool:
        return self.rank <= minimum.rank

    @property
    def rank(self) -> int:
        """The strongest has the lowest."""
        return _RANKS[self]


_RANKS = {strength: rank for rank, strength in enumerate(Strength)}


class EvidenceKind(StrEnum):
    """What shows it."""

    POWERED_OFF = "PoweredOff"
    REBOOTED = "Rebooted"
    PROVIDER_OFF = "ProviderOff"
    STORAGE_FENCED = "StorageFenced"
    STORAGE_QUORUM = "StorageQuorum"
    GUEST_STOPPED = "GuestStopped"
    OPERATOR_CONFIRMED = "OperatorConfirmed"
    FOREIGN_ASSERTION = "ForeignAssertion"
    PRESUMED = "Presumed"

    @property
    def scope(self) -> Scope:
        return _SCOPES.get(self, Scope.NODE)

    @property
    def strength(self) -> Strength:
        return _STRENGTHS.get(self, Strength.OBSERVED)


_SCOPES = {
    EvidenceKind.STORAGE_FENCED: Scope.VOLUMES,
    EvidenceKind.STORAGE_QUORUM: Scope.VOLUMES,
    EvidenceKind.GUEST_STOPPED: Scope.GUEST,
}
_STRENGTHS = {
    EvidenceKind.OPERATOR_CONFIRMED: Strength.CONFIRMED,
    EvidenceKind.FOREIGN_ASSERTION: Strength.PRESUMED,
    EvidenceKind.PRESUMED: Strength.PRESUMED,
}


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``observed_at`` is the event loop's time; ``source`` names the object or person.

    ``volumes`` are the persistent volumes that evidence of that scope covers, ``guest`` the uid of
    the launcher whose guest has stopped.
    """

    kind: EvidenceKind
    node: str
    node_uid: str
    boot_id: str
    source: str
    detail: str
    observed_at: float
    volumes: tuple[str, ...] = ()
    guest: str = ""

    def is_about(self, *, node_uid: str, boot_id: str) -> bool:
        return (self.node_uid, self.boot_id) == (node_uid, boot_id)


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """A person's word that one boot of a node is off, as it stands in the API.

    ``seen_at`` is when *we* first saw it: a sign of life after that contradicts it. But whoever
    starts anew has seen nothing, so it also names what was there when it was given: the lease's
    last renewal, virt-handler's last heartbeat and, if it is not empty, the kubelet's last status.
    They are compared as they stand, never as times; where they differ, the node has lived since.
    An answer at a port leaves no such trace: by which sign it was ``refuted`` stands in its status,
    once a leader has seen it. So does that it has ``lapsed``, because it came back with a backup of
    the API: what became of its node since, that API cannot know.
    """

    name: str
    uid: str
    node: str
    node_uid: str
    boot_id: str
    by: str
    reason: str
    seen_at: float
    last_renewal: str = ""
    last_heartbeat: str = ""
    last_status: str = ""
    refuted: str = ""
    lapsed: bool = False


class OutOfService(msgspec.Struct, frozen=True, kw_only=True):
    """Kubernetes' own taint for a node that is off, put there by somebody else.

    ``seen_at`` is when we saw it come; one that was there when we began to look is None, because
    it may be older than the node's last sign of life. ``person`` is True if nothing but a person's
    tool has written it.
    """

    by: str
    person: bool
    seen_at: float | None


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """The storage was asked to refuse a node, and has said that it does. It speaks of the
    persistent volumes that it names, and of all those of its ``driver`` in that ``cluster``."""

    name: str
    detail: str
    observed_at: float
    volumes: tuple[str, ...] = ()
    driver: str = ""
    cluster: str = ""
    ours: bool = False


class ProviderState(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider of the machine says of it, as of ``observed_at``."""

    source: str
    instance: str
    off: bool
    detail: str
    observed_at: float


class GuestStop(msgspec.Struct, frozen=True, kw_only=True):
    """A living virt-handler says that it has seen a guest stop."""

    launcher: str
    """The uid of its pod."""
    detail: str
    observed_at: float


class GuestMove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A migration that we have asked for. ``since`` is when we first saw it."""

    guest: str
    """``namespace/name`` of its VMI."""
    launcher: str
    """The uid of the pod that it is moved away from."""
    phase: str
    since: float
    target: str = ""
    because: str = ""
    """Why it failed, in KubeVirt's words."""

    @property
    def failed(self) -> bool:
        return self.phase == "Failed"

    @property
    def succeeded(self) -> bool:
        return self.phase == "Succeeded"


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """That a node does not answer on one channel, as seen from one place.

    ``since`` is the first question without an answer after the last answer. ``proven_at`` is when
    the same channel last worked from the same place, towards ``proven_on``: without that it may be
    the questioner who is cut off.
    """

    channel: str
    vantage: str
    since: float
    asked_at: float
    proven_at: float | None = None
    proven_on: str = ""


class Answer(msgspec.Struct, frozen=True):
    """That a node answered, be it with a refusal: something is alive there."""

    channel: str
    at: float


class Testimony(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that sources have to say of one node, apart from people's confirmations."""

    taint: OutOfService | None = None
    fences: tuple[Fence, ...] = ()
    quorums: tuple[ResourceSight, ...] = ()
    unheard: tuple[Unheard, ...] = ()
    provider: ProviderState | None = None
    power: PowerSight | None = None
    stops: tuple[GuestStop, ...] = ()
    stopping: tuple[str, ...] = ()
    """The uids of launchers whose guests are being shut down."""
    moves: tuple[GuestMove, ...] = ()
    silences: tuple[Silence, ...] = ()
    answers: tuple[Answer, ...] = ()

    def joined(self, other: "Testimony") -> "Testimony":
        return Testimony(
            taint=self.taint or other.taint,
            fences=self.fences + other.fences,
            quorums=self.quorums + other.quorums,
            unheard=self.unheard + other.unheard,
            provider=self.provider or other.provider,
            power=self.power or other.power,
            stops=self.stops + other.stops,
            stopping=self.stopping + other.stopping,
            moves=self.moves + other.moves,
            silences=self.silences + other.silences,
            answers=self.answers + other.answers,
        )
