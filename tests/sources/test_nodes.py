"""What of a node counts as a sign of life, and since when it is waited for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from backstay.kube.client import KubeClient
from backstay.kube.resource import LEASES, NODES
from backstay.model.labels import (
    DRAIN_TAINT,
    LEASE_NAMESPACE,
    OUT_OF_SERVICE,
    OUT_OF_SERVICE_OURS,
)
from backstay.model.node import NodeFacts
from backstay.seam.tasks import Tasks
from backstay.sim.chance import Chance
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sources.nodes import NodeSource
from tests.sim.cluster.stages import play

Json = dict[str, Any]
INTERVAL = 2.0


class Watched:
    """Nodes of which only their objects are there, beside n1 that lives, and a source that looks at
    them all."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.source = NodeSource(
            client, rng=Chance(1, "nodes"), interval=INTERVAL, window=22.0, on_look=lambda: None
        )

    async def join(self, name: str) -> None:
        await self._client.create(NODES, {"metadata": {"name": name}})
        await self.post(name, boot="first")
        lease = {"metadata": {"name": name, "namespace": LEASE_NAMESPACE}, "spec": {}}
        await self._client.create(LEASES, lease, namespace=LEASE_NAMESPACE)
        await self.renew(name, second=0)

    async def renew(self, name: str, *, second: int) -> None:
        spec = {"renewTime": f"2026-01-01T00:00:{second:02}.000000Z"}
        await self._client.merge_patch(LEASES, name, {"spec": spec}, namespace=LEASE_NAMESPACE)

    async def post(self, name: str, *, boot: str, second: int | None = None) -> None:
        """A status, which says the time only if there is a ``second``."""
        status: Json = {"nodeInfo": {"bootID": boot}}
        if second is not None:
            time = f"2026-01-01T00:00:{second:02}Z"
            status["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": time}]
        await self._client.merge_patch(NODES, name, {"status": status}, subresource="status")

    async def change(self, patch: Json, name: str = "a") -> None:
        await self._client.merge_patch(NODES, name, patch)
        await asyncio.sleep(1)

    def facts(self, name: str = "a") -> NodeFacts:
        found = self.source.facts(name)
        assert found is not None
        return found


def watching(scene: Callable[[Watched], Awaitable[None]], *names: str) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        watched = Watched(cluster.client())
        for name in names or ("a",):
            await watched.join(name)
        async with Tasks("test") as tasks:
            tasks.spawn(watched.source.run(), name="nodes")
            await asyncio.sleep(2 * INTERVAL)
            await scene(watched)

    play(scenario, nodes=1)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_what_is_seen_for_the_first_time_is_no_sign_of_life() -> None:
    async def scene(watched: Watched) -> None:
        facts = watched.facts()
        assert facts.lease_seen_at is not None
        assert (facts.lease_changed_at, facts.status_changed_at) == (None, None)

    watching(scene)


def test_a_renewal_counts_from_when_we_see_it_whatever_time_it_says() -> None:
    async def scene(watched: Watched) -> None:
        await watched.renew("a", second=30)
        before = now()
        await asyncio.sleep(2 * INTERVAL)
        changed_at = watched.facts().lease_changed_at
        assert changed_at is not None
        assert before <= changed_at <= now()
        await watched.renew("a", second=10)
        before = now()
        await asyncio.sleep(2 * INTERVAL)
        changed_at = watched.facts().lease_changed_at
        assert changed_at is not None
        assert changed_at >= before

    watching(scene)


def test_a_status_that_says_another_time_is_a_sign_of_life() -> None:
    async def scene(watched: Watched) -> None:
        await watched.post("a", boot="first", second=1)
        await asyncio.sleep(INTERVAL)
        assert watched.facts().status_changed_at is None
        await watched.post("a", boot="first", second=2)
        await asyncio.sleep(INTERVAL)
        assert watched.facts().status_changed_at is not None

    watching(scene)


def test_a_new_boot_is_waited_for_anew_also_where_its_status_says_no_time() -> None:
    async def scene(watched: Watched) -> None:
        await asyncio.sleep(30)
        waited_since = watched.facts().lease_seen_at
        before = now()
        await watched.post("a", boot="second")
        await asyncio.sleep(INTERVAL)
        facts = watched.facts()
        assert (facts.boot_id, facts.lease_changed_at) == ("second", None)
        assert waited_since is not None
        assert waited_since < before
        assert facts.lease_seen_at is not None
        assert facts.lease_seen_at >= before

    watching(scene)


def test_the_view_is_sound_only_while_half_of_the_others_renew() -> None:
    async def scene(watched: Watched) -> None:
        await asyncio.sleep(20)
        assert not watched.source.is_sound("a")
        for name in ("b", "c"):
            await watched.renew(name, second=1)
        await asyncio.sleep(2 * INTERVAL)
        assert watched.source.is_sound("a")
        await asyncio.sleep(30)
        assert not watched.source.is_sound("a")

    watching(scene, "a", "b", "c", "d", "e")


def test_who_is_known_to_be_dead_is_not_asked_whether_the_view_is_sound() -> None:
    async def scene(watched: Watched) -> None:
        await asyncio.sleep(20)
        assert not watched.source.is_sound("a")
        assert watched.source.is_sound("a", without=("c", "d"))

    watching(scene, "a", "b", "c", "d")


def test_who_bears_the_cluster_and_who_is_worked_on_is_known_as_long_as_it_is_so() -> None:
    async def scene(watched: Watched) -> None:
        taints = [{"key": DRAIN_TAINT, "effect": "NoSchedule"}]
        labels = {"node-role.kubernetes.io/control-plane": ""}
        await watched.change({"metadata": {"labels": labels}, "spec": {"taints": taints}})
        assert (watched.facts().control_plane, watched.facts().in_maintenance) == (True, True)
        assert watched.source.control_plane == {"a"}
        gone = dict.fromkeys(labels)
        await watched.change({"metadata": {"labels": gone}, "spec": {"taints": None}})
        assert (watched.facts().control_plane, watched.facts().in_maintenance) == (False, False)
        assert watched.source.control_plane == set()

    watching(scene)


def test_a_node_that_we_have_put_out_of_service_is_ours_to_give_back_without_our_other_taint() -> (
    None
):
    async def scene(watched: Watched) -> None:
        taints = [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]
        await watched.change({"spec": {"taints": taints}})
        assert not watched.facts().tainted
        await watched.change({"metadata": {"annotations": {OUT_OF_SERVICE_OURS: "n1-1"}}})
        assert watched.facts().tainted

    watching(scene)
