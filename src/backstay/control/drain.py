"""The drain: the one way in which pods are asked to leave a living node.

A NodeMaintenance and ``backstay drain`` both use it. It watches the pods of one node and the
disruption budgets, plans (``decide/drain.py``) whenever something changes, and asks those to leave
that may. Rules:

* Every request names the uid of the pod that was seen on this node. Another pod of its name, and
  one that has left, are never touched.
* Before each round of requests it is asked whether it may go on (``Permit``), and right before each
  of them whether that still holds (``Leave``).
* An answer is the API's last word. KubeVirt's "evacuation" is progress and is waited for. What a
  budget refuses waits for that budget: as many are asked again as it allows when it changes, and
  one now and then in case that went unseen. Nobody is asked in a loop.
* What stands in the way is told, one sentence for each pod: what it is, since when, what to do.
* Nothing is kept that cannot be seen. Whoever begins anew after a crash looks at what is there: a
  pod that is ending is not asked again, and one that was asked answers as it did before.
* It is drained when a look by quorum shows nobody who has to leave, and no data that only this
  node has.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from backstay.act import evictions
from backstay.apis.drains import BUDGET_PROJECTION, BUDGETS, DRAIN_POD_PROJECTION
from backstay.control.asking import Asked, is_alike, overdue, refusal_of, standing
from backstay.decide.drain import answer_of, exhausted, plan
from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.errors import ApiError, KubeError, NotFound, Terminal, TooLate
from backstay.kube.reflector import Reflector
from backstay.kube.resource import PODS
from backstay.model.drain import (
    Answer,
    Blocker,
    BudgetSight,
    DaemonSight,
    DrainOptions,
    DrainState,
    Fate,
    GuestSight,
    Plan,
    Planned,
    PodSight,
    Verdict,
)
from backstay.model.drain_reasons import DrainReason
from backstay.model.maintenance import is_key
from backstay.model.reasons import Why
from backstay.seam.clock import Rng, WallClock
from backstay.seam.tasks import Tasks, side_by_side
from backstay.sources.drains import (
    read_daemons,
    read_guests,
    read_migrations,
    read_node_pods,
    under_way,
)

_log = logging.getLogger("backstay.drain")

_PARALLEL = 8
"""How many are asked at a time."""

_ROUND = 64
"""How many are asked before it is asked again whether that is allowed."""

_GATHER = 0.05
"""Seconds for what happens together to be seen together."""

_RECHECK = 30.0
"""Seconds until a look, if nothing happens."""

_SOON = 1.0

_PATIENCE = 60.0
"""Seconds for which a guest may be on its way before it is looked into."""

_OVERDUE = 30.0
"""Seconds that a pod may take to end beyond its own time."""

_COPIES = 10.0

Leave: TypeAlias = Callable[[], float | None]
"""Until when a request may be sent; raises ``TooLate`` once it must not be."""

Permit: TypeAlias = Callable[[], Awaitable[Leave | Why]]
"""Whether pods may be asked to leave at present; if not, why."""

Told: TypeAlias = Callable[[DrainState], None]


class Copies(Protocol):
    """Whoever knows which data is on a node alone."""

    async def last_on(self, node: str) -> tuple[Why, ...]:
        """What only this node has, and what is not known of that. It raises nothing."""
        ...


async def always() -> Leave:
    """A permit for whoever acts in his own name."""
    return lambda: None


class Drain:
    """One drain of one node; see the module. ``told`` hears of every change. ``evacuated`` are
    guests that an earlier one of the same purpose has asked to leave."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        options: DrainOptions,
        *,
        rng: Rng,
        wall: WallClock,
        permit: Permit = always,
        told: Told = lambda _: None,
        copies: Copies | None = None,
        evacuated: Iterable[str] = (),
        page_size: int = 500,
    ) -> None:
        if not node:
            # Whoever asks for the pods of no node is shown those that wait for one.
            raise ValueError("a drain needs the name of a node")
        self.node = node
        self.options = options
        # What stands in a status may have been written by anybody.
        asked = tuple(filter(is_key, evacuated))
        self.state = DrainState(node=node, evacuated=asked)
        self.requests = 0
        self._client = client
        self._wall = wall
        self._permit = permit
        self._told = told
        self._copies = copies
        self._pods: Cache[PodSight] = Cache()
        self._budgets: Cache[BudgetSight] = Cache({"namespace": lambda row: (row.namespace,)})
        selector = options.pod_selector or None
        self._reflectors = (
            Reflector(
                client, PODS, DRAIN_POD_PROJECTION, self._pods, rng=rng,
                fields=f"spec.nodeName={node}", labels=selector, page_size=page_size,
            ),
            Reflector(client, BUDGETS, BUDGET_PROJECTION, self._budgets, rng=rng),
        )  # fmt: skip
        self._news = asyncio.Event()
        self._pods.subscribe(self._changed)
        self._budgets.subscribe(self._budget_changed)
        self._asked: dict[str, Asked] = {}
        self._guests: dict[str, GuestSight] = {}
        self._guests_of: set[str] = set()
        """The pods whose guests were looked up."""
        self._daemons: Mapping[str, DaemonSight] = {}
        self._ending_since: dict[str, float] = {}
        self._seen: set[str] = set()
        """Everybody who ever had to leave."""
        self._evacuated: dict[str, None] = dict.fromkeys(asked)
        self._copies_at = 0.0
        self._copied: tuple[Blocker, ...] = ()

    async def run(self, *, keep: bool = False) -> DrainState:
        """Until it is drained, or refused by its options; with ``keep`` until it is cancelled, and
        whoever comes later is asked to leave too. Raises ``TooLate`` when its permit is over, and
        without ``keep`` what the API says to whoever may not look."""
        async with Tasks(f"drain {self.node}") as tasks:
            for reflector in self._reflectors:
                tasks.spawn(reflector.run(), name="watch")
            while True:
                # Whoever was told something meanwhile begins anew.
                self._news.clear()
                if self._pods.synced:
                    pause = await self._round(strict=not keep)
                    if not keep and (self.state.drained or self.state.refused):
                        return self.state
                else:
                    pause = _SOON
                    trouble = self._reflectors[0].trouble
                    if not keep and isinstance(trouble, Terminal):
                        raise trouble
                await self._wait(pause)

    def poke(self) -> None:
        """Something may be different: it is looked again, and whether it may go on is asked."""
        self._news.set()

    def _changed(self, _old: object, _new: object) -> None:
        self._news.set()

    def _budget_changed(self, old: BudgetSight | None, new: BudgetSight | None) -> None:
        # They change all over the cluster, and few concern this node.
        row = new or old
        if row is not None and any(pod.namespace == row.namespace for pod in self.state.pending):
            self._news.set()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return
        await asyncio.sleep(min(_GATHER, seconds))

    # One round

    async def _round(self, *, strict: bool) -> float:
        """Looks, asks those who may go, and tells; seconds until the next look."""
        await self._look_behind()
        now = asyncio.get_running_loop().time()
        planned = self.plan()
        self._note(planned, now)
        refused = strict and bool(planned.refused)
        held: Why | None = None
        due = [] if refused else self._due(planned, now)
        if due:
            held = await self._ask_all(due[:_ROUND])
        await self._look_into(planned)
        blockers = self._blockers(planned, asyncio.get_running_loop().time())
        drained = False
        if not planned.leaving and not self._pods.quarantine and not refused:
            drained, blockers = await self._is_over()
        self._tell(planned, blockers, held=held, refused=refused, drained=drained)
        return self._pause(len(due) > _ROUND, held)

    def plan(self) -> Plan:
        """As of what is known now."""
        return plan(
            self.node,
            self._pods,
            options=self.options,
            budgets=self._concerning(self._pods),
            guests=self._guests,
            daemons=self._daemons,
            now=self._wall.now(),
        )

    def _concerning(self, pods: Iterable[PodSight]) -> tuple[BudgetSight, ...]:
        """The budgets that may have a say: those of the same namespaces."""
        namespaces = sorted({pod.namespace for pod in pods})
        return tuple(b for each in namespaces for b in self._budgets.by_index("namespace", each))

    async def _look_behind(self) -> None:
        """The guests and the DaemonSets of pods that were not seen before."""
        pods = list(self._pods)
        new = {pod.uid: pod for pod in pods if pod.uid not in self._guests_of and not pod.ended}
        self._guests |= await read_guests(
            self._client, (pod.guest for pod in new.values() if pod.guest)
        )
        self._guests_of |= new.keys()
        self._guests_of &= {pod.uid for pod in pods}
        unknown = {
            pod.daemon
            for pod in pods
            if pod.daemon and self._daemons.get(pod.daemon, DaemonSight(None)).found is None
        }
        if unknown:
            self._daemons = {**self._daemons, **await read_daemons(self._client, unknown)}

    def _note(self, planned: Plan, now: float) -> None:
        """Who is there, and since when somebody ends."""
        here = {each.pod.uid for each in planned.planned}
        self._seen |= {each.pod.uid for each in planned.leaving}
        for uid in self._asked.keys() - here:
            del self._asked[uid]
        for uid in self._ending_since.keys() - here:
            del self._ending_since[uid]
        for each in planned.of(Fate.GONE):
            self._ending_since.setdefault(each.pod.uid, now)

    # Who is asked

    def _due(self, planned: Plan, now: float) -> list[Planned]:
        """Those who are asked to leave now. Of those that share a budget only as many as it lets
        go; who is not among them is not asked, and is told to wait for it."""
        room: dict[str, int] = {}
        tried: set[str] = set()
        due: list[Planned] = []
        for each in planned.planned:
            if not each.asked or each.refused or not self._is_due(each, now):
                continue
            budget = self._budgets.get(each.budget) if each.budget else None
            if budget is None or (budget.key not in tried and self._is_owed(each, now)):
                tried.add(each.budget)
                due.append(each)
            elif each.fate is not Fate.BLOCKED and not each.pod.ready:
                # It costs the budget nothing.
                due.append(each)
            elif each.fate is not Fate.BLOCKED and room.setdefault(budget.key, budget.allowed) > 0:
                room[each.budget] -= 1
                due.append(each)
            else:
                self._park(each.pod, budget, now)
        return due

    def _is_owed(self, planned: Planned, now: float) -> bool:
        """Whether it is asked whatever is known of its budget: nobody has for long."""
        asked = self._asked.get(planned.pod.uid)
        return asked is not None and now >= asked.again

    def _is_due(self, planned: Planned, now: float) -> bool:
        pod, asked = planned.pod, self._asked.get(planned.pod.uid)
        if asked is None or now >= asked.again or (pod.ended and not asked.ended):
            return True
        if asked.answer is None or asked.answer.verdict is not Verdict.BUDGET:
            return False
        budget = self._budgets.get(asked.answer.budget)
        return budget is None or budget.version != asked.budget_version

    def _park(self, pod: PodSight, budget: BudgetSight, now: float) -> None:
        """It waits for its budget, and was not asked."""
        why = exhausted(pod, budget)
        self._keep(pod, Answer(Verdict.BUDGET, why, _RECHECK, budget.key), now)

    async def _ask_all(self, due: Sequence[Planned]) -> Why | None:
        """What keeps us from it, if anything does."""
        try:
            leave = await self._permit()
        except TooLate:
            raise
        except KubeError as error:
            because = str(error).rstrip(".")
            return DrainReason.LeaveUnknown.because(node=self.node, because=because)
        if isinstance(leave, Why):
            return leave

        async def ask(planned: Planned) -> None:
            await self._ask(planned.pod, leave)

        try:
            await side_by_side(due, ask, at_once=_PARALLEL)
        except TooLate:
            # Somebody has said something else meanwhile: the next round asks for leave anew, and
            # hears what it is.
            self._news.set()
        return None

    async def _ask(self, pod: PodSight, leave: Leave) -> None:
        not_after = leave()
        self.requests += 1
        answer: Answer | None = None
        try:
            await self.request(pod, not_after)
        except TooLate:
            raise
        except KubeError as error:
            guest = self._guests.get(pod.guest)
            budgets = self._concerning([pod])
            answer = answer_of(refusal_of(error), pod, budgets=budgets, guest=guest)
            if answer.caused and pod.guest:
                self._evacuated[pod.guest] = None
        self._keep(pod, answer, asyncio.get_running_loop().time())

    async def request(self, pod: PodSight, not_after: float | None) -> None:
        """Asks one pod to leave. Raises ``KubeError``."""
        verb = evictions.delete if self.options.disable_eviction else evictions.evict
        await verb(self._client, pod, grace=self.options.grace, not_after=not_after)

    def _keep(self, pod: PodSight, answer: Answer | None, now: float) -> None:
        before = self._asked.get(pod.uid)
        same = before is not None and is_alike(before.answer, answer)
        budget = self._budgets.get(answer.budget) if answer is not None and answer.budget else None
        self._asked[pod.uid] = Asked(
            answer,
            at=now,
            again=now + (_RECHECK if answer is None else answer.again),
            since=before.since if before is not None and same else now,
            ended=pod.ended,
            budget_version="" if budget is None else budget.version,
            looked_into=before.looked_into if before is not None and same else 0.0,
        )

    # What is in the way

    async def _look_into(self, planned: Plan) -> None:
        """Why guests that have been on their way for long have not arrived."""
        now = asyncio.get_running_loop().time()
        for each in planned.leaving:
            asked = self._asked.get(each.pod.uid)
            if asked is None or asked.answer is None or not each.pod.guest or each.pod.ended:
                continue
            moving = asked.answer.verdict is Verdict.MOVING and now - asked.since >= _PATIENCE
            if moving and now - asked.looked_into >= _RECHECK:
                asked.looked_into = now
                why = await self._why_slow(each.pod, now - asked.since)
                asked.answer = Answer(Verdict.MOVING, why, asked.answer.again)

    async def _why_slow(self, pod: PodSight, seconds: float) -> Why:
        guests = await read_guests(self._client, [pod.guest])
        self._guests |= guests
        guest = guests.get(pod.guest)
        try:
            migrations = await read_migrations(self._client, pod.guest)
            because = standing(self.node, guest, migrations)
        except KubeError as error:
            because = f"how its migration stands cannot be read ({error})".rstrip(".")
        return DrainReason.EvacuationSlow.because(
            guest=pod.guest, node=self.node, seconds=round(seconds), because=because,
            namespace=pod.namespace,
        )  # fmt: skip

    def _blockers(self, planned: Plan, now: float) -> tuple[Blocker, ...]:
        found = []
        for each in planned.leaving:
            asked = self._asked.get(each.pod.uid)
            since = now if asked is None else asked.since
            why = self._in_the_way(each, asked, now)
            if why is not None:
                since = self._ending_since.get(each.pod.uid, since)
                found.append(Blocker(each.pod.key, each.pod.uid, why, since))
        for bad in self._pods.quarantine.values():
            namespace, _, name = bad.key.partition("/")
            why = DrainReason.PodUnreadable.because(
                pod=bad.key, because=bad.why, namespace=namespace, name=name
            )
            found.append(Blocker(bad.key, "", why, now))
        return tuple(found)

    def _in_the_way(self, planned: Planned, asked: Asked | None, now: float) -> Why | None:
        pod = planned.pod
        if planned.refused:
            return planned.why
        if planned.fate is Fate.GONE:
            late = now - self._ending_since.get(pod.uid, now) - pod.grace
            return None if late < _OVERDUE else overdue(pod, late)
        if asked is None or asked.answer is None:
            return None
        return asked.answer.why

    async def _is_over(self) -> tuple[bool, tuple[Blocker, ...]]:
        """Whether nobody is left, by a look at the API itself, and no data that is here alone."""
        if self.state.drained:
            # Who comes is seen by the watch; of the data nobody tells.
            await self._look_at_copies()
            return not self._copied, self._copied
        try:
            page = await read_node_pods(self._client, self.node, selector=self.options.pod_selector)
        except KubeError as error:
            _log.info("whether %s is drained cannot be seen: %s", self.node, error)
            return False, ()
        left = plan(
            self.node, page.rows, options=self.options, daemons=self._daemons,
            now=self._wall.now(),
        )  # fmt: skip
        if left.leaving or page.unreadable:
            return False, ()
        await self._look_at_copies()
        return not self._copied, self._copied

    async def _look_at_copies(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._copies is None or now < self._copies_at:
            return
        before = {blocker.why: blocker.since for blocker in self._copied}
        found = await self._copies.last_on(self.node)
        self._copied = tuple(Blocker("", "", why, before.get(why, now)) for why in found)
        self._copies_at = now + (_COPIES if self._copied else _RECHECK)

    # Telling

    def _tell(
        self,
        planned: Plan,
        blockers: tuple[Blocker, ...],
        *,
        held: Why | None,
        refused: bool,
        drained: bool,
    ) -> None:
        pending = tuple(each.pod for each in planned.leaving)
        state = DrainState(
            node=self.node,
            total=len(planned.planned),
            most=len(self._seen),
            pending=pending,
            moving=tuple(each.pod.key for each in planned.leaving if self._is_moving(each)),
            blockers=blockers,
            evacuated=tuple(self._evacuated),
            held=held,
            refused=refused,
            drained=drained,
            plan=planned,
        )
        if state != self.state:
            self.state = state
            self._told(state)

    def _is_moving(self, planned: Planned) -> bool:
        asked = self._asked.get(planned.pod.uid)
        if planned.fate is Fate.GONE:
            return True
        if asked is None or planned.refused:
            return False
        return asked.answer is None or asked.answer.verdict is Verdict.MOVING

    def _pause(self, more: bool, held: Why | None) -> float:
        """Seconds until somebody is to be asked again."""
        if more:
            return 0.0
        now = asyncio.get_running_loop().time()
        due = [asked.again - now for asked in self._asked.values()]
        late = [since - now + _OVERDUE for since in self._ending_since.values()]
        waits = [each for each in (*due, *late) if each > 0]
        soonest = min(waits, default=_RECHECK)
        if held is not None or self._copied:
            soonest = min(soonest, _COPIES)
        return min(max(soonest, _SOON), _RECHECK)

    # Taking back

    async def take_back(self, leave: Leave) -> tuple[Why, ...]:
        """Has KubeVirt forget that guests were to leave, if this drain has asked for that and their
        migration has not begun. What came of each."""
        said = []
        for key in self.state.evacuated:
            why = await self._stay(key, leave)
            if why is not None:
                said.append(why)
        return tuple(said)

    async def _stay(self, key: str, leave: Leave) -> Why | None:
        """None if it has left, or was not to."""
        about = {"guest": key, "node": self.node}
        try:
            guest = (await read_guests(self._client, [key])).get(key)
            if guest is None or guest.node != self.node or guest.evacuating != self.node:
                return None
            if begun := under_way(await read_migrations(self._client, key)):
                because = f"its migration is {begun[-1].phase or 'Pending'} already"
                return DrainReason.EvacuationGoesOn.because(because=because, **about)
            namespace, _, name = key.partition("/")
            await evictions.cancel_evacuation(self._client, namespace, name, not_after=leave())
        except NotFound:
            because = "this KubeVirt cannot take it back"
            return DrainReason.EvacuationGoesOn.because(because=because, **about)
        except ApiError as error:
            return DrainReason.EvacuationGoesOn.because(because=str(error).rstrip("."), **about)
        return DrainReason.EvacuationCancelled.because(**about)
