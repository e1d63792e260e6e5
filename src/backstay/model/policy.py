"""Policy: what the people who run the cluster, and the owners of a workload, have allowed.

The cluster's configuration bounds everything: what an owner asks for within a namespace counts
only as far as the cluster lets it. ``decide/policy.py`` brings the two together into the ``Terms``
of one workload.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

from backstay.model.evidence import Strength
from backstay.model.labels import ON_STORAGE_LOST


class Mode(StrEnum):
    OBSERVE = "Observe"
    ARMED = "Armed"
    DISARMED = "Disarmed"


class OnKubeletLoss(StrEnum):
    """What happens to a healthy guest whose kubelet has died."""

    LEAVE = "Leave"
    MIGRATE = "Migrate"
    """It is migrated live; if that fails it is left."""
    STOP_AND_MOVE = "StopAndMove"
    """It is migrated live; if that fails it is shut down and started elsewhere."""


class Detach(StrEnum):
    """How the volumes of a node that is proven dead are freed for other nodes."""

    ATTACHMENTS = "Attachments"
    OUT_OF_SERVICE = "OutOfServiceTaint"
    LEAVE = "Leave"


class Job(StrEnum):
    """What exactly one program should do on a node."""

    FAILOVER = "failover"
    DETACH = "detach"
    ADDRESSES = "addresses"
    FENCING = "fencing"
    MAINTENANCE = "maintenance"


class Ownership(StrEnum):
    OURS = "Ours"
    FOREIGN = "Foreign"
    OFF = "Off"


class Terms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What holds for one workload. ``origins`` says of each field who has set it.

    ``minimum`` is the weakest proof on which it may be started elsewhere.
    """

    protect: bool | None = None
    minimum: Strength = Strength.CONFIRMED
    presume_block: bool = False
    on_kubelet_loss: OnKubeletLoss = OnKubeletLoss.LEAVE
    detach: Detach = Detach.ATTACHMENTS
    start: bool = False
    """Whether a guest that its run strategy would leave down is started."""
    singleton: bool = False
    """Two copies are harmful even if they cannot write: proof about its volumes is not enough."""
    priority: int | None = None
    origins: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()
    """What was asked for and is not granted, or contradicts itself."""


class Requirement(msgspec.Struct, frozen=True, omit_defaults=True):
    """One expression of a label selector. ``operator`` is one of Kubernetes' four."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case _:
                return value is None


class OptIn(msgspec.Struct, frozen=True):
    """Which pods are protected by labels that are not ours. ``by`` is what has said so, as a part
    of a sentence."""

    requirements: tuple[Requirement, ...]
    by: str

    def selects(self, labels: Mapping[str, str]) -> bool:
        return all(each.holds(labels) for each in self.requirements)


PIRAEUS = OptIn(
    (Requirement(ON_STORAGE_LOST, "In", ("remove",)),), by=f"its label {ON_STORAGE_LOST}"
)


class AvailabilityRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An AvailabilityPolicy of a namespace: what its owners ask for. None is "not said"."""

    namespace: str
    name: str
    requirements: tuple[Requirement, ...] = ()
    protect: bool | None = None
    minimum: Strength | None = None
    on_kubelet_loss: OnKubeletLoss | None = None
    detach: Detach | None = None
    start: bool | None = None
    singleton: bool | None = None
    priority: int | None = None


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What holds now in the cluster. A disarming that has run out is no longer in here.

    ``weakest`` bounds what owners may consent to. ``presume_after`` is never below the floor that
    ``decide/proof.py`` keeps. ``storm_most`` is how many nodes may be down before it counts as a
    storm; None leaves it to their number. ``storm_released`` is why a person has lifted that.
    """

    mode: Mode = Mode.OBSERVE
    disarmed_until: str = ""
    disarmed_because: str = ""
    virtual_machines: bool = True
    stateful_sets: bool = True
    rolled_back: str = ""
    """How it shows that the API went back in time since somebody armed us; empty if it did not."""
    weakest: Strength = Strength.PRESUMED
    presume_block: bool = False
    presume_after: float = 150.0
    on_kubelet_loss: OnKubeletLoss = OnKubeletLoss.LEAVE
    detach: Detach = Detach.ATTACHMENTS
    start: bool = False
    storm_most: int | None = None
    storm_released: str = ""
    storm_pace: int = 60
    """How many workloads may be released in a minute while there is a storm."""
    attempts: int = 3
    cool_down: float = 3600.0
    highest_priority: int = 100
    """Up to which owners may ask to be restarted first."""
    network_fences: bool = False
    """Whether the storage may be told to refuse a silent node."""
    fence_secrets: Mapping[str, str] = {}
    """By driver, where a volume does not tell: ``namespace/name``."""
    power: bool = False
    """Whether a silent node may be switched off."""
    power_on: bool = True
    """Whether one that we have switched off is switched on again when all is done."""
    owners: Mapping[Job, Ownership] = {}
    version: str = ""
    """Of the configuration that says so; empty if there is none."""
    rules: tuple[AvailabilityRule, ...] = ()
    unread: Mapping[str, str] = {}
    """By namespace: why one of its policies is not known, so that nobody knows what its owners
    ask for."""

    def within(self, namespaces: Collection[str]) -> "Policy":
        """The same, without what concerns other namespaces."""
        if not self.rules and not self.unread:
            return self
        return msgspec.structs.replace(
            self,
            rules=tuple(rule for rule in self.rules if rule.namespace in namespaces),
            unread={name: why for name, why in self.unread.items() if name in namespaces},
        )

    def owner_of(self, job: Job) -> Ownership:
        return self.owners.get(job, Ownership.OURS)


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """In seconds. The defaults fit a kubelet that renews its lease every 10 s.

    ``suspect`` and ``lost``: silence of the lease. ``confirmed``: the silence that must be seen
    although something stronger than silence shows the death, a little more than one renewal.
    ``fresh``: how old a view may be that is acted on. ``heartbeat``: how long virt-handler, once
    it has outlived the kubelet, counts as alive after it was last heard of; it beats every 60 to
    132 s. ``answer``: the same for whatever answers at a node's ports. ``presume``: the shortest
    silence from which a death is ever presumed. ``move``: how long a migration away from a dead
    kubelet may take. ``together``: nodes that fell silent so soon after one another did so
    together.
    """

    suspect: float = 22.0
    lost: float = 40.0
    confirmed: float = 12.0
    fresh: float = 10.0
    heartbeat: float = 150.0
    answer: float = 30.0
    presume: float = 150.0
    move: float = 600.0
    together: float = 600.0

    def scaled(self, factor: float) -> "Times":
        return Times(
            **{field: value * factor for field, value in msgspec.structs.asdict(self).items()}
        )
