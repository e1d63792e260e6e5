"""A small embedded cluster whose pods get their addresses from Calico."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from backstay.kube.resource import PODS
from backstay.sim.calico import V1, Calico, Group, Pools, install
from backstay.sim.calico.blocks import address_at, attribute_of, network_of
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.world import World

Json = dict[str, Any]

PINNED = "10.244.200.5"
PINNED_V6 = "fd00:10:244::a05"


class Rig:
    def __init__(self, world: World, calico: Calico) -> None:
        self.world = world
        self.calico = calico
        self.cluster = EmbeddedCluster(WorldGround(world), network=calico)
        install(self.cluster.api, calico.group)
        self.truth = self.cluster.truth
        self.client = self.cluster.client()
        self.nodes = self.cluster.nodes

    async def boot(self, *names: str) -> None:
        for name in names:
            self.cluster.add_node(name)
        await self.cluster.settled()

    async def configure(self, **spec: Any) -> None:
        body = {"metadata": {"name": "default"}, "spec": spec}
        await self.client.create(self.calico.group.settings, body)

    async def start(self, name: str, node: str, *addresses: str) -> None:
        """Asks for a pod there, with these addresses; whether it starts is another matter."""
        said = {"cni.projectcalico.org/ipAddrs": msgspec.json.encode(addresses).decode()}
        body = {
            "metadata": {"name": name, **({"annotations": said} if addresses else {})},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "main"}]},
        }
        await self.client.create(PODS, body, namespace="default")

    async def started(self, name: str, node: str, *addresses: str) -> Json:
        """The same, once it runs and the API knows it."""
        await self.start(name, node, *addresses)
        await self.cluster.until(lambda: self.phase(name) == "Running")
        return self.pod(name)

    async def delete(self, name: str) -> None:
        await self.client.delete(PODS, name, namespace="default")

    async def remove(self, name: str) -> None:
        """By force: without waiting for the kubelet."""
        await self.client.delete(PODS, name, namespace="default", conditions={"grace": 0})

    def pod(self, name: str) -> Json:
        found = self.cluster.api.store.get("pods", ("default", name))
        return {} if found is None else dict(found.object)

    def phase(self, name: str) -> str:
        return str((self.pod(name).get("status") or {}).get("phase") or "")

    def blocks(self) -> list[Json]:
        stored = self.cluster.api.store.all(self.calico.group.blocks.label)
        return [dict(each.object) for each in stored]

    def handles(self) -> dict[str, Json]:
        stored = self.cluster.api.store.all(self.calico.group.handles.label)
        return {each.object["spec"]["handleID"]: dict(each.object) for each in stored}

    def allocated(self) -> dict[str, tuple[str, str]]:
        """By address: the handle, and the pod that has it."""
        found = {}
        for block in self.blocks():
            for ordinal in range(network_of(block).num_addresses):
                attribute = attribute_of(block, ordinal)
                if attribute is not None:
                    owner = (attribute.get("secondary") or {}).get("pod", "")
                    found[str(address_at(block, ordinal))] = (attribute.get("handle_id", ""), owner)
        return found


def in_a_world(
    story: Callable[[Rig], Awaitable[None]],
    *,
    group: Group = V1,
    pools: Pools | None = None,
    persistence: bool = False,
) -> None:
    with World(seed=5) as world:

        async def tell() -> None:
            ground = WorldGround(world)
            calico = Calico(ground.wall, group=group, pools=pools, persistence=persistence)
            rig = Rig(world, calico)
            await rig.boot("n1", "n2")
            await story(rig)

        world.run(tell())
