"""A node whose network comes and goes."""

import asyncio

from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.nodes.flapping import flap
from tests.sim.cluster.stages import play


def test_its_network_is_gone_and_there_for_as_long_and_there_at_the_end() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        node, seen = cluster.nodes["n1"], []
        async with asyncio.TaskGroup() as group:
            group.create_task(flap(node, every=10, times=2))
            await asyncio.sleep(5)
            for _ in range(5):
                seen.append(node.cut is not None)
                await asyncio.sleep(10)
        assert seen == [True, False, True, False, False]

    play(scenario)


def test_a_node_that_loses_its_power_meanwhile_stays_without() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        node = cluster.nodes["n1"]
        async with asyncio.TaskGroup() as group:
            group.create_task(flap(node, every=10, times=2))
            await asyncio.sleep(5)
            node.kill()
        assert node.condition == "off"

    play(scenario)
