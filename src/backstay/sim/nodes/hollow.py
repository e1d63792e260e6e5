"""Hollow nodes: a kubelet, a lease and a truth about what runs, but no containers.

To the API a hollow node is a node. What is special is that it can be made to fail in each of
the ways that matter, and that it knows what really ran all the while:

=============  ==========  ==========  =========================================================
fault          kubelet     containers  on return
=============  ==========  ==========  =========================================================
``kill``       gone        gone        (``reboot``)
``freeze``     stands      run on      ``thaw``: first goes on with what it had in mind
               still
``cut_off``    runs,       run on,     ``heal``: tells what happened and ends what is no longer
               unheard     restart     wanted
``reboot``     a new one   gone        at once: new boot id, starts what the API still wants
=============  ==========  ==========  =========================================================

A freeze or a cut is ended by nothing but its opposite, except that a reboot also unfreezes.
Faults take effect at once, before the call returns.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, NoReturn, Self

from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from backstay.kube.limits import RateLimit
from backstay.kube.reflector import Reflector
from backstay.kube.resource import LEASES, NODES, PODS
from backstay.seam.clock import Rng, WallClock
from backstay.seam.system import SystemClock, SystemRng
from backstay.seam.tasks import Tasks
from backstay.sim.nodes.kubelet import Kubelet, Pace, Report
from backstay.sim.nodes.nodestatus import (
    LEASE_NAMESPACE,
    NodeIdentity,
    lease_object,
    lease_spec,
    node_differs,
    node_object,
    node_status,
)
from backstay.sim.nodes.runtime import Runtime
from backstay.sim.nodes.truth import Running, Truth
from backstay.sim.nodes.wire import Pod, pod_projection

REAL_PACE = Pace()

FAST_PACE = Pace(lease=1.0, status=1.0)
"""Heartbeats for a control plane with ``cluster.FAST`` timers."""

_RETRY = 0.5
_JITTER = 0.04


class HollowNode:
    """One node. Made by ``HollowFleet.add``."""

    def __init__(
        self,
        identity: NodeIdentity,
        *,
        client: KubeClient,
        tasks: Tasks,
        truth: Truth,
        pace: Pace,
        pod_subnet: str,
        wall: WallClock,
        rng: Rng,
        turnstile: RateLimit,
    ) -> None:
        self.name = identity.name
        self.frozen = False
        self.cut = False
        self._identity = identity
        self._client = client
        self._tasks = tasks
        self._truth = truth
        self._pace = pace
        self._pod_subnet = pod_subnet
        self._wall = wall
        self._rng = rng
        self._turnstile = turnstile
        self._runtime = Runtime(identity.name, truth=truth, wall=wall, rng=rng)
        self._acting: list[asyncio.Task[NoReturn]] = []
        self._talking: list[asyncio.Task[Any]] = []
        self._boot_up()

    # What is true of it

    @property
    def boot_id(self) -> str | None:
        """None while it has no power."""
        return self._runtime.boot

    @property
    def truth(self) -> list[Running]:
        """What really runs here now."""
        return self._truth.running(self.name)

    @property
    def condition(self) -> str:
        """In one or two words, for people."""
        if self.boot_id is None:
            return "off"
        words = [word for word, on in (("frozen", self.frozen), ("cut off", self.cut)) if on]
        return ", ".join(words) or "fine"

    # Faults

    def kill(self) -> None:
        """Power loss."""
        self._runtime.lose_power()
        self._arrange()

    def freeze(self) -> None:
        """Its kubelet stands still and its containers, guests among them, run on."""
        self.frozen = True
        self._arrange()

    def thaw(self) -> None:
        self.frozen = False
        self._arrange()

    def cut_off(self) -> None:
        """Nothing gets from it to the API or back."""
        self.cut = True
        self._arrange()

    def heal(self) -> None:
        self.cut = False
        self._arrange()

    def reboot(self) -> None:
        """Power loss, if it still had any, and a new boot."""
        self.kill()
        self.frozen = False
        self._boot_up()

    def exit(self, namespace: str, name: str, *, code: int) -> None:
        """The containers of a pod end by themselves; what follows is the kubelet's business."""
        uid = self._runtime.find(namespace, name)
        if uid is None:
            raise LookupError(f"{namespace}/{name} does not run on {self.name}.")
        reason = "Error" if code else "Completed"
        self._runtime.stop(uid, code=code, reason=reason, why=f"exited with {code}")
        self._wake.set()

    # Inside

    def _boot_up(self) -> None:
        self._runtime.power_on()
        self._wake = asyncio.Event()
        self._news = asyncio.Event()
        self._kubelet = Kubelet(
            self._runtime,
            pace=self._pace,
            wall=self._wall,
            host_ip=self._identity.ip,
            pod_subnet=self._pod_subnet,
        )
        self._pods: Cache[Pod] = Cache()
        self._pods.subscribe(self._pod_changed)
        self._reported_at: float | None = None
        self._arrange()

    def _arrange(self) -> None:
        """Starts and ends the kubelet's tasks as power, frost and network have it."""
        acts = self.boot_id is not None and not self.frozen
        talks = acts and not self.cut
        # Every task is cancelled itself, and not through a group: not one step of it follows.
        for tasks, wanted in ((self._talking, talks), (self._acting, acts)):
            if not wanted:
                for task in tasks:
                    task.cancel()
                tasks.clear()
        if acts and not self._acting:
            self._acting = [self._tasks.spawn(self._act(), name=f"{self.name}/kubelet")]
        if talks and not self._talking:
            self._talking = [self._tasks.spawn(self._go_online(), name=f"{self.name}/network")]

    async def _act(self) -> NoReturn:
        """The kubelet's own clockwork; it needs no network."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            due = self._kubelet.advance(loop.time())
            self._news.set()
            try:
                async with asyncio.timeout_at(due):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _go_online(self) -> None:
        """Starts everything that goes over the network."""
        await self._turnstile.acquire()
        reflector = Reflector(
            self._client,
            PODS,
            pod_projection(),
            self._pods,
            rng=self._rng,
            fields=f"spec.nodeName={self.name}",
        )
        parts: dict[str, Coroutine[None, None, NoReturn]] = {
            "pods": reflector.run(),
            "lease": self._every(self._pace.lease, self._renew_lease),
            "status": self._every(self._pace.status, self._post_status),
            "reports": self._deliver_reports(),
        }
        for name, part in parts.items():
            self._talking.append(self._tasks.spawn(part, name=f"{self.name}/{name}"))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        now = asyncio.get_running_loop().time()
        if old is not None and (new is None or new.uid != old.uid):
            self._kubelet.lost(old.uid, now)
        if new is not None:
            self._kubelet.saw(new, now)
        self._wake.set()

    async def _every(self, seconds: float, action: Callable[[], Awaitable[None]]) -> NoReturn:
        """Like a kubelet's loops: a failure is tried again soon, and for ever."""
        while True:
            try:
                await action()
            except KubeError:
                wait = min(_RETRY, seconds)
            else:
                wait = seconds * (1 + _JITTER * self._rng.random())
            await asyncio.sleep(wait)

    async def _renew_lease(self) -> None:
        spec = lease_spec(self.name, duration=self._pace.lease_duration, now=self._wall.now())
        try:
            await self._client.merge_patch(
                LEASES, self.name, {"spec": spec}, namespace=LEASE_NAMESPACE
            )
        except NotFound:
            node = await self._client.get(NODES, self.name)
            lease = lease_object(self._identity, node.json()["metadata"]["uid"], spec)
            await self._client.create(LEASES, lease, namespace=LEASE_NAMESPACE)

    async def _post_status(self) -> None:
        """Registers the node, and later writes only what is new, or every few minutes."""
        boot, now = self._runtime.boot or "", self._wall.now()
        if self._reported_at is None:
            with contextlib.suppress(AlreadyExists):
                await self._client.create(NODES, node_object(self._identity, boot=boot, now=now))
        current = (await self._client.get(NODES, self.name)).json()["status"]
        wanted = node_status(self._identity, current, boot=boot, now=now)
        loop = asyncio.get_running_loop()
        expired = self._reported_at is None or loop.time() - self._reported_at > self._pace.report
        if expired or node_differs(wanted, current):
            await self._client.strategic_patch(
                NODES, self.name, {"status": wanted}, subresource="status"
            )
            self._reported_at = loop.time()

    async def _deliver_reports(self) -> NoReturn:
        while True:
            self._news.clear()
            for report in self._kubelet.reports():
                try:
                    await self._deliver(report)
                except (NotFound, Conflict):
                    # Gone, or replaced under its name: the watch will tell.
                    self._kubelet.unwanted(report)
                except KubeError:
                    self._news.set()
                    await asyncio.sleep(_RETRY)
            await self._news.wait()

    async def _deliver(self, report: Report) -> None:
        pod = report.pod
        if report.status is not None:
            reply = await self._client.strategic_patch(
                PODS,
                pod.name,
                # The uid makes the API refuse it for a successor of the same name.
                {"metadata": {"uid": pod.uid}, "status": report.status},
                namespace=pod.namespace,
                subresource="status",
            )
            self._kubelet.saw(reply.into(Pod), asyncio.get_running_loop().time())
        if report.delete:
            await self._client.delete(
                PODS, pod.name, namespace=pod.namespace, conditions={"uid": pod.uid, "grace": 0}
            )
            self._kubelet.deleted(report)


