"""LabCluster: an embedded cluster with KubeVirt, workloads and, if wanted, Backstay on it.

Everything that happens in it is seen by a ``Witness`` and judged by the invariants. It stands on
any ground: in a ``World`` its programs are processes under virtual time, on a loop they are tasks.

``factor`` shortens every timer alike, Kubernetes' own, the kubelets' and ours: a cluster with 0.1
goes through the same steps ten times faster.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import msgspec

from backstay.apis.apps import STATEFUL_SETS
from backstay.apis.backstay import CONFIG_NAME, CONFIGS, CONFIRMATIONS, INCIDENTS
from backstay.apis.core import Node, node_row
from backstay.apis.definitions import definitions
from backstay.apis.kubevirt import VIRTUAL_MACHINES
from backstay.apis.machines import waits_for_heartbeats
from backstay.app import App, Parts, run
from backstay.decide.failover import CHAIN
from backstay.drivers.linstor.access import Access as LinstorAccess
from backstay.kube.access import Access, GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.lease import LeaseTimes
from backstay.kube.resource import ENDPOINT_SLICES, LEASES, NAMESPACES, NODES, PODS, Resource
from backstay.lab.inspector import Inspector
from backstay.lab.knocks import Knocks
from backstay.lab.liveness import SAME_DECISION, Flight
from backstay.lab.power_stage import DIRECTORY, PowerStage
from backstay.lab.restores import Backup
from backstay.lab.witness import Witness, workload_in, workload_of
from backstay.model.labels import LEASE_NAMESPACE
from backstay.model.node import Life
from backstay.model.policy import Times
from backstay.seam import Seams
from backstay.settings import Settings
from backstay.sim import csiaddons
from backstay.sim.calico import AddressCollector, Calico
from backstay.sim.calico import install as install_calico
from backstay.sim.cluster.embedded import API, EmbeddedCluster
from backstay.sim.cluster.ground import Ground, LoopGround, WorldGround
from backstay.sim.cluster.timers import Timers
from backstay.sim.files import MemoryFiles
from backstay.sim.kubevirt import Copying, KubeVirt, VirtHandler, install, virtual_machine
from backstay.sim.linstor.install import install as install_linstor
from backstay.sim.linstor.storage import URL as LINSTOR
from backstay.sim.linstor.storage import Linstor
from backstay.sim.network import Contact
from backstay.sim.nodes.machine import Machine
from backstay.sim.provider import SCHEME, SimProvider

NAMESPACE = "shop"
VAULT = "vault"
"""A cluster of the storage that knows of no fences."""
CONTROLLER = "controller"
"""The program of ours on each of its machines."""

_FLIGHTS = "flights"
"""Where each controller keeps its recordings, on a disk of its own."""

_PORT = 6443
_SCHEDULABLE = "kubevirt.io/schedulable"
PATIENCE = 60.0
"""Seconds, whatever the factor: a busy machine is not faster because timers are shorter."""

_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False,
)  # fmt: skip
_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")

Json = dict[str, Any]

NONE: Mapping[str, int] = {}


class LabCluster:
    """See the module."""

    def __init__(
        self,
        ground: Ground,
        *,
        factor: float = 1.0,
        calico: Calico | None = None,
        csi_addons: bool = False,
        linstor: Linstor | None = None,
        provider: bool = False,
        bmcs: bool = False,
        kubevirt: str = "v1.9.0",
    ) -> None:
        self.apps: dict[str, App] = {}
        self.machines: dict[str, Machine] = {}
        self._flights: dict[str, Flight] = {}
        self.protected: set[str] = set()
        self._processes: dict[str, str] = {}
        self._api_servers: tuple[str, ...] = ()
        timers = Timers().scaled(factor)
        self.witness = Witness(
            ours=self._processes,
            renewal=timers.lease,
            hold=settings("", factor).lease_times.hold,
            knocks=Knocks(factor, _contacts(ground), self._processes),
        )
        self.inspector = Inspector(self.witness, linstor=linstor, factor=factor)
        self.embedded = EmbeddedCluster(
            ground, timers=timers, front=self.witness.front, network=calico, devices=linstor
        )
        self.witness.attend(self.embedded)
        self.nodes = self.embedded.nodes
        self.truth = self.embedded.truth
        self.store = self.embedded.api.store
        self.client = self.embedded.client()
        self._ground = ground
        self.factor = factor
        self.calico = calico
        install(self.embedded.api, release=kubevirt)
        notices_late = waits_for_heartbeats(kubevirt)
        if calico is not None:
            self._have_calico(calico)
        if csi_addons:
            self._have_csi_addons()
        self.linstor = linstor
        if linstor is not None:
            install_linstor(linstor, self.embedded)
        self.witness.linstor = linstor
        self.power = PowerStage(self.embedded, self.witness) if bmcs else None
        self._provider = SimProvider(self.nodes, self.witness.answered) if provider else None
        self.embedded.add_controller(
            "virt-controller",
            lambda seams: KubeVirt(
                self.embedded.api.operations, rng=seams.rng, notices_late=notices_late
            ),
        )

    def _have_csi_addons(self) -> None:
        api = self.embedded.api
        csiaddons.install(api)
        self.embedded.add_controller(
            csiaddons.NAME,
            lambda _: csiaddons.FenceController(api.operations, truth=self.truth, refuses=(VAULT,)),
        )

    def _have_calico(self, calico: Calico) -> None:
        api = self.embedded.api
        install_calico(api, calico.group)
        self.embedded.add_controller(
            "calico-kube-controllers",
            lambda seams: AddressCollector(api.operations, seams.wall, group=calico.group),
        )

    # Setting up

    async def boot(self, *names: str, copying: Copying | None = None) -> None:
        """Until every node is ready for guests; ``copying`` is how they are migrated."""
        for name in names:
            self.embedded.add_node(name, agents={"virt-handler": VirtHandler(copying)})
        await self.embedded.settled()
        await self.embedded.until(lambda: all(map(self._takes_guests, names)))
        for name in names if self._provider is not None else ():
            known = {"spec": {"providerID": f"{SCHEME}{name}"}}
            await self.client.merge_patch(NODES, name, known)
        for definition in definitions():
            await self.client.create(_DEFINITIONS, definition)
        for name in (NAMESPACE, "backstay-system"):
            await self.client.create(NAMESPACES, {"metadata": {"name": name}})

    async def start_workloads(
        self, *, vms: Sequence[str] = (), stateful_sets: Mapping[str, int] = NONE
    ) -> None:
        """VMs, each with a disk that other nodes can reach, and StatefulSets of so many replicas;
        until all of them run. One after the other, so that they are placed alike every time."""
        for name in vms:
            disk = f"{name}-disk"
            await self.client.create(_CLAIMS, shared_claim(disk), namespace=NAMESPACE)
            vm = virtual_machine(name, namespace=NAMESPACE, claims=[disk])
            await self.client.create(VIRTUAL_MACHINES, vm, namespace=NAMESPACE)
            await self._placed(name)
        for name, replicas in stateful_sets.items():
            body = stateful_set(name, replicas)
            await self.client.create(STATEFUL_SETS, body, namespace=NAMESPACE)
            await self._placed(*(f"{name}-{number}" for number in range(replicas)))
        await self.until(lambda: not self.down)

    async def _placed(self, *names: str) -> None:
        """Until they have been given nodes; from now on they are to run."""
        wanted = {f"{NAMESPACE}/{name}" for name in names}
        self.protected |= wanted
        await self.until(lambda: wanted <= {workload_in(pod) for pod in self._pods_with_nodes()})

    def _pods_with_nodes(self) -> list[Json]:
        pods = (dict(stored.object) for stored in self.store.all(PODS.label))
        return [pod for pod in pods if pod["spec"].get("nodeName")]

    async def serve_on(self, nodes: Sequence[str]) -> None:
        """An API server on each of these nodes, over the same store, which our controllers are to
        ask instead of the one beside the controllers of the control plane."""
        for node in nodes:
            self.nodes[node].run(API, self.embedded.api_server(_host(node)))
        if nodes:
            await self.client.create(ENDPOINT_SLICES, _endpoints(nodes), namespace="default")
        self._api_servers = tuple(nodes)

    def start_backstay(self, name: str, *, on: str = "", **instead: Unpack[Parts]) -> None:
        """A controller, which the API knows as the user ``name``, on that node or on a machine of
        its own; or again, where it was, after it was killed."""
        if self._provider is not None:
            instead = {"provider": self._provider, **instead}

        async def main(seams: Seams) -> None:
            if isinstance(self._ground, LoopGround):
                # What it records is read when all is over, and is nothing for people's disks.
                seams = dataclasses.replace(seams, files=MemoryFiles())
            if self.power is not None:
                await self.power.give_credentials(seams.files)
            client = KubeClient(seams.transport, self._access(name), user_agent="backstay")
            self.witness.restores.started(name)
            self._flights[name] = Flight(seams.files, _FLIGHTS, instead.get("chain", CHAIN))

            def made(app: App) -> None:
                self.apps[name] = app

            ours = settings(name, self.factor, node=on, linstor=self.linstor is not None)
            if self.power is not None:
                ours = msgspec.structs.replace(ours, redfish=DIRECTORY)
            await run(ours, seams, client, made=made, **instead)

        self._processes[name] = f"{on}/{name}" if on else f"{name}/{CONTROLLER}"
        if on:
            self.nodes[on].run(name, lambda context: main(context.seams))
            return
        if name not in self.machines:
            self.machines[name] = self._ground.machine(name)
        self.machines[name].start(CONTROLLER, main)

    def process_of(self, controller: str) -> str:
        """What a world calls it."""
        return self._processes[controller]

    def _access(self, user: str) -> Access:
        if not self._api_servers:
            return self.embedded.access(user)
        grant = Grant(headers={"authorization": f"Bearer {user}"})
        url = f"https://{_host(self._api_servers[0])}:{_PORT}"
        return GivenAccess(url, grant, origin=f"the API server of {self._api_servers[0]}")

    def _takes_guests(self, name: str) -> bool:
        node = self.witness.stored(NODES.label, name) or {"metadata": {}}
        return (node["metadata"].get("labels") or {}).get(_SCHEDULABLE) == "true"

    # What people do

    def back_up(self) -> Backup:
        return Backup(self.witness.now(), self.store.snapshot())

    def roll_back(self, backup: Backup, *, raised: int = 0) -> None:
        """Restores the API from a backup, perhaps with its version raised."""
        before = self.store.version
        self.embedded.roll_back(backup.snapshot, raised=raised)
        self.witness.rolled_back(backup, before)

    async def arm(self) -> None:
        config = {"metadata": {"name": CONFIG_NAME}, "spec": {"mode": "Armed"}}
        await self.client.create(CONFIGS, config)

    async def death_of(self, node: str, *, by: str, reason: str) -> Json:
        """The object that ``backstay confirm-dead`` creates, about the boot that is there now."""
        live = node_row((await self.client.get(NODES, node)).into(Node))
        lease = (await self.client.get(LEASES, node, namespace=LEASE_NAMESPACE)).json()
        spec = {
            "node": node,
            "nodeUID": live.uid,
            "bootID": live.boot_id,
            "lastRenewal": lease["spec"]["renewTime"],
            "lastHeartbeat": live.heartbeat,
            "lastStatus": live.posted,
            "by": by,
            "reason": reason,
        }
        return {"metadata": {"generateName": f"{node}-"}, "spec": spec}

    async def confirm_dead(self, node: str, *, by: str, reason: str) -> None:
        await self.client.create(CONFIRMATIONS, await self.death_of(node, by=by, reason=reason))

    async def withdraw(self, node: str) -> None:
        """Every confirmation of this node; there need be none."""
        words = [stored.object for stored in self.store.all(CONFIRMATIONS.label)]
        for word in words:
            if word["spec"]["node"] == node:
                await self.client.delete(CONFIRMATIONS, word["metadata"]["name"])

    # Looking

    def running(self, node: str | None = None) -> set[str]:
        """The workloads that really run, there or anywhere."""
        return {workload_of(each) for each in self.truth.running(node)}

    @property
    def down(self) -> set[str]:
        return self.protected - self.running()

    @property
    def leader(self) -> App | None:
        return next((a for a in self.apps.values() if a.leadership.term is not None), None)

    def life(self, node: str) -> Life | None:
        """Where the leader sees the node stand; None while nobody leads."""
        leader = self.leader
        watched = None if leader is None else leader.observer.watched.get(node)
        return None if watched is None else watched.life.state

    def open_incidents(self) -> list[Json]:
        found = (stored.object for stored in self.store.all(INCIDENTS.label))
        return [dict(each) for each in found if not (each.get("status") or {}).get("closedAt")]

    async def replay(self) -> None:
        """Makes every recorded decision again; one that comes out differently is a breach."""
        for flight in self._flights.values():
            self.inspector.report(SAME_DECISION, await flight.differences())

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits for something to become true of the API or of what really runs."""
        await self.embedded.until(holds, timeout=PATIENCE)

    async def eventually(self, holds: Callable[[], bool]) -> None:
        """For what is true of a controller, which tells nobody: it is asked again and again."""
        async with asyncio.timeout(PATIENCE):
            while not holds():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.25 * self.factor)


