"""A machine with its container runtime: the only place where containers start and stop.

The machine has power or not, and a boot id for as long as it has. What ran when the power went
is remembered on its disk as ended with code 255, as containerd does; nothing of it starts again
by itself. Everything that happens is written to the ground truth in the same instant.

Containers outlive the kubelet that started them. Whoever has to know that something started or
stopped waits for ``changed``: it tells that there is news and not what, so that nobody can miss
any.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from backstay.seam.clock import Rng, WallClock
from backstay.sim.nodes.network import Sandbox
from backstay.sim.nodes.truth import Truth, What
from backstay.sim.nodes.wire import Pod

POWER_LOST = 255

_HEX = str.maketrans("ghijklmnopqrstuvwxyz", "0123456789abcdef0123")


@dataclass(frozen=True)
class Ended:
    """How the containers of a pod ended the last time that they ran."""

    code: int
    reason: str
    started_at: datetime
    finished_at: datetime


@dataclass(frozen=True)
class Mount:
    """A PersistentVolume as a pod has it. ``device`` is how controllers call what has to be
    attached to the node for that, and empty where nothing has."""

    volume: str
    device: str
    writable: bool


@dataclass(frozen=True)
class Run:
    """Containers that run, and the volumes that they have."""

    pod: Pod
    started_at: datetime
    mounts: tuple[Mount, ...] = ()


class Runtime:
    """Containers come in pods here: all of a pod's start and stop together."""

    def __init__(self, node: str, *, truth: Truth, wall: WallClock, rng: Rng) -> None:
        self.node = node
        self.boot: str | None = None
        self.changes = 0
        self._truth = truth
        self._wall = wall
        self._rng = rng
        self._news = asyncio.Event()
        self._running: dict[str, Run] = {}
        self._starts_idle: Callable[[Pod], bool] = lambda _: False
        # On disk: all of it survives a loss of power.
        self._sandboxes: dict[str, Sandbox] = {}
        self._ended: dict[str, Ended] = {}
        self._starts: dict[str, int] = {}

    def power_on(self) -> None:
        digits = self._rng.token(32).translate(_HEX)
        self.boot = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def lose_power(self) -> None:
        for uid in list(self._running):
            self.stop(uid, code=POWER_LOST, reason="Unknown", why="power loss")
        self.boot = None

    # What runs

    @property
    def running(self) -> dict[str, Run]:
        """By uid; a copy, so that whoever goes through it may stop what it finds."""
        return dict(self._running)

    def runs(self, uid: str) -> bool:
        return uid in self._running

    def running_since(self, uid: str) -> datetime | None:
        run = self._running.get(uid)
        return run.started_at if run else None

    def find(self, namespace: str, name: str) -> str | None:
        """The uid of a running pod of that name."""
        for uid, run in self._running.items():
            if (run.pod.namespace, run.pod.name) == (namespace, name):
                return uid
        return None

    def ended(self, uid: str) -> Ended | None:
        return self._ended.get(uid)

    def restarts(self, uid: str) -> int:
        return max(0, self._starts.get(uid, 0) - 1)

    # Sandboxes

    @property
    def sandboxes(self) -> dict[str, Sandbox]:
        """By the uid of the pod, also of those in which nothing runs; a copy."""
        return dict(self._sandboxes)

    def has_sandbox(self, uid: str) -> bool:
        return uid in self._sandboxes

    def addresses(self, uid: str) -> tuple[str, ...]:
        sandbox = self._sandboxes.get(uid)
        return sandbox.addresses if sandbox else ()

    def make_sandbox(self, pod: Pod) -> Sandbox:
        """A new one, which has no addresses yet."""
        container = self._rng.token(64).translate(_HEX)
        made = self._sandboxes[pod.uid] = Sandbox(pod, container)
        return made

    def connect(self, uid: str, addresses: tuple[str, ...]) -> None:
        self._sandboxes[uid] = replace(self._sandboxes[uid], addresses=addresses)

    def drop_sandbox(self, uid: str) -> None:
        self._sandboxes.pop(uid, None)

    async def changed(self, since: int) -> int:
        """Returns ``changes`` as soon as it is more than ``since``: something started or stopped,
        or somebody should look again."""
        while self.changes <= since:
            await self._news.wait()
        return self.changes

    # What happens

    def start(self, pod: Pod, *, why: str, mounts: tuple[Mount, ...] = ()) -> None:
        self._running[pod.uid] = Run(pod, self._wall.now(), mounts)
        self._starts[pod.uid] = self._starts.get(pod.uid, 0) + 1
        self._record(What.STARTED, pod, why, mounts, idle=self._starts_idle(pod))

    def start_idle(self, which: Callable[[Pod], bool]) -> None:
        """What is in these pods writes nothing until it is told to (``Truth.let_write``)."""
        self._starts_idle = which

    def plug(self, uid: str, mounts: tuple[Mount, ...], *, why: str) -> None:
        """Containers that run get volumes of another pod of this machine as well."""
        run = self._running[uid]
        self._running[uid] = replace(run, mounts=tuple(dict.fromkeys((*run.mounts, *mounts))))
        writable = [mount.volume for mount in mounts if mount.writable]
        self._truth.plug(self.node, uid, writable, why=why)

    def stop(self, uid: str, *, code: int, reason: str, why: str) -> None:
        run = self._running.pop(uid)
        self._ended[uid] = Ended(code, reason, run.started_at, self._wall.now())
        self._record(What.STOPPED, run.pod, why, run.mounts)

    def refuse(self, pod: Pod, *, why: str) -> None:
        self._record(What.REFUSED, pod, why)

    def forget(self, uid: str) -> None:
        """The pod is gone from the API and from here: clean up the disk."""
        self._ended.pop(uid, None)
        self._starts.pop(uid, None)

    def _record(
        self,
        what: What,
        pod: Pod,
        why: str,
        mounts: tuple[Mount, ...] = (),
        *,
        idle: bool = False,
    ) -> None:
        self._truth.record(
            what,
            node=self.node,
            boot=self.boot or "",
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            why=why,
            volumes=tuple(mount.volume for mount in mounts if mount.writable),
            addresses=self.addresses(pod.uid),
            idle=idle,
        )
        self.changes += 1
        self._news.set()
        self._news = asyncio.Event()
