"""Drains: what is known of a node's pods before they are asked to leave, and what is planned.

All of it is values. A ``Plan`` says of each pod what becomes of it and why; it is the preflight and
the dry run, and what the executor goes by. What the API answers to an eviction is the last word,
and is told in the same reasons (``drain_reasons.py``).
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from backstay.model.policy import Requirement
from backstay.model.reasons import Why

ENDED = ("Succeeded", "Failed")

LAUNCHER_KIND = ("kubevirt.io", "VirtualMachineInstance")
DAEMON_KIND = ("apps", "DaemonSet")


class DrainOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What ``kubectl drain`` can be told, with its defaults.

    ``grace`` below zero leaves each pod its own. ``timeout`` is for the whole node, and none is 0.
    ``skip_wait_after``: who has been Terminating for longer than so many seconds beyond its grace
    is not waited for; 0 waits for everybody.
    """

    force: bool = False
    ignore_daemonsets: bool = False
    delete_emptydir: bool = False
    grace: int = -1
    timeout: float = 0.0
    pod_selector: str = ""
    disable_eviction: bool = False
    skip_wait_after: float = 0.0


MAINTENANCE_OPTIONS = DrainOptions(force=True, ignore_daemonsets=True, delete_emptydir=True)
"""Those of the Node Maintenance Operator, but for its end after 30 s: a drain goes on for as long
as its maintenance."""


class PodSight(msgspec.Struct, frozen=True, kw_only=True):
    """One pod of the node. ``owner`` is what controls it: group, kind, name and uid, or nothing.

    ``terminating`` is until when it has time to end, as the API says it; empty if it was not told
    to. ``plugs`` says that it holds volumes that were plugged into the guest of its owner.
    """

    key: str
    uid: str
    version: str
    namespace: str
    name: str
    node: str
    phase: str = ""
    ready: bool = False
    terminating: str = ""
    grace: int = 30
    labels: Mapping[str, str] = {}
    owner: tuple[str, str, str, str] | None = None
    mirror: bool = False
    empty_dirs: tuple[str, ...] = ()
    plugs: bool = False
    finalizers: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        return self.phase in ENDED

    @property
    def guest(self) -> str:
        """The key of the guest whose launcher this is; empty if it is none."""
        if self.owner is None or self.owner[:2] != LAUNCHER_KIND:
            return ""
        return f"{self.namespace}/{self.owner[2]}"

    @property
    def daemon(self) -> str:
        """The key of the DaemonSet that it belongs to, if it does to one."""
        if self.owner is None or self.owner[:2] != DAEMON_KIND:
            return ""
        return f"{self.namespace}/{self.owner[2]}"


