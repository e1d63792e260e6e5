"""The failover loop: what is done about a node, from the first suspicion to its return.

Everybody observes, also a standby: each look at the leases steps the lives of those nodes that
are not plainly healthy. Whoever leads does more, one node at a time each:

* looks what runs on a node that is suspect, so that nothing has to be looked up later,
* decides (``decide/failover.py``) and tells the decision, also when it is not to act,
* keeps at a person's word which sign of life has refuted it (``record/refutations.py``),
* opens an incident when the node is lost, and adopts the one that an earlier leader opened,
* has the guard release what may be released, and watches it come up elsewhere,
* has KubeVirt move what lives on without a kubelet, and start what nobody else would, if policies
  say so (``machines.py``),
* gives the node back when it returns: our taint goes when nothing of the incident is left there.

Nothing is kept that the API does not know. A successor finds incidents, marks and taints, and
looks at everything else itself.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from backstay.apis.backstay import IncidentRow, IncidentSpec
from backstay.control.advances import departures, migrated, released
from backstay.control.arrivals import Arrivals, getting_ready
from backstay.control.fences import Fences
from backstay.control.guard import Guard
from backstay.control.history import History
from backstay.control.incident import OpenIncident
from backstay.control.laps import Laps
from backstay.control.machines import Machines
from backstay.control.observe import Observer
from backstay.control.outcomes import Outcome
from backstay.control.power import Power
from backstay.control.tell import Teller
from backstay.control.volumes import Volumes
from backstay.control.witnesses import Witnesses
from backstay.decide.failover import Check, Decision, Snapshot, decide
from backstay.decide.life import silence
from backstay.decide.proof import refuted
from backstay.decide.storm import is_storm
from backstay.kube.client import KubeClient
from backstay.kube.errors import Conflict, KubeError, NotFound
from backstay.kube.lease import Term
from backstay.kube.queue import Again, Done, Result, WorkQueue
from backstay.model.node import Life
from backstay.model.policy import Times
from backstay.model.reasons import Reason, Why
from backstay.record.incidents import IncidentBook
from backstay.record.metrics import Stage
from backstay.record.refutations import Refutations
from backstay.record.telling import Advance
from backstay.seam.clock import Rng
from backstay.sources.fences import FenceSource
from backstay.sources.linstor import LinstorSource
from backstay.sources.nodes import NodeSource

_log = logging.getLogger("backstay.failover")

_PARALLEL = 8

_AT_ONCE = 0.0
_SOON = 0.5
"""Seconds until the next look where something is about to happen."""

_FENCES = 1.0
"""The same where a storage is about to take a node back."""

_LATER = 5.0
"""The same where it has been about to happen for a while."""

_SELDOM = 15.0
"""The same where nothing has been left to do for a minute."""


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
        fences: FenceSource,
        linstor: LinstorSource | None,
        power: Power,
        machines: Machines,
        book: IncidentBook,
        refutations: Refutations,
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
        self._power = power
        self._machines = machines
        self._book = book
        self._refutations = refutations
        self._teller = teller
        self._rng = rng
        self._times = times
        self._chain = chain
        self._arrivals = Arrivals(client, teller, opt_in=observer.opt_in)
        self._settled: set[str] = set()
        """The nodes of which nothing was to be said when they were last considered. Only silence
        comes about by itself; of whatever else may change that, we are told."""
        self._laps: dict[str, Laps] = {}
        self._waiting_since: dict[str, float] = {}
        self._quiet_since: dict[str, float] = {}
        """When what runs on a node was last read, if nothing was left to do about it."""
        self._at_rest: set[str] = set()
        """The dead nodes of which nothing is left that time alone could change. Until something is
        heard of one, it gets no lap but for a look at what runs there, now and then."""
        self._in_a_storm = asyncio.Lock()
        self._volumes = Volumes(client, guard, times=times, outvoted=teller.detached)
        self._fences = Fences(guard, fences, times=times)
        self._witnesses = Witnesses(guard, linstor, times=times)

    # What everybody does

    def looked(self) -> None:
        """After each look at the leases."""
        names = self._nodes.names
        if len(self._settled) > len(names):
            self._settled.intersection_update(names)
        lively = self._nodes.lively
        left_alone = self._settled & lively
        # As a rule all are. Else in a list: what is done may change what is known.
        for name in () if names <= left_alone else [n for n in names if n not in left_alone]:
            if name in lively or not self._observer.is_lost(name):
                self.consider(name)
            elif self.queue is not None and name not in self._at_rest:
                # It has not been heard of, and so is still where it was; of whatever else may
                # change that, we are told.
                self.queue.add(name)
        for gone in self._observer.watched.keys() - names:
            self._observer.look(gone)

    def consider(self, name: str) -> None:
        """Something may be different about this node."""
        if not self._observer.is_interesting(name):
            self._settled.add(name)
            return
        self._settled.discard(name)
        self._at_rest.discard(name)
        self._observer.look(name)
        if self.queue is not None:
            self.queue.add(name)

    def reconsider(self) -> None:
        """Something changed that concerns every node."""
        self._at_rest.clear()
        self.looked()

    def deleted(self, uid: str) -> None:
        """An incident is gone from the API. If its case is still open, the next look at its node
        writes it anew, and no look sooner: somebody may be deleting all that there is."""
        for incident in self.incidents.values():
            if incident.row.uid == uid:
                incident.stale = True
                self._at_rest.discard(incident.row.spec.node)

    # What the leader does

    async def lead(self, term: Term) -> None:
        """Until cancelled; whatever was under way has ended then."""
        queue = WorkQueue[str]("failover", rng=self._rng, parallel=_PARALLEL, last_retry=10.0)
        rows = await self._book.recall()
        self._history.read(rows)
        self.incidents = {row.spec.node: OpenIncident(self._book, row) for row in rows if row.open}
        self._laps.clear()
        self._quiet_since.clear()
        self._at_rest.clear()
        self._teller.begin()
        for name, incident in self.incidents.items():
            why = Why(incident.row.status.code, incident.row.status.sentence)
            self._teller.opened(incident.row.key, why, node=name, anew=False)
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
            if (incident := self.incidents.get(name)) is not None:
                incident.stale = True
            raise

    async def _handle(self, term: Term, name: str) -> Result:
        self._settled.discard(name)
        self._at_rest.discard(name)
        snapshot = self._observer.look(name)
        if snapshot is None:
            return await self._forget(name, term)
        await self._refutations.keep(snapshot.heard, term=term)
        if snapshot.life.state is Life.HEALTHY:
            return await self._welcome(name, snapshot, term)
        await self._read_workloads(snapshot)
        if self._observer.has_changed(snapshot):
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

    async def _read_workloads(self, snapshot: Snapshot) -> None:
        """What runs on the node. Where nothing was left to do it is read less and less often: it
        hardly changes any more, and whatever is done rests on a look of its own."""
        name, now = snapshot.facts.name, asyncio.get_running_loop().time()
        watched, quiet = self._observer.watched.get(name), self._quiet_since.get(name)
        is_known = watched is not None and watched.workloads is not None
        if is_known and quiet is not None and now - quiet < _reading_pause(snapshot, now):
            return
        self._quiet_since.pop(name, None)
        await self._observer.read_workloads(name)

    def _decide(self, snapshot: Snapshot) -> Decision:
        now = asyncio.get_running_loop().time()
        return decide(snapshot, now, times=self._times, chain=self._chain)

    def _tell(self, snapshot: Snapshot, decision: Decision) -> None:
        self.decisions[decision.node] = decision
        now = asyncio.get_running_loop().time()
        self._teller.decided(snapshot, decision, now)

    # A node that is lost

    async def _fail_over(self, snapshot: Snapshot, decision: Decision, term: Term) -> Result:
        name = snapshot.facts.name
        incident = await self._incident_of(snapshot, term)
        moments: list[Why] = []
        told = partial(self._note, snapshot, moments)
        if incident.is_given_up(decision):
            told(Reason.NoLongerOurs.because(node=name))
        await self._witnesses.bring_back(snapshot, incident, term=term, told=told)
        outcome, freed = Outcome(), await self._free(snapshot, decision, incident, moments, term)
        if decision.releases:
            if not incident.row.status.workloads:
                # Else whoever is cut off in the midst of it leaves nothing behind that tells what
                # left the node, how often that was, and whose volumes are to be freed.
                await incident.tell(snapshot, decision, term=term)
            outcome, freed = await self._release(snapshot, incident, moments, term), ""
        elif not freed:
            freed = await self._seek_proof(snapshot, decision, incident, moments, term)
        if decision.rescues and not decision.releases:
            freed = await self._machines.rescue(name, term=term, incident=incident, told=told)
        laps = self._laps_of(snapshot)
        advances = departures(snapshot, incident) | self._advances(snapshot, outcome, laps)
        arrived = await self._arrivals.look(snapshot.facts, incident, laps, self._observer.policy)
        advances |= arrived.advances | migrated(decision, incident)
        if arrived.due:
            await self._machines.start(name, arrived.due, term=term, told=told)
        if outcome.why is not None:
            incident.was_proven(decision)
            self._note(snapshot, moments, outcome.why)
        told_of = decision
        if decision.releases or freed or moments or self._observer.has_changed(snapshot):
            snapshot = self._observer.look(name) or snapshot
            told_of = self._decide(snapshot)
        await incident.tell(
            snapshot,
            told_of,
            term=term,
            advances=advances,
            moments=moments,
            stages=laps.stages,
            outcome=freed or str(outcome),
        )
        # Its node may stay dead for days, and the next one may die in a minute.
        self._history.read([incident.row])
        return self._take_stock(snapshot, decision, incident, outcome)

    async def _free(
        self,
        snapshot: Snapshot,
        decision: Decision,
        incident: OpenIncident,
        moments: list[Why],
        term: Term,
    ) -> str:
        """The volumes of what was released before, for which somebody waits. If that fails, what
        is still to be released does not wait for it."""
        told = partial(self._note, snapshot, moments)
        try:
            freed = await self._volumes.free(snapshot, incident, term=term, told=told)
        except KubeError as error:
            if not decision.releases:
                raise
            _log.info("volumes of %s are not freed yet: %s", decision.node, error)
            return ""
        if freed:
            incident.became(freed)
        return freed

    async def _seek_proof(
        self,
        snapshot: Snapshot,
        decision: Decision,
        incident: OpenIncident,
        moments: list[Why],
        term: Term,
    ) -> str:
        """Where there is none, something can be done to get it. A node that is switched off is
        proof for everything; a fence is put up where that is not to be had. What was switched off
        is switched on again once nothing needs that any more."""
        told = partial(self._note, snapshot, moments)
        about = snapshot, decision, incident
        done = await self._power.switch_off(*about, term=term, told=told)
        if not done and not self._power.is_promising(snapshot, incident):
            done = await self._fences.put_up(*about, term=term, told=told)
        owes = bool(self._volumes.owes(snapshot.facts.name, incident))
        return done or await self._power.switch_on(*about, owes=owes, term=term, told=told)

    async def _release(
        self, snapshot: Snapshot, incident: OpenIncident, moments: list[Why], term: Term
    ) -> Outcome:
        """Through the guard; in a storm one node after the other, so that each counts what was
        released before it."""
        if not is_storm(snapshot.fleet, snapshot.policy):
            return await self._release_now(snapshot, incident, moments, term)
        async with self._in_a_storm:
            return await self._release_now(snapshot, incident, moments, term)

    async def _release_now(
        self, snapshot: Snapshot, incident: OpenIncident, moments: list[Why], term: Term
    ) -> Outcome:
        """With an eye on the clock."""
        loop, facts = asyncio.get_running_loop(), snapshot.facts
        began = raised = loop.time()

        def told(why: Why) -> None:
            nonlocal raised
            self._note(snapshot, moments, why)
            if why.code == Reason.BarrierRaised.name:
                raised = loop.time()

        outcome = await self._guard.release(facts.name, term=term, incident=incident, told=told)
        if outcome.released:
            self._history.released(sum(not each.leaving for each in outcome.released))
            if snapshot.life.state is Life.LOST:
                self._took(Stage.PROVE, began - snapshot.life.since, snapshot)
            self._took(Stage.BARRIER, raised - began, snapshot)
            self._took(Stage.REMOVAL, loop.time() - raised, snapshot)
        return outcome

    def _took(self, stage: Stage, seconds: float, snapshot: Snapshot) -> None:
        self._laps_of(snapshot).took(stage, seconds)
        self._teller.took(stage, seconds)

    def _laps_of(self, snapshot: Snapshot) -> Laps:
        facts = snapshot.facts
        known = self._laps.get(facts.name)
        if known is None:
            known = self._laps[facts.name] = Laps(facts, snapshot.life.state)
        return known

    def _take_stock(
        self, snapshot: Snapshot, decision: Decision, incident: OpenIncident, outcome: Outcome
    ) -> Result:
        watched = self._observer.watched.get(decision.node)
        done = not incident.unfinished()
        if watched is not None:
            # A predecessor may have done it all and died before it could say so.
            nothing_left = done and bool(decision.evidence) and snapshot.facts.tainted
            watched.proven = watched.proven or outcome.is_death or nothing_left
            watched.recovered = watched.proven and done
        awaited = incident.under_way() or getting_ready(incident, self._laps_of(snapshot))
        if awaited or decision.releases or decision.rescues:
            self._quiet_since.pop(decision.node, None)
        else:
            self._quiet_since.setdefault(decision.node, asyncio.get_running_loop().time())
        if outcome.released or outcome.why is not None:
            self._waiting_since.pop(decision.node, None)
            # What was released has left volumes behind, for which somebody waits.
            return Again(_AT_ONCE if outcome.released else _SOON)
        if awaited:
            return Again(self._patience(decision.node))
        self._waiting_since.pop(decision.node, None)
        return self._rest(snapshot, decision, incident)

    def _rest(self, snapshot: Snapshot, decision: Decision, incident: OpenIncident) -> Result:
        """Where everything has come to its end, nothing but what happens can change that: its node
        is heard of, somebody says something, or something else comes to run there. What is held
        may be free with the next second, and what is owed too."""
        name, now = decision.node, asyncio.get_running_loop().time()
        pause = _reading_pause(snapshot, now)
        is_over = snapshot.life.state is Life.RECOVERED and not incident.unfinished()
        owes = self._volumes.owes(name, incident) or self._power.owes(name)
        awaited = owes or self._witnesses.are_awaited(name)
        if pause < _LATER or not is_over or awaited or not decision.leaves_all:
            return Done()
        self._at_rest.add(name)
        self._quiet_since.pop(name, None)
        return Again(pause)

    def _patience(self, node: str) -> float:
        """What was released a moment ago may come up any moment; what has not come up for minutes
        waits for a disk or a person, and need not be looked for twice a second."""
        now = asyncio.get_running_loop().time()
        waited = now - self._waiting_since.setdefault(node, now)
        return min(max(_SOON, waited / 10), _LATER)

    def _note(self, snapshot: Snapshot, moments: list[Why], why: Why) -> None:
        moments.append(why)
        self._teller.say(why, node=snapshot.facts)

    def _advances(self, snapshot: Snapshot, outcome: Outcome, laps: Laps) -> dict[str, Advance]:
        """What the guard has just released."""
        now = asyncio.get_running_loop().time()
        advances = {}
        for workload in outcome.released:
            laps.released[workload.key] = now
            advance = released(workload, snapshot.policy, after=laps.after(now))
            advances[workload.key] = advance
            self._teller.released(advance.why, node=snapshot.facts, workload=workload)
        self._teller.deleted(outcome.outvoted)
        return advances

    async def _incident_of(self, snapshot: Snapshot, term: Term) -> OpenIncident:
        facts = snapshot.facts
        known = self.incidents.get(facts.name)
        spec = IncidentSpec(facts.name, facts.uid, snapshot.life.boot_id)
        same = known is not None and known.row.spec == spec
        if known is not None and same and not known.stale:
            return known
        if known is not None and same:
            row = await self._reopened(known, term)
        else:
            row = await self._book.open(spec, not_after=term.require())
        opened = self.incidents[facts.name] = OpenIncident(self._book, row)
        anew = not row.status.opened_at
        if anew and not same:
            # Of what was measured before, nothing belongs to this one.
            self._laps.pop(facts.name, None)
            self._took(Stage.DETECT, silence(facts), snapshot)
        self._teller.opened(row.key, snapshot.life.why, node=facts.name, anew=anew)
        return opened

    async def _reopened(self, known: OpenIncident, term: Term) -> IncidentRow:
        """As it is now; where somebody has deleted it, with what it told before: what has left the
        node, and may still run there when it is back, stands nowhere else."""
        row = await self._book.open(known.row.spec, not_after=term.require())
        if row.status.opened_at:
            return row
        return await self._book.update(row, known.row.status, not_after=term.require())

    # A node that is back, or gone

    async def _known_incident(self, name: str, *, due: Term | None = None) -> OpenIncident | None:
        """The open one as it is now, if there is one. What comes to its end is not begun anew,
        unless something is still ``due``, in this term."""
        known = self.incidents.get(name)
        if known is None or not known.stale:
            return known
        spec = known.row.spec
        row = await (self._book.adopt(spec) if due is None else self._reopened(known, due))
        if row is None:
            del self.incidents[name]
            return None
        read = self.incidents[name] = OpenIncident(self._book, row)
        return read

    async def _receive_back(self, snapshot: Snapshot, decision: Decision, term: Term) -> Result:
        facts = snapshot.facts
        incident = await self._known_incident(facts.name, due=term if facts.tainted else None)
        if incident is not None:
            laps = self._laps_of(snapshot)
            arrived = await self._arrivals.look(facts, incident, laps, self._observer.policy)
            await incident.tell(snapshot, decision, term=term, advances=arrived.advances)
        if facts.tainted and self._is_clean(snapshot, incident):
            if await self._has_left_something(snapshot, decision, incident, term):
                return Again(_LATER)
            if not await self._lift_fences(snapshot, incident, term):
                return Again(_FENCES)
            await self._guard.let_go(facts.name, uid=facts.uid, term=term)
        return Done()

    async def _has_left_something(
        self, snapshot: Snapshot, decision: Decision, incident: OpenIncident | None, term: Term
    ) -> bool:
        """Whether it still has a volume that was taken from it while it was away."""
        moments: list[Why] = []
        told = partial(self._note, snapshot, moments)
        left = await self._volumes.left_behind(snapshot, incident, told=told)
        if moments and incident is not None:
            await incident.tell(snapshot, decision, term=term, moments=moments)
        return left

    async def _lift_fences(
        self, snapshot: Snapshot, incident: OpenIncident | None, term: Term
    ) -> bool:
        """Whether nothing of ours is left against the node: no request to switch it off is under
        way, and the storage has taken it back, as far as it is ours to have it so."""
        if incident is None:
            return True
        if self._power.is_awaited(snapshot, incident):
            return False
        said = partial(self._teller.say, node=snapshot.facts)
        return await self._fences.lift(snapshot.facts, term=term, told=said)

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
        incident = await self._known_incident(name)
        if incident is not None and not _heard_of(snapshot, incident):
            return Again(_SOON)
        if not await self._lift_fences(snapshot, incident, term):
            return Again(_FENCES)
        contradiction = refuted(snapshot.heard)
        if contradiction is None:
            self._let_be(name)
        else:
            self._tell(snapshot, self._decide(snapshot))
        if incident is not None:
            rebooted = incident.row.spec.boot_id != snapshot.facts.boot_id
            back = (Reason.NodeRebooted if rebooted else Reason.NodeReturned).because(node=name)
            await self._close(name, incident, contradiction or back, term)
        return Done()

    async def _forget(self, name: str, term: Term) -> Result:
        incident = await self._known_incident(name)
        self._let_be(name)
        if incident is not None:
            await self._close(name, incident, Reason.NodeGone.because(node=name), term)
        return Done()

    async def _close(self, name: str, incident: OpenIncident, why: Why, term: Term) -> None:
        await incident.close(why, term=term)
        self._teller.closed(why, node=name)
        self._history.read([incident.row])
        del self.incidents[name]

    def _let_be(self, name: str) -> None:
        """What happens to this node next has nothing to do with what happened before."""
        self._teller.forget(name)
        self._volumes.forget(name)
        self._fences.forget(name)
        self._witnesses.forget(name)
        self._power.forget(name)
        self._at_rest.discard(name)
        for kept in (self.decisions, self._laps, self._waiting_since, self._quiet_since):
            kept.pop(name, None)


def _reading_pause(snapshot: Snapshot, now: float) -> float:
    """Seconds between two looks at what runs on a node where nothing is left to do."""
    return min((now - snapshot.life.since) / 4, _SELDOM)


def _heard_of(snapshot: Snapshot, incident: OpenIncident) -> bool:
    facts = snapshot.facts
    return facts.lease_changed_at is not None or facts.boot_id != incident.row.spec.boot_id
