"""The guarded write: the one way in which Backstay takes anything away from a node.

::

    look ─▶ decide ─▶ intent ─▶ barrier ─────────────────▶ look ─▶ decide ─▶ removal ─▶ outcome
                                (our taint is accepted,     │       again
                                 then every pod is marked)  └ by quorum reads, after the barrier

* **Barrier.** First nothing new can be put on the node, then each pod is marked as deleted. From
  that moment no kubelet that lists its pods will ever start it, whatever boots there.
* **Proof.** Only what is observed *after* the barrier authorises a removal. Because the pods can
  not start again, proof that the old boot is dead stays true, however late the removal lands.
* **Addresses** that their next pods will ask for are taken back in between, where the whole node
  is proven dead. It is the one step that may fail: then it is told, and the removal goes on.
* **Removal.** Of exactly these pods: same uid, same version, on this node.
* **Volumes.** Once the pods are gone, the dead node is relieved of the volumes that they had
  (``decide/detach.py``), or put out of service as a whole where the configuration prefers that.
  It is announced, looked at closely and decided like a removal.
* **LINSTOR's controller** is marked without proof, and never removed: its word is needed to have
  any (``decide/succession.py``).
* **Fences** of the storage are put up before there is proof, to get it (``decide/fencing.py``).
* **Power** is switched for the same reason (``decide/power.py``). What is asked of a device cannot
  be taken back, so the intent is a claim on it: it says how long the request may be under way.
* Every write carries the end of our term: a process that was stopped in between sends nothing.
* What is under way ends (``Leave``) as soon as any look, also at another node, shows that people
  have said something else meanwhile: that we are disarmed, or that it is not ours to do.
* One intent is written before the first deed of a batch and one outcome after the last. What a
  crash leaves between them is settled by looking again, never by repeating.
* Whatever fails with a conflict means that the world has changed: nothing is forced, the next
  look decides anew.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from backstay.act import addresses, attachments, fences, power, taints
from backstay.act import pods as pod_verbs
from backstay.control.incident import OpenIncident
from backstay.control.observe import Observer
from backstay.control.outcomes import Freed, Outcome, Proof, Switched
from backstay.decide.detach import Holdings, Plan, plan
from backstay.decide.failover import Check, Decision, Snapshot, decide
from backstay.decide.fencing import decide_fencing
from backstay.decide.power import (
    POWER_CHAIN,
    PowerCase,
    PowerCheck,
    PowerVerdict,
    decide_power,
    decide_power_on,
)
from backstay.decide.proof import words
from backstay.decide.succession import to_be_succeeded
from backstay.drivers.power import DEADLINE, PowerDevices
from backstay.kube.client import KubeClient
from backstay.kube.errors import Conflict, KubeError, NotFound, TooLate
from backstay.kube.lease import Term
from backstay.model.addresses import AddressClaim, AddressOutcome, Fate
from backstay.model.addresses import told as addresses_told
from backstay.model.evidence import Evidence, Scope, Strength
from backstay.model.fences import FenceOrder, FenceSight, Fencing
from backstay.model.incident import Step
from backstay.model.node import Life, NodeFacts
from backstay.model.policy import Job, Ownership, Times
from backstay.model.power import PowerMeans
from backstay.model.reasons import Reason, Why
from backstay.model.storage import Attachment, Owed
from backstay.model.workload import PodRef, Workload
from backstay.record.telling import MOST_PODS
from backstay.seam.clock import WallClock
from backstay.seam.tasks import side_by_side
from backstay.sources.attachments import read_attachments
from backstay.sources.workloads import read_pods

_log = logging.getLogger("backstay.guard")

_PARALLEL = 16
_ENDED = ("Succeeded", "Failed")

ATTACHED, TAINTED, FENCES, POWER = "volumeattachments", "nodes", "networkfences", "power"
"""What stands in an intent in place of a namespace."""

_DRIFT = 1.25
"""By how much faster the clock of whoever waits for a claim may run than that of who made it."""

_REPLACED = "it has rebooted, or another node has taken its name"


@dataclass(frozen=True)
class Leave:
    """To do what was decided on a snapshot: while our term lasts, and while nobody here has seen
    another configuration than the one in it."""

    term: Term
    observer: Observer
    decided_on: Snapshot

    def require(self) -> float:
        """Until when. Raises ``TooLate`` if it must not be done any more."""
        if self.observer.is_outdated(self.decided_on):
            raise TooLate("the configuration has changed since this was decided")
        return self.term.require()


class Guard:
    """See the module."""

    def __init__(
        self,
        client: KubeClient,
        observer: Observer,
        *,
        times: Times,
        chain: Sequence[Check],
        wall: WallClock,
        devices: PowerDevices | None = None,
        power_chain: Sequence[PowerCheck] = POWER_CHAIN,
    ) -> None:
        self._devices = devices
        self._power_chain = power_chain
        self._client = client
        self._observer = observer
        self._times = times
        self._chain = chain
        self._wall = wall

    async def release(
        self, node: str, *, term: Term, incident: OpenIncident, told: Callable[[Why], None]
    ) -> Outcome:
        """Takes from the node what the decision says, if it still says so after the barrier."""
        before = await self._observer.look_closely(node)
        if before is None:
            return Outcome()
        targets = _one_batch(_targets(self._decide(before)))
        if not targets:
            return Outcome()
        pods = [pod for workload in targets for pod in workload.everything]
        await incident.intend(pods, epoch=term.epoch, not_after=term.require())
        if not await self._keep_scheduler_away(before, term):
            return Outcome(why=Reason.ProofExpired.because(node=node, because=_REPLACED))
        marked = await self._mark(targets, self._leave(before, term))
        told(Reason.BarrierRaised.because(node=node, count=marked))
        return await self._remove_what_is_proven(node, targets, term, told)

    async def succeed(
        self, node: str, *, term: Term, incident: OpenIncident
    ) -> tuple[Workload, ...]:
        """Marks LINSTOR's controller on the node, so that another takes its place; nothing is
        removed. The taint comes first here, too: else it might be put back on the same node."""
        before = await self._observer.look_closely(node)
        targets = () if before is None else self._succeeded(before)
        if before is None or not targets:
            return ()
        pods = [pod for workload in targets for pod in workload.pods]
        names = tuple(f"{pod.key}/{pod.uid}" for pod in pods)
        await incident.announce(Step.SUCCESSION, names, epoch=term.epoch, not_after=term.require())
        if not await self._keep_scheduler_away(before, term):
            return ()
        # Both took a while, in which something of the node may have been heard.
        after = await self._observer.look_again(node)
        still = () if after is None else self._succeeded(after)
        await self._mark(still, self._leave(before, term))
        return still

    def _succeeded(self, snapshot: Snapshot) -> tuple[Workload, ...]:
        return to_be_succeeded(snapshot, times=self._times)

    async def detach(
        self, node: str, owed: Sequence[Owed], *, term: Term, incident: OpenIncident
    ) -> Freed:
        """Frees these volumes of workloads that were released, as far as may be."""
        holdings = await self._holdings(node)
        snapshot = await self._observer.look_closely(node)
        if snapshot is None:
            return Freed()
        decided = self._plan(snapshot, owed, holdings)
        if not (decided.taint or decided.detach):
            return Freed(decided.settled, decided.said)
        if not snapshot.facts.tainted:
            # Somebody took it off. What is put there meanwhile may use these very volumes, so they
            # are looked at again once that is over.
            await self._keep_scheduler_away(snapshot, term)
            return Freed()
        facts = snapshot.facts
        names = tuple(f"{ATTACHED}/{each.name}/{each.uid}" for each in decided.detach)
        if decided.taint:
            names = (f"{TAINTED}/{facts.name}/{facts.uid}",)
        await incident.announce(Step.DETACH, names, epoch=term.epoch, not_after=term.require())
        leave = self._leave(snapshot, term)
        if decided.taint:
            return await self._put_out_of_service(facts, decided, incident, leave)
        return await self._detach(decided, leave)

    async def fence(
        self,
        node: str,
        fencing: Callable[[NodeFacts], Fencing],
        *,
        term: Term,
        incident: OpenIncident,
    ) -> tuple[Why, ...]:
        """Has the storage refuse the node, if that is still what a closer look says."""
        snapshot = await self._observer.look_closely(node)
        if snapshot is None:
            return ()
        facts = snapshot.facts
        orders = self._orders(snapshot, fencing(facts))
        if not orders:
            return ()
        about = {"node": facts.name, "incident": incident.row.key}
        names = tuple(f"{FENCES}/{fences.fence_name(each, **about)}/" for each in orders)
        await incident.announce(Step.FENCE, names, epoch=term.epoch, not_after=term.require())
        said, leave = [], self._leave(snapshot, term)
        for order in orders:
            with contextlib.suppress(Conflict):
                await fences.raise_fence(
                    self._client, order, node_uid=facts.uid, not_after=leave.require(), **about
                )
            addresses = ", ".join(order.addresses)
            about_it = {"driver": order.driver, "node": node, "addresses": addresses}
            said.append(Reason.FenceRaised.because(**about_it))
        return tuple(said)

    def _orders(self, snapshot: Snapshot, fencing: Fencing) -> tuple[FenceOrder, ...]:
        decision = self._decide(snapshot)
        return decide_fencing(snapshot, decision, fencing, times=self._times).orders

    async def lower(self, fence: FenceSight, *, term: Term) -> bool:
        """Lifts one of ours, or clears away one that was lifted. False if it has changed."""
        try:
            if fence.fenced:
                await fences.lift(self._client, fence, not_after=term.require())
            elif fence.lifted:
                await fences.remove(self._client, fence, not_after=term.require())
        except NotFound:
            return True
        except Conflict:
            return False
        return True

    async def switch_off(
        self,
        node: str,
        means: Callable[[NodeFacts], PowerMeans],
        *,
        term: Term,
        incident: OpenIncident,
    ) -> Switched:
        """Has its device asked to switch the node off, if that is still what a closer look says."""
        before = await self._observer.look_closely(node)
        if before is None or self._devices is None:
            return Switched()
        verdict = self._power_off(before, means, incident)
        if not verdict.switch:
            return Switched(why=verdict.why)
        not_after = await self._claim(Step.POWER_OFF, before, term, incident)
        # That took a while, in which people may have said something else (then ``Leave`` is gone),
        # and something of the node may have been heard. What is sent now cannot be called back.
        await self._observer.listen_to_people(node)
        after = await self._observer.look_again(node)
        if after is None or not (verdict := self._power_off(after, means, incident)).switch:
            return Switched(why=verdict.why)
        until = min(not_after, self._leave(before, term).require())
        failed = await power.switch_off(self._devices, node, not_after=until)
        return Switched(asked=True, failed=failed)

    async def switch_on(
        self,
        node: str,
        means: Callable[[NodeFacts], PowerMeans],
        *,
        seen_at: float,
        owes: bool,
        term: Term,
        incident: OpenIncident,
    ) -> Switched:
        """The same, the other way, once no older request can arrive there any more. ``seen_at`` is
        when the last claim on the device was first seen here."""
        snapshot = await self._observer.look_closely(node)
        if snapshot is None or self._devices is None:
            return Switched()
        case = self._power_case(snapshot, means, incident)
        verdict = decide_power_on(case, seen_at=seen_at, owes=owes)
        if not verdict.switch:
            return Switched(why=verdict.why, on=case.sight is not None and bool(case.sight.on))
        not_after = await self._claim(Step.POWER_ON, snapshot, term, incident)
        until = min(not_after, self._leave(snapshot, term).require())
        failed = await power.switch_on(self._devices, node, not_after=until)
        return Switched(asked=True, failed=failed)

    async def _claim(
        self, step: Step, snapshot: Snapshot, term: Term, incident: OpenIncident
    ) -> float:
        """Until when the device may be asked, once that stands in the incident."""
        facts, now, not_after = snapshot.facts, asyncio.get_running_loop().time(), term.require()
        await incident.claim_power(
            step,
            f"{POWER}/{facts.name}/{facts.boot_id}",
            seconds=(not_after - now + DEADLINE) * _DRIFT,
            epoch=term.epoch,
            not_after=not_after,
        )
        return not_after

    def _power_off(
        self, snapshot: Snapshot, means: Callable[[NodeFacts], PowerMeans], incident: OpenIncident
    ) -> PowerVerdict:
        case = self._power_case(snapshot, means, incident)
        return decide_power(case, chain=self._power_chain)

    def _power_case(
        self, snapshot: Snapshot, means: Callable[[NodeFacts], PowerMeans], incident: OpenIncident
    ) -> PowerCase:
        return PowerCase(
            snapshot=snapshot,
            decision=self._decide(snapshot),
            means=means(snapshot.facts),
            told=incident.row.status,
            now=asyncio.get_running_loop().time(),
            times=self._times,
        )

    async def let_go(self, node: str, *, uid: str, term: Term) -> None:
        """Takes our taints off a node that is back and clean."""
        await taints.take_off(self._client, node, uid=uid, leave=term.require)

    def _leave(self, decided_on: Snapshot, term: Term) -> Leave:
        return Leave(term, self._observer, decided_on)

    def _decide(self, snapshot: Snapshot) -> Decision:
        now = asyncio.get_running_loop().time()
        return decide(snapshot, now, times=self._times, chain=self._chain)

    async def _keep_scheduler_away(self, before: Snapshot, term: Term) -> bool:
        """False if there is no such node any more, or it has booted since: then nothing of it is
        touched."""
        facts = before.facts
        return await taints.put_on(
            self._client,
            facts.name,
            uid=facts.uid,
            boot_id=facts.boot_id,
            leave=self._leave(before, term).require,
        )

    async def _mark(self, targets: Sequence[Workload], leave: Leave) -> int:
        """How many of their pods are marked then: one that has changed meanwhile is not."""
        pods = [pod for workload in targets for pod in workload.pods]
        done = await self._each([pod for pod in pods if not pod.marked], pod_verbs.mark, leave)
        return sum(pod.marked or pod.uid in done for pod in pods)

    async def _remove_what_is_proven(
        self, node: str, targets: Sequence[Workload], term: Term, told: Callable[[Why], None]
    ) -> Outcome:
        after = await self._observer.look_closely(node)
        proof = None if after is None else self._proof(after, targets)
        if after is None or proof is None:
            return Outcome(why=_why_not(node, after, self._decide))
        for evidence in proof.evidence:
            told(_proven(evidence))
        owner, leave = after.policy.owner_of(Job.ADDRESSES), self._leave(after, term)
        for why in await self._free_addresses(proof, owner, leave):
            told(why)
        return await self._remove(proof, targets, leave)

    async def _remove(self, proof: Proof, targets: Sequence[Workload], leave: Leave) -> Outcome:
        """First what hides from KubeVirt that the rest is gone. While something of that is left, be
        it that it has changed meanwhile, the rest waits for the next look."""
        removed: list[PodRef] = []

        async def remove(client: KubeClient, pod: PodRef, *, not_after: float) -> None:
            await pod_verbs.remove(client, pod, not_after=not_after)
            removed.append(pod)

        asked = {pod.uid for workload in targets for pod in workload.remains}
        remains = [pod for workload in proof.targets for pod in workload.remains]
        cleared = await self._each([pod for pod in remains if pod.uid in asked], remove, leave)
        due = [each for each in proof.targets if cleared.issuperset(p.uid for p in each.remains)]
        gone = await self._each([pod for each in due for pod in each.pods], remove, leave)
        released = tuple(each for each in due if gone.issuperset(p.uid for p in each.pods))
        return Outcome(released, proof, removed=tuple(removed))

    def _proof(self, after: Snapshot, targets: Sequence[Workload]) -> Proof | None:
        """What may be removed: decided again, tainted, every pod marked, and asked for before."""
        if not after.facts.tainted:
            return None
        asked = {pod.uid for workload in targets for pod in workload.pods}
        grounds = tuple(
            (verdict.workload, verdict.evidence)
            for verdict in self._decide(after).releases
            if verdict.evidence is not None
            and verdict.workload.pods
            and all(pod.marked and pod.uid in asked for pod in verdict.workload.pods)
        )
        return Proof(grounds) if grounds else None

    async def _free_addresses(
        self, proof: Proof, owner: Ownership, leave: Leave
    ) -> tuple[Why, ...]:
        """Before the pods go, so that no new one has to wait for what its predecessor holds.
        Whatever comes of it, the pods go on: it is told, and no more than that."""
        free, others = self._claims(proof)
        notes = [note for workload in proof.targets for note in workload.notes]
        if owner is not Ownership.OURS:
            theirs = Reason.NotOurJob.because(job=Job.ADDRESSES, owner=owner)
            return (*notes, theirs) if free or others else tuple(notes)
        kept = [
            AddressOutcome(claim=claim, address=each, fate=Fate.UNPROVEN)
            for claim in others
            for each in claim.addresses
        ]
        done = await self._take_back(free, leave) if free else ()
        return (*notes, *addresses_told((*done, *kept)))

    def _claims(self, proof: Proof) -> tuple[list[AddressClaim], list[AddressClaim]]:
        """The addresses that the next pods will ask for: those that may be taken back, and those
        that may not. A storage that refuses the node does not silence it, and a guest that has
        stopped has not given its address back: only the death of the whole node frees them."""
        free, others = list[AddressClaim](), list[AddressClaim]()
        for workload, evidence in proof.grounds:
            where = free if evidence.kind.scope is Scope.NODE else others
            where += [claim for claim in workload.addresses if claim.will_be_asked_for]
        return free, others

    async def _take_back(
        self, claims: Sequence[AddressClaim], leave: Leave
    ) -> tuple[AddressOutcome, ...]:
        return await addresses.release(
            self._client, claims, leave=leave.require, at=self._wall.now()
        )

    async def _holdings(self, node: str) -> Holdings:
        attachments = await read_attachments(self._client, node)
        pods = await read_pods(self._client, node)
        return Holdings(
            attachments=attachments,
            used=frozenset(
                f"{pod.namespace}/{claim}"
                for pod in pods.pods
                if pod.phase not in _ENDED
                for claim in pod.claims
            ),
            unreadable=len(pods.unreadable),
        )

    def _plan(self, snapshot: Snapshot, owed: Sequence[Owed], holdings: Holdings) -> Plan:
        now = asyncio.get_running_loop().time()
        return plan(snapshot, self._decide(snapshot), owed, holdings, now, times=self._times)

    async def _put_out_of_service(
        self, facts: NodeFacts, decided: Plan, incident: OpenIncident, leave: Leave
    ) -> Freed:
        done = await taints.put_out_of_service(
            self._client,
            facts.name,
            uid=facts.uid,
            boot_id=facts.boot_id,
            incident=incident.row.key,
            leave=leave.require,
        )
        if not done:
            return Freed(outcome=_REPLACED)
        return Freed(decided.settled, decided.said, "put out of service")

    async def _detach(self, decided: Plan, leave: Leave) -> Freed:
        """What has changed meanwhile, or could not be done, is left for the next look."""
        left: set[str] = set()
        ours: set[str] = set()

        async def one(attachment: Attachment) -> None:
            try:
                await attachments.detach(self._client, attachment, not_after=leave.require())
            except NotFound:
                return
            except KubeError as error:
                _log.info("%s is not detached yet: %s", attachment.pv, error)
                left.add(attachment.pv)
            else:
                ours.add(attachment.pv)

        await side_by_side(decided.detach, one, at_once=_PARALLEL)
        done = len(decided.detach) - len(left)
        settled = frozenset(each for each in decided.settled if each.pv not in left)
        said = () if left else decided.said
        outcome = f"detached {done} of {len(decided.detach)} volumes"
        outvoted = tuple(a for a in decided.detach if a.pv in ours & decided.outvoted)
        return Freed(settled, said, outcome, outvoted)

    async def _each(
        self,
        pods: Iterable[PodRef],
        verb: Callable[..., Awaitable[None]],
        leave: Leave,
    ) -> set[str]:
        """The uids for which it worked, or was done already. What failed for good reason (it
        changed) is left for the next look; any other failure is raised once all have been tried."""
        done: set[str] = set()
        failures: list[KubeError] = []

        async def one(pod: PodRef) -> None:
            try:
                await verb(self._client, pod, not_after=leave.require())
            except NotFound:
                done.add(pod.uid)
            except Conflict as error:
                _log.info("%s has changed meanwhile: %s", pod.key, error)
            except KubeError as error:
                failures.append(error)
            else:
                done.add(pod.uid)

        await side_by_side(pods, one, at_once=_PARALLEL)
        if failures:
            raise failures[0]
        return done


def _proven(evidence: Evidence) -> Why:
    reasons = {Scope.VOLUMES: Reason.FenceHolds, Scope.GUEST: Reason.GuestHasStopped}
    whole = Reason.ProofHolds
    if evidence.kind.strength is Strength.PRESUMED:
        whole = Reason.PresumptionHolds
    reason = reasons.get(evidence.kind.scope, whole)
    return reason.because(node=evidence.node, because=words(evidence))


def _targets(decision: Decision) -> tuple[Workload, ...]:
    return tuple(verdict.workload for verdict in decision.releases if verdict.workload.pods)


def _one_batch(targets: tuple[Workload, ...]) -> tuple[Workload, ...]:
    """As many as one intent can name; the others' turn comes with the next look."""
    room, batch = MOST_PODS, list[Workload]()
    for workload in targets:
        room -= len(workload.everything)
        if room < 0:
            break
        batch.append(workload)
    return tuple(batch)


def _why_not(node: str, after: Snapshot | None, decide_on: Callable[[Snapshot], Decision]) -> Why:
    if after is None:
        return Reason.ProofExpired.because(node=node, because="the node is no longer in the API")
    if not after.facts.tainted:
        return Reason.ProofExpired.because(
            node=node, because="our taint was taken off it meanwhile"
        )
    decision = decide_on(after)
    if not decision.held and after.life.state in (Life.LOST, Life.PROVEN):
        return Reason.NoLongerOurs.because(node=node)
    objections = [verdict.why.sentence for verdict in decision.held] or [decision.why.sentence]
    return Reason.ProofExpired.because(node=node, because=objections[0].rstrip("."))