class BudgetSight(msgspec.Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget. ``selector`` is None where it selects nothing. ``counted`` says that
    its numbers are about what it asks for now."""

    key: str
    uid: str
    version: str
    namespace: str
    selector: tuple[Requirement, ...] | None = None
    allowed: int = 0
    healthy: int = 0
    desired: int = 0
    counted: bool = True
    unhealthy_may_go: bool = False

    def selects(self, pod: PodSight) -> bool:
        if self.selector is None or self.namespace != pod.namespace:
            return False
        return all(each.holds(pod.labels) for each in self.selector)

    def lets_go(self, pod: PodSight) -> bool:
        """Whether an eviction would be granted, as far as its numbers say."""
        if pod.ended or pod.phase == "Pending" or pod.terminating:
            return True
        if not pod.ready and (
            self.unhealthy_may_go or (self.desired > 0 and self.healthy >= self.desired)
        ):
            return True
        return self.counted and self.allowed > 0


class GuestSight(msgspec.Struct, frozen=True, kw_only=True):
    """A VirtualMachineInstance. ``strategy`` is what it says itself about evictions, or what its
    cluster says for all. ``evacuating`` is the node that it was asked to leave."""

    key: str
    uid: str
    version: str
    node: str
    phase: str = ""
    strategy: str = ""
    migratable: bool | None = None
    immovable: str = ""
    evacuating: str = ""


class DaemonSight(msgspec.Struct, frozen=True):
    """Whether a DaemonSet is there; None if that is not known, ``because`` of what."""

    found: bool | None
    because: str = ""


class Fate(StrEnum):
    """What becomes of a pod."""

    EVICT = "Evict"
    MIGRATE = "Migrate"
    """Its guest is moved while it runs."""
    SHUTDOWN = "Shutdown"
    """Its guest is stopped, and started elsewhere."""
    SKIP = "Skip"
    BLOCKED = "Blocked"
    GONE = "Gone"
    """It has been told to go already."""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One pod's part. ``refused`` says that the options forbid it: nothing is evicted then, as with
    ``kubectl drain``. ``asked`` says whether the drain itself asks for it to go."""

    pod: PodSight
    fate: Fate
    why: Why
    refused: bool = False
    asked: bool = False
    budget: str = ""
    """The key of the one that has a say."""

    @property
    def stays(self) -> bool:
        return self.fate is Fate.SKIP


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of each pod of a node, in the order in which they are asked to leave."""

    node: str
    planned: tuple[Planned, ...] = ()
    seconds: float = 0.0
    """How long it takes, roughly, if nothing is in its way; see ``decide/drain.py``."""

    def of(self, *fates: Fate) -> tuple[Planned, ...]:
        return tuple(each for each in self.planned if each.fate in fates)

    @property
    def leaving(self) -> tuple[Planned, ...]:
        return tuple(each for each in self.planned if not each.stays)

    @property
    def refused(self) -> tuple[Planned, ...]:
        return tuple(each for each in self.planned if each.refused)

    @property
    def blocked(self) -> tuple[Planned, ...]:
        return self.of(Fate.BLOCKED)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """What the API said to an eviction that it did not grant. ``causes`` are reason and message of
    each."""

    status: int
    reason: str = ""
    message: str = ""
    causes: tuple[tuple[str, str], ...] = ()
    retry_after: float | None = None


class Verdict(StrEnum):
    """What such an answer means."""

    GONE = "Gone"
    """There is no such pod any more."""
    MOVING = "Moving"
    """KubeVirt moves the guest, or waits until it has come."""
    BUDGET = "Budget"
    STUCK = "Stuck"
    """Nothing but a change that somebody makes can help."""
    LATER = "Later"
    """It may go as it is, a little later."""


class Answer(msgspec.Struct, frozen=True):
    """``again`` is after how many seconds it is asked once more, if nothing happens before."""

    verdict: Verdict
    why: Why | None = None
    again: float = 30.0
    budget: str = ""
    caused: bool = False
    """KubeVirt has begun to move the guest on account of this very request."""


class Blocker(msgspec.Struct, frozen=True):
    """What is in the way of one pod, or of the whole node, since a moment on the loop's clock."""

    pod: str
    uid: str
    why: Why
    since: float


class DrainState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a drain has come.

    ``total`` are all pods of the node, ``most`` the most that had to leave at a time plus those
    that have, ``pending`` those that still have to. ``evacuated`` are the guests that were asked
    to leave by this drain. ``held`` says why nobody is asked to leave at present.
    """

    node: str
    total: int = 0
    most: int = 0
    pending: tuple[PodSight, ...] = ()
    moving: tuple[str, ...] = ()
    """Those of the pending whose guests are on their way."""
    blockers: tuple[Blocker, ...] = ()
    evacuated: tuple[str, ...] = ()
    held: Why | None = None
    refused: bool = False
    """The options forbid it, and nobody was asked to leave."""
    drained: bool = False
    plan: Plan | None = None

    @property
    def progress(self) -> int:
        """In percent, and never below zero."""
        if self.drained:
            return 100
        if self.most <= 0:
            return 0
        return max(0, min(99, (self.most - len(self.pending)) * 100 // self.most))
