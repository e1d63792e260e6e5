"""Failover: what to do with each workload of a node that may be dead.

``decide`` asks a chain of small checks about every workload, in order; the first that objects
gives the reason. Whatever passes them all may be taken from the node, and only through the
barrier and a proof that was observed after it (``control/guard.py``).

The chain is a value: whoever builds a controller hands it in, so that a test can take one check
out and see what goes wrong without it.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from backstay.decide import life as lives
from backstay.decide import proof
from backstay.decide.policy import terms_of
from backstay.decide.rescue import Rescue, Way, move_of, rescue
from backstay.decide.storm import Fleet, is_storm, most_down
from backstay.model.evidence import Confirmation, Evidence, Scope, Strength, Testimony
from backstay.model.node import Life, NodeFacts, NodeLife
from backstay.model.policy import Detach, Job, Mode, Ownership, Policy, Terms, Times
from backstay.model.reasons import Reason, Why
from backstay.model.workload import Workload, WorkloadKind


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that a decision about one node rests on. ``view_age`` is that of the oldest part.

    ``confirmations`` are what people said of the node, ``testimony`` what everything else shows.
    ``attempts`` says how often each workload (by its key) was failed over of late.
    """

    facts: NodeFacts
    life: NodeLife
    policy: Policy
    workloads: tuple[Workload, ...] = ()
    confirmations: tuple[Confirmation, ...] = ()
    testimony: Testimony = Testimony()
    fleet: Fleet = Fleet()
    attempts: Mapping[str, int] = {}
    view_age: float = 0.0

    @property
    def heard(self) -> proof.Heard:
        return proof.Heard(
            facts=self.facts,
            life=self.life,
            policy=self.policy,
            confirmations=self.confirmations,
            testimony=self.testimony,
            volumes=tuple(v for workload in self.workloads for v in workload.volumes),
        )


class Action(StrEnum):
    LEAVE = "Leave"
    """It is none of our business, or needs nothing."""
    HOLD = "Hold"
    """It is down and we would help, but something stands in the way."""
    RELEASE = "Release"
    """Take it from the node, through barrier and proof."""
    MIGRATE = "Migrate"
    """Its kubelet is dead and it is not: have KubeVirt move it while it runs."""
    STOP = "Stop"
    """The same, where it cannot be moved: have virt-handler shut it down."""


class Verdict(msgspec.Struct, frozen=True):
    """What to do with one workload, and why. ``evidence`` is what a release would rest on, and
    ``detach`` how its volumes are freed once it is released, now or later."""

    workload: Workload
    action: Action
    why: Why
    evidence: Evidence | None = None
    detach: Detach = Detach.LEAVE


class Decision(msgspec.Struct, frozen=True):
    """For a whole node. ``evidence`` is all that counts, the strongest first, whether or not it
    is enough for anything."""

    node: str
    why: Why
    verdicts: tuple[Verdict, ...] = ()
    evidence: tuple[Evidence, ...] = ()

    @property
    def held(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.action is Action.HOLD)

    @property
    def rescues(self) -> tuple[Verdict, ...]:
        """What KubeVirt is to be asked to move away from a dead kubelet."""
        return tuple(v for v in self.verdicts if v.action in (Action.MIGRATE, Action.STOP))

    @property
    def leaves_all(self) -> bool:
        """Whether it asks for nothing, and holds nothing up."""
        return all(verdict.action is Action.LEAVE for verdict in self.verdicts)

    @property
    def releases(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.action is Action.RELEASE)


