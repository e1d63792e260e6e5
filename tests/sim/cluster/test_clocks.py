"""Nodes whose time of day is wrong: others see what they write, and nothing else changes."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.nodes.agents import AgentContext
from tests.sim.cluster.stages import play, play_on_a_loop

LEASES = "leases.coordination.k8s.io"


def renewed(cluster: EmbeddedCluster, node: str) -> str:
    lease = cluster.api.store.get(LEASES, ("kube-node-lease", node))
    return "" if lease is None else str(lease.object["spec"]["renewTime"])


async def _renewal(cluster: EmbeddedCluster, node: str, before: str) -> None:
    await cluster.until(lambda: renewed(cluster, node) != before)


async def next_renewal(cluster: EmbeddedCluster, node: str) -> datetime:
    # The first may have been on its way already.
    for _ in range(2):
        await _renewal(cluster, node, renewed(cluster, node))
    return datetime.fromisoformat(renewed(cluster, node)).astimezone(UTC)


@pytest.mark.parametrize("hours", [-3, 3])
def test_what_a_node_writes_jumps_with_its_clock(hours: int) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cluster.nodes["n1"].step_clock(hours * 3600)
        jumped = await next_renewal(cluster, "n1") - cluster.ground.wall.now()
        assert abs(jumped - timedelta(hours=hours)) < timedelta(seconds=1)
        others = await next_renewal(cluster, "n2") - cluster.ground.wall.now()
        assert abs(others) < timedelta(seconds=1)

    play(scenario)


def test_a_node_with_a_wrong_clock_stays_ready() -> None:
    """Kubernetes too looks at whether a lease changes, not at what it says."""

    async def scenario(cluster: EmbeddedCluster) -> None:
        cluster.nodes["n1"].step_clock(-3600)
        await asyncio.sleep(300)
        await cluster.settled(timeout=1)

    play(scenario)


def test_a_program_that_is_started_later_has_the_clock_of_its_machine() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        seen: list[datetime] = []
        node = cluster.nodes["n1"]
        node.step_clock(3600)

        async def look(context: AgentContext) -> None:
            seen.append(context.seams.wall.now())

        node.run("look", look)
        await asyncio.sleep(1)
        assert abs(seen[0] - cluster.ground.wall.now() - timedelta(hours=1)) < timedelta(seconds=2)

    play(scenario)


def test_on_a_loop_too() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cluster.nodes["n1"].step_clock(7200)
        jumped = await next_renewal(cluster, "n1") - cluster.ground.wall.now()
        assert jumped > timedelta(hours=1)

    play_on_a_loop(scenario, nodes=1)
