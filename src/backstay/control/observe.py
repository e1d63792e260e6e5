"""Observing: everything that is known of a node, brought together into one ``Snapshot``.

``snapshot`` costs nothing and is what caches and the last look at the node's pods give; with it
one decides whether there is anything to do. ``look_closely`` asks the API itself, and is what a
deed rests on. Either way the node's life is stepped first, so that a sign of life counts wherever
it was seen.

A standby observes like a leader: whoever takes over knows since when a node has been silent.
"""

import asyncio
from dataclasses import dataclass

from backstay.decide import life
from backstay.decide.failover import Snapshot, counts
from backstay.kube.client import KubeClient
from backstay.model.evidence import Confirmation
from backstay.model.node import Life, NodeFacts, NodeLife
from backstay.model.policy import Policy, Times
from backstay.model.workload import Workload
from backstay.sources.lookups import Details
from backstay.sources.nodes import NodeSource
from backstay.sources.operator import OperatorSource
from backstay.sources.workloads import assemble, describe, read_pods


@dataclass
class Watched:
    """What is remembered of one node between two looks. ``proven`` and ``recovered`` are told by
    whoever acts, and end with the life that they were about."""

    life: NodeLife
    workloads: tuple[Workload, ...] | None = None
    details: Details | None = None
    described: frozenset[str] = frozenset()
    proven: bool = False
    recovered: bool = False


class Observer:
    """See the module."""

    def __init__(
        self, client: KubeClient, nodes: NodeSource, operator: OperatorSource, *, times: Times
    ) -> None:
        self.watched: dict[str, Watched] = {}
        self._client = client
        self._nodes = nodes
        self._operator = operator
        self._times = times

    def look(self, name: str) -> Snapshot | None:
        """From what is at hand; None if there is no such node."""
        facts = self._nodes.facts(name)
        if facts is None:
            self.watched.pop(name, None)
            return None
        return self._snapshot(facts, self._operator.policy, self._operator.confirmations(name))

    async def look_closely(self, name: str) -> Snapshot | None:
        """By quorum reads: the node, its lease, its pods, the configuration, the confirmations.

        The lease is read last: a sign of life that came meanwhile must not be missed.
        """
        policy, confirmations = await self._operator.look_closely(name)
        await self.read_workloads(name)
        facts = await self._nodes.look_closely(name)
        if facts is None:
            self.watched.pop(name, None)
            return None
        return self._snapshot(facts, policy, confirmations)

    async def read_workloads(self, name: str) -> None:
        """What runs on the node now. What hardly changes is looked up once for each pod."""
        watched = self.watched.get(name)
        if watched is None:
            return
        pods = await read_pods(self._client, name)
        uids = frozenset(pod.uid for pod in pods.pods)
        if watched.details is None or watched.details.unread or not uids <= watched.described:
            watched.details, watched.described = await describe(self._client, pods), uids
        watched.workloads = assemble(name, pods, watched.details)

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
        self, facts: NodeFacts, policy: Policy, confirmations: tuple[Confirmation, ...]
    ) -> Snapshot:
        now = asyncio.get_running_loop().time()
        watched = self.watched.get(facts.name)
        if watched is None:
            watched = self.watched[facts.name] = Watched(life.born(facts, now))
        self._step(watched, facts, confirmations, now)
        return Snapshot(
            facts=facts,
            life=watched.life,
            policy=policy,
            workloads=watched.workloads or (),
            confirmations=confirmations,
            view_age=self._view_age(facts, now),
        )

    def _step(
        self,
        watched: Watched,
        facts: NodeFacts,
        confirmations: tuple[Confirmation, ...],
        now: float,
    ) -> None:
        before = watched.life.state
        watched.life = life.step(
            watched.life,
            facts,
            now,
            times=self._times,
            confirmed=any(counts(confirmation, facts) for confirmation in confirmations),
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
            watched.workloads = watched.details = None

    def _view_age(self, facts: NodeFacts, now: float) -> float:
        if not self._nodes.is_sound(facts.name, without=self._known_dead()):
            return float("inf")
        return self._nodes.age(now)

    def _known_dead(self) -> set[str]:
        names = {row.node for row in self._operator.confirmed}
        return {
            name
            for name in names
            if (facts := self._nodes.facts(name)) is not None
            and any(counts(word, facts) for word in self._operator.confirmations(name))
        }
