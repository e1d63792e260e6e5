"""Drains: what becomes of each pod of a node, and what an answer to an eviction means.

``plan`` asks of each pod what ``kubectl drain`` asks, in the same order: is it a DaemonSet's, a
static pod, has it data of its own, would anything make another one? What the options do not allow
refuses the whole drain before anything is evicted. Then it foresees what the API will answer: what
KubeVirt does with a guest, and what a disruption budget has left. It is the preflight, and the
executor goes by it; but the API has the last word, and ``answer_of`` says what that word means.

A refusal is not a failure as a rule: KubeVirt refuses to evict a guest that it has begun to move,
and a budget refuses until another pod is ready. Which of these it is stands in the text alone, so
texts are read here, and only here.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import ceil

from backstay.model.drain import (
    Answer,
    BudgetSight,
    DaemonSight,
    DrainOptions,
    Fate,
    GuestSight,
    Plan,
    Planned,
    PodSight,
    Refusal,
    Verdict,
)
from backstay.model.drain_reasons import DrainReason
from backstay.model.moments import moment_of
from backstay.model.reasons import Why

NO_GUESTS: Mapping[str, GuestSight] = {}
NO_DAEMONS: Mapping[str, DaemonSight] = {}

_THERE = DaemonSight(True)

# What is assumed where nobody knows better: how long a guest takes to be moved, how many of one
# node KubeVirt moves at a time, and how long a pod takes to be ready elsewhere.
_A_MIGRATION = 60.0
_MIGRATIONS_AT_ONCE = 2
_TO_BE_READY = 30.0

_LEAVING = {Fate.MIGRATE: 0, Fate.SHUTDOWN: 1, Fate.EVICT: 2}


def plan(
    node: str,
    pods: Iterable[PodSight],
    *,
    options: DrainOptions,
    budgets: Sequence[BudgetSight] = (),
    guests: Mapping[str, GuestSight] = NO_GUESTS,
    daemons: Mapping[str, DaemonSight] = NO_DAEMONS,
    now: datetime | None = None,
) -> Plan:
    """What becomes of each. Guests take longest to leave, and are asked first."""
    here = [pod for pod in pods if pod.node == node]
    launchers = {pod.uid for pod in here if pod.guest and not pod.ended}
    planned = [
        _kept(pod, options, daemons.get(pod.daemon, _THERE), now)
        or _leaving(pod, options, budgets, guests, launchers)
        for pod in here
    ]
    planned.sort(key=lambda each: (_LEAVING.get(each.fate, 3), each.pod.key))
    return Plan(node=node, planned=tuple(planned), seconds=_estimate(planned, budgets))


# What kubectl drain asks


def _kept(
    pod: PodSight, options: DrainOptions, daemon: DaemonSight, now: datetime | None
) -> Planned | None:
    """What the options say of it; None if it is to leave."""
    if _is_overdue(pod, options, now):
        return _skipped(pod, DrainReason.NotWaitedFor.because())
    if pod.daemon and not pod.ended:
        said = _daemon(pod, options, daemon)
        if said is not None:
            return said
    if pod.mirror:
        return _skipped(pod, DrainReason.StaticPod.because())
    if pod.empty_dirs and not pod.ended and not options.delete_emptydir:
        volumes = ", ".join(pod.empty_dirs)
        return _refused(pod, DrainReason.LocalDataRefused.because(volumes=volumes))
    if pod.owner is None and not pod.ended and not options.force:
        return _refused(pod, DrainReason.UnmanagedRefused.because())
    return None


def _is_overdue(pod: PodSight, options: DrainOptions, now: datetime | None) -> bool:
    until = moment_of(pod.terminating) if pod.terminating else None
    if options.skip_wait_after <= 0 or until is None or now is None:
        return False
    return (now - until).total_seconds() > options.skip_wait_after


def _daemon(pod: PodSight, options: DrainOptions, daemon: DaemonSight) -> Planned | None:
    owner = pod.daemon
    if daemon.found is None:
        because = daemon.because.rstrip(".")
        return _refused(pod, DrainReason.DaemonSetUnknown.because(owner=owner, because=because))
    if not daemon.found:
        gone = DrainReason.DaemonSetGone.because(owner=owner)
        return None if options.force else _refused(pod, gone)
    if options.ignore_daemonsets:
        return _skipped(pod, DrainReason.DaemonSetPod.because(owner=owner))
    return _refused(pod, DrainReason.DaemonSetRefused.because(owner=owner))


def _skipped(pod: PodSight, why: Why) -> Planned:
    return Planned(pod=pod, fate=Fate.SKIP, why=why)


def _refused(pod: PodSight, why: Why) -> Planned:
    return Planned(pod=pod, fate=Fate.BLOCKED, why=why, refused=True)


# What the API will answer


def _leaving(
    pod: PodSight,
    options: DrainOptions,
    budgets: Sequence[BudgetSight],
    guests: Mapping[str, GuestSight],
    launchers: set[str],
) -> Planned:
    if pod.terminating:
        return Planned(pod=pod, fate=Fate.GONE, why=DrainReason.LeavesAlready.because())
    if pod.plugs and not pod.ended and pod.owner is not None and pod.owner[3] in launchers:
        return Planned(pod=pod, fate=Fate.MIGRATE, why=DrainReason.GoesWithItsGuest.because())
    guest = guests.get(pod.guest) if pod.guest and not pod.ended else None
    moved = None if guest is None else _guest(pod, guest, options)
    if moved is not None and moved.fate is not Fate.SHUTDOWN:
        return moved
    return _budgeted(pod, options, budgets, moved)


def _guest(pod: PodSight, guest: GuestSight, options: DrainOptions) -> Planned:
    """What KubeVirt does with the guest of a launcher that is to go."""
    restarted = DrainReason.WillBeRestarted.because(guest=guest.key)
    stopped = Planned(pod=pod, fate=Fate.SHUTDOWN, why=restarted, asked=True)
    if options.disable_eviction:
        return stopped
    if guest.strategy in ("LiveMigrate", "LiveMigrateIfPossible") and not guest.migratable:
        if guest.strategy == "LiveMigrateIfPossible":
            return stopped
        why = _immovable(guest.key, guest, pod.node)
        return Planned(pod=pod, fate=Fate.BLOCKED, why=why, asked=True)
    if guest.strategy not in ("LiveMigrate", "LiveMigrateIfPossible", "External"):
        return stopped
    if guest.node and guest.node != pod.node:
        why = DrainReason.IncomingMigration.because(guest=guest.key, node=pod.node)
    elif guest.strategy == "External":
        why = DrainReason.WillBeMovedByOthers.because(guest=guest.key)
    else:
        why = DrainReason.WillBeMigrated.because(guest=guest.key)
    return Planned(pod=pod, fate=Fate.MIGRATE, why=why, asked=True)


def _budgeted(
    pod: PodSight, options: DrainOptions, budgets: Sequence[BudgetSight], moved: Planned | None
) -> Planned:
    fate = Fate.EVICT if moved is None else moved.fate
    why = DrainReason.WillBeEvicted.because() if moved is None else moved.why
    if options.disable_eviction or pod.ended or pod.phase == "Pending":
        return Planned(pod=pod, fate=fate, why=why, asked=True)
    asking = [each for each in budgets if each.selects(pod)]
    if len(asking) > 1:
        why = _two_budgets(pod, asking)
        return Planned(pod=pod, fate=Fate.BLOCKED, why=why, asked=True)
    budget = asking[0] if asking else None
    if budget is not None and not budget.lets_go(pod):
        fate, why = Fate.BLOCKED, exhausted(pod, budget)
    key = "" if budget is None else budget.key
    return Planned(pod=pod, fate=fate, why=why, asked=True, budget=key)


def exhausted(pod: PodSight, budget: BudgetSight) -> Why:
    """Why this budget does not let it go."""
    about = {"pod": pod.key, "budget": budget.key, **_parts(budget.key)}
    if not budget.counted:
        return DrainReason.BudgetUncounted.because(**about)
    # In the words of the API, which may be asked later.
    because = f"needs {budget.desired} healthy pods and has {budget.healthy} currently"
    return DrainReason.BudgetExhausted.because(because=because, **about)


def _two_budgets(pod: PodSight, budgets: Sequence[BudgetSight]) -> Why:
    names = ", ".join(sorted(each.key for each in budgets)) or "they are not known"
    return DrainReason.TwoBudgets.because(pod=pod.key, budgets=names, namespace=pod.namespace)


def _immovable(key: str, guest: GuestSight | None, node: str) -> Why:
    said = "" if guest is None else guest.immovable.rstrip(".")
    because = f" ({said})" if said else ""
    return DrainReason.NotLiveMigratable.because(
        guest=key, node=node, because=because, **_parts(key)
    )


def _parts(key: str) -> dict[str, str]:
    namespace, _, name = key.partition("/")
    return {"namespace": namespace, "name": name}


def _estimate(planned: Sequence[Planned], budgets: Sequence[BudgetSight]) -> float:
    """Guests move a few at a time; what shares a budget goes as many at a time as that allows, each
    when the one before it is ready elsewhere; everything else goes at once."""
    moving = sum(each.fate is Fate.MIGRATE and each.asked for each in planned)
    longest = ceil(moving / _MIGRATIONS_AT_ONCE) * _A_MIGRATION
    groups: dict[str, list[Planned]] = {}
    for each in planned:
        if each.fate in (Fate.EVICT, Fate.SHUTDOWN, Fate.GONE) or each.budget:
            groups.setdefault(each.budget, []).append(each)
    allowed = {budget.key: max(1, budget.allowed) for budget in budgets}
    for key, members in groups.items():
        grace = max(float(each.pod.grace) for each in members)
        rounds = ceil(len(members) / allowed.get(key, 1)) if key else 1
        longest = max(longest, rounds * grace + (rounds - 1) * _TO_BE_READY)
    return longest


# What the API has answered

_BUDGET = re.compile(r"The disruption budget (\S+)\s+(.*)", re.DOTALL)
_DENIED = re.compile(r'admission webhook "([^"]+)" denied the request: ?(.*)', re.DOTALL)
_KUBEVIRT = ".kubevirt.io"
_OF_KUBEVIRT = ("kubevirt-disruption-budget-", "kubevirt-migration-pdb-")

_SOON = 5.0
_LATER = 30.0
_SELDOM = 60.0


def answer_of(
    error: Refusal,
    pod: PodSight,
    *,
    budgets: Sequence[BudgetSight] = (),
    guest: GuestSight | None = None,
) -> Answer:
    """What it means that this pod was not evicted."""
    match error.status:
        case 404:
            return Answer(Verdict.GONE)
        case 409:
            # Another pod has its name by now; the watch tells. Other conflicts pass.
            verdict = Verdict.GONE if "UID in the precondition" in error.message else Verdict.LATER
            return Answer(verdict, _unanswered(error, pod), _SOON)
        case 429:
            return _too_many(error, pod, guest)
        case 403:
            return _forbidden(error, pod)
        case 500 if "more than one PodDisruptionBudget" in error.message:
            asking = [each for each in budgets if each.selects(pod)]
            return Answer(Verdict.STUCK, _two_budgets(pod, asking), _SELDOM)
        case status if 400 <= status < 500:
            return Answer(Verdict.STUCK, _denied(error.message, pod), _LATER)
    return Answer(Verdict.LATER, _unanswered(error, pod), _SOON)


def _too_many(error: Refusal, pod: PodSight, guest: GuestSight | None) -> Answer:
    for reason, message in error.causes:
        found = _BUDGET.search(message) if reason == "DisruptionBudget" else None
        if found is not None:
            return _by_budget(found[1], found[2], error, pod)
    found = _DENIED.search(error.message)
    if found is not None and found[1].endswith(_KUBEVIRT):
        return _by_kubevirt(found[2], pod, guest)
    if found is not None:
        return Answer(Verdict.STUCK, _denied(error.message, pod), _LATER)
    again = max(_SOON, error.retry_after or 0.0)
    return Answer(Verdict.LATER, _unanswered(error, pod), again)


def _by_budget(name: str, said: str, error: Refusal, pod: PodSight) -> Answer:
    # Former versions of KubeVirt protect a guest by a budget of its own while it is moved.
    if pod.guest and name.startswith(_OF_KUBEVIRT):
        return Answer(Verdict.MOVING)
    budget = f"{pod.namespace}/{name}"
    about = {"pod": pod.key, "budget": budget, **_parts(budget)}
    if "still being processed" in said:
        why = DrainReason.BudgetUncounted.because(**about)
    else:
        why = DrainReason.BudgetExhausted.because(because=_sentence(said), **about)
    return Answer(Verdict.BUDGET, why, max(_LATER, error.retry_after or 0.0), budget)


def _by_kubevirt(said: str, pod: PodSight, guest: GuestSight | None) -> Answer:
    if said.startswith("Evacuation in progress"):
        return Answer(Verdict.MOVING)
    if said.startswith("Eviction triggered evacuation"):
        return Answer(Verdict.MOVING, caused=True)
    if "not live-migratable" in said:
        key = pod.guest or pod.key
        return Answer(Verdict.STUCK, _immovable(key, guest, pod.node), _LATER)
    if "target Pod" in said or "cannot evict hotplug pod" in said:
        return Answer(Verdict.MOVING)
    return Answer(Verdict.STUCK, _denied(said, pod), _LATER)


def _forbidden(error: Refusal, pod: PodSight) -> Answer:
    if any(reason == "NamespaceTerminating" for reason, _ in error.causes):
        why = DrainReason.NamespaceGoing.because(pod=pod.key, namespace=pod.namespace)
        return Answer(Verdict.STUCK, why, _SOON)
    about = {"pod": pod.key, "namespace": pod.namespace}
    why = DrainReason.EvictionForbidden.because(because=_sentence(error.message), **about)
    return Answer(Verdict.STUCK, why, _LATER)


def _denied(said: str, pod: PodSight) -> Why:
    return DrainReason.EvictionDenied.because(
        pod=pod.key, name=pod.name, namespace=pod.namespace, because=_sentence(said)
    )


def _unanswered(error: Refusal, pod: PodSight) -> Why:
    return DrainReason.EvictionUnanswered.because(pod=pod.key, because=_sentence(error.message))


_LONGEST = 300


def _sentence(said: str) -> str:
    """As a part of one of ours: others may write at any length."""
    text = " ".join(said.split()).rstrip(".")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