class Case(msgspec.Struct, frozen=True):
    """One workload in its snapshot: what a check is asked about.

    ``proofs`` is all that counts, ``evidence`` that which is enough for this workload on its
    ``terms``. ``rescue`` is what is done for it if it is alive and only its kubelet is not.
    """

    snapshot: Snapshot
    heard: proof.Heard
    workload: Workload
    terms: Terms
    proofs: tuple[Evidence, ...]
    evidence: Evidence | None
    now: float
    times: Times
    ahead: int = 0
    """How many others are released before it by the same decision."""
    rescue: Rescue | None = None


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
    heard = snapshot.heard
    found = proof.proofs(heard, now, times=times)
    cases = [_case(snapshot, heard, workload, found, now, times) for workload in snapshot.workloads]
    verdicts: list[Verdict] = []
    ahead = 0
    for case in sorted(cases, key=_turn):
        verdict = _judge(msgspec.structs.replace(case, ahead=ahead) if ahead else case, chain)
        ahead += verdict.action is Action.RELEASE
        verdicts.append(verdict)
    proven = any(each.kind.scope is Scope.NODE for each in found)
    why = snapshot.life.why if proven else proof.refuted(heard) or snapshot.life.why
    return Decision(snapshot.facts.name, why, tuple(verdicts), found)


def examine(
    snapshot: Snapshot, workload: Workload, now: float, *, times: Times, chain: Sequence[Check]
) -> tuple[Answer, ...]:
    """What every check says about one workload, also after one has objected: the first objection
    decides, and the others are what comes next once that is settled."""
    heard = snapshot.heard
    found = proof.proofs(heard, now, times=times)
    case = _case(snapshot, heard, workload, found, now, times)
    return tuple(Answer(check.__name__, check(case)) for check in chain)


def _case(
    snapshot: Snapshot,
    heard: proof.Heard,
    workload: Workload,
    found: tuple[Evidence, ...],
    now: float,
    times: Times,
) -> Case:
    terms = terms_of(workload, snapshot.policy)
    enough = proof.best(found, workload, terms)
    case = Case(snapshot, heard, workload, terms, found, enough, now, times)
    if not _lives_on(case):
        return case
    way = rescue(workload, terms, snapshot.testimony, now, times=times)
    return msgspec.structs.replace(case, rescue=way)


def _turn(case: Case) -> tuple[bool, int, str]:
    """Who is more important comes first, and last whom nobody waits for."""
    workload, asked = case.workload, case.terms.priority
    return workload.leaving, -(workload.priority if asked is None else asked), workload.key


def _judge(case: Case, chain: Sequence[Check]) -> Verdict:
    for check in chain:
        objection = check(case)
        if objection is not None:
            action, why = objection.action, objection.why
            return Verdict(case.workload, action, why, detach=case.terms.detach)
    if case.rescue is not None:
        return Verdict(case.workload, _DEEDS[case.rescue.way], case.rescue.why)
    why = Reason.MayBeReleased.because(workload=case.workload, node=case.snapshot.facts.name)
    return Verdict(case.workload, Action.RELEASE, why, case.evidence, case.terms.detach)


_DEEDS = {Way.MIGRATE: Action.MIGRATE, Way.STOP: Action.STOP, Way.WAIT: Action.HOLD}


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
    move = move_of(workload, case.snapshot.testimony)
    if move is not None and move.succeeded:
        why = Reason.Migrated.because(workload=workload, target=move.target or "another node")
        return Objection(Action.LEAVE, why)
    if not workload.runs_on or _is_dead(case):
        return None
    why = Reason.RunsElsewhere.because(workload=workload, target=workload.runs_on, node=node)
    return Objection(Action.LEAVE, why)


def _is_dead(case: Case) -> bool:
    """What is left of a migration on a dead node is in its way: KubeVirt waits for that pod, and no
    kubelet will ever clear it away."""
    return case.evidence is not None and case.evidence.kind.scope is Scope.NODE


def is_it_known(case: Case) -> Objection | None:
    """Before the question of protection, to which there is no answer without it."""
    workload = case.workload
    if not workload.unread:
        return None
    why = Reason.LookupFailed.because(workload=workload, because=workload.unread.rstrip("."))
    return Objection(Action.HOLD, why)


