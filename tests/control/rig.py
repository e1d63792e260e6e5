"""A whole cluster with Backstay on it, under virtual time.

The controller is a process like any other: it can be paused, killed and started again. What really
runs is in ``scene.truth``, which no process can see.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from backstay.apis import core
from backstay.apis.backstay import (
    CONFIG_NAME,
    CONFIGS,
    CONFIRMATIONS,
    INCIDENTS,
    Incident,
    IncidentRow,
    incident_row,
)
from backstay.apis.definitions import definitions
from backstay.apis.kubevirt import INSTANCES, VIRTUAL_MACHINES
from backstay.app import App, build
from backstay.decide.failover import CHAIN, Check
from backstay.kube.client import KubeClient
from backstay.kube.resource import LEASES, NODES, PODS, Resource
from backstay.model.labels import LEASE_NAMESPACE, TAINT
from backstay.seam import Seams
from backstay.settings import Settings
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.kubevirt import KubeVirt, VirtHandler, install, virtual_machine
from backstay.sim.nodes.truth import Entry, Running
from backstay.sim.process import Process
from backstay.sim.world import World

Json = dict[str, Any]

DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False,
)  # fmt: skip
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)

FOUR = ("a", "b", "c", "d")
"""VMs."""


class Scene:
    """See the module."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        self.cluster = EmbeddedCluster(WorldGround(world), **options)
        self.truth = self.cluster.truth
        self.client = self.cluster.client()
        self.apps: dict[str, App] = {}
        self.doubles: list[str] = []
        self.truth.follow(self._look_for_doubles)
        install(self.cluster.api)
        self.cluster.add_controller(
            "virt-controller",
            lambda seams: KubeVirt(self.cluster.api.operations, rng=seams.rng),
        )

    # Setting up

    async def boot(self, *names: str) -> None:
        for name in names:
            self.cluster.add_node(name, agents={"virt-handler": VirtHandler()})
        await self.cluster.settled()
        for definition in definitions():
            await self.client.create(DEFINITIONS, definition)
        await self.client.create(NAMESPACES, {"metadata": {"name": "backstay-system"}})

    async def start_vms(self, *names: str, **how: Any) -> None:
        """All on the first node, so that its death takes all of them with it."""
        _, *others = self.cluster.nodes
        await self._cordon(others, cordoned=True)
        for name in names:
            await self.client.create(
                VIRTUAL_MACHINES, virtual_machine(name, **how), namespace="default"
            )
        await self.until(lambda: all(len(self.copies(name)) == 1 for name in names))
        for name in names:
            await self.instance_is(name, lambda status: status.get("phase") == "Running")
        await self._cordon(others, cordoned=False)

    async def _cordon(self, nodes: Sequence[str], *, cordoned: bool) -> None:
        for name in nodes:
            spec = {"unschedulable": True if cordoned else None}
            await self.client.merge_patch(NODES, name, {"spec": spec})

    async def start_vm_by_hand(self, name: str, *, run_strategy: str) -> None:
        """For a run strategy under which a VM is started by somebody."""
        vm = virtual_machine(name, run_strategy=run_strategy)
        await self.client.create(VIRTUAL_MACHINES, vm, namespace="default")
        if run_strategy == "Manual":
            asked = {"status": {"stateChangeRequests": [{"action": "Start"}]}}
            await self.client.merge_patch(
                VIRTUAL_MACHINES, name, asked, namespace="default", subresource="status"
            )
        await self.until(lambda: len(self.copies(name)) == 1)
        await self.instance_is(name, lambda status: status.get("phase") == "Running")

    async def start_stateful_set(self, name: str, replicas: int) -> None:
        await self.client.create(STATEFUL_SETS, stateful_set(name, replicas), namespace="default")
        pods = [f"{name}-{n}" for n in range(replicas)]
        await self.until(
            lambda: all(self.truth.copies("default", pod) for pod in pods), timeout=300
        )

    def start_controller(
        self, name: str = "backstay-1", *, chain: Sequence[Check] = CHAIN
    ) -> Process:
        async def main(seams: Seams) -> None:
            client = KubeClient(seams.transport, self.cluster.access())
            self.apps[name] = build(Settings(identity=name), seams, client, chain=chain)
            await self.apps[name].run()

        return self.world.start(name, main)

    async def arm(self, **spec: Any) -> None:
        config = {"metadata": {"name": CONFIG_NAME}, "spec": {"mode": "Armed", **spec}}
        await self.client.create(CONFIGS, config)

    async def confirm_dead(self, node: str) -> None:
        live = core.node_row((await self.client.get(NODES, node)).into(core.Node))
        lease = (await self.client.get(LEASES, node, namespace=LEASE_NAMESPACE)).json()
        spec = {
            "node": node,
            "nodeUID": live.uid,
            "bootID": live.boot_id,
            "lastRenewal": lease["spec"]["renewTime"],
            "lastHeartbeat": live.heartbeat,
            "lastStatus": live.posted,
            "by": "alice",
            "reason": "its power is off",
        }
        await self.client.create(CONFIRMATIONS, {"metadata": {"name": node}, "spec": spec})

    # Looking

    def _look_for_doubles(self, entry: Entry) -> None:
        """The one thing that must never be: a guest or a replica that runs twice."""
        running = Counter(_workload_of(each) for each in self.truth.running())
        self.doubles += [f"{name} at {entry.at:.1f}" for name, n in running.items() if n > 1]

    def copies(self, vm: str) -> list[str]:
        """The nodes on which the VM really runs."""
        start = f"virt-launcher-{vm}-"
        return [each.node for each in self.truth.running() if each.name.startswith(start)]

    async def until(self, holds: Callable[[], bool], *, timeout: float = 120.0) -> None:
        await self.cluster.until(holds, timeout=timeout)

    async def eventually(
        self, holds: Callable[[], Awaitable[bool]], *, within: float = 120.0
    ) -> None:
        """Asks every half second of virtual time."""
        async with asyncio.timeout(within):
            while not await holds():  # noqa: ASYNC110 - time is virtual
                await asyncio.sleep(0.5)

    async def instance_is(self, vm: str, holds: Callable[[Json], bool]) -> None:
        async def reads() -> bool:
            live = (await self.client.get(INSTANCES, vm, namespace="default")).json()
            return holds(live.get("status") or {})

        await self.eventually(reads)

    async def incident(self) -> IncidentRow:
        """The newest one; there must be one."""
        reply = await self.client.list(INCIDENTS)
        names = [each["metadata"]["name"] for each in reply.json()["items"]]
        reply = await self.client.get(INCIDENTS, max(names))
        return incident_row(reply.into(Incident))

    async def incidents(self) -> int:
        return len((await self.client.list(INCIDENTS)).json()["items"])

    async def is_tainted(self, node: str) -> bool:
        live = (await self.client.get(NODES, node)).json()
        return any(t["key"] == TAINT for t in live["spec"].get("taints") or ())

    async def pods_on(self, node: str) -> list[str]:
        reply = await self.client.list(PODS, fields=f"spec.nodeName={node}")
        return [each["metadata"]["name"] for each in reply.json()["items"]]


