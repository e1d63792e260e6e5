"""Our taints on a node: on and off, and nobody else's with them."""

import math
from collections.abc import Awaitable, Callable
from typing import Any

from backstay.act import taints
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.model.labels import OUT_OF_SERVICE, OUT_OF_SERVICE_OURS, TAINT
from backstay.sim.cluster.embedded import EmbeddedCluster
from tests.sim.cluster.stages import play

Json = dict[str, Any]

THEIRS = {"key": "example.com/theirs", "value": "kept", "effect": "PreferNoSchedule"}


class Tainted:
    """A node that bears somebody else's taint."""

    def __init__(self, client: KubeClient, live: Json) -> None:
        self.client = client
        self.uid: str = live["metadata"]["uid"]
        self.boot_id: str = live["status"]["nodeInfo"]["bootID"]

    async def live(self) -> Json:
        return (await self.client.get(NODES, "n1")).json()

    async def keys(self) -> set[str]:
        return {each["key"] for each in (await self.live())["spec"].get("taints") or ()}

    async def put_on(self, *, uid: str = "", boot_id: str = "") -> bool:
        return await taints.put_on(
            self.client,
            "n1",
            uid=uid or self.uid,
            boot_id=boot_id or self.boot_id,
            leave=lambda: math.inf,
        )

    async def put_out_of_service(self) -> bool:
        return await taints.put_out_of_service(
            self.client,
            "n1",
            uid=self.uid,
            boot_id=self.boot_id,
            incident="i",
            leave=lambda: math.inf,
        )

    async def take_off(self) -> bool:
        return await taints.take_off(self.client, "n1", uid=self.uid, leave=lambda: math.inf)


def on_a_node(scene: Callable[[Tainted], Awaitable[None]]) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        client = cluster.client()
        await client.merge_patch(NODES, "n1", {"spec": {"taints": [THEIRS]}})
        await scene(Tainted(client, (await client.get(NODES, "n1")).json()))

    play(scenario, nodes=1)


def test_our_taint_comes_and_goes_beside_somebody_elses() -> None:
    async def scene(node: Tainted) -> None:
        assert await node.put_on()
        assert await node.keys() == {THEIRS["key"], TAINT}
        assert await node.take_off()
        assert (await node.live())["spec"]["taints"] == [THEIRS]

    on_a_node(scene)


def test_a_boot_or_a_node_that_is_over_is_not_tainted() -> None:
    async def scene(node: Tainted) -> None:
        assert not await node.put_on(boot_id="the one before")
        assert not await node.put_on(uid="of another node of that name")
        assert await node.keys() == {THEIRS["key"]}

    on_a_node(scene)


def test_out_of_service_is_ours_to_take_off_only_where_it_says_so() -> None:
    async def scene(node: Tainted) -> None:
        assert await node.put_out_of_service()
        assert await node.keys() == {THEIRS["key"], OUT_OF_SERVICE}
        assert await node.take_off()
        assert OUT_OF_SERVICE_OURS not in ((await node.live())["metadata"]["annotations"] or {})
        somebodys = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
        await node.client.merge_patch(NODES, "n1", {"spec": {"taints": [THEIRS, somebodys]}})
        assert await node.put_out_of_service()
        assert await node.take_off()
        assert await node.keys() == {THEIRS["key"], OUT_OF_SERVICE}

    on_a_node(scene)


def test_what_a_person_has_put_back_in_service_is_not_put_out_again() -> None:
    async def scene(node: Tainted) -> None:
        assert await node.put_out_of_service()
        await node.client.merge_patch(NODES, "n1", {"spec": {"taints": [THEIRS]}})
        assert await node.put_out_of_service()
        assert await node.keys() == {THEIRS["key"]}

    on_a_node(scene)