def is_its_policy_known(case: Case) -> Objection | None:
    workload = case.workload
    because = case.snapshot.policy.unread.get(workload.namespace)
    if because is None:
        return None
    why = Reason.PolicyUnreadable.because(workload=workload, because=because)
    return Objection(Action.HOLD, why)


def is_it_protected(case: Case) -> Objection | None:
    workload = case.workload
    because = _why_unprotected(case)
    if because is None:
        return None
    kind = "pod" if workload.kind is not WorkloadKind.VIRTUAL_MACHINE else "vm"
    thing = f"{kind} {workload.name} -n {workload.namespace}"
    why = Reason.NotProtected.because(workload=workload, because=because, object=thing)
    return Objection(Action.LEAVE, why)


def _why_unprotected(case: Case) -> str | None:
    workload, policy, protect = case.workload, case.snapshot.policy, case.terms.protect
    if protect is False:
        return f"{case.terms.origins.get('protect', 'its owner')} says so"
    if not workload.restarts and not workload.leaving and protect is None:
        return "nobody would create it anew"
    if protect is True:
        return None
    if workload.kind is WorkloadKind.OTHER:
        return "it is neither a virtual machine nor a StatefulSet's"
    wanted = {
        WorkloadKind.VIRTUAL_MACHINE: policy.virtual_machines,
        WorkloadKind.INSTANCE: policy.virtual_machines,
        WorkloadKind.STATEFUL_SET: policy.stateful_sets,
    }
    return None if wanted[workload.kind] else "the configuration leaves its kind out"


def is_it_our_job(case: Case) -> Objection | None:
    """One program for one job: where another was found to do it, ours keeps still."""
    owner = case.snapshot.policy.owner_of(Job.FAILOVER)
    if owner is Ownership.OURS:
        return None
    return Objection(Action.LEAVE, Reason.NotOurJob.because(job=Job.FAILOVER, owner=owner))


def is_node_exempt(case: Case) -> Objection | None:
    facts = case.snapshot.facts
    if not facts.exempt:
        return None
    return Objection(Action.LEAVE, Reason.Exempt.because(node=facts.name))


def can_it_run_elsewhere(case: Case) -> Objection | None:
    """What its owner has deleted need not."""
    workload = case.workload
    because = workload.pinned_by or _bound_volumes(workload)
    if not because or workload.leaving:
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
    """Where something is enough for it all the same, that was not contradicted: what the storage
    refuses to a node that lives, it refuses."""
    why = proof.refuted(case.heard) if case.evidence is None else None
    return None if why is None else Objection(Action.HOLD, why)


def is_guest_alive(case: Case) -> Objection | None:
    """What its policy asks to do for it then is done only if no other check objects."""
    if not _lives_on(case):
        return None
    if case.rescue is None:
        node, workload = case.snapshot.facts.name, case.workload
        why = Reason.GuestAliveKubeletDead.because(node=node, workload=workload)
        return Objection(Action.HOLD, why)
    return Objection(Action.HOLD, case.rescue.why) if case.rescue.way is Way.WAIT else None


def _lives_on(case: Case) -> bool:
    """Whether its kubelet has died, and it has not."""
    snapshot = case.snapshot
    return not _is_stopped(case) and lives.guests_alive(snapshot.life, snapshot.facts, case.times)


def does_node_answer(case: Case) -> Objection | None:
    """Something at the node answers, be it with a refusal: it has power, and may run guests."""
    facts = case.snapshot.facts
    answer = proof.answered(case.heard, case.times)
    if answer is None or case.rescue is not None:
        return None
    if case.evidence and case.evidence.kind.scope is not Scope.NODE:
        return None
    why = Reason.NodeAnswers.because(node=facts.name, channel=answer.channel)
    return Objection(Action.HOLD, why)


def _is_stopped(case: Case) -> bool:
    return case.evidence is not None and case.evidence.kind.scope is Scope.GUEST


