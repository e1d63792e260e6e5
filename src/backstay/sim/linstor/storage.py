"""Linstor: DRBD and LINSTOR in an embedded cluster.

* A kubelet that mounts a volume opens its device, by which DRBD makes the node Primary, or refuses.
  The last pod that ends closes it. While DRBD suspends what a pod writes, the pod cannot be ended.
* LINSTOR's CSI driver makes volumes for claims (``provisioner.py``), puts a diskless replica where
  a volume is attached to a node that has none, and takes it away when it is detached. A volume that
  several may use is allowed two Primaries while it is attached twice, as for a live migration.
  It can do nothing while LINSTOR's controller is away. Volumes of some classes it serves over NFS
  (``exports.py``): then whoever mounts one opens no device, and needs no replica.
* The controller is a pod of a Deployment. Whichever node runs that pod serves it, under the name of
  its Service, which leads to the pod that was started last.

DRBD itself lives in the kernels: it goes on when programs stand still, and ends with the power.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from backstay.seam.tasks import Tasks
from backstay.sim.chance import Chance
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.linstor.clockwork import Clockwork
from backstay.sim.linstor.controller import Controller, Hearing
from backstay.sim.linstor.database import TWO_PRIMARIES, Database, Props
from backstay.sim.linstor.drbd import Drbd, Refused
from backstay.sim.linstor.drbd import Pace as DrbdPace
from backstay.sim.linstor.exports import Exports
from backstay.sim.linstor.front import Faults
from backstay.sim.linstor.replicas import Kind
from backstay.sim.linstor.served import PORT, Served, serving
from backstay.sim.nodes.agents import Agent, AgentContext
from backstay.sim.nodes.machine import Cut
from backstay.sim.nodes.node import Node
from backstay.sim.nodes.runtime import Mount, Runtime
from backstay.sim.nodes.truth import Truth

DRIVER = "linstor.csi.linbit.com"
NFS_EXPORT = f"{DRIVER}/nfs-export"
"""Of a volume that is served over NFS: an attribute by which the driver tells."""
NAMESPACE = "piraeus-datastore"
SERVICE = f"linstor-controller.{NAMESPACE}.svc"
URL = f"http://{SERVICE}:{PORT}"
COMPONENT = "app.kubernetes.io/component"
CONTROLLER = "linstor-controller"

_DEVICE = f"kubernetes.io/csi/{DRIVER}^"
_STARTS = 5.0
"""Seconds that the controller takes until it listens."""


@dataclass(frozen=True)
class Placement:
    """How volumes of a class are made: where, and with which properties of their own, or of their
    resource group."""

    replicas: Mapping[str, Kind]
    props: Props = field(default_factory=dict)
    group_props: Props = field(default_factory=dict)
    prefix: str = "pvc-"
    """What stands before the uid of a claim in the name of its resource; the volume's is pvc-."""
    suffix: str = ""
    """What stands behind that name in the handle of the volume: which one of the resource it is."""
    exported_by: str = ""
    """The node whose NFS server serves them; empty where devices are opened."""


@dataclass
class Volume:
    """``shared``: several may use it."""

    resource: str
    shared: bool
    allowed_two: bool = False
    tie_breakers: set[str] = field(default_factory=set)
    """The nodes whose replicas are nothing but that, except while the volume is attached there."""


