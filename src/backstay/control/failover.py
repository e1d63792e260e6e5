"""The failover loop: what is done about a node, from the first suspicion to its return.

Everybody observes, also a standby: each look at the leases steps the lives of those nodes that
are not plainly healthy. Whoever leads does more, one node at a time each:

* looks what runs on a node that is suspect, so that nothing has to be looked up later,
* decides (``decide/failover.py``) and tells the decision, also when it is not to act,
* opens an incident when the node is lost, and adopts the one that an earlier leader opened,
* has the guard release what may be released, and watches it come up elsewhere,
* gives the node back when it returns: our taint goes when nothing of the incident is left there.

Nothing is kept that the API does not know. A successor finds incidents, marks and taints, and
looks at everything else itself.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from backstay.apis.backstay import IncidentSpec
from backstay.control.guard import Guard, Outcome
from backstay.control.history import History
from backstay.control.incident import OpenIncident
from backstay.control.observe import Observer
from backstay.control.tell import Teller
from backstay.decide.failover import Check, Decision, Snapshot, decide
from backstay.decide.guests import aftermath
from backstay.decide.life import silence
from backstay.decide.policy import terms_of
from backstay.decide.proof import refuted
from backstay.kube.client import KubeClient
from backstay.kube.errors import Conflict, NotFound
from backstay.kube.lease import Term
from backstay.kube.queue import Again, Done, Result, WorkQueue
from backstay.model.incident import Progress
from backstay.model.node import Life
from backstay.model.policy import Policy, Times
from backstay.model.reasons import Reason, Why
from backstay.model.workload import Workload, spoken
from backstay.record.incidents import IncidentBook
from backstay.record.metrics import Stage
from backstay.record.telling import Advance
from backstay.seam.clock import Rng
from backstay.sources.nodes import NodeSource
from backstay.sources.recovered import whereabouts

_PARALLEL = 8

_SOON = 0.5
"""Seconds until the next look where something is about to happen."""

_LATER = 5.0
"""The same where it has been about to happen for a while."""


class FailoverLoop:
    """See the module."""

    def __init__(
        self,
        client: KubeClient,
        *,
        nodes: NodeSource,
        observer: Observer,
        history: History,
        guard: Guard,
        book: IncidentBook,
        teller: Teller,
        rng: Rng,
        times: Times,
        chain: Sequence[Check],
    ) -> None:
        self.incidents: dict[str, OpenIncident] = {}
        self.decisions: dict[str, Decision] = {}
        self.queue: WorkQueue[str] | None = None
        self._client = client
        self._nodes = nodes
        self._observer = observer
        self._history = history
        self._guard = guard
        self._book = book
        self._teller = teller
        self._rng = rng
        self._times = times
        self._chain = chain
        self._released_at: dict[str, float] = {}
        self._waiting_since: dict[str, float] = {}

    # What everybody does

    def looked(self) -> None:
        """After each look at the leases, and when something changed that concerns every node."""
        names = self._nodes.names
        for name in names:
            self.consider(name)
        for gone in self._observer.watched.keys() - set(names):
            self._observer.look(gone)

    def consider(self, name: str) -> None:
        """Something may be different about this node."""
        if not self._observer.is_interesting(name):
            return
        self._observer.look(name)
        if self.queue is not None:
            self.queue.add(name)

    # What the leader does

    async def lead(self, term: Term) -> None:
        """Until cancelled; whatever was under way has ended then."""
        queue = WorkQueue[str]("failover", rng=self._rng, parallel=_PARALLEL, last_retry=10.0)
        rows = await self._book.all()
        self._history.read(rows)
        self.incidents = {row.spec.node: OpenIncident(self._book, row) for row in rows if row.open}
        for name in {*self._nodes.names, *self.incidents}:
            if name in self.incidents or self._observer.is_interesting(name):
                queue.add(name)
        self.queue = queue
        try:
            await queue.run(partial(self._act, term))
        finally:
            self.queue = None
            self.decisions.clear()

    async def _act(self, term: Term, name: str) -> Result:
        try:
            return await self._handle(term, name)
        except (Conflict, NotFound):
            # Somebody else has written, or deleted it: what we know of it is out of date.
            self.incidents.pop(name, None)
            raise

    async def _handle(self, term: Term, name: str) -> Result:
        snapshot = self._observer.look(name)
        if snapshot is None:
            return await self._forget(name, term)
        if snapshot.life.state is Life.HEALTHY:
            return await self._welcome(name, snapshot, term)
        await self._observer.read_workloads(name)
        snapshot = self._observer.look(name) or snapshot
        decision = self._decide(snapshot)
        self._tell(snapshot, decision)
        match snapshot.life.state:
            case Life.SUSPECT | Life.HEALTHY:
                return Done()
            case Life.RETURNING:
                return await self._receive_back(snapshot, decision, term)
            case Life.LOST | Life.PROVEN | Life.RECOVERED:
                return await self._fail_over(snapshot, decision, term)

    def _decide(self, snapshot: Snapshot) -> Decision:
        now = asyncio.get_running_loop().time()
        return decide(snapshot, now, times=self._times, chain=self._chain)

    def _tell(self, snapshot: Snapshot, decision: Decision) -> None:
        self.decisions[decision.node] = decision
        incident = self.incidents.get(decision.node)
        now = asyncio.get_running_loop().time()
        self._teller.decided(
            snapshot, decision, now, incident="" if incident is None else incident.row.key
        )

    # A node that is lost

    async def _fail_over(self, snapshot: Snapshot, decision: Decision, term: Term) -> Result:
        name = snapshot.facts.name
        incident = await self._incident_of(snapshot, term)
        moments: list[Why] = []
        outcome = Outcome()
        if decision.releases:
            outcome = await self._release(snapshot, incident, moments, term)
        advances = self._departures(snapshot, incident) | self._advances(snapshot, outcome)
        advances |= await self._arrivals(snapshot, incident)
        if outcome.why is not None:
            self._note(snapshot, moments, outcome.why)
        snapshot = self._observer.look(name) or snapshot
        await incident.tell(
            snapshot,
            self._decide(snapshot),
            term=term,
            advances=advances,
            moments=moments,
            outcome=str(outcome),
        )
        return self._take_stock(snapshot, decision, incident, outcome)

    async def _release(
        self, snapshot: Snapshot, incident: OpenIncident, moments: list[Why], term: Term
    ) -> Outcome:
        """Through the guard, with an eye on the clock."""
        loop, facts = asyncio.get_running_loop(), snapshot.facts
        lap = loop.time()

        def told(why: Why) -> None:
            nonlocal lap
            self._note(snapshot, moments, why)
            if why.code == Reason.BarrierRaised.name:
                self._teller.took(Stage.BARRIER, loop.time() - lap)
            elif why.code == Reason.ProofHolds.name:
                self._teller.took(Stage.PROVE, loop.time() - snapshot.life.since)
            lap = loop.time()

        outcome = await self._guard.release(facts.name, term=term, incident=incident, told=told)
        if outcome.released:
            self._released_at[facts.name] = loop.time()
            self._history.released(len(outcome.released))
            self._teller.took(Stage.REMOVAL, loop.time() - lap)
        return outcome

    def _take_stock(
        self, snapshot: Snapshot, decision: Decision, incident: OpenIncident, outcome: Outcome
    ) -> Result:
        watched = self._observer.watched.get(decision.node)
        done = not incident.unfinished()
        if watched is not None:
            # A predecessor may have done it all and died before it could say so.
            nothing_left = done and bool(decision.evidence) and snapshot.facts.tainted
            watched.proven = watched.proven or outcome.proof is not None or nothing_left
            watched.recovered = watched.proven and done
        if outcome.released or outcome.why is not None:
            self._waiting_since.pop(decision.node, None)
            return Again(_SOON)
        if incident.under_way():
            return Again(self._patience(decision.node))
        self._waiting_since.pop(decision.node, None)
        return Done()

    def _patience(self, node: str) -> float:
        """What was released a moment ago may come up any moment; what has not come up for minutes
        waits for a disk or a person, and need not be looked for twice a second."""
        now = asyncio.get_running_loop().time()
        waited = now - self._waiting_since.setdefault(node, now)
        return min(max(_SOON, waited / 10), _LATER)

    def _note(self, snapshot: Snapshot, moments: list[Why], why: Why) -> None:
        moments.append(why)
        self._teller.say(why, node=snapshot.facts)

    def _departures(self, snapshot: Snapshot, incident: OpenIncident) -> dict[str, Advance]:
        """What was released without a word of it, as of the look that this decision is from."""
        node = snapshot.facts.name
        return {
            record.workload: Advance(
                Progress.RELEASED,
                Reason.Released.because(workload=spoken(record.workload), node=node),
            )
            for record in incident.vanished(snapshot)
        }

    def _advances(self, snapshot: Snapshot, outcome: Outcome) -> dict[str, Advance]:
        """What the guard has just released."""
        advances = {}
        for workload in outcome.released:
            advance = _released(workload, snapshot.policy)
            advances[workload.key] = advance
            self._teller.say(advance.why, node=snapshot.facts, workload=workload)
        return advances

    async def _arrivals(self, snapshot: Snapshot, incident: OpenIncident) -> dict[str, Advance]:
        """What was released earlier and has come up elsewhere by now, or never will."""
        node = snapshot.facts
        found = await whereabouts(self._client, incident.under_way(), away_from=node.name)
        advances = {}
        for key, seen in found.items():
            if seen.unwanted:
                why = Reason.NoLongerWanted.because(workload=spoken(key), because=seen.unwanted)
                advances[key] = Advance(Progress.LEFT, why)
                continue
            why = Reason.Recovered.because(workload=spoken(key), target=seen.node)
            advances[key] = Advance(Progress.RECOVERED, why)
            if node.name in self._released_at:
                now = asyncio.get_running_loop().time()
                self._teller.took(Stage.RECOVERED, now - self._released_at[node.name])
            self._teller.arrived(key, why, node=node)
        return advances

    async def _incident_of(self, snapshot: Snapshot, term: Term) -> OpenIncident:
        facts = snapshot.facts
        known = self.incidents.get(facts.name)
        boot = (facts.uid, snapshot.life.boot_id)
        if known is not None and (known.row.spec.node_uid, known.row.spec.boot_id) == boot:
            return known
        spec = IncidentSpec(facts.name, facts.uid, snapshot.life.boot_id)
        row = await self._book.open(spec, not_after=term.require())
        opened = self.incidents[facts.name] = OpenIncident(self._book, row)
        if not row.status.opened_at:
            self._teller.took(Stage.DETECT, silence(facts))
        return opened

    # A node that is back, or gone

    async def _receive_back(self, snapshot: Snapshot, decision: Decision, term: Term) -> Result:
        facts = snapshot.facts
        incident = self.incidents.get(facts.name)
        if incident is not None:
            advances = await self._arrivals(snapshot, incident)
            await incident.tell(snapshot, decision, term=term, advances=advances)
        if facts.tainted and self._is_clean(snapshot, incident):
            await self._guard.let_go(facts.name, uid=facts.uid, term=term)
        return Done()

    def _is_clean(self, snapshot: Snapshot, incident: OpenIncident | None) -> bool:
        """Whether nothing of the incident is left on the node.

        A node that comes back in the same boot may still run what was removed from the API while
        it was away; its kubelet ends that once it has looked, and is given the time for it.
        """
        facts, life = snapshot.facts, snapshot.life
        if facts.lease_changed_at is None or facts.lease_changed_at < life.since:
            return False
        left = incident.uids() if incident is not None else set[str]()
        if any(pod.uid in left for workload in snapshot.workloads for pod in workload.pods):
            return False
        rebooted = incident is not None and incident.row.spec.boot_id != facts.boot_id
        lived = facts.looked_at - life.since
        return facts.ready == "True" and (rebooted or lived >= self._times.lost)

    async def _welcome(self, name: str, snapshot: Snapshot, term: Term) -> Result:
        """It is healthy: what was told of it has come to its end.

        For whoever has just begun to look nobody is silent yet: without a sign of life that we saw
        ourselves, an incident of somebody before us is not over.
        """
        incident = self.incidents.get(name)
        if incident is not None and not _heard_of(snapshot, incident):
            return Again(_SOON)
        contradiction = refuted(snapshot.heard)
        if contradiction is None:
            self._let_be(name)
        else:
            self._tell(snapshot, self._decide(snapshot))
        if incident is not None:
            rebooted = incident.row.spec.boot_id != snapshot.facts.boot_id
            back = (Reason.NodeRebooted if rebooted else Reason.NodeReturned).because(node=name)
            await incident.close(contradiction or back, term=term)
            self._history.read([incident.row])
            del self.incidents[name]
        return Done()

    async def _forget(self, name: str, term: Term) -> Result:
        incident = self.incidents.get(name)
        self._let_be(name)
        if incident is not None:
            await incident.close(Reason.NodeGone.because(node=name), term=term)
            self._history.read([incident.row])
            del self.incidents[name]
        return Done()

    def _let_be(self, name: str) -> None:
        """What happens to this node next has nothing to do with what happened before."""
        self._teller.forget(name)
        for kept in (self.decisions, self._released_at, self._waiting_since):
            kept.pop(name, None)


def _heard_of(snapshot: Snapshot, incident: OpenIncident) -> bool:
    facts = snapshot.facts
    return facts.lease_changed_at is not None or facts.boot_id != incident.row.spec.boot_id


def _released(workload: Workload, policy: Policy) -> Advance:
    then = aftermath(workload, terms_of(workload, policy))
    return Advance(Progress.STAYS_DOWN if then.down else Progress.RELEASED, then.why)
