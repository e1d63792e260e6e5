"""Which nodes the storage refuses, as csi-addons tells."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from backstay.apis.csiaddons import NETWORK_FENCES
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.model.evidence import Fence
from backstay.model.labels import FENCED_NODE, INCIDENT
from backstay.model.node import NodeFacts
from backstay.seam.tasks import Tasks
from backstay.sim import csiaddons
from backstay.sim.chance import Chance
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sources.fences import FenceSource
from backstay.sources.nodes import NodeSource
from tests.sim.cluster.stages import play

Json = dict[str, Any]


class Watching:
    def __init__(self, client: KubeClient, tasks: Tasks) -> None:
        self.client = client
        self.nodes = NodeSource(
            client, rng=Chance(1, "nodes"), interval=2.0, window=22.0, on_look=lambda: None
        )
        self.source = FenceSource(client, interval=2.0)
        tasks.spawn(self.nodes.run(), name="nodes")
        tasks.spawn(self.source.run(), name="fences")

    def node(self, name: str = "n1") -> NodeFacts:
        facts = self.nodes.facts(name)
        assert facts is not None
        return facts

    async def watch(self) -> None:
        self.source.watch([self.node()])
        await asyncio.sleep(5)

    async def fence(self, *also: str, state: str = "Fenced", **meta: Json) -> None:
        """By the node's own address, and those."""
        live = (await self.client.get(NODES, "n1")).json()
        [address] = [a for a in live["status"]["addresses"] if a["type"] == "InternalIP"]
        body = {
            "apiVersion": NETWORK_FENCES.api_version,
            "kind": NETWORK_FENCES.kind,
            "metadata": {"name": "f", **meta},
            "spec": {
                "driver": "csi.example",
                "fenceState": state,
                "cidrs": [f"{each}/32" for each in (address["address"], *also)],
                "parameters": {},
            },
        }
        await self.client.create(NETWORK_FENCES, body)

    def fences(self, name: str = "n1") -> tuple[Fence, ...]:
        return self.source.testimony(self.node(name)).fences


def watching(scene: Callable[[Watching], Awaitable[None]], *, addons: bool = True) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        if addons:
            csiaddons.install(cluster.api)
            cluster.add_controller(
                csiaddons.NAME,
                lambda _: csiaddons.FenceController(cluster.api.operations, truth=cluster.truth),
            )
        async with Tasks("test") as tasks:
            seen = Watching(cluster.client(), tasks)
            await asyncio.sleep(5)
            await scene(seen)

    play(scenario, nodes=2)


def test_a_fence_that_holds_is_told_of_its_node_and_of_no_other() -> None:
    async def scene(seen: Watching) -> None:
        await seen.watch()
        assert seen.fences() == ()
        await seen.fence()
        await asyncio.sleep(5)
        [fence] = seen.fences()
        assert (fence.driver, fence.cluster, fence.ours) == ("csi.example", "", False)
        assert seen.fences("n2") == ()

    watching(scene)


def test_an_answer_is_as_of_the_moment_in_which_it_is_asked_for() -> None:
    async def scene(seen: Watching) -> None:
        await seen.fence()
        await asyncio.sleep(3)
        await seen.watch()
        assert len((await seen.source.ask(seen.node(), ())).fences) == 1
        lift = {"spec": {"fenceState": "Unfenced"}}
        await seen.client.merge_patch(NETWORK_FENCES, "f", lift)
        # Its status still tells of the success of the former operation.
        assert (await seen.source.ask(seen.node(), ())).fences == ()

    watching(scene)


def test_ours_is_told_from_others_by_what_it_bears() -> None:
    async def scene(seen: Watching) -> None:
        await seen.fence(annotations={INCIDENT: "i", FENCED_NODE: seen.node().uid})
        await seen.watch()
        [ours] = await seen.source.ours(seen.node().uid)
        assert (ours.name, ours.fenced, ours.holds) == ("f", True, True)
        assert await seen.source.ours(seen.node("n2").uid) == ()
        assert seen.source.fencing(seen.node()).ours == (ours,)

    watching(scene)


def test_what_can_be_fenced_is_known_by_its_driver_and_by_the_nodes_addresses() -> None:
    async def scene(seen: Watching) -> None:
        await seen.watch()
        fencing = seen.source.fencing(seen.node())
        assert fencing.drivers == {"csi.example"}
        assert len(fencing.addresses[""]) == 1

    watching(scene)


def test_a_fence_that_leaves_out_an_address_which_the_driver_has_reported_says_nothing() -> None:
    """The node still writes over the network that it has for its storage."""

    async def scene(seen: Watching) -> None:
        await csiaddons.report_address(seen.client, "n1", "10.9.0.1")
        await seen.fence()
        await seen.watch()
        assert len(seen.source.fencing(seen.node()).addresses["csi.example"]) == 2
        assert (await seen.source.ask(seen.node(), ())).fences == ()

    watching(scene)


def test_a_fence_of_all_addresses_holds_where_the_driver_has_reported_one() -> None:
    async def scene(seen: Watching) -> None:
        await csiaddons.report_address(seen.client, "n1", "10.9.0.1")
        await seen.fence("10.9.0.1")
        await seen.watch()
        assert len((await seen.source.ask(seen.node(), ())).fences) == 1

    watching(scene)


def test_without_csi_addons_there_is_nothing_to_see_and_no_trouble() -> None:
    async def scene(seen: Watching) -> None:
        await seen.watch()
        assert (await seen.source.ask(seen.node(), ())).fences == ()
        assert await seen.source.ours(seen.node().uid) == ()
        assert seen.source.trouble == ""
        assert seen.source.fencing(seen.node()).drivers == frozenset()

    watching(scene, addons=False)