class Linstor:
    """See the module. It is the ``Devices`` and a ``Publisher`` of the cluster that it joins."""

    def __init__(self, chance: Chance, *, now: Callable[[], float], factor: float = 1.0) -> None:
        self.drbd = Drbd(
            now=now,
            between=chance.between,
            reaches=self._reaches,
            pace=DrbdPace().scaled(factor),
        )
        self.database = Database(self.drbd)
        self.exports = Exports(self.drbd, reaches=self._talks)
        self.hearing = Hearing()
        self.faults = Faults()
        self.classes: dict[str, Placement] = {}
        self.volumes: dict[str, Volume] = {}
        """By the name of the PersistentVolume."""
        self._names: dict[str, str] = {}
        """The same the other way round, by resource."""
        self.served: Served | None = None
        """By whom LINSTOR was served last, alive or dead."""
        self._host: tuple[str, str] | None = None
        self._chance = chance
        self._factor = factor
        self._nodes: Mapping[str, Node] = {}
        self._truth: Truth | None = None
        self._free: Callable[[str], None] = lambda url: None
        self._opened: dict[str, dict[str, set[str]]] = {}
        """By node and resource: the pods that have it open there."""
        self._writable: dict[tuple[str, str], bool] = {}

    def join(self, embedded: EmbeddedCluster) -> None:
        self._nodes = embedded.nodes
        self._truth = embedded.truth
        # Another pod may still listen there, unheard.
        self._free = embedded.ground.network.free
        Clockwork(self.drbd)
        self.drbd.follow(self._tell_truth)
        embedded.truth.ask(self.can_write)

    def add_volume(self, name: str, volume: Volume) -> None:
        self.volumes[name] = volume
        self._names[volume.resource] = name

    def drop_volume(self, name: str) -> None:
        """It need not be one of ours."""
        gone = self.volumes.pop(name, None)
        if gone is not None:
            del self._names[gone.resource]
            self.exports.forget(gone.resource)
            self.database.forget(gone.resource)

    # The truth

    def can_write(self, node: str, volume: str) -> bool | None:
        """None if it is no volume of ours, or one of which DRBD does not decide that."""
        mine = self.volumes.get(volume)
        if mine is None or mine.resource in self.exports:
            return None
        return self.drbd.can_write(mine.resource, node)

    def _tell_truth(self, resource: str) -> None:
        assert self._truth is not None
        volume, there = self._names.get(resource), self.drbd.resources.get(resource)
        if volume is None or there is None or resource in self.exports:
            return
        for node in there.replicas:
            writable = there.can_write(node)
            if self._writable.get((resource, node), False) is not writable:
                self._writable[resource, node] = writable
                why = "DRBD takes its writes" if writable else "DRBD completes no write of it"
                self._truth.turned(node, volume, writable=writable, why=why)

    # Devices

    def open(self, node: str, uid: str, mounts: tuple[Mount, ...]) -> bool:
        for resource in _resources(mounts):
            if resource in self.exports:
                if not self.exports.mount(resource, node):
                    return False
                continue
            try:
                self.drbd.promote(resource, node)
            except Refused:
                return False
            self._opened.setdefault(node, {}).setdefault(resource, set()).add(uid)
        return True

    def is_stuck(self, node: str, uid: str) -> bool:
        sights = (
            self.drbd.sight(resource, node)
            for resource, pods in self._opened.get(node, {}).items()
            if uid in pods and resource in self.drbd.resources
        )
        return any(sight is not None and sight.suspended for sight in sights)

    def keep(self, node: str, uids: Collection[str]) -> None:
        opened = self._opened.get(node, {})
        for resource, pods in list(opened.items()):
            pods.intersection_update(uids)
            if not pods:
                del opened[resource]
                if resource in self.drbd.resources:
                    self.drbd.demote(resource, node)

    def node_changed(self, node: str) -> None:
        here = self._nodes.get(node)
        if here is not None and here.boot_id is None:
            self._opened.pop(node, None)
            self.drbd.lose_power(node)
        elif here is not None:
            self.drbd.boot(node)
        self.drbd.look_around()

    def _reaches(self, one: str, other: str) -> bool:
        node = self._nodes.get(one)
        return node is None or other not in self._nodes or node.reaches(other)

    def _talks(self, one: str, other: str) -> bool:
        """A server is a pod, which goes on when the programs of its node stand still."""
        is_there = self._nodes[other].boot_id is not None
        return is_there and (one == other or self._reaches(one, other))

    # The CSI driver

    def publish(self, node: str, volume: str) -> bool:
        mine = self.volumes.get(volume)
        if mine is None or not self.is_served:
            return False
        if mine.resource in self.exports:
            return True
        replicas = self.drbd.resources[mine.resource].replicas
        if node not in replicas:
            self.drbd.add_diskless(mine.resource, node)
        elif replicas[node].kind is Kind.TIE_BREAKER:
            mine.tie_breakers.add(node)
            replicas[node].kind = Kind.DISKLESS
        in_use = any(each.is_primary for name, each in replicas.items() if name != node)
        if mine.shared and in_use and not mine.allowed_two:
            mine.allowed_two = True
            self.database.set_property(TWO_PRIMARIES, "yes", resource=mine.resource)
        return True

    def unpublish(self, node: str, volume: str) -> bool:
        mine = self.volumes.get(volume)
        if mine is None:
            return True
        if not self.is_served:
            return False
        if mine.resource in self.exports:
            return True
        replicas = self.drbd.resources[mine.resource].replicas
        if mine.allowed_two and sum(each.is_primary for each in replicas.values()) < 2:
            mine.allowed_two = False
            self.database.set_property(TWO_PRIMARIES, None, resource=mine.resource)
        there = replicas.get(node)
        if there is not None and node in mine.tie_breakers:
            mine.tie_breakers.discard(node)
            there.kind = Kind.TIE_BREAKER
        # One whose node does not answer stays on the list until it does.
        goes = there is not None and there.kind is Kind.DISKLESS and not there.is_primary
        if goes and self._answers(node):
            self.drbd.remove(mine.resource, node)
        return True

    def _answers(self, node: str) -> bool:
        here = self._nodes[node]
        return here.boot_id is not None and not here.frozen and here.cut in (None, Cut.API)

    # The controller

    @property
    def is_served(self) -> bool:
        """Whether the other programs of the cluster reach a controller now."""
        if self._host is None:
            return False
        node, boot = self._host
        return self._nodes[node].boot_id == boot and self._answers(node)

    @property
    def host(self) -> str:
        """The node that serves it, or did last."""
        return "" if self._host is None else self._host[0]

    def agent(self) -> Agent:
        """For every node that could have the pod."""

        async def follow_pod(context: AgentContext) -> None:
            async with Tasks(f"{context.node}/linstor") as tasks:
                task: asyncio.Task[None] | None = None
                here = ""
                while True:
                    seen = context.runtime.changes
                    found = _controller_run(context.runtime)
                    if found != here and task is not None:
                        task.cancel()
                    if found and found != here:
                        task = tasks.spawn(self._serve(context), name="controller")
                    here = found
                    await context.runtime.changed(seen)

        return follow_pod

    async def _serve(self, context: AgentContext) -> None:
        await asyncio.sleep(_STARTS * self._factor)
        controller = Controller(
            self.database,
            hears=lambda node: self._hears(context.node, node),
            between=lambda low, high: self._factor * self._chance.between(low, high),
            hearing=self.hearing,
        )
        self._free(URL)
        mine = (context.node, context.boot_id)
        async with serving(
            context.seams.serve, controller, faults=self.faults, host=SERVICE, port=PORT
        ) as served:
            self.served, self._host = served, mine
            try:
                await asyncio.Event().wait()
            finally:
                if self._host == mine:
                    self._host = None

    def _hears(self, host: str, node: str) -> str | None:
        there = self._nodes.get(node)
        if there is None or there.frozen:
            return None
        return there.boot_id if host == node or self._reaches(host, node) else None


def _resources(mounts: tuple[Mount, ...]) -> list[str]:
    return [
        mount.device.removeprefix(_DEVICE).partition("/")[0].lower()
        for mount in mounts
        if mount.writable and mount.device.startswith(_DEVICE)
    ]


def _controller_run(runtime: Runtime) -> str:
    """Which run of LINSTOR's controller there is here, if any."""
    for uid, run in runtime.running.items():
        if (run.pod.metadata.labels or {}).get(COMPONENT) == CONTROLLER:
            return f"{uid}/{runtime.restarts(uid)}"
    return ""
