"""Failover: what to do with each workload of a node that may be dead.

``decide`` asks a chain of small checks about every workload, in order; the first that objects
gives the reason. Whatever passes them all may be taken from the node, and only through the
barrier and a proof that was observed after it (``control/guard.py``).

The chain is a value: whoever builds a controller hands it in, so that a test can take one check
out and see what goes wrong without it.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from backstay.decide import life as lives
from backstay.model.evidence import Confirmation, Evidence, EvidenceKind
from backstay.model.node import Life, NodeFacts, NodeLife
from backstay.model.policy import Mode, Policy, Times
from backstay.model.reasons import Reason, Why
from backstay.model.workload import Workload, WorkloadKind


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that a decision about one node rests on. ``view_age`` is that of the oldest part."""

    facts: NodeFacts
    life: NodeLife
    policy: Policy
    workloads: tuple[Workload, ...] = ()
    confirmations: tuple[Confirmation, ...] = ()
    view_age: float = 0.0


class Action(StrEnum):
    LEAVE = "Leave"
    """It is none of our business, or needs nothing."""
    HOLD = "Hold"
    """It is down and we would help, but something stands in the way."""
    RELEASE = "Release"
    """Take it from the node, through barrier and proof."""


class Verdict(msgspec.Struct, frozen=True):
    """What to do with one workload, and why."""

    workload: Workload
    action: Action
    why: Why


class Decision(msgspec.Struct, frozen=True):
    """For a whole node. ``evidence`` is what a release would rest on."""

    node: str
    why: Why
    verdicts: tuple[Verdict, ...] = ()
    evidence: Evidence | None = None

    @property
    def held(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.action is Action.HOLD)

    @property
    def releases(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.action is Action.RELEASE)


class Case(msgspec.Struct, frozen=True):
    """One workload in its snapshot: what a check is asked about."""

    snapshot: Snapshot
    workload: Workload
    evidence: Evidence | None
    times: Times


class Objection(msgspec.Struct, frozen=True):
    """``action`` is LEAVE or HOLD."""

    action: Action
    why: Why


class Answer(msgspec.Struct, frozen=True):
    """What one check said. Without an objection it let the workload pass."""

    check: str
    objection: Objection | None


class Check(Protocol):
    """A function whose name is the question that it answers."""

    @property
    def __name__(self) -> str: ...

    def __call__(self, case: Case, /) -> Objection | None: ...


def decide(snapshot: Snapshot, now: float, *, times: Times, chain: Sequence[Check]) -> Decision:
    """See the module."""
    evidence = sufficient(snapshot, now, times=times)
    verdicts = tuple(
        _judge(Case(snapshot, workload, evidence, times), chain)
        for workload in sorted(snapshot.workloads, key=lambda w: (-w.priority, w.key))
    )
    why = refuted(snapshot) or snapshot.life.why
    return Decision(snapshot.facts.name, why, verdicts, evidence)


def examine(
    snapshot: Snapshot, workload: Workload, now: float, *, times: Times, chain: Sequence[Check]
) -> tuple[Answer, ...]:
    """What every check says about one workload, also after one has objected: the first objection
    decides, and the others are what comes next once that is settled."""
    case = Case(snapshot, workload, sufficient(snapshot, now, times=times), times)
    return tuple(_answers(case, chain))


def _answers(case: Case, chain: Sequence[Check]) -> Iterator[Answer]:
    for check in chain:
        yield Answer(check.__name__, check(case))


def sufficient(snapshot: Snapshot, now: float, *, times: Times) -> Evidence | None:
    """What covers this boot of the node, unless life has refuted it."""
    facts, life = snapshot.facts, snapshot.life
    if lives.shows_life(life, facts) or lives.guests_alive(life, facts, times):
        return None
    for confirmation in snapshot.confirmations:
        if counts(confirmation, facts):
            return Evidence(
                kind=EvidenceKind.OPERATOR_CONFIRMED,
                node=facts.name,
                node_uid=facts.uid,
                boot_id=facts.boot_id,
                source=confirmation.by,
                detail=confirmation.reason,
                observed_at=now,
            )
    return None


