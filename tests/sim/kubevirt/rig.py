"""A cluster with KubeVirt for one scenario, and the same things to do whichever it is.

``embedded`` is the stand-in on an embedded API, under virtual time. ``actual`` is a real
virt-controller on a real control plane. Nodes are hollow in both, and have our virt-handler.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from backstay.kube.access import Grant
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES, PODS
from backstay.seam import Seams
from backstay.seam.tasks import Tasks
from backstay.sim.api.controller import Controller
from backstay.sim.api.garbage import GarbageCollector, create_default_namespaces
from backstay.sim.api.operations import Write
from backstay.sim.api.requests import Target
from backstay.sim.api.server import ApiServer
from backstay.sim.api.store import Commit, Key
from backstay.sim.chance import Chance
from backstay.sim.clock import LoopClock
from backstay.sim.kubevirt import KubeVirt, VirtHandler, install, virtual_machine
from backstay.sim.kubevirt.names import APP, LAUNCHER, SCHEDULABLE, VMIS, VMS
from backstay.sim.network import Network
from backstay.sim.nodes.fleet import HollowFleet
from backstay.sim.nodes.node import Node
from harness.connect import GivenAccess, until
from tests.sim.kubevirt.timeline import Recorder
from tests.support.local import LocalExec, LocalFiles

Json = dict[str, Any]

VM = "vm"
HANDLER = "virt-handler"


@dataclass
class Rig:
    """``server`` is there if the API is embedded."""

    client: KubeClient
    fleet: HollowFleet
    namespace: str
    patience: float
    server: ApiServer | None = None
    kubevirt: KubeVirt | None = None
    recorder: Recorder = field(init=False)

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.client, self.namespace)

    # Looking

    async def read(self, resource: Any, name: str = VM) -> Json:
        return dict((await self.client.get(resource, name, namespace=self.namespace)).json())

    async def listed(self, resource: Any, labels: str | None = None) -> list[Json]:
        found = await self.client.list(resource, namespace=self.namespace, labels=labels)
        return list(found.json()["items"])

    async def launcher(self) -> Json:
        """The pod of the VM; there must be one."""
        (pod,) = await self.listed(PODS, f"{APP}={LAUNCHER}")
        return pod

    async def until(self, resource: Any, holds: Callable[[Json], bool], name: str = VM) -> Json:
        (found,) = await until(
            self.client, resource, lambda objects: any(map(holds, objects)),
            namespace=self.namespace if resource.namespaced else None,
            name=name, timeout=self.patience,
        )  # fmt: skip
        return found

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
        return sorted(each.node for each in self.fleet.truth() if each.name.startswith(start))

    # Doing

    async def start_vm(self, name: str = VM, **how: Any) -> Json:
        """A VM that runs; its VMI."""
        await self.create_vm(name, **how)
        return await self.until_running(name)

    async def create_vm(self, name: str = VM, **how: Any) -> None:
        selector = {"test": self.namespace}
        vm = virtual_machine(name, namespace=self.namespace, node_selector=selector, **how)
        await self.client.create(VMS, vm, namespace=self.namespace)

    async def ask_for_start(self, name: str = VM) -> None:
        """What virt-api does for a start; a real virt-controller may have none beside it."""
        asked = {"status": {"stateChangeRequests": [{"action": "Start"}]}}
        await self.client.merge_patch(
            VMS, name, asked, namespace=self.namespace, subresource="status"
        )

    async def keep_scheduler_away(self, node: str) -> None:
        await self.client.merge_patch(NODES, node, {"spec": {"unschedulable": True}})

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
        return self.fleet[vmi["status"]["nodeName"]]


async def add_nodes(rig: Rig, count: int, labels: dict[str, str] | None = None) -> None:
    """Nodes that guests can be scheduled to."""
    for number in range(count):
        name = f"{rig.namespace}-n{number + 1}"
        labels = {"test": rig.namespace, **(labels or {})}
        rig.fleet.add(name, labels=labels, agents={HANDLER: VirtHandler()})
        await rig.until(NODES, lambda node: _labels(node).get(SCHEDULABLE) == "true", name)


def _labels(obj: Json) -> Json:
    return dict(obj["metadata"].get("labels") or {})


@asynccontextmanager
async def embedded(*, seed: int = 1, nodes: int = 3) -> AsyncIterator[Rig]:
    wall = LoopClock()
    chance = Chance(seed, "kubevirt")
    server = ApiServer(wall=wall, rng=Chance(seed, "api"))
    create_default_namespaces(server.operations)
    install(server)
    network = Network(grace=0.1, keeps_record=False)
    seams = Seams(network.transport, network.serve, LocalExec(), LocalFiles(), wall, chance)
    listener = await network.serve.listen(server.handle)
    client = KubeClient(network.transport, GivenAccess(listener.url, Grant()), user_agent="test")
    kubevirt = KubeVirt(server.operations, rng=chance)
    try:
        async with Tasks("cluster") as tasks, HollowFleet(client, seams) as fleet:
            tasks.spawn(GarbageCollector(server.operations).run(), name="garbage")
            tasks.spawn(Binder(server).run(), name="scheduler")
            tasks.spawn(kubevirt.run(), name="virt-controller")
            rig = Rig(client, fleet, "default", 600.0, server, kubevirt)
            await add_nodes(rig, nodes)
            async with rig.recorder.running():
                yield rig
    finally:
        await listener.close()


class Binder(Controller[Key]):
    """As much of a scheduler as these tests need: labels, cordons, and the emptiest node."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server.store)
        self._operations = server.operations

    def begin(self) -> None:
        for pod in self.store.all("pods"):
            self.add(pod.key)

    def hear(self, commit: Commit) -> None:
        if commit.storage == "pods":
            self.add(commit.after.key)
        elif commit.storage == "nodes":
            self.begin()

    def work(self, key: Key) -> None:
        pod = self.store.get("pods", key)
        if pod is None or pod.object["spec"].get("nodeName"):
            return
        wanted = pod.object["spec"].get("nodeSelector") or {}
        fitting = [
            node.key[1]
            for node in self.store.all("nodes")
            if not node.object["spec"].get("unschedulable")
            and wanted.items() <= _labels(node.object).items()
        ]
        if fitting:
            node = min(fitting, key=self._load)
            info = self._operations.kinds.find("", "v1", "pods")
            assert info is not None
            bound = {**pod.object, "spec": {**pod.object["spec"], "nodeName": node}}
            self._operations.enact(Target(info, *key), pod, bound, Write("scheduler"))

    def _load(self, node: str) -> int:
        return sum(pod.object["spec"].get("nodeName") == node for pod in self.store.all("pods"))
