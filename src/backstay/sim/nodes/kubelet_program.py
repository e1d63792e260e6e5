"""The kubelet as a program: its rules (``kubelet.py``) joined to an API and to a machine.

It registers its node, renews its lease, posts its status, watches its node and its pods and tells
what becomes of them. A failure of any of that is tried again, for ever. What it does with
containers needs no network: a kubelet that is cut off goes on with what it knows.

What it has in mind lives here and not in ``run``, so that one which was stopped can go on.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NoReturn

from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from backstay.kube.reflector import Reflector
from backstay.kube.resource import LEASES, NODES, PODS
from backstay.seam import Seams
from backstay.seam.clock import Rng, WallClock
from backstay.seam.serve import Answer, Inbound, Serve
from backstay.seam.tasks import Tasks
from backstay.sim.doorkeeper import prompt
from backstay.sim.nodes.devices import Devices
from backstay.sim.nodes.kubelet import Kubelet, Pace, Report
from backstay.sim.nodes.network import PodNetwork, Refused, Sandbox
from backstay.sim.nodes.nodestatus import (
    LEASE_NAMESPACE,
    NodeIdentity,
    lease_object,
    lease_spec,
    node_differs,
    node_object,
    node_status,
)
from backstay.sim.nodes.runtime import Mount, Runtime
from backstay.sim.nodes.telling_cache import TellingCache
from backstay.sim.nodes.volumes import Drivers, attached, resolve
from backstay.sim.nodes.wire import NODE_PROJECTION, POD_PROJECTION, Json, OwnNode, Pod

_RETRY = 0.5
_JITTER = 0.04


@prompt
async def _turn_away(_: Inbound) -> Answer:
    """A real one speaks TLS, says so to whoever does not, and hangs up."""
    return Answer(status=400, body=b"Client sent an HTTP request to an HTTPS server.\n")


class KubeletProgram:
    """One kubelet, from its start to its end."""

    def __init__(
        self,
        identity: NodeIdentity,
        runtime: Runtime,
        *,
        wall: WallClock,
        pace: Pace,
        network: PodNetwork | None = None,
        devices: Devices | None = None,
    ) -> None:
        self._identity = identity
        self._runtime = runtime
        self._wall = wall
        self._pace = pace
        self._network = network
        self._devices = devices
        self._wake = asyncio.Event()
        self._news = asyncio.Event()
        self._kubelet = Kubelet(
            runtime,
            pace=pace,
            wall=wall,
            host_ip=identity.ip,
            pod_subnet=identity.pod_subnet,
            has_plugin=network is not None,
            is_stuck=self._is_stuck,
        )
        self._pods: TellingCache[Pod] = TellingCache(self._wake)
        self._pods.subscribe(self._pod_changed)
        self._own_node: Cache[OwnNode] = Cache()
        self._drivers: Drivers = {}
        self._preparing: set[str] = set()
        self._clearing: set[str] = set()
        self._reported_at: float | None = None

    async def run(self, client: KubeClient, seams: Seams) -> None:
        name, rng = self._identity.name, seams.rng
        fields = f"spec.nodeName={name}"
        pods = Reflector(client, PODS, POD_PROJECTION, self._pods, rng=rng, fields=fields)
        fields = f"metadata.name={name}"
        node = Reflector(client, NODES, NODE_PROJECTION, self._own_node, rng=rng, fields=fields)
        every, pace = self._every, self._pace
        self._preparing.clear()
        self._clearing.clear()
        async with Tasks(f"{name}/kubelet") as tasks, self._listening(seams.serve):
            tasks.spawn(self._follow_containers(), name="containers")
            tasks.spawn(pods.run(), name="pods")
            tasks.spawn(node.run(), name="node")
            tasks.spawn(every(pace.lease, lambda: self._renew_lease(client), rng), name="lease")
            tasks.spawn(every(pace.status, lambda: self._post_status(client), rng), name="status")
            tasks.spawn(self._deliver_reports(client), name="reports")
            # Containers are started and stopped by this very task: when it is cancelled, not one
            # more of them is.
            await self._act(client, tasks)

    @contextlib.asynccontextmanager
    async def _listening(self, serve: Serve) -> AsyncIterator[None]:
        """Where others can see that it lives."""
        if not self._identity.port:
            yield
            return
        listener = await serve.listen(_turn_away, host=self._identity.ip, port=self._identity.port)
        try:
            yield
        finally:
            await listener.close()

    # Pods and containers

    async def _act(self, client: KubeClient, tasks: Tasks) -> NoReturn:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            if self._pods.synced:
                self._kubelet.take_over(self._is_wanted, loop.time())
            due = self._kubelet.advance(loop.time())
            if self._devices is not None and self._pods.synced:
                self._devices.keep(self._identity.name, self._kubelet.holding)
            self._news.set()
            for pod in self._kubelet.unprepared():
                if pod.uid not in self._preparing:
                    self._preparing.add(pod.uid)
                    tasks.spawn(self._prepare(client, pod), name=f"volumes of {pod.key}")
            for sandbox in self._kubelet.abandoned() if self._pods.synced else ():
                if sandbox.pod.uid not in self._clearing:
                    self._clearing.add(sandbox.pod.uid)
                    tasks.spawn(self._clear(client, sandbox), name=f"end of {sandbox.pod.key}")
            try:
                async with asyncio.timeout_at(due):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _is_stuck(self, uid: str) -> bool:
        return self._devices is not None and self._devices.is_stuck(self._identity.name, uid)

    def _is_wanted(self, uid: str) -> bool:
        return self._pods.by_uid(uid) is not None

    async def _follow_containers(self) -> NoReturn:
        seen = self._runtime.changes
        while True:
            seen = await self._runtime.changed(seen)
            self._wake.set()

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        now = asyncio.get_running_loop().time()
        if old is not None and (new is None or new.uid != old.uid):
            self._kubelet.lost(old.uid, now)
        if new is not None:
            self._kubelet.saw(new, now)

    async def _prepare(self, client: KubeClient, pod: Pod) -> None:
        """Waits for the volumes of a pod and then for its network, for as long as it needs them."""
        wait, mounts = self._pace.mount_retry, None
        try:
            while self._kubelet.is_unprepared(pod.uid):
                with contextlib.suppress(KubeError):
                    if mounts is None:
                        # What a claim is bound to is for good.
                        mounts = await resolve(client, pod, self._drivers)
                    if mounts is not None:
                        self._kubelet.resolved(pod.uid, mounts)
                        if await self._is_mounted(client, pod, mounts):
                            await self._connect(client, pod)
                            self._kubelet.mounted(pod.uid, asyncio.get_running_loop().time())
                            self._wake.set()
                            return
                await asyncio.sleep(wait)
                wait = min(2 * wait, self._pace.longest_mount_retry)
        finally:
            self._preparing.discard(pod.uid)

    async def _is_mounted(self, client: KubeClient, pod: Pod, mounts: tuple[Mount, ...]) -> bool:
        if not attached(await self._status(client), mounts):
            return False
        return self._devices is None or self._devices.open(self._identity.name, pod.uid, mounts)

    async def _connect(self, client: KubeClient, pod: Pod) -> None:
        """Waits for the addresses of a pod, in a new sandbox: one of an earlier boot gives its own
        back before."""
        network, node = self._network, self._identity.name
        if network is None or pod.spec.host_network:
            return
        while self._kubelet.is_unprepared(pod.uid):
            try:
                if (former := self._runtime.sandboxes.get(pod.uid)) is not None:
                    await network.remove(client, node, former)
                addresses = await network.add(client, node, self._runtime.make_sandbox(pod))
            except (Refused, KubeError):
                await asyncio.sleep(self._pace.network_retry)
            else:
                self._runtime.connect(pod.uid, addresses)
                self._kubelet.connected(pod.uid)
                return

    async def _clear(self, client: KubeClient, sandbox: Sandbox) -> None:
        """Has a sandbox give its addresses back, however long that takes."""
        uid = sandbox.pod.uid
        try:
            while self._network is not None:
                try:
                    await self._network.remove(client, self._identity.name, sandbox)
                except KubeError:
                    await asyncio.sleep(_RETRY)
                else:
                    break
            self._runtime.drop_sandbox(uid)
            self._kubelet.cleared(uid)
            self._wake.set()
        finally:
            self._clearing.discard(uid)

    # Heartbeats

    async def _every(
        self, seconds: float, action: Callable[[], Awaitable[None]], rng: Rng
    ) -> NoReturn:
        """Like a kubelet's loops: a failure is tried again soon, and for ever."""
        while True:
            try:
                await action()
            except KubeError:
                wait = min(_RETRY, seconds)
            else:
                wait = seconds * (1 + _JITTER * rng.random())
            await asyncio.sleep(wait)

    async def _renew_lease(self, client: KubeClient) -> None:
        name = self._identity.name
        spec = lease_spec(name, duration=self._pace.lease_duration, now=self._wall.now())
        try:
            await client.merge_patch(LEASES, name, {"spec": spec}, namespace=LEASE_NAMESPACE)
        except NotFound:
            node = await client.get(NODES, name)
            lease = lease_object(self._identity, node.json()["metadata"]["uid"], spec)
            await client.create(LEASES, lease, namespace=LEASE_NAMESPACE)

    async def _post_status(self, client: KubeClient) -> None:
        """Registers the node, and later writes only what is new, or every few minutes."""
        name, boot, loop = self._identity.name, self._runtime.boot or "", asyncio.get_running_loop()
        if self._reported_at is None:
            made = node_object(self._identity, boot=boot, now=self._wall.now())
            with contextlib.suppress(AlreadyExists):
                await client.create(NODES, made)
        current, in_use = await self._status(client), self._kubelet.in_use
        expired = self._reported_at is None or loop.time() - self._reported_at > self._pace.report
        if expired or node_differs(current, boot=boot, in_use=in_use):
            now = self._wall.now()
            wanted = node_status(self._identity, current, boot=boot, now=now, in_use=in_use)
            await client.strategic_patch(NODES, name, {"status": wanted}, subresource="status")
            self._reported_at = loop.time()

    async def _status(self, client: KubeClient) -> Json:
        """What the API has of the node, as its watch tells; until that has, it asks."""
        name = self._identity.name
        told = self._own_node.get(name)
        if told is not None:
            return told.status
        return (await client.get(NODES, name)).into(OwnNode).status

    # Reports

    async def _deliver_reports(self, client: KubeClient) -> NoReturn:
        while True:
            self._news.clear()
            for report in self._kubelet.reports():
                try:
                    await self._deliver(client, report)
                except (NotFound, Conflict):
                    # Gone, or replaced under its name: the watch will tell.
                    self._kubelet.unwanted(report)
                except KubeError:
                    self._news.set()
                    await asyncio.sleep(_RETRY)
            await self._news.wait()

    async def _deliver(self, client: KubeClient, report: Report) -> None:
        pod = report.pod
        if report.status is not None:
            reply = await client.strategic_patch(
                PODS,
                pod.name,
                # The uid makes the API refuse it for a successor of the same name.
                {"metadata": {"uid": pod.uid}, "status": report.status},
                namespace=pod.namespace,
                subresource="status",
            )
            self._kubelet.saw(reply.into(Pod), asyncio.get_running_loop().time())
        if report.delete:
            await client.delete(
                PODS, pod.name, namespace=pod.namespace, conditions={"uid": pod.uid, "grace": 0}
            )
            self._kubelet.deleted(report)
