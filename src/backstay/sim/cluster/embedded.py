"""EmbeddedCluster: a Kubernetes cluster in memory, with nodes that can be made to fail.

See the package for how to use it. The control plane is a machine like any other: its programs
(``api``, ``kube-controller-manager``, ``kube-scheduler``, ``csi-attacher`` and whatever is added)
can be killed and started again one by one. What the API server has stored outlives it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from backstay.kube.access import Access, GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.seam import Seams
from backstay.seam.serve import Handler, Serve, ServerTls
from backstay.seam.tasks import Tasks
from backstay.sim.api.access import AccessControl, User
from backstay.sim.api.disruption import DisruptionController
from backstay.sim.api.garbage import DEFAULT_NAMESPACES, GarbageCollector, NamespaceController
from backstay.sim.api.server import ApiServer
from backstay.sim.api.store import Snapshot
from backstay.sim.cluster.attachments import AttachDetach, ExternalAttacher
from backstay.sim.cluster.claims import DRIVER, ClaimBinder, storage_class
from backstay.sim.cluster.daemon_sets import DaemonSets
from backstay.sim.cluster.desk import CLASSES, NODES, Desk, Json, PodsByNode, is_ready, taints_of
from backstay.sim.cluster.eviction import TaintEviction
from backstay.sim.cluster.ground import Ground
from backstay.sim.cluster.jobs import Jobs
from backstay.sim.cluster.lifecycle import NodeLifecycle
from backstay.sim.cluster.pod_gc import PodGc
from backstay.sim.cluster.replica_sets import Deployments, ReplicaSets
from backstay.sim.cluster.scheduler import Scheduler
from backstay.sim.cluster.stateful_sets import StatefulSets
from backstay.sim.cluster.timers import Timers
from backstay.sim.nodes.agents import Agent, AgentContext
from backstay.sim.nodes.devices import Devices
from backstay.sim.nodes.machine import CONTROL_PLANE, Main
from backstay.sim.nodes.network import PodNetwork
from backstay.sim.nodes.node import Node, Site
from backstay.sim.nodes.nodestatus import NodeIdentity
from backstay.sim.nodes.truth import Truth

API = "api"
URL = "http://api:6443"
ADMIN = "admin"

_HOST, _PORT = "api", 6443
_MASTERS = ("system:masters",)
_UNCHECKED = ServerTls(cert=b"", key=b"")
"""The network in memory asks for no proof."""


def anywhere(_: Json) -> str:
    """No node rather than another."""
    return ""


class Runnable(Protocol):
    """A controller: ``run`` works until it is cancelled."""

    def run(self) -> Coroutine[Any, Any, None]: ...


@dataclass(frozen=True)
class Served:
    """An embedded API that programs of this machine can reach."""

    url: str
    kubeconfig: bytes


class ControlPlane:
    """The machine that the API and the controllers are on."""

    def __init__(self, ground: Ground) -> None:
        self._machine = ground.machine(CONTROL_PLANE)
        self._programs: dict[str, Main] = {}
        self._running: dict[str, None] = {}

    def start(self, name: str, main: Main | None = None) -> None:
        """Starts a program, or one that was killed again."""
        if main is not None:
            self._programs[name] = main
        self._machine.start(name, self._programs[name])
        self._running[name] = None

    def kill(self, name: str) -> None:
        self._machine.kill(name)
        self._running.pop(name, None)

    def kill_all(self) -> list[str]:
        """All that run; which those were."""
        names = list(self._running)
        for name in names:
            self.kill(name)
        return names


class EmbeddedCluster:
    """See the module and the package.

    ``users`` says who may ask, by name, under access control; without it everybody may do
    everything. ``front`` puts something between the API server and those who ask, such as faults.
    ``detach_revokes`` is of the storage, see ``attachments``; ``network`` is what gives pods their
    addresses, ``devices`` what opens their volumes.
    """

    def __init__(
        self,
        ground: Ground,
        *,
        timers: Timers | None = None,
        users: Mapping[str, User] | None = None,
        front: Callable[[ApiServer], Handler] | None = None,
        detach_revokes: bool = False,
        network: PodNetwork | None = None,
        devices: Devices | None = None,
    ) -> None:
        self.ground = ground
        self.timers = timers or Timers()
        self.truth = Truth(ground.now)
        self.api = ApiServer(wall=ground.wall, rng=ground.rng)
        self.nodes: dict[str, Node] = {}
        self.prefers: Callable[[Json], str] = anywhere
        """The node that the scheduler takes for a pod where it fits; empty if any will do."""
        self.control_plane = ControlPlane(ground)
        self._listening = False
        self._detach_revokes = detach_revokes
        self._handler = self._behind(users, front)
        self._pods = PodsByNode(self.api.operations)
        self._site = Site(
            truth=self.truth,
            connect=self._connect,
            wall=ground.wall,
            rng=ground.rng,
            pace=self.timers.pace,
            find=self.nodes.get,
            network=network,
            devices=devices,
        )
        self._furnish()
        self._start()

    # Nodes and programs

    def add_node(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        agents: Mapping[str, Agent] | None = None,
    ) -> Node:
        """Boots a node; the API hears of it a moment later."""
        if name in self.nodes:
            raise ValueError(f"there is a node {name!r} already")
        node = self.nodes[name] = Node(
            NodeIdentity.numbered(name, len(self.nodes) + 1, labels or {}),
            machine=self.ground.machine(name),
            site=self._site,
            agents=agents,
        )
        return node

    def add_controller(self, name: str, make: Callable[[Seams], Runnable]) -> None:
        """One more program of the control plane; it is made anew whenever it is started."""

        async def main(seams: Seams) -> None:
            await make(seams).run()

        self.control_plane.start(name, main)

    def roll_back(self, snapshot: Snapshot, *, raised: int = 0) -> None:
        """Somebody restores a backup of the store (``api.store.snapshot()``), perhaps with its
        version raised, and has the control plane begin anew. Nodes, and whoever else is outside,
        are not told."""
        names = self.control_plane.kill_all()
        self.api.store.restore(snapshot, raised=raised)
        self._pods.count_anew()
        for name in names:
            self.control_plane.start(name)

    def api_server(self, host: str) -> Agent:
        """One more API server over the same store, for a node to run. It answers to that name."""

        async def serve(context: AgentContext) -> None:
            await self._listen(context.seams, host, tls=_UNCHECKED)

        return serve

    # Talking to it

    def access(self, user: str = ADMIN) -> Access:
        headers = {"authorization": f"Bearer {user}"}
        return GivenAccess(URL, Grant(headers=headers), origin="the embedded cluster")

    def client(self, user: str = ADMIN) -> KubeClient:
        """For those who look on from outside; a program has its own transport."""
        return KubeClient(self.ground.transport, self.access(user), user_agent=user)

    @asynccontextmanager
    async def serve(
        self,
        serve: Serve,
        *,
        port: int = 0,
        tls: ServerTls | None = None,
        ca: bytes | None = None,
    ) -> AsyncIterator[Served]:
        """On loopback, for kubectl and other programs. ``ca`` is what ``tls`` can be checked
        against. Only on a ground in real time."""
        listener = await serve.listen(self._handler, port=port, tls=tls)
        try:
            yield Served(listener.url, _kubeconfig(listener.url, ca))
        finally:
            await listener.close()

    async def settled(self, *, timeout: float = 120.0) -> None:
        """Waits until the API answers, and each node that has power is ready and without taints."""
        await self.until(lambda: self._listening and self._all_open(), timeout=timeout)

    async def until(self, holds: Callable[[], bool], *, timeout: float = 60.0) -> None:
        """Waits for something to become true of the store or of what really runs."""
        news = asyncio.Event()
        releases = [
            self.api.store.follow(None, lambda _: news.set()),
            self.truth.follow(lambda _: news.set()),
        ]
        try:
            async with asyncio.timeout(timeout):
                while not holds():
                    news.clear()
                    await news.wait()
        finally:
            for release in releases:
                release()

    # Inside

    def _all_open(self) -> bool:
        desk = Desk(self.api.operations)
        found = (desk.get(NODES, node.name) for node in self.nodes.values() if node.boot_id)
        return all(node and is_ready(node) and not taints_of(node) for node in found)

    def _behind(
        self,
        users: Mapping[str, User] | None,
        front: Callable[[ApiServer], Handler] | None,
    ) -> Handler:
        if front is not None:
            return front(self.api)
        if users is None:
            return self.api.handle
        masters = {ADMIN: User(ADMIN, _MASTERS), "node": User("node", _MASTERS)}
        return AccessControl(self.api, {**masters, **users}).handle

    def _connect(self, node: str, seams: Seams) -> KubeClient:
        access = GivenAccess(URL, Grant(headers={"authorization": "Bearer node"}), origin=node)
        return KubeClient(seams.transport, access, user_agent=f"kubelet/{node}")

    def _furnish(self) -> None:
        desk = Desk(self.api.operations, "embedded")
        for name in DEFAULT_NAMESPACES:
            desk.create("namespaces", {"metadata": {"name": name}})
        desk.create(CLASSES, storage_class(DRIVER, default=True))

    def _start(self) -> None:
        operations, timers, pods = self.api.operations, self.timers, self._pods

        def scheduler(_: Seams) -> Scheduler:
            return Scheduler(operations, pods=pods, prefers=lambda pod: self.prefers(pod))

        self.control_plane.start(API, self._serve_api)
        self.add_controller(
            "kube-controller-manager",
            lambda _: _Together(
                GarbageCollector(operations),
                NamespaceController(operations),
                DisruptionController(operations),
                NodeLifecycle(operations, timers=timers, pods=pods),
                TaintEviction(operations, timers=timers, pods=pods),
                PodGc(operations, timers=timers),
                StatefulSets(operations),
                Deployments(operations),
                ReplicaSets(operations),
                DaemonSets(operations),
                Jobs(operations),
                ClaimBinder(operations),
                AttachDetach(operations, timers=timers),
            ),
        )
        self.add_controller("kube-scheduler", scheduler)
        self.add_controller(
            "csi-attacher",
            lambda _: ExternalAttacher(
                operations, timers=timers, truth=self.truth, revokes=self._detach_revokes
            ),
        )

    async def _serve_api(self, seams: Seams) -> None:
        self._listening = True
        await self._listen(seams, _HOST)

    async def _listen(self, seams: Seams, host: str, *, tls: ServerTls | None = None) -> None:
        listener = await seams.serve.listen(self._handler, host=host, port=_PORT, tls=tls)
        try:
            await asyncio.Event().wait()
        finally:
            await listener.close()


class _Together:
    """Several controllers in one program."""

    def __init__(self, *controllers: Runnable) -> None:
        self._controllers = controllers

    async def run(self) -> None:
        async with Tasks("controllers") as tasks:
            for each in self._controllers:
                tasks.spawn(each.run(), name=type(each).__name__)
            await asyncio.Event().wait()


def _kubeconfig(url: str, ca: bytes | None) -> bytes:
    """As JSON, which every reader of YAML takes."""
    cluster: dict[str, Any] = {"server": url}
    if ca is not None:
        cluster["certificate-authority-data"] = ca
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "embedded", "cluster": cluster}],
        "users": [{"name": ADMIN, "user": {"token": ADMIN}}],
        "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": ADMIN}}],
        "current-context": "embedded",
    }
    return msgspec.json.encode(config)
