"""Deliberate bugs: each takes away one thing that keeps us safe, and an invariant notices.

A rule that nothing can break proves nothing. Every bug here replaces one part of a built
controller: a check of the chain, a step of the guarded write, of the loop, of observing or of
leading. It names what it replaces, the case in which it shows (``cases.py``) and the invariants
that must catch it there; tests/lab holds them to it, and the shipped controller to going through
the same case unharmed. The shipped rooms contain no switch for any of this.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

import msgspec

from backstay.apis.kubevirt import INSTANCES
from backstay.app import Parts
from backstay.control.failover import FailoverLoop
from backstay.control.guard import Guard, Outcome, Proof
from backstay.control.incident import OpenIncident
from backstay.control.observe import Observer
from backstay.decide import failover
from backstay.decide.failover import CHAIN, Action, Case, Check, Decision, Objection, Snapshot
from backstay.kube.client import KubeClient
from backstay.kube.lease import Leadership, Term
from backstay.kube.queue import Done, Result
from backstay.kube.resource import NODES, PODS
from backstay.lab import cases
from backstay.lab.scenario import Scenario
from backstay.model.evidence import Confirmation
from backstay.model.incident import IncidentStatus
from backstay.model.labels import TAINT
from backstay.model.node import NodeFacts
from backstay.model.policy import Mode, Policy
from backstay.model.reasons import Reason, Why
from backstay.model.workload import PodRef, Workload, WorkloadKind
from backstay.record import telling

Verb = Callable[..., Awaitable[None]]
Told = Callable[[Why], None]


@dataclass(frozen=True)
class Bug:
    """``guard`` is what it takes away, as the shipped code calls it."""

    name: str
    sentence: str
    guard: str
    caught_by: frozenset[str]
    instead: Parts
    case: Scenario = field(default=cases.DEATH)


# Words that nobody gave


def _word(facts: NodeFacts) -> Confirmation:
    """A confirmation as it would be if somebody gave it at this very moment."""
    return Confirmation(
        name="",
        uid="",
        node=facts.name,
        node_uid=facts.uid,
        boot_id=facts.boot_id,
        by="nobody",
        reason="it is silent",
        seen_at=facts.looked_at,
        last_renewal=facts.renewal,
        last_heartbeat=facts.heartbeat,
    )


class _WithoutEvidence(Guard):
    def _proof(self, after: Snapshot, targets: Sequence[Workload]) -> Proof | None:
        made_up = msgspec.structs.replace(after, confirmations=(_word(after.facts),))
        return super()._proof(made_up, targets)


class _Credulous(Observer):
    """Takes every word for what ``_believe`` makes of it."""

    def _snapshot(
        self, facts: NodeFacts, policy: Policy, confirmations: tuple[Confirmation, ...]
    ) -> Snapshot:
        seen = self._see(facts)
        believed = tuple(self._believe(word, seen) for word in confirmations)
        return super()._snapshot(seen, policy, believed)

    def _see(self, facts: NodeFacts) -> NodeFacts:
        return facts

    def _believe(self, word: Confirmation, facts: NodeFacts) -> Confirmation:
        return word


class _OfAnyBoot(_Credulous):
    def _believe(self, word: Confirmation, facts: NodeFacts) -> Confirmation:
        same = failover.is_about(word, facts)
        return word if same else _word(facts)


class _WithoutLastRenewal(_Credulous):
    def _believe(self, word: Confirmation, facts: NodeFacts) -> Confirmation:
        return msgspec.structs.replace(
            word, last_renewal=facts.renewal, last_heartbeat=facts.heartbeat
        )


class _ForAllTimes(_WithoutLastRenewal):
    def _see(self, facts: NodeFacts) -> NodeFacts:
        return msgspec.structs.replace(facts, heartbeat_changed_at=None)

    def _believe(self, word: Confirmation, facts: NodeFacts) -> Confirmation:
        return msgspec.structs.replace(super()._believe(word, facts), seen_at=math.inf)


class _WithoutHeartbeat(_Credulous):
    def _see(self, facts: NodeFacts) -> NodeFacts:
        return msgspec.structs.replace(facts, heartbeat="", heartbeat_changed_at=None)

    def _believe(self, word: Confirmation, facts: NodeFacts) -> Confirmation:
        return msgspec.structs.replace(word, last_heartbeat="")


class _ByTheClock(_WithoutLastRenewal):
    """Dates a sign of life by what it says of itself."""

    def _see(self, facts: NodeFacts) -> NodeFacts:
        if not facts.renewal:
            return facts
        age = self._operator._wall.now() - datetime.fromisoformat(facts.renewal)
        dated = asyncio.get_running_loop().time() - age.total_seconds()
        return msgspec.structs.replace(facts, lease_changed_at=dated, heartbeat_changed_at=dated)


def _inherited(snapshot: Snapshot, status: IncidentStatus) -> Snapshot:
    if not status.evidence:
        return snapshot
    return msgspec.structs.replace(snapshot, confirmations=(_word(snapshot.facts),))


class _LoopOfAnHeir(FailoverLoop):
    def _decide(self, snapshot: Snapshot) -> Decision:
        incident = self.incidents.get(snapshot.facts.name)
        status = IncidentStatus() if incident is None else incident.row.status
        return super()._decide(_inherited(snapshot, status))


class _GuardOfAnHeir(Guard):
    def __init__(self, client: KubeClient, observer: Observer, **rest: Any) -> None:
        super().__init__(client, observer, **rest)
        self._incidents: dict[str, OpenIncident] = {}

    async def release(
        self, node: str, *, term: Term, incident: OpenIncident, told: Told
    ) -> Outcome:
        self._incidents[node] = incident
        return await super().release(node, term=term, incident=incident, told=told)

    def _decide(self, snapshot: Snapshot) -> Decision:
        incident = self._incidents[snapshot.facts.name]
        return super()._decide(_inherited(snapshot, incident.row.status))


# Barrier, proof, removal


class _WithoutPreconditions(Guard):
    left_out: ClassVar[frozenset[str]] = frozenset({"uid", "resource_version"})

    async def _each(self, pods: Iterable[PodRef], verb: Verb, term: Term) -> set[str]:
        async def carelessly(client: KubeClient, pod: PodRef, *, not_after: float) -> None:
            named = {"uid": pod.uid, "resource_version": pod.version}
            kept: Any = {key: named[key] for key in named.keys() - self.left_out}
            if pod.marked:
                kept["grace"] = 0
            await client.delete(
                PODS, pod.name, namespace=pod.namespace, conditions=kept, not_after=not_after
            )

        return await super()._each(pods, carelessly, term)


class _WithoutUid(_WithoutPreconditions):
    left_out = frozenset({"uid"})


class _WithoutVersion(_WithoutPreconditions):
    left_out = frozenset({"resource_version"})


class _WithoutGrace(Guard):
    async def _mark(self, targets: Sequence[Workload], term: Term) -> None:
        await super()._mark([_as_if_granted(each) for each in targets], term)


def _as_if_granted(workload: Workload) -> Workload:
    pods = tuple(msgspec.structs.replace(pod, graceless=False) for pod in workload.pods)
    return msgspec.structs.replace(workload, pods=pods)


class _WithoutTaint(Guard):
    async def _keep_scheduler_away(self, before: Snapshot, term: Term) -> bool:
        return True

    def _proof(self, after: Snapshot, targets: Sequence[Workload]) -> Proof | None:
        facts = msgspec.structs.replace(after.facts, tainted=True)
        return super()._proof(msgspec.structs.replace(after, facts=facts), targets)


class _OverOthersTaints(Guard):
    async def _keep_scheduler_away(self, before: Snapshot, term: Term) -> bool:
        patch = {"spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}}
        await self._client.merge_patch(NODES, before.facts.name, patch, not_after=term.require())
        return True


class _WithoutMark(Guard):
    async def _mark(self, targets: Sequence[Workload], term: Term) -> None:
        return

    def _proof(self, after: Snapshot, targets: Sequence[Workload]) -> Proof | None:
        seen = msgspec.structs.replace(after, workloads=tuple(map(_as_if_marked, after.workloads)))
        return super()._proof(seen, targets)


def _as_if_marked(workload: Workload) -> Workload:
    pods = tuple(msgspec.structs.replace(pod, marked=True) for pod in workload.pods)
    return msgspec.structs.replace(workload, pods=pods)


class _Glancing(Observer):
    """Believes its caches where it should ask the API."""

    async def look_closely(self, name: str) -> Snapshot | None:
        await self.read_workloads(name)
        return self.look(name)


class _WithoutFinalizers(Guard):
    async def _each(self, pods: Iterable[PodRef], verb: Verb, term: Term) -> set[str]:
        async def by_force(client: KubeClient, pod: PodRef, *, not_after: float) -> None:
            if pod.marked:
                stripped = {"metadata": {"finalizers": None}}
                await client.merge_patch(
                    PODS, pod.name, stripped, namespace=pod.namespace, not_after=not_after
                )
            await verb(client, pod, not_after=not_after)

        return await super()._each(pods, by_force, term)


class _WithInstances(Guard):
    async def _remove_what_is_proven(
        self, node: str, targets: Sequence[Workload], term: Term, told: Told
    ) -> Outcome:
        outcome = await super()._remove_what_is_proven(node, targets, term, told)
        for workload in outcome.released:
            if workload.kind is WorkloadKind.VIRTUAL_MACHINE:
                await self._client.delete(
                    INSTANCES, workload.name, namespace=workload.namespace, not_after=term.require()
                )
        return outcome


# Terms, intents, incidents


class _Endless(Term):
    def require(self) -> float:
        return math.inf


class _WithoutTerm(Guard):
    async def release(
        self, node: str, *, term: Term, incident: OpenIncident, told: Told
    ) -> Outcome:
        endless = _Endless(term.epoch, math.inf)
        return await super().release(node, term=endless, incident=incident, told=told)


class _Unannounced(OpenIncident):
    def __init__(self, incident: OpenIncident) -> None:
        self.__dict__ = incident.__dict__

    async def intend(self, pods: Sequence[PodRef], *, epoch: int, not_after: float) -> None:
        return


class _WithoutIntent(Guard):
    async def release(
        self, node: str, *, term: Term, incident: OpenIncident, told: Told
    ) -> Outcome:
        return await super().release(node, term=term, incident=_Unannounced(incident), told=told)


async def _nothing_recorded() -> int:
    return 0


class _ByTheLeaseAlone(Leadership):
    def __init__(self, client: KubeClient, **rest: Any) -> None:
        super().__init__(client, **{**rest, "floor": _nothing_recorded})


class _WithoutSettling(FailoverLoop):
    async def _fail_over(self, snapshot: Snapshot, decision: Decision, term: Term) -> Result:
        known = self.incidents.get(snapshot.facts.name)
        if known is not None and telling.unsettled(known.row.status):
            return Done()
        return await super()._fail_over(snapshot, decision, term)


class _WithoutAWord(FailoverLoop):
    async def _fail_over(self, snapshot: Snapshot, decision: Decision, term: Term) -> Result:
        if not decision.releases:
            return Done()
        return await super()._fail_over(snapshot, decision, term)


class _InAHurry(FailoverLoop):
    def _is_clean(self, snapshot: Snapshot, incident: OpenIncident | None) -> bool:
        return True


# What is seen of workloads


class _ReadOnce(Observer):
    async def read_workloads(self, name: str) -> None:
        watched = self.watched.get(name)
        if watched is None or watched.workloads is None:
            await super().read_workloads(name)


class _WithoutTerminating(Observer):
    async def read_workloads(self, name: str) -> None:
        await super().read_workloads(name)
        watched = self.watched.get(name)
        if watched is not None and watched.workloads is not None:
            watched.workloads = tuple(each for each in watched.workloads if not each.marked)


# Checks


def _chain_without(check: Check) -> tuple[Check, ...]:
    return tuple(each for each in CHAIN if each is not check)


def do_we_only_observe(case: Case) -> Objection | None:
    """The last check of the chain, without the one half of it."""
    policy = case.snapshot.policy
    return failover.may_we_act(case) if policy.mode is Mode.OBSERVE else None


def is_it_an_even_second(case: Case) -> Objection | None:
    """Asks a clock, which a decision must not."""
    if round(asyncio.get_running_loop().time()) % 2 == 0:
        return None
    return Objection(Action.HOLD, Reason.StaleView.because(because="the second is odd"))


_CAUGHT_IN_LIFE = frozenset({"NoDeleteWithoutEvidence", "NoHealthyGuestStopped", "NoBystander"})

BUGS: tuple[Bug, ...] = (
    Bug(
        "silence-is-death",
        "Silence counts as death.",
        "decide/failover.py: is_it_proven",
        _CAUGHT_IN_LIFE | {"OneWriter"},
        {"chain": _chain_without(failover.is_it_proven), "guard": _WithoutEvidence},
        cases.CUT_OFF,
    ),
    Bug(
        "acts-while-observing",
        "It acts while it should only observe.",
        "decide/failover.py: may_we_act",
        frozenset({"Disarm"}),
        {"chain": _chain_without(failover.may_we_act)},
        cases.OBSERVED,
    ),
    Bug(
        "acts-while-disarmed",
        "That somebody has disarmed us is not looked at.",
        "decide/failover.py: may_we_act",
        frozenset({"Disarm"}),
        {"chain": (*_chain_without(failover.may_we_act), do_we_only_observe)},
        cases.DISARMED,
    ),
    Bug(
        "takes-the-unprotected",
        "What its owner has kept from us is taken all the same.",
        "decide/failover.py: is_it_protected",
        frozenset({"NoBystander"}),
        {"chain": _chain_without(failover.is_it_protected)},
        cases.UNPROTECTED,
    ),
    Bug(
        "takes-from-exempt-nodes",
        "An exempt node is a node like any other.",
        "decide/failover.py: is_node_exempt",
        frozenset({"NoBystander"}),
        {"chain": _chain_without(failover.is_node_exempt)},
        cases.EXEMPT,
    ),
    Bug(
        "decides-by-a-clock",
        "A decision depends on something that is not in its snapshot.",
        "decide/failover.py: decide",
        frozenset({"SameDecision"}),
        {"chain": (is_it_an_even_second, *CHAIN)},
    ),
    Bug(
        "word-for-another-boot",
        "A confirmation of an earlier boot counts for this one.",
        "decide/failover.py: is_about",
        _CAUGHT_IN_LIFE | {"OneWriter"},
        {"observer": _OfAnyBoot},
        cases.EARLIER_BOOT,
    ),
    Bug(
        "forgets-last-renewal",
        "A confirmation does not remember the last sign of life before it.",
        "decide/failover.py: void",
        _CAUGHT_IN_LIFE | {"OneWriter"},
        {"observer": _WithoutLastRenewal},
        cases.LIFE_UNSEEN,
    ),
    Bug(
        "ignores-life",
        "Life does not refute a confirmation.",
        "decide/failover.py: refuted",
        _CAUGHT_IN_LIFE | {"OneWriter"},
        {"observer": _ForAllTimes},
        cases.LIFE_SEEN,
    ),
    Bug(
        "stops-healthy-guests",
        "That virt-handler is heard of is not looked at.",
        "decide/life.py: guests_alive",
        frozenset({"NoHealthyGuestStopped", "NoDeleteWithoutEvidence", "NoBystander"}),
        {"observer": _WithoutHeartbeat},
        cases.WITHOUT_KUBELET,
    ),
    Bug(
        "believes-clocks",
        "Signs of life are dated by the clock of whoever gave them.",
        "sources/nodes.py: _Track.see",
        frozenset({"NoHealthyGuestStopped", "NoBystander"}),
        {"observer": _ByTheClock},
        cases.WRONG_CLOCK,
    ),
    Bug(
        "inherits-evidence",
        "What an incident records as evidence counts as evidence.",
        "decide/failover.py: sufficient",
        _CAUGHT_IN_LIFE | {"OneWriter"},
        {"loop": _LoopOfAnHeir, "guard": _GuardOfAnHeir},
        cases.WITHDRAWN,
    ),
    Bug(
        "no-taint",
        "The node is left open to new pods.",
        "control/guard.py: _keep_scheduler_away",
        frozenset({"TaintBeforeRemoval"}),
        {"guard": _WithoutTaint},
    ),
    Bug(
        "overwrites-taints",
        "Our taint takes the place of everybody else's.",
        "act/taints.py: put_on",
        frozenset({"Ownership"}),
        {"guard": _OverOthersTaints},
    ),
    Bug(
        "no-barrier",
        "Pods are removed that a kubelet could still start.",
        "control/guard.py: _mark",
        frozenset({"NoDeleteWithoutEvidence"}),
        {"guard": _WithoutMark},
    ),
    Bug(
        "marks-without-grace",
        "A pod without a grace period is marked like any other, which removes it.",
        "act/pods.py: mark",
        frozenset({"NoDeleteWithoutEvidence"}),
        {"guard": _WithoutGrace},
        cases.HOTPLUG,
    ),
    Bug(
        "proof-before-barrier",
        "Nobody asks the API again after the barrier.",
        "control/observe.py: look_closely",
        frozenset({"ProofAfterBarrier"}),
        {"observer": _Glancing},
    ),
    Bug(
        "deletes-by-name",
        "Pods are deleted by name alone.",
        "act/pods.py: remove",
        frozenset({"Preconditions"}),
        {"guard": _WithoutPreconditions},
    ),
    Bug(
        "drops-uid",
        "Deletions name a version, and no uid.",
        "act/pods.py: remove",
        frozenset({"Preconditions"}),
        {"guard": _WithoutUid},
    ),
    Bug(
        "drops-version",
        "Deletions name a uid, and no version.",
        "act/pods.py: remove",
        frozenset({"Preconditions"}),
        {"guard": _WithoutVersion},
    ),
    Bug(
        "strips-finalizers",
        "Finalizers are taken off what is removed.",
        "act/pods.py: remove",
        frozenset({"Ownership"}),
        {"guard": _WithoutFinalizers},
    ),
    Bug(
        "deletes-instances",
        "The VMI is deleted together with its launcher.",
        "control/guard.py: _remove_what_is_proven",
        frozenset({"Ownership"}),
        {"guard": _WithInstances},
    ),
    Bug(
        "acts-when-deposed",
        "Writes do not carry the end of the term.",
        "kube/lease.py: Term.require",
        frozenset({"Zombie"}),
        {"guard": _WithoutTerm},
        cases.ASLEEP,
    ),
    Bug(
        "epoch-from-lease",
        "The epoch of a term comes from the lease alone.",
        "record/incidents.py: highest_epoch",
        frozenset({"Epoch"}),
        {"leadership": _ByTheLeaseAlone},
        cases.LEASE_DELETED,
    ),
    Bug(
        "forgets-intent",
        "Nothing announces what is about to be done.",
        "control/incident.py: intend",
        frozenset({"Epoch"}),
        {"guard": _WithoutIntent},
    ),
    Bug(
        "untaints-on-ready",
        "A node is given back as soon as it is heard again.",
        "control/failover.py: _is_clean",
        frozenset({"Zombie"}),
        {"loop": _InAHurry},
        cases.RETURN,
    ),
    Bug(
        "leaves-what-was-begun",
        "What a predecessor began is left to the predecessor.",
        "control/incident.py: intend",
        frozenset({"Recovered", "NothingTerminating"}),
        {"loop": _WithoutSettling},
        cases.CRASH,
    ),
    Bug(
        "terminating-is-gone",
        "A pod that is marked counts as one that is gone.",
        "sources/workloads.py: assemble",
        frozenset({"NothingTerminating"}),
        {"observer": _WithoutTerminating},
    ),
    Bug(
        "stale-list",
        "The pods of a node are read once, and never again.",
        "control/observe.py: read_workloads",
        frozenset({"NoActionLoops"}),
        {"observer": _ReadOnce},
    ),
    Bug(
        "holds-in-silence",
        "What is held is not told.",
        "control/failover.py: _fail_over",
        frozenset({"HoldsAreTold"}),
        {"loop": _WithoutAWord},
        cases.CUT_OFF,
    ),
)


def bug_named(name: str) -> Bug:
    """Raises ``KeyError`` for one that there is not."""
    return {bug.name: bug for bug in BUGS}[name]
