"""Broken parts: the shipped ones, each without one thing that keeps us safe.

``bugs.py`` says which of them makes which bug, and who notices. Each overrides as little as it can:
what is left out is the bug, and everything else is the code that ships.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from ipaddress import ip_address
from typing import Any, ClassVar

import msgspec

from backstay.apis.backstay import ConfirmationRow
from backstay.apis.calico import V1, Block
from backstay.apis.kubevirt import INSTANCES
from backstay.control.failover import FailoverLoop
from backstay.control.guard import Guard, Leave
from backstay.control.incident import OpenIncident
from backstay.control.observe import Observer
from backstay.control.outcomes import Outcome, Proof
from backstay.control.sweep import Sweeper
from backstay.decide import proof
from backstay.decide.failover import (
    CHAIN,
    Action,
    Case,
    Check,
    Decision,
    Objection,
    Snapshot,
    may_we_act,
)
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError
from backstay.kube.lease import Leadership, Term
from backstay.kube.queue import Done, Result
from backstay.kube.resource import NODES, PODS
from backstay.model.addresses import AddressClaim, AddressOutcome
from backstay.model.evidence import Confirmation, Fence, Testimony
from backstay.model.incident import IncidentStatus
from backstay.model.labels import TAINT
from backstay.model.moments import Now
from backstay.model.node import NodeFacts
from backstay.model.policy import Mode, Policy
from backstay.model.reasons import Reason, Why
from backstay.model.workload import PodRef, Workload, WorkloadKind
from backstay.record import telling
from backstay.record.refutations import Refutations
from backstay.sources.hearsay import Hearsay
from backstay.sources.operator import OperatorSource
from backstay.sources.past import Past

Verb = Callable[..., Awaitable[None]]
Told = Callable[[Why], None]


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
        last_status=facts.status,
    )


class WithoutEvidence(Guard):
    def _proof(self, after: Snapshot, targets: Sequence[Workload]) -> Proof | None:
        made_up = msgspec.structs.replace(after, confirmations=(_word(after.facts),))
        return super()._proof(made_up, targets)


class Credulous(Observer):
    """Takes what it is told, of the node, by its owners, by people and by whoever looks, for what
    ``_see``, ``_obey``, ``_believe`` and ``_listen`` make of it."""

    def _snapshot(
        self,
        facts: NodeFacts,
        policy: Policy,
        confirmations: tuple[Confirmation, ...],
        testimony: Testimony,
    ) -> Snapshot:
        seen = self._see(facts, testimony)
        believed = tuple(self._believe(word, seen) for word in confirmations)
        heard = self._listen(seen, testimony)
        return super()._snapshot(seen, self._obey(policy), believed, heard)

    def _see(self, facts: NodeFacts, _testimony: Testimony) -> NodeFacts:
        return facts

    def _obey(self, policy: Policy) -> Policy:
        return policy

    def _believe(self, word: Confirmation, _facts: NodeFacts) -> Confirmation:
        return word

    def _listen(self, _facts: NodeFacts, testimony: Testimony) -> Testimony:
        return testimony


class OfAnyBoot(Credulous):
    def _believe(self, word: Confirmation, facts: NodeFacts) -> Confirmation:
        same = proof.is_about(word, facts)
        return word if same else _word(facts)


class WithoutLastRenewal(Credulous):
    def _believe(self, word: Confirmation, facts: NodeFacts) -> Confirmation:
        return msgspec.structs.replace(
            word,
            last_renewal=facts.renewal,
            last_heartbeat=facts.heartbeat,
            last_status=facts.status,
        )


class ForAllTimes(WithoutLastRenewal):
    def _see(self, facts: NodeFacts, _testimony: Testimony) -> NodeFacts:
        return msgspec.structs.replace(facts, heartbeat_changed_at=None)

    def _believe(self, word: Confirmation, facts: NodeFacts) -> Confirmation:
        return msgspec.structs.replace(super()._believe(word, facts), seen_at=math.inf)


class WithoutMemory(Credulous):
    def _believe(self, word: Confirmation, facts: NodeFacts) -> Confirmation:
        return msgspec.structs.replace(word, refuted="")


class _KeepsNothing(Refutations):
    async def keep(self, heard: proof.Heard, *, term: Term) -> None:
        """Whoever comes next begins as if nobody had heard anything."""


class WithoutRefutations(FailoverLoop):
    def __init__(self, client: KubeClient, *, refutations: Refutations, **rest: Any) -> None:
        nothing = _KeepsNothing(client, wall=refutations._wall)
        super().__init__(client, refutations=nothing, **rest)


class ByOneClock(OperatorSource):
    def _now(self) -> Now:
        return Now.by(self._wall.now())


class WithTheWordsOfABackup(OperatorSource):
    def _has_lapsed(self, row: ConfirmationRow) -> bool:
        """Somebody has said so, be it on another day."""
        return False


class DeafToWarnings(Hearsay):
    def _hear(self, _remark: str) -> None:
        """What others have seen of the API is their own affair."""


class DeafToMore(Hearsay):
    def _hear(self, remark: str) -> None:
        """Who knows that it went back need not be told that again."""
        if self._past.rolled_back is None:
            super()._hear(remark)


class WithoutHeartbeat(Credulous):
    def _see(self, facts: NodeFacts, _testimony: Testimony) -> NodeFacts:
        return msgspec.structs.replace(facts, heartbeat="", heartbeat_changed_at=None)

    def _believe(self, word: Confirmation, facts: NodeFacts) -> Confirmation:
        return msgspec.structs.replace(word, last_heartbeat="")


class ByTheClock(WithoutLastRenewal):
    """Dates a sign of life by what it says of itself."""

    def _see(self, facts: NodeFacts, _testimony: Testimony) -> NodeFacts:
        if not facts.renewal:
            return facts
        age = self._operator._wall.now() - datetime.fromisoformat(facts.renewal)
        dated = asyncio.get_running_loop().time() - age.total_seconds()
        return msgspec.structs.replace(facts, lease_changed_at=dated, heartbeat_changed_at=dated)


def _inherited(snapshot: Snapshot, status: IncidentStatus) -> Snapshot:
    if not status.evidence:
        return snapshot
    return msgspec.structs.replace(snapshot, confirmations=(_word(snapshot.facts),))


class LoopOfAnHeir(FailoverLoop):
    def _decide(self, snapshot: Snapshot) -> Decision:
        incident = self.incidents.get(snapshot.facts.name)
        status = IncidentStatus() if incident is None else incident.row.status
        return super()._decide(_inherited(snapshot, status))


class GuardOfAnHeir(Guard):
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


class WithoutPreconditions(Guard):
    left_out: ClassVar[frozenset[str]] = frozenset({"uid", "resource_version"})

    async def _each(self, pods: Iterable[PodRef], verb: Verb, leave: Leave) -> set[str]:
        async def carelessly(client: KubeClient, pod: PodRef, *, not_after: float) -> None:
            named = {"uid": pod.uid, "resource_version": pod.version}
            kept: Any = {key: named[key] for key in named.keys() - self.left_out}
            if pod.marked:
                kept["grace"] = 0
            await client.delete(
                PODS, pod.name, namespace=pod.namespace, conditions=kept, not_after=not_after
            )

        return await super()._each(pods, carelessly, leave)


class WithoutUid(WithoutPreconditions):
    left_out = frozenset({"uid"})


class WithoutVersion(WithoutPreconditions):
    left_out = frozenset({"resource_version"})


class WithoutGrace(Guard):
    async def _mark(self, targets: Sequence[Workload], leave: Leave) -> int:
        return await super()._mark([_as_if_granted(each) for each in targets], leave)


def _as_if_granted(workload: Workload) -> Workload:
    pods = tuple(msgspec.structs.replace(pod, graceless=False) for pod in workload.pods)
    return msgspec.structs.replace(workload, pods=pods)


class WithoutTaint(Guard):
    async def _keep_scheduler_away(self, before: Snapshot, term: Term) -> bool:
        return True

    def _proof(self, after: Snapshot, targets: Sequence[Workload]) -> Proof | None:
        facts = msgspec.structs.replace(after.facts, tainted=True)
        return super()._proof(msgspec.structs.replace(after, facts=facts), targets)


class OverOthersTaints(Guard):
    async def _keep_scheduler_away(self, before: Snapshot, term: Term) -> bool:
        patch = {"spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}}
        await self._client.merge_patch(NODES, before.facts.name, patch, not_after=term.require())
        return True


class WithoutMark(Guard):
    async def _mark(self, targets: Sequence[Workload], leave: Leave) -> int:
        return 0

    def _proof(self, after: Snapshot, targets: Sequence[Workload]) -> Proof | None:
        seen = msgspec.structs.replace(after, workloads=tuple(map(_as_if_marked, after.workloads)))
        return super()._proof(seen, targets)


def _as_if_marked(workload: Workload) -> Workload:
    pods = tuple(msgspec.structs.replace(pod, marked=True) for pod in workload.pods)
    return msgspec.structs.replace(workload, pods=pods)


class Glancing(Observer):
    """Believes its caches where it should ask the API."""

    async def look_closely(self, name: str) -> Snapshot | None:
        await self.read_workloads(name)
        return self.look(name)


class WithoutFinalizers(Guard):
    async def _each(self, pods: Iterable[PodRef], verb: Verb, leave: Leave) -> set[str]:
        async def by_force(client: KubeClient, pod: PodRef, *, not_after: float) -> None:
            if pod.marked:
                stripped = {"metadata": {"finalizers": None}}
                await client.merge_patch(
                    PODS, pod.name, stripped, namespace=pod.namespace, not_after=not_after
                )
            await verb(client, pod, not_after=not_after)

        return await super()._each(pods, by_force, leave)


class SweepsEverything(Sweeper):
    async def run(self, term: Term) -> None:
        while not term.over:
            await asyncio.sleep(10.0)
            for row in await self._book.all():
                with suppress(KubeError):
                    await self._book.remove(row, not_after=term.require())


class WithInstances(Guard):
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


# Addresses


class WithoutHandles(Guard):
    """Takes addresses back from whoever has them."""

    async def _take_back(
        self, claims: Sequence[AddressClaim], leave: Leave
    ) -> tuple[AddressOutcome, ...]:
        items = (await self._client.list(V1.blocks)).json()["items"]
        blocks = [Block(each) for each in items]
        return await super()._take_back([_as_if_of(claim, blocks) for claim in claims], leave)


def _as_if_of(claim: AddressClaim, blocks: Sequence[Block]) -> AddressClaim:
    """The claim as it would be if it were that of whoever has the address."""
    address = ip_address(claim.addresses[0])
    for block in blocks:
        ordinal = block.ordinal(address)
        attribute = None if ordinal is None else block.attribute(ordinal)
        if attribute is not None:
            namespace, pod, node = attribute.owner
            container = attribute.handle.rpartition(".")[2]
            return msgspec.structs.replace(
                claim, namespace=namespace, pod=pod, node=node, container=container
            )
    return claim


class OfAnyScope(Guard):
    """Takes addresses back whatever it is that is proven."""

    def _claims(self, proof: Proof) -> tuple[list[AddressClaim], list[AddressClaim]]:
        free, others = super()._claims(proof)
        return free + others, []


class HearsOfFences(Credulous):
    """Believes that the storage refuses the node."""

    def _listen(self, facts: NodeFacts, testimony: Testimony) -> Testimony:
        watched = self.watched.get(facts.name)
        here = (watched.workloads if watched else None) or ()
        fence = Fence(
            name="nobody",
            detail="so it is said",
            volumes=tuple(volume.pv for workload in here for volume in workload.volumes),
            observed_at=asyncio.get_running_loop().time(),
        )
        return msgspec.structs.replace(testimony, fences=(fence,))


# Terms, intents, incidents


class Endless(Term):
    def require(self) -> float:
        return math.inf


class WithoutTerm(Guard):
    async def release(
        self, node: str, *, term: Term, incident: OpenIncident, told: Told
    ) -> Outcome:
        endless = Endless(term.epoch, math.inf)
        return await super().release(node, term=endless, incident=incident, told=told)


class Unannounced(OpenIncident):
    def __init__(self, incident: OpenIncident) -> None:
        self.__dict__ = incident.__dict__

    async def intend(self, pods: Sequence[PodRef], *, epoch: int, not_after: float) -> None:
        return


class WithoutIntent(Guard):
    async def release(
        self, node: str, *, term: Term, incident: OpenIncident, told: Told
    ) -> Outcome:
        return await super().release(node, term=term, incident=Unannounced(incident), told=told)


async def _nothing_recorded() -> int:
    return 0


class ByTheLeaseAlone(Leadership):
    def __init__(self, client: KubeClient, **rest: Any) -> None:
        super().__init__(client, **{**rest, "floor": _nothing_recorded})


class BlindToItsLease(Leadership):
    """That the lease is older than it was written is nobody's business."""

    def __init__(self, client: KubeClient, **rest: Any) -> None:
        super().__init__(client, **{**rest, "trace": None})