def play(scene: Callable[[Scene], Awaitable[None]], *, seed: int = 1, **options: Any) -> Scene:
    """Plays a scene in a world of its own, to its end; ``options`` are those of its cluster."""
    with World(seed) as world:

        async def scenario() -> Scene:
            stage = Scene(world, **options)
            await scene(stage)
            return stage

        return world.run(scenario())


def _workload_of(pod: Running) -> str:
    """A VM's launchers have names of their own each; they are copies of one guest."""
    stem = pod.name.rpartition("-")[0] if pod.name.startswith("virt-launcher-") else pod.name
    return f"{pod.namespace}/{stem}"


def stateful_set(name: str, replicas: int) -> Json:
    labels = {"app": name}
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    container = {
        "name": "main",
        "image": "example/db",
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "serviceName": name,
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            "volumeClaimTemplates": [claim],
        },
    }


async def set_up(
    scene: Scene, *vms: str, armed: bool = True, chain: Sequence[Check] = CHAIN, **how: Any
) -> str:
    """Three nodes, the VMs, a controller that leads; the name of the node of the first VM."""
    await scene.boot("n1", "n2", "n3")
    await scene.start_vms(*vms, **how)
    scene.start_controller(chain=chain)
    if armed:
        await scene.arm()
    await asyncio.sleep(30)
    return scene.copies(vms[0])[0]


async def until_lost(scene: Scene, node: str) -> None:
    async def is_lost() -> bool:
        return bool(await scene.incidents())

    await scene.eventually(is_lost)
    assert (await scene.incident()).spec.node == node
