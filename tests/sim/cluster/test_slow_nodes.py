"""Nodes that are slow, and not dead."""

import asyncio

import pytest

from backstay.sim.cluster.embedded import EmbeddedCluster
from tests.sim.cluster.stages import Cast, play, play_on_a_loop, pod


def test_a_slow_node_starts_pods_late() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast, loop = Cast(cluster), asyncio.get_running_loop()
        for node in ("n2", "n3"):
            await cast.cordon(node)
        cluster.nodes["n1"].slow_down(3.0)
        began = loop.time()
        await cast.create(pod())
        await cast.runs("web", on="n1")
        assert loop.time() - began > 3
        cluster.nodes["n1"].slow_down(0.0)
        began = loop.time()
        await cast.create(pod("other"))
        await cast.runs("other", on="n1")
        assert loop.time() - began < 6

    play(scenario)


@pytest.mark.parametrize("seconds", [4.0, 30.0])
def test_a_node_that_lags_behind_stays_ready(seconds: float) -> None:
    """It need not get answers in time: what it said before arrives, and shows that it lives."""

    async def scenario(cluster: EmbeddedCluster) -> None:
        await asyncio.sleep(20)
        cluster.nodes["n1"].slow_down(seconds)
        await asyncio.sleep(300)
        await cluster.settled(timeout=1)

    play(scenario)


def test_what_a_node_has_said_arrives_after_its_death() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        await asyncio.sleep(20)
        cluster.nodes["n1"].slow_down(60.0)
        await asyncio.sleep(120)
        before = renewed(cluster)
        cluster.nodes["n1"].kill()
        await cluster.until(lambda: renewed(cluster) != before)
        await asyncio.sleep(70)
        last = renewed(cluster)
        await asyncio.sleep(300)
        assert renewed(cluster) == last

    play(scenario)


def renewed(cluster: EmbeddedCluster) -> str:
    lease = cluster.api.store.get("leases.coordination.k8s.io", ("kube-node-lease", "n1"))
    assert lease is not None
    return str(lease.object["spec"]["renewTime"])


def test_on_a_loop_too() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast, loop = Cast(cluster), asyncio.get_running_loop()
        cluster.nodes["n1"].slow_down(0.2)
        began = loop.time()
        await cast.create(pod())
        await cast.ready("web")
        assert loop.time() - began > 0.2

    play_on_a_loop(scenario, nodes=1)