class BlindToLeaps(Past):
    def _leaps(self, _before: str, _version: str, _seen_at: float | None) -> bool:
        """To count on from a higher version is to count on."""
        return False


class Impatient(Leadership):
    @property
    def _free_at(self) -> float:
        return self._quiet_since + self.times.renew / 2


class WithoutSettling(FailoverLoop):
    async def _fail_over(self, snapshot: Snapshot, decision: Decision, term: Term) -> Result:
        known = self.incidents.get(snapshot.facts.name)
        if known is not None and telling.unsettled(known.row.status):
            return Done()
        return await super()._fail_over(snapshot, decision, term)


class WithoutAWord(FailoverLoop):
    async def _fail_over(self, snapshot: Snapshot, decision: Decision, term: Term) -> Result:
        if not decision.releases:
            return Done()
        return await super()._fail_over(snapshot, decision, term)


class WithoutMissing(FailoverLoop):
    def deleted(self, uid: str) -> None:
        return


class InAHurry(FailoverLoop):
    def _is_clean(self, snapshot: Snapshot, incident: OpenIncident | None) -> bool:
        return True

    async def _has_left_something(
        self, snapshot: Snapshot, decision: Decision, incident: OpenIncident | None, term: Term
    ) -> bool:
        return False


# What is seen of workloads


