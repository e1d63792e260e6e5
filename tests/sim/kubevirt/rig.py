"""A cluster with KubeVirt for one scenario, and the same things to do whichever it is.

``in_memory`` is the stand-in on an embedded cluster, under virtual time; ``actual.py`` has a real
virt-controller on a real control plane. Nodes are hollow in both, and have our virt-handler.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES, PODS, Resource
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.kubevirt import Copying, KubeVirt, VirtHandler, install, virtual_machine
from backstay.sim.kubevirt.names import APP, LAUNCHER, MIGRATIONS, SCHEDULABLE, VMIS, VMS
from backstay.sim.kubevirt.vmi_controller import CLAIMS
from backstay.sim.nodes.node import Node
from backstay.sim.nodes.truth import Truth
from backstay.sim.world import World
from harness.connect import until
from tests.sim.kubevirt.timeline import Recorder

Json = dict[str, Any]

VM = "vm"
HANDLER = "virt-handler"
CONTROLLER = "virt-controller"


@dataclass
class Rig:
    """``cluster`` is there if it is an embedded one."""

    client: KubeClient
    nodes: Mapping[str, Node]
    truth: Truth
    namespace: str
    patience: float
    cluster: EmbeddedCluster | None = None
    recorder: Recorder = field(init=False)

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.client, self.namespace)

    # Looking

    async def read(self, resource: Resource, name: str = VM) -> Json:
        return dict((await self.client.get(resource, name, namespace=self.namespace)).json())

    async def listed(self, resource: Resource, labels: str | None = None) -> list[Json]:
        found = await self.client.list(resource, namespace=self.namespace, labels=labels)
        return list(found.json()["items"])

    async def launcher(self) -> Json:
        """The pod of the VM; there must be one."""
        (pod,) = await self.listed(PODS, f"{APP}={LAUNCHER}")
        return pod

    async def until(
        self, resource: Resource, holds: Callable[[Json], bool], name: str = VM
    ) -> Json:
        (found,) = await until(
            self.client, resource, lambda objects: any(map(holds, objects)),
            namespace=self.namespace if resource.namespaced else None,
            name=name, timeout=self.patience,
        )  # fmt: skip
        return found

    async def until_none(self, resource: Resource, name: str = VM) -> None:
        await until(
            self.client, resource, lambda objects: not objects,
            namespace=self.namespace, name=name, timeout=self.patience,
        )  # fmt: skip

    async def until_there(self, resource: Resource, count: int) -> list[Json]:
        """So many of them."""
        return await until(
            self.client, resource, lambda objects: len(objects) == count,
            namespace=self.namespace, timeout=self.patience,
        )  # fmt: skip

    async def until_running(self, name: str = VM, *, after: str = "") -> Json:
        """The VMI, when it is ready and not the one of the uid ``after``."""
        await self.until(
            VMS,
            lambda vm: (
                (vm.get("status") or {}).get("printableStatus") == "Running"
                and bool(vm["status"].get("ready"))
            ),
            name,
        )
        return await self.until(
            VMIS,
            lambda vmi: (
                vmi["metadata"]["uid"] != after
                and (vmi.get("status") or {}).get("phase") == "Running"
            ),
            name,
        )

    def copies(self, name: str = VM) -> list[str]:
        """The nodes on which a launcher of the VM really runs."""
        start = f"virt-launcher-{name}-"
        return sorted(each.node for each in self.truth.running() if each.name.startswith(start))

    # Doing

    async def start_vm(self, name: str = VM, **how: Any) -> Json:
        """A VM that runs; its VMI."""
        await self.create_vm(name, **how)
        return await self.until_running(name)

    async def create_vm(self, name: str = VM, **how: Any) -> None:
        selector = {"test": self.namespace}
        vm = virtual_machine(name, namespace=self.namespace, node_selector=selector, **how)
        await self.client.create(VMS, vm, namespace=self.namespace)

    async def ask_for_start(self, ended: Json | None = None) -> None:
        """What virt-api does for a start, perhaps of a VMI that has ended; a real
        virt-controller may have none beside it."""
        asked = [{"action": "Start"}]
        if ended is not None:
            asked.insert(0, {"action": "Stop", "uid": ended["metadata"]["uid"]})
        await self.change_vm({"status": {"stateChangeRequests": asked}}, "status")

    async def change_vm(self, patch: Json, subresource: str | None = None) -> None:
        await self.client.merge_patch(
            VMS, VM, patch, namespace=self.namespace, subresource=subresource
        )

    async def end_guest(self, *, code: int) -> None:
        """It ends by itself, and its launcher with it."""
        pod = await self.launcher()
        node = self.nodes[pod["spec"]["nodeName"]]
        node.exit(self.namespace, pod["metadata"]["name"], code=code)

    async def let_scheduler_in(self, node: str) -> None:
        await self.client.merge_patch(NODES, node, {"spec": {"unschedulable": None}})

    async def keep_scheduler_away(self, node: str) -> None:
        await self.client.merge_patch(NODES, node, {"spec": {"unschedulable": True}})

    async def taint(self, node: str, taint: Json) -> None:
        await self.client.merge_patch(NODES, node, {"spec": {"taints": [taint]}})

    async def create_claim(self, name: str, *modes: str) -> None:
        claim = {
            "metadata": {"name": name},
            "spec": {
                "accessModes": list(modes) or ["ReadWriteMany"],
                "volumeMode": "Block",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        await self.client.create(CLAIMS, claim, namespace=self.namespace)

    async def migrate(self, name: str = VM) -> str:
        """Asks for it; the name of the migration."""
        migration = {
            "apiVersion": MIGRATIONS.api_version,
            "kind": MIGRATIONS.kind,
            "metadata": {"generateName": "by-hand-"},
            "spec": {"vmiName": name},
        }
        made = await self.client.create(MIGRATIONS, migration, namespace=self.namespace)
        return str(made.json()["metadata"]["name"])

    async def remove_pod(self, name: str) -> None:
        await self.client.delete(PODS, name, namespace=self.namespace, conditions={"grace": 0})

    async def delete_pod(self, *, grace: int | None = None) -> None:
        pod = await self.launcher()
        await self.client.delete(
            PODS, pod["metadata"]["name"], namespace=self.namespace, conditions={"grace": grace}
        )

    async def delete_instance(self) -> None:
        await self.client.delete(VMIS, VM, namespace=self.namespace)

    async def strip_finalizers(self) -> None:
        patch = {"metadata": {"finalizers": None}}
        await self.client.merge_patch(VMIS, VM, patch, namespace=self.namespace)

    def node_of(self, vmi: Json) -> Node:
        return self.nodes[vmi["status"]["nodeName"]]

    async def until_open(self, node: str) -> None:
        """Guests can be scheduled to it."""
        await self.until(NODES, lambda node: _labels(node).get(SCHEDULABLE) == "true", node)


def _labels(obj: Json) -> Json:
    return dict(obj["metadata"].get("labels") or {})


def in_memory(
    scenario: Callable[[Rig], Coroutine[Any, Any, None]],
    *,
    seed: int = 1,
    nodes: int = 3,
    copying: Copying | None = None,
) -> None:
    """Runs a scenario on an embedded cluster."""
    with World(seed) as world:
        world.run(_on_a_cluster(world, scenario, nodes, copying))


async def _on_a_cluster(
    world: World,
    scenario: Callable[[Rig], Coroutine[Any, Any, None]],
    nodes: int,
    copying: Copying | None,
) -> None:
    cluster = EmbeddedCluster(WorldGround(world))
    install(cluster.api)
    cluster.add_controller(
        CONTROLLER, lambda seams: KubeVirt(cluster.api.operations, rng=seams.rng)
    )
    for number in range(nodes):
        labels = {"test": "default"}
        agents = {HANDLER: VirtHandler(copying)}
        cluster.add_node(f"n{number + 1}", labels=labels, agents=agents)
    await cluster.settled()
    rig = Rig(cluster.client(), cluster.nodes, cluster.truth, "default", 600.0, cluster)
    for name in cluster.nodes:
        await rig.until_open(name)
    async with rig.recorder.running():
        await scenario(rig)
