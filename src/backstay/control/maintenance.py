"""The maintenance loop: from a NodeMaintenance to a node that may go down, and back.

::

    finalizer ─▶ cordon, taint, label, and whose they are, in one write ─▶ drain ─▶ Succeeded
    deleted ─▶ nobody is asked any more ─▶ what was ours is given back ─▶ finalizer

Rules:

* Whoever leads serves every NodeMaintenance by itself; none waits for another. A drain is a task
  of its own (``drain.py``), and what is here is short: look, compare, write what is missing.
* Nothing is kept that the API does not know. A successor finds the finalizer, the marks on the node
  and the status, and goes on.
* Every write carries the end of our term. What people say meanwhile is heeded between two writes:
  a configuration that was changed, a maintenance that was deleted.
* Whoever only observes writes what it would do, and nothing to the node. Disarmed, it asks nobody
  to leave; what is cordoned stays so. To give back what is ours is always allowed.
* Of two maintenances of a node the older one counts; of two control-plane nodes one may go.
* Where the kind is not installed there is nothing to do, and that is looked at now and then.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from backstay.act import cordons
from backstay.act import maintenance as verbs
from backstay.apis.core import NodeRow
from backstay.apis.maintenance import (
    MAINTENANCE_PROJECTION,
    NODE_MAINTENANCES,
    MaintenanceRow,
    NodeMaintenance,
    maintenance_row,
)
from backstay.control.control_plane import ControlPlane
from backstay.control.drain import Copies, Drain, Leave
from backstay.control.foresight import foresee
from backstay.decide import maintenance as decide
from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.discovery import serves
from backstay.kube.errors import KubeError, NotFound, TooLate
from backstay.kube.events import EventRecorder
from backstay.kube.lease import Term
from backstay.kube.queue import Again, Done, Result, WorkQueue
from backstay.kube.reflector import Reflector
from backstay.model.drain import MAINTENANCE_OPTIONS, DrainState
from backstay.model.drain_reasons import DrainReason
from backstay.model.labels import DRAIN_TAINT
from backstay.model.maintenance import Marks, marks_of
from backstay.model.policy import Job, Ownership, Policy
from backstay.model.reasons import Why
from backstay.record.maintenances import MaintenanceBook, is_alarming
from backstay.record.metrics import Metrics
from backstay.seam.clock import Rng, WallClock
from backstay.seam.tasks import Tasks
from backstay.sources.nodes import NodeSource
from backstay.sources.operator import OperatorSource

_log = logging.getLogger("backstay.maintenance")

_PARALLEL = 8
_ABSENT = 60.0
"""Seconds until it is looked again whether the kind is there."""

_SOON = 1.0
_LATER = 10.0
_SELDOM = 60.0

_TAINT = f"{DRAIN_TAINT}:NoSchedule"


class Running:
    """One drain and the task that it runs in."""

    def __init__(self, drain: Drain, task: asyncio.Task[None]) -> None:
        self.drain = drain
        self.task = task


class MaintenanceLoop:
    """See the module. ``down`` are the nodes that are silent."""

    def __init__(
        self,
        client: KubeClient,
        *,
        nodes: NodeSource,
        operator: OperatorSource,
        down: Callable[[], Collection[str]],
        events: EventRecorder,
        wall: WallClock,
        rng: Rng,
        drain: type[Drain] = Drain,
        copies: Copies | None = None,
    ) -> None:
        self.rows: Cache[MaintenanceRow] = Cache()
        self.queue: WorkQueue[str] | None = None
        self.running: dict[str, Running] = {}
        """By the uid of the maintenance."""
        self.book = MaintenanceBook(client, events, wall=wall)
        self.trouble = ""
        self._client = client
        self._nodes = nodes
        self._operator = operator
        self._control_plane = ControlPlane(client, down)
        self._wall = wall
        self._rng = rng
        self._drain = drain
        self._copies = copies
        self._tasks: Tasks | None = None
        self._ended: dict[str, Drain] = {}
        self._asked = 0
        """How often drains that are over have asked."""
        self._one_at_a_time = asyncio.Lock()
        nodes.cache.subscribe(self._node_changed)

    # What it says of itself

    def measure(self, metrics: Metrics) -> None:
        standing = Counter(why.code for why in self.book.standing.values())
        blockers = Counter(
            b.why.code for r in self.running.values() for b in r.drain.state.blockers
        )
        metrics.maintenances.set_all({code: float(n) for code, n in standing.items()})
        metrics.drain_blockers.set_all({code: float(n) for code, n in blockers.items()})
        under_way = sum(running.drain.requests for running in self.running.values())
        metrics.drain_requests.reached(self._asked + under_way)

    def notes(self) -> Iterator[str]:
        """What waits for somebody."""
        if self.trouble:
            yield f"{self.trouble[0].upper()}{self.trouble[1:]}."
        yield from (why.sentence for why in self.book.standing.values() if is_alarming(why))

    # What may be a reason to look

    def reconsider(self) -> None:
        """People have said something."""
        for running in self.running.values():
            running.drain.poke()
        for row in self.rows:
            self._add(row.key)

    def _add(self, name: str) -> None:
        if self.queue is not None:
            self.queue.add(name)

    def _changed(self, old: MaintenanceRow | None, new: MaintenanceRow | None) -> None:
        for row in (old, new):
            if row is not None:
                self._add(row.key)
        # Of two for one node the next may have its turn.
        nodes = {row.node for row in (old, new) if row is not None}
        if old is None or new is None or old.deleting != new.deleting:
            self._add_those_of(nodes)
        if new is None and old is not None:
            node = self._nodes.cache.get(old.node)
            marks = None if node is None else marks_of(node.maintenance)
            if marks is not None:
                self._add(marks.name)

    def _node_changed(self, old: NodeRow | None, new: NodeRow | None) -> None:
        row = new or old
        if row is None or self.queue is None or _is_same(old, new):
            return
        self._add_those_of({row.key})
        for running in self.running.values():
            if running.drain.node == row.key:
                running.drain.poke()

    def _add_those_of(self, nodes: Collection[str]) -> None:
        for row in self.rows:
            if row.node in nodes:
                self._add(row.key)

    # What the leader does

    async def lead(self, term: Term) -> None:
        """Until cancelled; whatever was under way has ended then."""
        try:
            while True:
                if await self._is_served():
                    await self._serve(term)
                await asyncio.sleep(_ABSENT)
        finally:
            self.trouble = ""

    async def _is_served(self) -> bool:
        """Where the kind is not there, one who may not list it hears that he may not. Whether it
        is there everybody may know."""
        try:
            if not await serves(self._client, NODE_MAINTENANCES):
                self.trouble = ""
                return False
            await self._client.list(NODE_MAINTENANCES, limit=1)
        except KubeError as error:
            self.trouble = f"node maintenances cannot be read: {error}"
            return False
        self.trouble = ""
        return True

    async def _serve(self, term: Term) -> None:
        """Until the kind is gone."""
        self.rows = Cache()
        queue = WorkQueue[str]("maintenance", rng=self._rng, parallel=_PARALLEL, last_retry=_LATER)
        reflector = Reflector(
            self._client, NODE_MAINTENANCES, MAINTENANCE_PROJECTION, self.rows, rng=self._rng
        )
        self.queue = queue
        self.rows.subscribe(self._changed)
        for node in self._nodes.cache:
            if (marks := marks_of(node.maintenance)) is not None:
                queue.add(marks.name)
        try:
            async with Tasks("maintenance") as tasks:
                self._tasks = tasks
                tasks.spawn(reflector.run(), name="watch")
                working = tasks.spawn(queue.run(partial(self._act, term)), name="work")
                while not isinstance(reflector.trouble, NotFound):
                    done, _ = await asyncio.wait([working], timeout=_ABSENT)
                    if done:
                        return working.result()
        finally:
            self.queue = self._tasks = None
            self._asked += sum(running.drain.requests for running in self.running.values())
            self.running.clear()
            self._ended.clear()
            self.book.begin()

    async def _act(self, term: Term, name: str) -> Result:
        """One look at one maintenance, and whatever is missing."""
        if not (self.rows.synced and self._operator.configs.synced):
            # Others of the node, and whether we are armed, are not known yet.
            return Again(_SOON)
        row = await self._read(name)
        if row is None:
            await self._forget(name)
            await self._clear_up(name, None, term)
            return Done()
        await self._stop_others(row)
        await self._clear_up(name, row, term)
        if row.deleting:
            return await self._end(row, term)
        policy = self._operator.policy
        if policy.owner_of(Job.MAINTENANCE) is Ownership.FOREIGN:
            # Its status is somebody else's to write.
            await self._stop(row.uid)
            self.book.forget(row.uid)
            return Done()
        why = self._objection(row)
        if why is not None:
            await self._stop(row.uid)
            return await self._wait_for(row, why, term, Again(_SELDOM))
        if decide.is_observing(policy):
            await self._stop(row.uid)
            return await self._tell_what_would_be(row, term)
        why = decide.gate(policy, row.node)
        if why is None:
            why = await self._begin(row, term)
        if why is not None and row.uid not in self.running:
            return await self._wait_for(row, why, term, Again(_LATER))
        if row.uid not in self.running and not self._is_marked(row):
            # As soon as our own view shows what was just written, we are told.
            return Again(_SOON)
        running = self._ensure(row, term)
        await self._tell(row, running.drain.state, why, term)
        return Again(_SELDOM)

    async def _read(self, name: str) -> MaintenanceRow | None:
        try:
            reply = await self._client.get(NODE_MAINTENANCES, name)
        except NotFound:
            return None
        return maintenance_row(reply.into(NodeMaintenance))

    def _objection(self, row: MaintenanceRow) -> Why | None:
        """What has nothing to do with people's consent."""
        for other in self._others(row):
            if other.age < row.age:
                about = {"node": row.node, "other": other.key, "name": row.key}
                return DrainReason.AnotherMaintenance.because(**about)
        if self._nodes.cache.get(row.node) is None:
            return DrainReason.NodeMissing.because(node=row.node)
        return None

    def _others(self, row: MaintenanceRow) -> Iterator[MaintenanceRow]:
        """Those of the same node that are not about to end."""
        for other in self.rows:
            if other.node == row.node and other.uid != row.uid and not other.deleting:
                yield other

    # Beginning

    async def _begin(self, row: MaintenanceRow, term: Term) -> Why | None:
        """The finalizer and the marks, where they are missing; what is in the way, if anything."""
        node = self._nodes.cache.get(row.node)
        if node is None or (row.begun and _is_marked(node, row)):
            return None
        leave = await self._permit(row, term)
        if isinstance(leave, Why):
            return leave
        if not row.begun:
            await verbs.take_on(self._client, row, not_after=term.require())
            self.book.begun(row)
        return await self._mark(row, node, term, leave)

    async def _mark(
        self, row: MaintenanceRow, node: NodeRow, term: Term, leave: Leave
    ) -> Why | None:
        """Of two control-plane nodes the second sees the marks of the first."""
        marks = marks_of(node.maintenance)
        is_ours = marks is not None and marks.maintenance == row.uid
        async with self._one_at_a_time:
            # What is away already is not asked about: its maintenance only has another name.
            if marks is None and (why := await self._control_plane.objection(row.node)) is not None:
                return why
            written = await cordons.mark(
                self._client,
                row.node,
                uid=node.uid,
                maintenance=row.uid,
                name=row.key,
                # What the Node Maintenance Operator has begun bears its finalizer and its taint.
                inherits=row.begun,
                leave=lambda: leave() or term.require(),
            )
        if written and is_ours and not node.unschedulable:
            again = DrainReason.CordonedAgain.because(node=row.node, name=row.key)
            self.book.say(row, again, node_uid=node.uid)
        elif written and not is_ours:
            reason = row.reason or "no reason given"
            begun = DrainReason.MaintenanceBegun.because(node=row.node, reason=reason)
            self.book.say(row, begun, node_uid=node.uid)
        return None

    async def _permit(self, row: MaintenanceRow, term: Term) -> Leave | Why:
        """By quorum reads: whether people still want it. The leave that comes of it ends with our
        term, and as soon as anybody here sees that they do not."""
        policy, _ = await self._operator.look_closely(row.node)
        live = await self._read(row.key)
        if live is None or live.uid != row.uid or live.deleting:
            self._add(row.key)
            return DrainReason.MaintenanceEnded.because(node=row.node, given="nothing is left")
        why = decide.gate(policy, row.node)
        if why is not None:
            return why
        if decide.is_observing(policy):
            return _observing(row.node)
        return partial(self._require, row, policy, term)

    async def _may_go_on(self, row: MaintenanceRow, term: Term) -> Leave | Why:
        """The same for pods: while the node is not kept free they would come back."""
        if not self._is_marked(row):
            self._add(row.key)
            return DrainReason.NotKeptFree.because(node=row.node)
        return await self._permit(row, term)

    def _is_marked(self, row: MaintenanceRow) -> bool:
        node = self._nodes.cache.get(row.node)
        return node is not None and _is_marked(node, row)

    def _require(self, row: MaintenanceRow, policy: Policy, term: Term) -> float:
        known = self.rows.get(row.key)
        if self._operator.is_outdated(policy):
            raise TooLate("the configuration has changed since this was decided")
        if self.rows.synced and (known is None or known.uid != row.uid or known.deleting):
            raise TooLate("the maintenance is over")
        return term.require()

    # The drain

    def _ensure(self, row: MaintenanceRow, term: Term) -> Running:
        """The drain of this maintenance, which goes on for as long as it lasts."""
        running = self.running.get(row.uid)
        if running is not None and not running.task.done():
            return running
        known = self.book.known(row)
        drain = self._drain(
            self._client,
            row.node,
            MAINTENANCE_OPTIONS,
            rng=self._rng,
            wall=self._wall,
            permit=partial(self._may_go_on, row, term),
            told=lambda _: self._add(row.key),
            copies=self._copies,
            evacuated=known.evacuated,
        )
        assert self._tasks is not None, "whoever acts serves"
        task = self._tasks.spawn(self._keep_draining(drain, row.key), name=f"drain {row.key}")
        running = self.running[row.uid] = Running(drain, task)
        return running

    async def _keep_draining(self, drain: Drain, name: str) -> None:
        try:
            await drain.run(keep=True)
        except KubeError as error:
            _log.info("the drain of %s begins anew: %s", drain.node, error)
            self._add(name)

    async def _stop(self, uid: str) -> Drain | None:
        """The drain of that maintenance, which has ended then."""
        running = self.running.pop(uid, None)
        if running is None:
            return None
        running.task.cancel()
        await asyncio.wait([running.task])
        self._asked += running.drain.requests
        return running.drain

    async def _stop_others(self, row: MaintenanceRow) -> None:
        """One of that name that was deleted and made anew, or that names another node now."""
        known = {each.uid for each in self.rows} | {row.uid}
        for uid in [uid for uid in self.running if uid not in known]:
            await self._stop(uid)
        running = self.running.get(row.uid)
        if running is not None and running.drain.node != row.node:
            await self._stop(row.uid)

    async def _forget(self, name: str) -> None:
        known = {each.uid for each in self.rows if each.key != name}
        for uid in {*self.running, *self.book.standing} - known:
            await self._stop(uid)
            self._ended.pop(uid, None)
            self.book.forget(uid)

    # Ending

    async def _end(self, row: MaintenanceRow, term: Term) -> Result:
        """Nobody is asked to leave any more, what is ours is given back, and then it may go."""
        stopped = await self._stop(row.uid)
        if stopped is not None:
            # It may take several attempts, and who was asked to leave stands nowhere else yet.
            self._ended[row.uid] = stopped
        if not row.begun:
            return Done()
        foreign = self._operator.policy.owner_of(Job.MAINTENANCE) is Ownership.FOREIGN
        if foreign and not self._marked_for(row):
            return Done()
        node = self._nodes.cache.get(row.node)
        successor = next(self._others(row), None)
        if successor is None:
            await self._take_back(row, self._ended.get(row.uid), term)
        given = None
        for name in self._marked_for(row) or (row.node,):
            if successor is None or name != row.node:
                given = await self._give_back(row, name, term) or given
        await verbs.let_go(self._client, row, not_after=term.require())
        if given is not None and given.cordon and node is not None:
            self.book.uncordoned(row, node_uid=node.uid)
        told = DrainReason.MaintenanceEnded.because(node=row.node, given=_in_words(given))
        self.book.say(row, told, node_uid="" if node is None else node.uid)
        self.book.removed(row)
        self.book.forget(row.uid)
        self._ended.pop(row.uid, None)
        return Done()

    async def _clear_up(self, name: str, row: MaintenanceRow | None, term: Term) -> None:
        """Of one of that name that somebody has removed with its finalizer: its marks are still
        ours, and nobody else takes them off. Whoever maintains that node now inherits them."""
        for node in list(self._nodes.cache):
            marks = marks_of(node.maintenance)
            if marks is None or marks.name != name or (row and row.uid == marks.maintenance):
                continue
            if any(each.node == node.key and not each.deleting for each in self.rows):
                continue
            uid = marks.maintenance
            await cordons.give_back(
                self._client, node.key, maintenance=uid, inherits=False, leave=term.require
            )
            _log.info("%s was given back: its maintenance %s is gone", node.key, name)

    async def _take_back(self, row: MaintenanceRow, drain: Drain | None, term: Term) -> None:
        if drain is None:
            evacuated = self.book.known(row).evacuated
            if not evacuated:
                return
            drain = self._drain(
                self._client, row.node, MAINTENANCE_OPTIONS, rng=self._rng, wall=self._wall,
                evacuated=evacuated,
            )  # fmt: skip
        for why in await drain.take_back(term.require):
            self.book.say(row, why)

    async def _give_back(self, row: MaintenanceRow, node: str, term: Term) -> Marks | None:
        return await cordons.give_back(
            self._client, node, maintenance=row.uid, inherits=row.begun, leave=term.require
        )

    def _marked_for(self, row: MaintenanceRow) -> tuple[str, ...]:
        """The nodes that bear the marks of this maintenance: one, but for whoever has changed the
        name in it."""
        return tuple(
            node.key
            for node in self._nodes.cache
            if (marks := marks_of(node.maintenance)) is not None and marks.maintenance == row.uid
        )

    # Telling

    async def _tell(
        self, row: MaintenanceRow, state: DrainState, objection: Why | None, term: Term
    ) -> None:
        why = objection or decide.standing(row.key, state)
        if state.plan is None:
            # It has not looked yet.
            return
        before = self.book.known(row)
        status = decide.told(
            before,
            state,
            why,
            generation=row.generation,
            now=asyncio.get_running_loop().time(),
            wall=self._wall.now(),
        )
        await self.book.write(row, status, not_after=term.require())
        node = self._nodes.cache.get(row.node)
        uid = "" if node is None else node.uid
        self.book.say(row, why, node_uid=uid, news=decide.news_of(state, why))
        if state.drained and before.phase != status.phase:
            self.book.succeeded(row)

    async def _wait_for(self, row: MaintenanceRow, why: Why, term: Term, then: Result) -> Result:
        status = decide.waiting(self.book.known(row), why, generation=row.generation)
        await self.book.write(row, status, not_after=term.require())
        self.book.say(row, why)
        return then

    async def _tell_what_would_be(self, row: MaintenanceRow, term: Term) -> Result:
        plan = await foresee(self._client, row.node, MAINTENANCE_OPTIONS, wall=self._wall)
        status = decide.foreseen(
            plan,
            generation=row.generation,
            now=asyncio.get_running_loop().time(),
            wall=self._wall.now(),
        )
        await self.book.write(row, status, not_after=term.require())
        self.book.say(row, decide.would(row.node, plan))
        return Again(_SELDOM)


def _observing(node: str) -> Why:
    return DrainReason.LeaveUnknown.because(node=node, because="Backstay only observes")


def _is_marked(node: NodeRow, row: MaintenanceRow) -> bool:
    """Whether all stands on it that keeps the scheduler away, on account of this maintenance."""
    marks = marks_of(node.maintenance)
    ours = marks is not None and marks.maintenance == row.uid
    return ours and node.unschedulable and _TAINT in node.taints


def _is_same(one: NodeRow | None, other: NodeRow | None) -> bool:
    """As far as a maintenance goes."""

    def part(row: NodeRow) -> Any:
        return row.uid, row.unschedulable, row.taints, row.maintenance, row.ready

    return one is not None and other is not None and part(one) == part(other)


def _in_words(given: Marks | None) -> str:
    if given is None:
        return "nothing on the node was ours to take back"
    parts = [
        word
        for ours, word in (
            (given.cordon, "its cordon"),
            (given.taint, "its taint"),
            (given.label, "its label"),
        )
        if ours
    ]
    return f"{' and '.join(parts)} was taken off" if parts else "it stays as it was before"