class Reading(Observer):
    """Takes every workload for what ``_take`` makes of it."""

    async def read_workloads(self, name: str) -> None:
        await super().read_workloads(name)
        watched = self.watched.get(name)
        if watched is not None and watched.workloads is not None:
            watched.workloads = tuple(map(self._take, watched.workloads))

    def _take(self, workload: Workload) -> Workload:
        return workload


class ReadOnce(Observer):
    async def read_workloads(self, name: str) -> None:
        watched = self.watched.get(name)
        if watched is None or watched.workloads is None:
            await super().read_workloads(name)


class WithoutTerminating(Observer):
    async def read_workloads(self, name: str) -> None:
        await super().read_workloads(name)
        watched = self.watched.get(name)
        if watched is not None and watched.workloads is not None:
            watched.workloads = tuple(each for each in watched.workloads if not each.marked)


# Checks


def chain_without(check: Check) -> tuple[Check, ...]:
    return tuple(each for each in CHAIN if each is not check)


def do_we_only_observe(case: Case) -> Objection | None:
    """The last check of the chain, without the one half of it."""
    policy = case.snapshot.policy
    return may_we_act(case) if policy.mode is Mode.OBSERVE else None


def is_it_an_even_second(case: Case) -> Objection | None:
    """Asks a clock, which a decision must not."""
    if round(asyncio.get_running_loop().time()) % 2 == 0:
        return None
    return Objection(Action.HOLD, Reason.StaleView.because(because="the second is odd"))
