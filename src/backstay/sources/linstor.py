"""LINSTOR: which nodes DRBD has shut out of which resources.

LINSTOR's event stream says when a replica becomes able to take over. That is a hint and no more: it
names neither who was lost nor who still writes, it comes twice or late, and a connection without a
heartbeat can be dead for days. A hint makes us look, and so does the silence of a node; what
counts is what the controller answers then:

* Every replica of the resource is asked for at once. Each says for its own end whether it is
  connected to the others; ``decide/quorum.py`` says whether they have shut a node out.
* It is looked at again and again while it lasts. One look that shows otherwise, a hint that nobody
  could take over any more, or a time without looks, and the grace begins anew: a state that is seen
  now and again is not one that has lasted.
* That a replica speaks is proven by its own node: its Kubernetes lease was seen to change since.
  LINSTOR may call a satellite online that died long ago.
* While the stream is down nothing rests on any of it: changes between two looks would be missed.

Right before something is done, all of it is asked for once more, the options that may have been
changed meanwhile included.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NoReturn

import msgspec

from backstay.decide.quorum import is_cut_off, shut_out
from backstay.drivers.linstor.client import Linstor
from backstay.drivers.linstor.errors import LinstorError
from backstay.drivers.linstor.stream import Promotions
from backstay.drivers.linstor.wire import Options, Promotion, Replica
from backstay.model.drbd import ResourceSight, Unheard
from backstay.model.evidence import Testimony
from backstay.model.node import NodeFacts
from backstay.model.reasons import Reason, Why
from backstay.model.workload import Workload
from backstay.sources.linstor_look import Look, look_at, resources_of
from backstay.sources.nodes import NodeSource

_AT_ONCE = 32
"""How many questions are under way at a time."""

_MOMENT = 0.01

_NOW_AND_THEN = 15.0
"""Seconds."""


class LinstorTerms(msgspec.Struct, frozen=True, kw_only=True):
    """``driver`` is the CSI driver whose volumes are LINSTOR's; empty for any. The graces are for
    how long a node must have been shut out of a resource: the first time that we see that of the
    resource, and any other time."""

    driver: str = "linstor.csi.linbit.com"
    new_grace: float = 45.0
    known_grace: float = 45.0


class LinstorSource:
    """See the module; a ``Source``. It looks every ``interval`` seconds; after ``patience`` without
    a look, what was seen before has not lasted."""

    name = "linstor"

    def __init__(
        self,
        linstor: Linstor,
        promotions: Promotions,
        nodes: NodeSource,
        *,
        terms: LinstorTerms,
        interval: float,
        patience: float,
    ) -> None:
        self.client = linstor
        self.promotions = promotions
        self._linstor = linstor
        self._nodes = nodes
        self._terms = terms
        self._interval = interval
        self._patience = patience
        self._trouble = ""
        self._began: float | None = None
        self._looked_at: float | None = None
        self._watched: frozenset[str] = frozenset()
        self._hints: dict[str, dict[str, bool | None]] = {}
        self._told_in: dict[str, int] = {}
        """By resource, the number of the last stream that has told of it."""
        self._told_by = 0
        """The number of the last stream that was through with telling how everything stands."""
        self._tracks: dict[tuple[str, str], ResourceSight] = {}
        """What the last look showed, by resource and node."""
        self._cut_off: dict[tuple[str, str], float] = {}
        """Since when all others have lost the node, even if it calls itself primary."""
        self._known: set[str] = set()
        self._due: set[str] = set()
        self._everything_at = 0.0
        self._news = asyncio.Event()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._subscribers: list[Callable[[str], None]] = []

    def subscribe(self, told: Callable[[str], None]) -> None:
        """``told`` is called with the name of a node of which there may be something new."""
        self._subscribers.append(told)

    @property
    def told_of(self) -> int:
        """How many resources there are, as far as the stream has told lately."""
        return len(self._hints)

    @property
    def trouble(self) -> str:
        if self._trouble:
            return f"LINSTOR cannot be asked: {self._trouble}"
        return self._deaf

    @property
    def _deaf(self) -> str:
        if self.promotions.connected:
            return ""
        because = f": {self.promotions.trouble}" if self.promotions.trouble else ""
        return f"LINSTOR's events are not heard{because}"

    def age(self, now: float) -> float | None:
        """Since it was last heard of; while it never was, since we began to listen."""
        moments = (self._began, self.promotions.last_renewed, self._looked_at)
        heard = [each for each in moments if each is not None]
        return now - max(heard) if heard else None

    def notes(self, now: float) -> list[Why]:
        """Of nodes that Kubernetes hears of, and that their storage has lost all the same."""
        found: dict[str, list[str]] = {}
        for (resource, node), since in sorted(self._cut_off.items()):
            if now - since >= self._terms.known_grace:
                found.setdefault(node, []).append(resource)
        return [
            Reason.CutOffFromStorage.because(node=node, resources=_some(resources))
            for node, resources in found.items()
            if node in self._nodes.lively
        ]

    async def run(self) -> NoReturn:
        self._began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            group.create_task(
                self.promotions.run(self._heard, self._renewed), name="linstor-events"
            )
            while True:
                await self._wait()
                await self._look_at(self._interesting())

    def watch(self, nodes: Sequence[NodeFacts]) -> None:
        names = frozenset(node.name for node in nodes)
        if not names <= self._watched:
            self._everything_at = 0.0
        self._watched = names
        self._news.set()

    def testimony(self, node: NodeFacts) -> Testimony:
        return self._testimony(node.name, after=0.0)

    async def ask(self, node: NodeFacts, workloads: Sequence[Workload]) -> Testimony:
        if self._deaf:
            # Nothing would rest on the answers, and others have no time to wait for them.
            return Testimony()
        started = asyncio.get_running_loop().time()
        await self._look_at(
            self._shut_out_from(node.name) | resources_of(workloads, self._terms.driver)
        )
        return self._testimony(node.name, after=started)

    def _shut_out_from(self, node: str = "") -> set[str]:
        """The resources that this node, or any, is shut out of by their last look."""
        return {
            resource
            for (resource, name), sight in self._tracks.items()
            if sight.since is not None and node in ("", name)
        }

    def _testimony(self, node: str, *, after: float) -> Testimony:
        deaf, trouble = self._deaf, self.trouble
        return Testimony(
            quorums=tuple(
                msgspec.structs.replace(sight, view=deaf) if deaf else sight
                for (_, name), sight in self._sights()
                if name == node and sight.observed_at >= after
            ),
            unheard=(Unheard(self._terms.driver, trouble),) if trouble else (),
        )

    def _sights(self) -> list[tuple[tuple[str, str], ResourceSight]]:
        return sorted(self._tracks.items(), key=lambda each: each[0])

    # What LINSTOR hints at

    def _heard(self, promotion: Promotion) -> None:
        hints = self._hints.setdefault(promotion.resource, {})
        hints[promotion.node] = promotion.may_promote
        self._told_in[promotion.resource] = self.promotions.connects
        # Until a new stream is through with all, the rest may be from before something happened.
        if self._told_by == self.promotions.connects and not any(hints.values()):
            self._begin_anew(promotion.resource)
        if self._is_worth_a_look(promotion.resource):
            self._due.add(promotion.resource)
            self._news.set()

    def _renewed(self) -> None:
        """All that there is has been said once more."""
        self._told_by = self.promotions.connects
        # One stream alone may be taken to be through while it still tells.
        for resource in [name for name, last in self._told_in.items() if last < self._told_by - 1]:
            self._forget(resource)
        for resource in {name for name, _ in self._tracks}:
            hints = self._hints.get(resource)
            if hints and not any(hints.values()):
                self._begin_anew(resource)
        self._due |= {resource for resource in self._hints if self._is_worth_a_look(resource)}
        self._news.set()

    def _is_worth_a_look(self, resource: str) -> bool:
        """Some replica could take over, and not all: either somebody is lost, or it is unused and a
        satellite is away. What is in use, and what nobody uses, says the same everywhere."""
        said = self._hints.get(resource, {}).values()
        return any(said) and not all(said)

    def _forget(self, resource: str) -> None:
        """There is none of that name any more."""
        self._told_in.pop(resource, None)
        self._hints.pop(resource, None)
        self._known.discard(resource)

    def _begin_anew(self, resource: str) -> None:
        for key, sight in self._tracks.items():
            if sight.resource == resource:
                self._tracks[key] = msgspec.structs.replace(sight, since=None)

    # Looking

    async def _wait(self) -> None:
        """For a hint; or, while there is something to keep an eye on, for the next lap."""
        lasting = bool(self._tracks or self._watched)
        if not self._due:
            self._news.clear()
            try:
                async with asyncio.timeout(self._interval if lasting else None):
                    await self._news.wait()
            except TimeoutError:
                pass

    def _interesting(self) -> set[str]:
        """What was hinted at, and what must be seen to last. All else that a silent node has a
        replica of is looked at now and then, so that it can be told how things stand there."""
        due, self._due = self._due | self._shut_out_from(), set()
        now = asyncio.get_running_loop().time()
        if now < self._everything_at:
            return due
        self._everything_at = now + _NOW_AND_THEN
        tracked = {resource for resource, _ in self._tracks}
        silent = {
            name for name, hints in self._hints.items() if not self._watched.isdisjoint(hints)
        }
        return due | tracked | silent

    async def _look_at(self, resources: Collection[str]) -> None:
        """At all of them. What cannot be seen keeps its last look, which grows old; it stands in
        nobody else's way, unless LINSTOR itself is out of reach."""
        if not resources:
            return
        try:
            look = await look_at(self._linstor, resources, turns=self._turns)
        except LinstorError as error:
            self._trouble = str(error)
            return
        lost = {name: self._lost(found, look.online) for name, found in look.replicas.items()}
        options = await look.read_options(self._linstor, [name for name in lost if lost[name]])
        self._forget_all_but(lost | dict.fromkeys(look.gone, frozenset()))
        for resource in look.gone:
            self._forget(resource)
        for resource, option in options.items():
            for node in sorted(lost[resource]):
                self._take(self._sight(resource, node, option, look))
        self._trouble = look.trouble
        if not look.is_over:
            self._looked_at = look.started

    def _lost(self, replicas: Iterable[Replica], online: Collection[str]) -> set[str]:
        """The nodes of which some replica says that it has lost them, and those that are silent in
        Kubernetes' eyes: of them it should be known how things stand."""
        if not all(each.drbd for each in replicas):
            return set()
        lost = {
            peer
            for each in replicas
            if each.node in online and each.connections is not None
            for peer, connected in each.connections.items()
            if not connected
        }
        return (lost | self._watched) & {each.node for each in replicas}

    def _sight(self, resource: str, node: str, options: Options, look: Look) -> ResourceSight:
        return look.sight(
            resource, node, options, driver=self._terms.driver, alive_at=self._alive_at
        )

    def _alive_at(self, node: str) -> float | None:
        facts = self._nodes.facts(node)
        return None if facts is None else facts.lease_changed_at

    def _take(self, sight: ResourceSight) -> None:
        now = asyncio.get_running_loop().time()
        key = (sight.resource, sight.node)
        before = self._tracks.get(key)
        if before is not None and before.observed_at > sight.observed_at:
            return
        since, grace = None, self._terms.new_grace
        if shut_out(sight) is None:
            since, grace = self._lasting(sight, before, now)
            self._known.add(sight.resource)
        self._tracks[key] = msgspec.structs.replace(sight, since=since, grace=grace)
        if is_cut_off(sight):
            self._cut_off.setdefault(key, now)
        else:
            self._cut_off.pop(key, None)
        if since == now:
            self._tell(sight.node)
            # Whoever waits for the grace to end need not find that out by looking. A moment later,
            # because the sum of two times may be a little less than either would have it.
            asyncio.get_running_loop().call_at(now + grace + _MOMENT, self._tell, sight.node)

    def _lasting(
        self, sight: ResourceSight, before: ResourceSight | None, now: float
    ) -> tuple[float, float]:
        """Since when the node has been shut out, and for how long that has to last."""
        if before is None or before.since is None:
            known = sight.resource in self._known
            return now, self._terms.known_grace if known else self._terms.new_grace
        lasted = sight.observed_at - before.observed_at <= self._patience
        return (before.since if lasted else now), before.grace

    def _tell(self, node: str) -> None:
        for told in self._subscribers:
            told(node)

    def _forget_all_but(self, lost: Mapping[str, Collection[str]]) -> None:
        """Of the resources that were looked at, the nodes that nobody has lost any more."""
        for resource, node in list(self._tracks):
            if node not in lost.get(resource, (node,)):
                del self._tracks[resource, node]
                self._cut_off.pop((resource, node), None)


def _some(names: Sequence[str]) -> str:
    more = len(names) - 1
    return names[0] + (f" and {more} more" if more else "")


def hearing(promotions: Promotions, now: float) -> str:
    """Whether its events are heard, in a sentence without names, and so without what is wrong: that
    is in the status."""
    if not promotions.connected:
        silent = since(promotions.last_heard, now)
        for_long = "never were" if silent == float("inf") else f"have not been for {silent:.0f} s"
        return f"LINSTOR's events are not heard, and {for_long}."
    told = since(promotions.last_renewed, now)
    ago = "not been told yet" if told == float("inf") else f"last been told {told:.0f} s ago"
    return f"LINSTOR's events are heard; the state of everything has {ago}."


def since(moment: float | None, now: float) -> float:
    """How long ago that was; infinite for what never was."""
    return float("inf") if moment is None else now - moment