def has_it_been_tried_too_often(case: Case) -> Objection | None:
    tried, policy = case.snapshot.attempts.get(case.workload.key, 0), case.snapshot.policy
    if tried < policy.attempts:
        return None
    minutes = round(policy.cool_down / 60)
    why = Reason.AttemptCap.because(workload=case.workload, count=tried, minutes=minutes)
    return Objection(Action.HOLD, why)


def is_it_proven(case: Case) -> Objection | None:
    """A guest that is moved alive needs no proof of a death: nothing is taken from its node."""
    if case.evidence is not None or case.rescue is not None:
        return None
    workload, facts = case.workload, case.snapshot.facts
    for confirmation in case.snapshot.confirmations:
        because = proof.void(confirmation, facts, case.snapshot.testimony.answers)
        if because is not None and proof.is_about(confirmation, facts):
            why = Reason.ConfirmationRefused.because(node=facts.name, because=because)
            return Objection(Action.HOLD, why)
    risk, missing = _risk(workload), _missing(case)
    why = Reason.ProofMissing.because(
        workload=workload, node=facts.name, risk=risk, missing=missing
    )
    return Objection(Action.HOLD, why)


def _risk(workload: Workload) -> str:
    claims = [volume.claim for volume in workload.volumes]
    return f"write to {', '.join(claims)}" if claims else "be running there"


def _missing(case: Case) -> str:
    """Why what there is does not suffice: the strongest piece of evidence is named."""
    for evidence in case.proofs:
        because = proof.objection(evidence, case.workload, case.terms)
        more = _on_drbd(case, covered=evidence.volumes)
        return f" (there is {evidence.kind}, but {because}{more and f'; {more}'})"
    if because := _on_drbd(case):
        return f" ({because})"
    if case.terms.minimum is not Strength.PRESUMED:
        return ""
    waits = proof.why_not_presumed(case.heard, case.now, times=case.times)
    return f" (to presume its death, {waits})" if waits else ""


def _on_drbd(case: Case, covered: Collection[str] = ()) -> str:
    """What DRBD says against the first volume that is not covered, if it knows it."""
    for volume in case.workload.volumes:
        because = proof.why_not_outvoted(case.heard, volume, case.now, times=case.times)
        if because is not None and volume.pv not in covered:
            return f"DRBD about its volume {volume.claim}: {because}"
    return ""


def is_it_a_storm(case: Case) -> Objection | None:
    """After the question of proof, because what is observed goes on in a storm, at a walk. What
    starts nowhere is no burden to anybody."""
    fleet, policy = case.snapshot.fleet, case.snapshot.policy
    if not is_storm(fleet, policy):
        return None
    evidence, silent = case.evidence, case.rescue is not None
    if evidence is not None:
        silent = silent or evidence.kind.strength is Strength.PRESUMED
    burdens = evidence is not None and not case.workload.leaving
    paced = burdens and fleet.released + case.ahead >= policy.storm_pace
    if not silent and not paced:
        return None
    reason = Reason.StormHold if silent else Reason.StormPaced
    most = most_down(fleet.nodes, policy)
    why = reason.because(
        workload=case.workload, count=len(fleet.down), nodes=fleet.nodes, most=most
    )
    return Objection(Action.HOLD, why)


def has_api_gone_back(case: Case) -> Objection | None:
    because = case.snapshot.policy.rolled_back
    if not because:
        return None
    return Objection(Action.HOLD, Reason.ApiRolledBack.because(because=because))


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
    is_its_policy_known,
    is_it_protected,
    is_it_our_job,
    is_node_exempt,
    can_it_run_elsewhere,
    is_view_fresh,
    is_evidence_contradicted,
    is_guest_alive,
    does_node_answer,
    has_it_been_tried_too_often,
    is_it_proven,
    is_it_a_storm,
    has_api_gone_back,
    may_we_act,
)