def _contacts(ground: Ground) -> Mapping[tuple[str, str], Contact]:
    """On an ordinary loop machines have no ports that could be believed."""
    return ground.world.network.contacts if isinstance(ground, WorldGround) else {}


def _host(node: str) -> str:
    return f"api-{node}"


def _endpoints(nodes: Sequence[str]) -> Json:
    """Of the API itself, as its servers keep them."""
    return {
        "metadata": {
            "name": "kubernetes",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": "FQDN",
        "endpoints": [{"addresses": [_host(node)]} for node in nodes],
        "ports": [{"name": "https", "port": _PORT, "protocol": "TCP"}],
    }


def settings(name: str, factor: float, *, node: str = "", linstor: bool = False) -> Settings:
    """Of a controller on this node, or on a machine of its own."""
    lease, usual = LeaseTimes(), Settings(identity=name)
    terms = usual.linstor_terms
    return Settings(
        identity=name,
        node_name=node or name,
        recorder=_FLIGHTS,
        times=Times().scaled(factor),
        poll_leases=usual.poll_leases * factor,
        knock=usual.knock * factor,
        lease_times=LeaseTimes(
            duration=lease.duration * factor, hold=lease.hold * factor, renew=lease.renew * factor
        ),
        linstor=LinstorAccess(controllers=(LINSTOR,)) if linstor else None,
        linstor_terms=msgspec.structs.replace(
            terms, new_grace=terms.new_grace * factor, known_grace=terms.known_grace * factor
        ),
    )


def shared_claim(name: str) -> Json:
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "volumeMode": "Block",
            "resources": {"requests": {"storage": "10Gi"}},
        },
    }


def stateful_set(name: str, replicas: int) -> Json:
    labels = {"app": name}
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    container = {
        "name": "main",
        "image": f"example/{name}",
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "serviceName": name,
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            "volumeClaimTemplates": [claim],
        },
    }
