"""A store that is restored from a backup: the API goes back in time, and the nodes do not."""

import asyncio

import pytest

from backstay.kube.errors import OutcomeUnknown
from backstay.kube.resource import PODS
from backstay.sim.cluster.embedded import EmbeddedCluster
from tests.sim.cluster.stages import STATEFUL_SETS, Cast, play, pod, stateful_set


def test_versions_go_back_and_are_given_again() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast, store = Cast(cluster), cluster.api.store
        backup = store.snapshot()
        made = await cast.create(pod("later"))
        cluster.roll_back(backup)
        assert store.version < int(made["metadata"]["resourceVersion"])
        assert cast.get("pods", "later") is None
        await cluster.settled()
        await asyncio.sleep(120)
        assert store.version > int(made["metadata"]["resourceVersion"])

    play(scenario)


def test_what_was_deleted_since_is_there_again() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(stateful_set(), STATEFUL_SETS)
        await cast.ready("db-0")
        backup = cluster.api.store.snapshot()
        await cast.delete("db", STATEFUL_SETS)
        await cast.until(lambda: cast.get("pods", "db-0") is None)
        cluster.roll_back(backup)
        assert cast.get("pods", "db-0") is not None

    play(scenario)


def test_the_control_plane_goes_on_from_what_was_restored() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        backup = cluster.api.store.snapshot()
        await cast.create(pod("before"))
        await cast.runs("before")
        cluster.roll_back(backup)
        await cluster.settled()
        await cast.create(pod("after"))
        await cast.runs("after")

    play(scenario)


def test_what_was_not_running_stays_so() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        cluster.control_plane.kill("kube-scheduler")
        cluster.roll_back(cluster.api.store.snapshot())
        await cluster.settled()
        await cast.create(pod())
        await asyncio.sleep(60)
        assert not cast.pod()["spec"].get("nodeName")

    play(scenario)


def test_a_watch_of_a_version_that_is_yet_to_come_is_deaf_until_then() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast, store = Cast(cluster), cluster.api.store
        cluster.control_plane.kill("kube-scheduler")
        ahead = store.version + 1_000
        watched = cast.client.watch(PODS, namespace="default", resource_version=str(ahead))
        async with watched as lines:
            await cast.create(pod("unheard"))
            with pytest.raises(OutcomeUnknown, match="silent"):
                await lines.read(30)

    play(scenario)
