"""A real control plane with hollow nodes and Backstay on it, with times short enough to wait for.

The controller acts with the rights of its own service account, and people with theirs. A workload
is a StatefulSet whose every pod wants to be on the first node, also when it is dead: whoever lets
the scheduler put one there again is found out. Each pod has a volume.

What is seen is kept: every state of every pod that the API showed (``sightings``), everything that
the controller wrote (``Controller.writes``) and, in the fleet, what really ran.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from backstay.apis import core
from backstay.apis.apps import STATEFUL_SETS
from backstay.apis.backstay import (
    CONFIG_NAME,
    CONFIGS,
    CONFIRMATIONS,
    INCIDENTS,
    Incident,
    IncidentRow,
    incident_row,
)
from backstay.app import App, build
from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.projection import Meta, Projection
from backstay.kube.reflector import Reflector
from backstay.kube.resource import CONFIG_MAPS, LEASES, NODES, PODS, Resource
from backstay.model.labels import FRAMES, LEASE_NAMESPACE, TAINT
from backstay.seam.real import open_seams
from backstay.seam.system import SystemRng
from backstay.seam.tasks import Tasks
from backstay.seam.transport import Request, Response, Stream, Transport
from backstay.sim.nodes.agents import Agent
from backstay.sim.nodes.fleet import HollowFleet
from backstay.sim.nodes.kubelet import Pace
from backstay.sim.nodes.node import Node
from harness.connect import hollow_nodes, until
from tests.support.controller_program import is_deletion, removes, settings
from tests.support.installed import USERS, Installed

Json = dict[str, Any]
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)

PACE = Pace(lease=1.0, status=1.0, lease_duration=4, stop=1.0)
"""What runs takes a moment to end, in which a second copy of it would be seen."""

PATIENCE = 20.0
"""For what must happen sooner or later, on a machine that may be very busy."""


class _PodMeta(Meta, frozen=True, rename="camel"):
    deletion_timestamp: str | None = None


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _PodMeta
    spec: _PodSpec


class Sighting(msgspec.Struct, frozen=True):
    """One state of one pod."""

    key: str
    uid: str
    version: str
    node: str
    marked: bool

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]


def _sighting(pod: _Pod) -> Sighting:
    meta = pod.metadata
    marked = meta.deletion_timestamp is not None
    return Sighting(meta.key, meta.uid, meta.resource_version, pod.spec.node_name, marked)


class Wire:
    """A transport that keeps what is written, and lets a test come in between.

    ``meanwhile`` is awaited with each request that is about to be sent.
    """

    def __init__(self, inner: Transport) -> None:
        self.writes: list[Request] = []
        self.meanwhile: Callable[[Request], Awaitable[None]] | None = None
        self._inner = inner

    async def request(self, request: Request) -> Response:
        if self.meanwhile is not None:
            await self.meanwhile(request)
        if request.method != "GET":
            self.writes.append(request)
        return await self._inner.request(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._inner.stream(request)


@dataclass(frozen=True)
class Controller:
    """One that runs in this process."""

    app: App
    wire: Wire

    @property
    def deletions(self) -> list[str]:
        """The pods that it asked the API to delete, in whichever way."""
        return [_name(request) for request in self.wire.writes if is_deletion(request)]

    @property
    def removals(self) -> list[str]:
        return [_name(request) for request in self.wire.writes if removes(request)]

    def just_before(
        self, moment: Callable[[Request], bool], act: Callable[[], Awaitable[None]]
    ) -> None:
        """Acts when the first request of some kind is about to leave, and only then lets it."""
        turn, acted = asyncio.Lock(), False

        async def come_in_between(request: Request) -> None:
            nonlocal acted
            if moment(request):
                async with turn:
                    if not acted:
                        acted = True
                        await act()

        self.wire.meanwhile = come_in_between

    async def looks(self, count: int) -> None:
        """Waits until it has looked at the leases so many times from now on."""
        before = self.app.nodes.looks
        await eventually(lambda: self.app.nodes.looks >= before + count)


def _name(request: Request) -> str:
    return request.url.rpartition("/")[2].partition("?")[0]


def marks(request: Request) -> bool:
    """Whether it deletes a pod, but leaves it to its kubelet to end it."""
    return is_deletion(request) and not removes(request)


def is_about(pod: str, request: Request) -> bool:
    return _name(request) == pod


async def eventually(holds: Callable[[], bool], *, within: float = PATIENCE) -> None:
    """For what tells nobody when it changes."""
    async with asyncio.timeout(within):
        while not holds():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.05)


class RealScene:
    """See the module. ``victim`` is the node on which everything starts."""

    def __init__(
        self,
        client: KubeClient,
        installed: Installed,
        fleet: HollowFleet,
        namespace: str,
        tasks: Tasks,
        stack: AsyncExitStack,
    ) -> None:
        self.client = client
        self.installed = installed
        self.fleet = fleet
        self.namespace = namespace
        self.driver = ""
        """Of volumes that have to be attached; without one they are served over NFS."""
        self.sightings: list[Sighting] = []
        self._pods: Cache[Sighting] = Cache()
        self._pods.subscribe(self._seen)
        self._tasks = tasks
        self._stack = stack

    # Setting up

    async def boot(
        self,
        count: int,
        *,
        labels: Mapping[str, str] | None = None,
        agents: Mapping[str, Agent] | None = None,
    ) -> list[str]:
        """So many more nodes, which are ready then; their names."""
        first = len(self.fleet.nodes) + 1
        names = [f"{self.namespace}-n{number}" for number in range(first, first + count)]
        self.fleet.add(*names, labels={"test": self.namespace, **(labels or {})}, agents=agents)
        for name in names:
            await until(self.client, NODES, lambda found: any(map(_is_open, found)), name=name)
        return names

    async def follow_pods(self) -> None:
        reflector = Reflector(
            self.client, PODS, Projection(_Pod, _sighting), self._pods,
            rng=SystemRng(), namespace=self.namespace,
        )  # fmt: skip
        self._tasks.spawn(reflector.run(), name="sightings")
        await eventually(lambda: self._pods.synced)

    async def start_pods(self, count: int, *, labels: Mapping[str, str] | None = None) -> list[str]:
        """The pods of a StatefulSet, all of them on the victim; their names."""
        for number in range(count):
            await self.client.create(VOLUMES, self._volume(number))
        body = self._stateful_set("db", count, labels or {})
        await self.client.create(STATEFUL_SETS, body, namespace=self.namespace)
        names = [f"db-{number}" for number in range(count)]
        where = [self.victim.name]
        await self.fleet.ground.until(
            lambda: all(self.copies(name) == where for name in names), timeout=PATIENCE
        )
        return names

    async def start_controller(
        self, name: str = "backstay-1", role: str = "controller", **changes: Any
    ) -> Controller:
        """With these settings changed; returns when it leads and has seen everything."""
        seams = await self._stack.enter_async_context(open_seams())
        role_client = await self._stack.enter_async_context(self.installed.client(role))
        wire = Wire(seams.transport)
        client = KubeClient(wire, role_client.access, user_agent=name)
        changed = msgspec.structs.replace(settings(name), **changes)
        app = build(changed, replace(seams, transport=wire), client)
        self._tasks.spawn(app.run(), name=name)
        controller = Controller(app, wire)
        await eventually(lambda: app.loop.queue is not None and app.operator.configs.synced)
        # A lease is a sign of life only once it was seen to change.
        await controller.looks(6)
        return controller

    async def arm(self) -> None:
        async with self.installed.client("operator") as operator:
            body = {"metadata": {"name": CONFIG_NAME}, "spec": {"mode": "Armed"}}
            await operator.create(CONFIGS, _complete(CONFIGS, body))

    async def confirm_dead(self, node: str) -> None:
        """The object that ``backstay confirm-dead`` writes, without its waiting."""
        live = core.node_row((await self.client.get(NODES, node)).into(core.Node))
        lease = (await self.client.get(LEASES, node, namespace=LEASE_NAMESPACE)).json()
        spec = {
            "node": node,
            "nodeUID": live.uid,
            "bootID": live.boot_id,
            "lastRenewal": lease["spec"]["renewTime"],
            "lastHeartbeat": live.heartbeat,
            "lastStatus": live.posted,
            "by": USERS["confirmer"],
            "reason": "its power is off",
        }
        body = _complete(CONFIRMATIONS, {"metadata": {"name": node}, "spec": spec})
        async with self.installed.client("confirmer") as confirmer:
            await confirmer.create(CONFIRMATIONS, body)

    # Looking

    @property
    def victim(self) -> Node:
        return next(iter(self.fleet.nodes.values()))

    def copies(self, pod: str) -> list[str]:
        """The nodes on which it really runs."""
        return self.fleet.copies(self.namespace, pod)

    def most_copies(self, pods: Iterable[str]) -> int:
        """How many of one of them ever ran at once."""
        return max(self.fleet.ground.most_copies(self.namespace, pod) for pod in pods)

    def bound_to(self, node: str) -> set[str]:
        """The uids of all pods that were ever put on a node."""
        return {each.uid for each in self.sightings if each.node == node}

    def dealt_with_by(self, node: Node) -> set[str]:
        """The uids of what the present boot of a node has started, or has refused to start."""
        return {entry.uid for entry in self.fleet.ground.log if entry.boot == node.boot_id}

    async def until_elsewhere(self, pods: Iterable[str]) -> None:
        names = list(pods)
        await self.fleet.ground.until(
            lambda: all(self._is_elsewhere(self.copies(name)) for name in names), timeout=PATIENCE
        )

    async def until_given_up(self, node: str) -> None:
        """Until Kubernetes says that it does not know whether the node is ready."""
        await until(
            self.client, NODES, lambda found: any(_ready(each) == "Unknown" for each in found),
            name=node, timeout=PATIENCE,
        )  # fmt: skip

    async def until_renewed(self, node: str) -> None:
        """Until the kubelet has renewed its lease once more."""
        lease = (await self.client.get(LEASES, node, namespace=LEASE_NAMESPACE)).json()
        before = lease["spec"]["renewTime"]
        await until(
            self.client, LEASES,
            lambda found: any(each["spec"]["renewTime"] != before for each in found),
            namespace=LEASE_NAMESPACE, name=node, timeout=PATIENCE,
        )  # fmt: skip

    async def until_incident(self, holds: Callable[[IncidentRow], bool]) -> IncidentRow:
        """The victim's incident, once it says what is waited for."""
        last: IncidentRow | None = None
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    for last in await self._incidents():
                        if holds(last):
                            return last
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"not within {PATIENCE:g} s; it says {last}") from None

    async def is_tainted(self, node: str) -> bool:
        live = (await self.client.get(NODES, node)).json()
        return any(taint["key"] == TAINT for taint in live["spec"].get("taints") or ())

    async def says_ready(self, node: str) -> str:
        return _ready((await self.client.get(NODES, node)).json())

    async def _incidents(self) -> list[IncidentRow]:
        reply = await self.client.list(INCIDENTS)
        rows = [incident_row(each) for each in reply.into(_Incidents).items]
        return [row for row in rows if row.spec.node == self.victim.name]

    def _is_elsewhere(self, copies: list[str]) -> bool:
        return bool(copies) and self.victim.name not in copies

    def _seen(self, old: Sighting | None, new: Sighting | None) -> None:
        if new is not None:
            self.sightings.append(new)

    # Objects

    def _volume(self, number: int) -> Json:
        return {
            "metadata": {"name": f"{self.namespace}-{number}", "labels": {"test": self.namespace}},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": self.namespace,
                **self._source(number),
            },
        }

    def _source(self, number: int) -> Json:
        if not self.driver:
            return {"nfs": {"server": "storage", "path": f"/{number}"}}
        return {"csi": {"driver": self.driver, "volumeHandle": f"{self.namespace}-{number}"}}

    def _stateful_set(self, name: str, replicas: int, more: Mapping[str, str]) -> Json:
        labels = {"app": name}
        home = {"key": "kubernetes.io/hostname", "operator": "In", "values": [self.victim.name]}
        wish = {"weight": 100, "preference": {"matchExpressions": [home]}}
        container = {
            "name": "main", "image": "none",
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }  # fmt: skip
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.namespace,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        spec = {
            "containers": [container],
            "nodeSelector": {"test": self.namespace},
            "affinity": {
                "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}
            },
        }
        return {
            "metadata": {"name": name},
            "spec": {
                "serviceName": name,
                "replicas": replicas,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": {**labels, **more}}, "spec": spec},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
            },
        }


