"""Maintenance: whether a node's drain may go on, and what is told of it.

The first objection is the answer, as everywhere: is it ours to do, is there such a node, does
another maintenance of the node count, is the API what it was, are we armed, may this control-plane
node go? While an objection stands nobody is asked to leave; what is cordoned stays so.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from backstay.model.drain import Blocker, DrainState, Plan
from backstay.model.drain_reasons import DrainReason
from backstay.model.maintenance import BlockerRecord, MaintenanceStatus, Phase, PodName
from backstay.model.moments import time_text
from backstay.model.policy import Job, Mode, Ownership, Policy
from backstay.model.reasons import Why

MOST_TOLD = 100
"""Pods and blockers in one status, which has to fit into the API. The numbers are of all."""

_LONGEST = 900


class ControlPlaneNode(msgspec.Struct, frozen=True):
    """``away`` says how it is missing, in words; empty if it is not."""

    name: str
    away: str = ""


def gate(policy: Policy, node: str) -> Why | None:
    """What people have said against it; None if nothing."""
    owner = policy.owner_of(Job.MAINTENANCE)
    if owner is not Ownership.OURS:
        return DrainReason.MaintenanceNotOurs.because(owner=owner.value)
    if policy.rolled_back:
        because = policy.rolled_back
        return DrainReason.MaintenanceRolledBack.because(node=node, because=because)
    if policy.mode is Mode.DISARMED:
        return DrainReason.MaintenanceDisarmed.because(
            node=node,
            until=policy.disarmed_until,
            because=policy.disarmed_because or "no reason given",
        )
    return None


def is_observing(policy: Policy) -> bool:
    return policy.mode is Mode.OBSERVE


def would(node: str, plan: Plan) -> Why:
    return DrainReason.WouldDrain.because(
        node=node, count=len(plan.leaving), blocked=len(plan.blocked)
    )


def quorum(node: str, others: Sequence[ControlPlaneNode]) -> Why | None:
    """Whether another control-plane node is missing already."""
    for other in others:
        if other.name != node and other.away:
            return DrainReason.ControlPlaneQuorum.because(
                node=node, other=other.name, state=other.away
            )
    return None


def standing(name: str, state: DrainState) -> Why:
    """How far it is, in one sentence."""
    node, pending, most = state.node, len(state.pending), state.most
    if state.held is not None:
        return state.held
    if state.drained:
        return DrainReason.Drained.because(node=node)
    if not state.blockers:
        return DrainReason.Draining.because(node=node, pending=pending, most=most)
    first = state.blockers[0].why.sentence.rstrip(".")
    if not state.pending:
        return DrainReason.NotSafeYet.because(node=node, because=first, name=name)
    return DrainReason.DrainBlocked.because(
        node=node, pending=pending, most=most, blocked=len(state.blockers), because=first, name=name
    )


def news_of(state: DrainState, why: Why) -> Why:
    """What is new about it for whoever is told each change: that one more has left is not."""
    if why.code not in (DrainReason.Draining.name, DrainReason.DrainBlocked.name):
        return why
    first = state.blockers[0].why.sentence if state.blockers else ""
    return Why(why.code, first)


def told(
    before: MaintenanceStatus,
    state: DrainState,
    why: Why,
    *,
    generation: int,
    now: float,
    wall: datetime,
) -> MaintenanceStatus:
    """The status for this state; the time of the last change is whoever writes it to add."""
    pending = state.pending[:MOST_TOLD]
    blocked = bool(state.blockers) or state.held is not None
    return MaintenanceStatus(
        phase=Phase.SUCCEEDED if state.drained else Phase.RUNNING,
        drain_progress=state.progress,
        last_error=_bounded(why.sentence) if blocked else "",
        pending_pods=tuple(pod.name for pod in pending),
        pending_refs=tuple(PodName(pod.namespace, pod.name) for pod in pending),
        total_pods=state.total,
        eviction_pods=state.most,
        code=why.code,
        sentence=_bounded(why.sentence),
        next=why.next,
        blockers=tuple(_record(each, now, wall) for each in state.blockers[:MOST_TOLD]),
        evacuated=state.evacuated or before.evacuated,
        observed_generation=generation,
    )


def waiting(before: MaintenanceStatus, why: Why, *, generation: int) -> MaintenanceStatus:
    """The status while nothing is under way: what was told of pods stays."""
    phase = Phase.SUCCEEDED if before.phase == Phase.SUCCEEDED else Phase.RUNNING
    return msgspec.structs.replace(
        before,
        phase=phase,
        last_error="",
        code=why.code,
        sentence=_bounded(why.sentence),
        next=why.next,
        blockers=(),
        observed_generation=generation,
    )


def foreseen(plan: Plan, *, generation: int, now: float, wall: datetime) -> MaintenanceStatus:
    """The status where nothing is done: what would be in the way."""
    blockers = tuple(Blocker(p.pod.key, p.pod.uid, p.why, now) for p in plan.blocked)
    state = DrainState(
        node=plan.node,
        total=len(plan.planned),
        most=len(plan.leaving),
        pending=tuple(each.pod for each in plan.leaving),
        blockers=blockers,
    )
    status = told(
        MaintenanceStatus(), state, would(plan.node, plan), generation=generation, now=now,
        wall=wall,
    )  # fmt: skip
    return msgspec.structs.replace(status, phase=Phase.RUNNING, last_error="")


def _record(blocker: Blocker, now: float, wall: datetime) -> BlockerRecord:
    since = wall - timedelta(seconds=max(0.0, now - blocker.since))
    return BlockerRecord(
        pod=blocker.pod,
        uid=blocker.uid,
        code=blocker.why.code,
        sentence=_bounded(blocker.why.sentence),
        next=_bounded(blocker.why.next),
        since=time_text(since),
    )


def _bounded(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