def counts(confirmation: Confirmation, facts: NodeFacts) -> bool:
    """Whether it is about this boot, and nothing of the node was heard since it was given."""
    return void(confirmation, facts) is None


def is_about(confirmation: Confirmation, facts: NodeFacts) -> bool:
    """Whether it speaks of this very boot."""
    return (confirmation.node_uid, confirmation.boot_id) == (facts.uid, facts.boot_id)


def void(confirmation: Confirmation, facts: NodeFacts) -> str | None:
    """Why a confirmation does not count, in words."""
    if not is_about(confirmation, facts):
        return "it was given for another boot of the node"
    if _sign_after(confirmation, facts) is not None:
        return "the node has shown life since"
    if confirmation.last_renewal != facts.renewal:
        return "the node's lease was renewed after it was given"
    if confirmation.last_heartbeat != facts.heartbeat:
        return "the node's virt-handler sent a heartbeat after it was given"
    return None


def refuted(snapshot: Snapshot) -> Why | None:
    """That a confirmation of this boot is contradicted by a sign of life, if it is."""
    facts = snapshot.facts
    for confirmation in snapshot.confirmations:
        sign = _sign_after(confirmation, facts)
        if sign is not None and is_about(confirmation, facts):
            return Reason.EvidenceContradicted.because(node=facts.name, sign=sign)
    return None


def _sign_after(confirmation: Confirmation, facts: NodeFacts) -> str | None:
    """A sign of life that came after the confirmation.

    We hear of a confirmation at once and of a renewal with the next look at the leases, so what
    we saw later may be older. Where the confirmation names it as the last one, it is.
    """
    moment = confirmation.seen_at
    known = confirmation.last_renewal and confirmation.last_renewal == facts.renewal
    if facts.lease_changed_at is not None and facts.lease_changed_at > moment and not known:
        return "its kubelet renewed its lease"
    known = confirmation.last_heartbeat and confirmation.last_heartbeat == facts.heartbeat
    if facts.heartbeat_changed_at is not None and facts.heartbeat_changed_at > moment and not known:
        return "its virt-handler sent a heartbeat"
    return None


def _judge(case: Case, chain: Sequence[Check]) -> Verdict:
    for answer in _answers(case, chain):
        if answer.objection is not None:
            return Verdict(case.workload, answer.objection.action, answer.objection.why)
    why = Reason.MayBeReleased.because(workload=case.workload, node=case.snapshot.facts.name)
    return Verdict(case.workload, Action.RELEASE, why)


# The checks, each the answer to one question


def is_node_down(case: Case) -> Objection | None:
    life = case.snapshot.life
    if life.state in (Life.LOST, Life.PROVEN, Life.RECOVERED):
        return None
    return Objection(Action.LEAVE, life.why)


def has_it_ended(case: Case) -> Objection | None:
    if not case.workload.ended:
        return None
    return Objection(Action.LEAVE, Reason.AlreadyEnded.because(workload=case.workload))


def does_it_run_elsewhere(case: Case) -> Objection | None:
    workload, node = case.workload, case.snapshot.facts.name
    if not workload.runs_on:
        return None
    why = Reason.RunsElsewhere.because(workload=workload, target=workload.runs_on, node=node)
    return Objection(Action.LEAVE, why)


def is_it_known(case: Case) -> Objection | None:
    """Before the question of protection, to which there is no answer without it."""
    workload = case.workload
    if not workload.unread:
        return None
    why = Reason.LookupFailed.because(workload=workload, because=workload.unread.rstrip("."))
    return Objection(Action.HOLD, why)


def is_it_protected(case: Case) -> Objection | None:
    workload, policy = case.workload, case.snapshot.policy
    because = _why_unprotected(workload, policy)
    if because is None:
        return None
    kind = "pod" if workload.kind is not WorkloadKind.VIRTUAL_MACHINE else "vm"
    thing = f"{kind} {workload.name} -n {workload.namespace}"
    why = Reason.NotProtected.because(workload=workload, because=because, object=thing)
    return Objection(Action.LEAVE, why)


