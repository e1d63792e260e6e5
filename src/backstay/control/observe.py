"""Observing: everything that is known of a node, brought together into one ``Snapshot``.

``snapshot`` costs nothing and is what caches and the last look at the node's pods give; with it
one decides whether there is anything to do. ``look_closely`` asks the API itself, and is what a
deed rests on. Either way the node's life is stepped first, so that a sign of life counts wherever
it was seen.

A standby observes like a leader: whoever takes over knows since when a node has been silent.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from backstay.control.history import History
from backstay.decide import life, proof
from backstay.decide.failover import Snapshot
from backstay.decide.storm import Fleet, is_storm, silent_together
from backstay.kube.client import KubeClient
from backstay.model.evidence import Confirmation, Testimony
from backstay.model.node import Life, NodeFacts, NodeLife
from backstay.model.policy import PIRAEUS, OptIn, Policy, Times
from backstay.model.workload import Workload
from backstay.sources.lookups import Details
from backstay.sources.nodes import NodeSource
from backstay.sources.operator import OperatorSource
from backstay.sources.testimony import Source
from backstay.sources.workloads import NodePods, assemble, describe, read_pods

_DOWN = (Life.SUSPECT, Life.LOST, Life.PROVEN)
_LOST = (Life.LOST, Life.PROVEN, Life.RECOVERED)

_NOTHING = Testimony()


@dataclass(slots=True)
class Watched:
    """What is remembered of one node between two looks. ``proven`` and ``recovered`` are told by
    whoever acts, and end with the life that they were about."""

    life: NodeLife
    workloads: tuple[Workload, ...] | None = None
    pods: NodePods | None = None
    """What the workloads were put together from, with the details."""
    details: Details | None = None
    described: frozenset[str] = frozenset()
    proven: bool = False
    recovered: bool = False


class Observer:
    """See the module."""

    def __init__(
        self,
        client: KubeClient,
        nodes: NodeSource,
        operator: OperatorSource,
        *,
        sources: Sequence[Source] = (),
        history: History,
        times: Times,
        opt_in: OptIn = PIRAEUS,
    ) -> None:
        self.watched: dict[str, Watched] = {}
        self.down: set[str] = set()
        """The nodes that are silent, and not recovered yet."""
        self._client = client
        self._nodes = nodes
        self._operator = operator
        self._sources = sources
        self._history = history
        self._times = times
        self.opt_in = opt_in

    @property
    def policy(self) -> Policy:
        """What holds now, in all namespaces."""
        return self._operator.policy

    def look(self, name: str) -> Snapshot | None:
        """From what is at hand; None if there is no such node."""
        facts = self._nodes.facts(name)
        if facts is None:
            self._forget(name)
            return None
        said = [source.testimony(facts) for source in self._sources]
        return self._snapshot(
            facts, self._operator.policy, self._operator.confirmations(name), _joined(said)
        )

    async def look_closely(self, name: str) -> Snapshot | None:
        """By quorum reads: the node, its lease, its pods, the configuration, the confirmations.

        The lease is read last: a sign of life that came meanwhile must not be missed.
        """
        policy, confirmations = await self._operator.look_closely(name)
        await self.read_workloads(name)
        said = await self._ask(name)
        facts = await self._nodes.look_closely(name)
        if facts is None:
            self._forget(name)
            return None
        return self._snapshot(facts, policy, confirmations, said)

    async def look_again(self, name: str) -> Snapshot | None:
        """As ``look``, after a quorum read of the node and its lease. The sources, which may take
        their time, are not asked anew."""
        await self._nodes.look_closely(name)
        return self.look(name)

    async def listen_to_people(self, name: str) -> None:
        """A quorum read of what they have said. Whoever acts on an older snapshot finds it outdated
        then, if that is something else."""
        await self._operator.look_closely(name)

    async def _ask(self, name: str) -> Testimony:
        """All sources at once, each looking anew. While the slowest one looked, another may have
        been answered at the node: that is asked for last, like the lease."""
        facts, watched = self._nodes.facts(name), self.watched.get(name)
        if facts is None or watched is None:
            return Testimony()
        workloads = watched.workloads or ()
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(s.ask(facts, workloads)) for s in self._sources]
        meanwhile = (answer for s in self._sources for answer in s.testimony(facts).answers)
        said = _joined([task.result() for task in asked])
        return said.joined(Testimony(answers=tuple(meanwhile)))

    async def read_workloads(self, name: str) -> None:
        """What runs on the node now. What hardly changes is looked up once for each pod."""
        watched = self.watched.get(name)
        if watched is None:
            return
        pods = await read_pods(self._client, name)
        uids = frozenset(pod.uid for pod in pods.pods)
        if watched.details is None or watched.details.unread or not uids <= watched.described:
            watched.details = await describe(self._client, pods, opt_in=self.opt_in)
            watched.described = uids
        elif pods == watched.pods:
            return
        watched.pods = pods
        found = assemble(name, pods, watched.details, opt_in=self.opt_in)
        if found != watched.workloads:
            watched.workloads = found

    def look_up_again(self, name: str) -> None:
        """What stands behind the node's pods has changed: we have asked for it."""
        watched = self.watched.get(name)
        if watched is not None:
            watched.details = None

    def has_changed(self, snapshot: Snapshot) -> bool:
        """Whether the node stands elsewhere by now, or something else runs there, or is known of
        it, than in a snapshot of before."""
        watched = self.watched.get(snapshot.facts.name)
        return (
            watched is None
            or watched.life is not snapshot.life
            or (watched.workloads or ()) is not snapshot.workloads
        )

    def is_outdated(self, snapshot: Snapshot) -> bool:
        """Whether people have said something else since, as far as anybody here knows."""
        return self._operator.is_outdated(snapshot.policy)

    def is_lost(self, name: str) -> bool:
        """Whether only a sign of life, or another boot, can change where this node stands."""
        watched = self.watched.get(name)
        return watched is not None and watched.life.state in _LOST

    def is_interesting(self, name: str) -> bool:
        """Whether a look at this node could lead to anything."""
        watched = self.watched.get(name)
        if watched is None or watched.life.state is not Life.HEALTHY:
            return True
        facts = self._nodes.facts(name)
        return (
            facts is None
            or facts.tainted
            or facts.boot_id != watched.life.boot_id
            or life.silence(facts) >= self._times.suspect
            or bool(self._operator.confirmations(name))
        )

    def _snapshot(
        self,
        facts: NodeFacts,
        policy: Policy,
        confirmations: tuple[Confirmation, ...],
        testimony: Testimony,
    ) -> Snapshot:
        now = asyncio.get_running_loop().time()
        watched = self.watched.get(facts.name)
        if watched is None:
            watched = self.watched[facts.name] = Watched(life.born(facts, now))
        heard = proof.Heard(
            facts=facts,
            life=watched.life,
            policy=policy,
            confirmations=confirmations,
            testimony=testimony,
        )
        self._step(watched, heard, now)
        workloads = watched.workloads or ()
        return Snapshot(
            facts=facts,
            life=watched.life,
            policy=policy.within({workload.namespace for workload in workloads}),
            workloads=workloads,
            confirmations=confirmations,
            testimony=testimony,
            fleet=self.fleet(watched.life.suspected_at),
            attempts=self._history.attempts(
                (workload.key for workload in workloads),
                within=policy.cool_down,
                apart_from=(facts.uid, watched.life.boot_id),
            ),
            view_age=self._view_age(facts, now),
        )

    def fleet(self, moment: float | None) -> Fleet:
        """As it matters to a node that fell silent at that moment."""
        return Fleet(
            nodes=len(self._nodes.cache),
            down=silent_together(self._silent_since(), moment, within=self._times.together),
            released=self._history.released_lately(),
            control_plane=tuple(sorted(self._nodes.control_plane)),
            control_plane_alive=tuple(sorted(self._nodes.control_plane & self._nodes.lively)),
        )

    def in_a_storm(self) -> bool:
        """Whether any node is in one."""
        policy = self._operator.policy
        moments = set(self._silent_since().values())
        return any(is_storm(self.fleet(moment), policy) for moment in moments)

    def _silent_since(self) -> dict[str, float]:
        return {name: self.watched[name].life.suspected_at or 0.0 for name in self.down}

    def _forget(self, name: str) -> None:
        self.watched.pop(name, None)
        self.down.discard(name)
        self._tell_sources()

    def _tell_sources(self) -> None:
        """Who is to be looked after: the nodes that are not plainly healthy."""
        facts = [self._nodes.facts(name) for name in sorted(self.down)]
        for source in self._sources:
            source.watch([each for each in facts if each is not None])

    def _step(self, watched: Watched, heard: proof.Heard, now: float) -> None:
        before, facts = watched.life.state, heard.facts
        # What hastens a loss means nothing once it has come, and a node may be dead for days.
        is_lost = before not in (Life.HEALTHY, Life.SUSPECT)
        watched.life = life.step(
            watched.life,
            facts,
            now,
            times=self._times,
            confirmed=not is_lost and proof.is_hastened(heard, now, times=self._times),
            cut_off=not is_lost and proof.is_cut_off(heard),
            proven=watched.proven,
            recovered=watched.recovered,
            clean=not facts.tainted,
        )
        if before is not Life.LOST and watched.life.state is Life.LOST:
            # What was looked up when it was merely suspect may have changed: a migration ended.
            watched.details = None
        if watched.life.state in (Life.HEALTHY, Life.SUSPECT, Life.RETURNING):
            watched.proven = watched.recovered = False
        if watched.life.state is Life.HEALTHY:
            watched.workloads = watched.pods = watched.details = None
        if (facts.name in self.down) is not (watched.life.state in _DOWN):
            self.down ^= {facts.name}
            self._tell_sources()

    def _view_age(self, facts: NodeFacts, now: float) -> float:
        if not self._nodes.is_sound(facts.name, without=self._known_dead()):
            return float("inf")
        return self._nodes.age(now)

    def _known_dead(self) -> set[str]:
        if not len(self._operator.confirmed):
            return set()
        names = {row.node for row in self._operator.confirmed}
        return {
            name
            for name in names
            if (facts := self._nodes.facts(name)) is not None
            and any(proof.counts(word, facts) for word in self._operator.confirmations(name))
        }


def _joined(said: Sequence[Testimony]) -> Testimony:
    spoken = [each for each in said if each != _NOTHING]
    return reduce(Testimony.joined, spoken) if spoken else _NOTHING
