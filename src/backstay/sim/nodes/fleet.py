"""HollowFleet: nodes on an ordinary loop, for any cluster that a client leads to, and one truth.

``async with HollowFleet(client, seams) as fleet: fleet.add("n1")``. On the way out the nodes are
taken off the API again.
"""

import asyncio
from collections.abc import Mapping
from typing import Self

from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError, NotFound
from backstay.kube.limits import RateLimit
from backstay.kube.resource import NODES
from backstay.seam import Seams
from backstay.seam.tasks import Tasks
from backstay.sim.nodes.agents import Agent
from backstay.sim.nodes.kubelet import Pace
from backstay.sim.nodes.machine import LoopMachine
from backstay.sim.nodes.node import Node, Site
from backstay.sim.nodes.nodestatus import NodeIdentity
from backstay.sim.nodes.truth import Running, Truth


class HollowFleet:
    """See the module. ``seams`` are what the programs of all these nodes see of the world."""

    def __init__(self, client: KubeClient, seams: Seams, *, pace: Pace | None = None) -> None:
        self.nodes: dict[str, Node] = {}
        self.ground = Truth(asyncio.get_running_loop().time)
        self._client = client
        self._seams = seams
        self._tasks = Tasks("hollow")
        # Hundreds of nodes that connect in the same instant would only time each other out.
        self._turnstile = RateLimit(20, 20)
        self._site = Site(
            truth=self.ground,
            connect=self._connect,
            wall=seams.wall,
            rng=seams.rng,
            pace=pace or Pace(),
            find=self.nodes.get,
        )

    def add(
        self,
        *names: str,
        labels: Mapping[str, str] | None = None,
        agents: Mapping[str, Agent] | None = None,
    ) -> list[Node]:
        """Boots nodes; the API hears of them a moment later."""
        return [self._add(name, labels or {}, agents or {}) for name in names]

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def truth(self) -> list[Running]:
        """What really runs now, on all nodes."""
        return self.ground.running()

    def copies(self, namespace: str, name: str) -> list[str]:
        """The nodes on which a pod of that name really runs now, whatever its uid."""
        return self.ground.copies(namespace, name)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> None:
        await self._tasks.__aexit__(*details)
        await self._unregister()

    def _connect(self, node: str, seams: Seams) -> KubeClient:
        return KubeClient(seams.transport, self._client.access, user_agent=f"kubelet/{node}")

    def _add(self, name: str, labels: Mapping[str, str], agents: Mapping[str, Agent]) -> Node:
        machine = LoopMachine(name, self._seams, tasks=self._tasks, turnstile=self._turnstile)
        number = len(self.nodes) + 1
        node = self.nodes[name] = Node(
            NodeIdentity.numbered(name, number, labels),
            machine=machine,
            site=self._site,
            agents=agents,
        )
        return node

    async def _unregister(self) -> None:
        for name in self.nodes:
            try:
                await self._client.delete(NODES, name)
            except NotFound:
                continue
            except KubeError:
                # The control plane may be on its way out too; then there is nothing to leave.
                return