class _Incidents(msgspec.Struct, frozen=True):
    items: tuple[Incident, ...] = ()


def _complete(resource: Resource, body: Json) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def _ready(node: Json) -> str:
    conditions = node["status"].get("conditions") or ()
    return next((str(each["status"]) for each in conditions if each["type"] == "Ready"), "")


def _is_open(node: Json) -> bool:
    """Ready, and without the taints that a new node bears at first."""
    return _ready(node) == "True" and not node["spec"].get("taints")


@asynccontextmanager
async def real_scene(
    client: KubeClient, installed: Installed, namespace: str
) -> AsyncIterator[RealScene]:
    """What is not in the namespace of the test is taken away at the end."""
    async with (
        hollow_nodes(client, pace=PACE) as fleet,
        AsyncExitStack() as stack,
        Tasks("scene") as tasks,
    ):
        scene = RealScene(client, installed, fleet, namespace, tasks, stack)
        await scene.follow_pods()
        try:
            yield scene
        finally:
            await client.delete_collection(VOLUMES, labels=f"test={namespace}")
            for resource in (CONFIGS, CONFIRMATIONS, INCIDENTS):
                await client.delete_collection(resource)
            ours = settings("").namespace
            await client.delete_collection(CONFIG_MAPS, namespace=ours, labels=FRAMES)