class HollowFleet:
    """Many nodes and one truth: ``async with HollowFleet(client) as fleet: fleet.add("n1")``.

    On the way out the nodes are taken off the API again.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        pace: Pace = REAL_PACE,
        wall: WallClock | None = None,
        rng: Rng | None = None,
    ) -> None:
        self.nodes: dict[str, HollowNode] = {}
        self._client = client
        self._pace = pace
        self._wall = wall or SystemClock()
        self._rng = rng or SystemRng()
        self._tasks = Tasks("hollow")
        # Hundreds of nodes that connect in the same instant would only time each other out.
        self._turnstile = RateLimit(20, 20)
        self.ground = Truth(asyncio.get_running_loop().time)

    def add(self, *names: str, labels: dict[str, str] | None = None) -> list[HollowNode]:
        """Boots nodes; the API hears of them a moment later."""
        return [self._add(name, labels or {}) for name in names]

    def __getitem__(self, name: str) -> HollowNode:
        return self.nodes[name]

    def truth(self) -> list[Running]:
        """What really runs now, on all nodes."""
        return self.ground.running()

    def copies(self, namespace: str, name: str) -> list[str]:
        """The nodes on which a pod of that name really runs now, whatever its uid."""
        return self.ground.copies(namespace, name)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> None:
        await self._tasks.__aexit__(*details)
        await self._unregister(self.nodes)

    def _add(self, name: str, labels: dict[str, str]) -> HollowNode:
        number = len(self.nodes) + 1
        block = f"{number // 250}.{number % 250}"
        node = self.nodes[name] = HollowNode(
            NodeIdentity(name, f"10.64.{block}", labels),
            client=self._client,
            tasks=self._tasks,
            truth=self.ground,
            pace=self._pace,
            pod_subnet=f"10.{128 + number // 250}.{number % 250}",
            wall=self._wall,
            rng=self._rng,
            turnstile=self._turnstile,
        )
        return node

    async def _unregister(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                await self._client.delete(NODES, name)
            except NotFound:
                continue
            except KubeError:
                # The control plane may be on its way out too; then there is nothing to leave.
                return