def _why_unprotected(workload: Workload, policy: Policy) -> str | None:
    if workload.label is False:
        return "its label backstay.dev/protect says so"
    if not workload.restarts and workload.label is None:
        return "nobody would create it anew"
    if workload.label is True:
        return None
    if workload.kind is WorkloadKind.OTHER:
        return "it is neither a virtual machine nor a StatefulSet's"
    wanted = {
        WorkloadKind.VIRTUAL_MACHINE: policy.virtual_machines,
        WorkloadKind.INSTANCE: policy.virtual_machines,
        WorkloadKind.STATEFUL_SET: policy.stateful_sets,
    }
    return None if wanted[workload.kind] else "the configuration leaves its kind out"


def is_node_exempt(case: Case) -> Objection | None:
    facts = case.snapshot.facts
    if not facts.exempt:
        return None
    return Objection(Action.LEAVE, Reason.Exempt.because(node=facts.name))


def can_it_run_elsewhere(case: Case) -> Objection | None:
    workload = case.workload
    because = workload.pinned_by or _bound_volumes(workload)
    if not because:
        return None
    why = Reason.CannotRunElsewhere.because(workload=workload, because=because)
    return Objection(Action.HOLD, why)


def _bound_volumes(workload: Workload) -> str:
    bound = [volume.claim for volume in workload.volumes if volume.only_on]
    return f"its volume {bound[0]} is on a disk of {workload.node}" if bound else ""


def is_view_fresh(case: Case) -> Objection | None:
    age = case.snapshot.view_age
    if age <= case.times.fresh:
        return None
    deaf = "most other nodes are silent too, or were never heard of"
    because = deaf if age == float("inf") else f"it is {round(age)} s old"
    return Objection(Action.HOLD, Reason.StaleView.because(because=because))


def is_evidence_contradicted(case: Case) -> Objection | None:
    why = refuted(case.snapshot)
    return None if why is None else Objection(Action.HOLD, why)


def is_guest_alive(case: Case) -> Objection | None:
    snapshot = case.snapshot
    if not lives.guests_alive(snapshot.life, snapshot.facts, case.times):
        return None
    why = Reason.GuestAliveKubeletDead.because(node=snapshot.facts.name, workload=case.workload)
    return Objection(Action.HOLD, why)


def is_it_proven(case: Case) -> Objection | None:
    if case.evidence is not None:
        return None
    workload, facts = case.workload, case.snapshot.facts
    for confirmation in case.snapshot.confirmations:
        because = void(confirmation, facts)
        if because is not None and is_about(confirmation, facts):
            why = Reason.ConfirmationRefused.because(node=facts.name, because=because)
            return Objection(Action.HOLD, why)
    why = Reason.ProofMissing.because(workload=workload, node=facts.name, risk=_risk(workload))
    return Objection(Action.HOLD, why)


def _risk(workload: Workload) -> str:
    claims = [volume.claim for volume in workload.volumes]
    return f"write to {', '.join(claims)}" if claims else "be running there"


def may_we_act(case: Case) -> Objection | None:
    """Last, so that everything above is said in observation too."""
    policy = case.snapshot.policy
    if policy.mode is Mode.ARMED:
        return None
    if policy.mode is Mode.OBSERVE:
        return Objection(Action.HOLD, Reason.Observing.because(workload=case.workload))
    why = Reason.Disarmed.because(until=policy.disarmed_until, because=policy.disarmed_because)
    return Objection(Action.HOLD, why)


CHAIN: tuple[Check, ...] = (
    is_node_down,
    has_it_ended,
    does_it_run_elsewhere,
    is_it_known,
    is_it_protected,
    is_node_exempt,
    can_it_run_elsewhere,
    is_view_fresh,
    is_evidence_contradicted,
    is_guest_alive,
    is_it_proven,
    may_we_act,
)
