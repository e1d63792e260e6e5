"""The ground truth: which containers really run, and where, whatever the API says.

It is written by the machines themselves (``runtime.py``) at the moment when something starts or
stops, and read by whoever must know: two copies of one workload at once are the disaster that
Backstay exists to prevent, and the API alone can never show it. The log is only ever added to.
"""

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass


class What(enum.Enum):
    """``REFUSED`` is a pod that a kubelet learned of and will never start."""

    STARTED = "started"
    STOPPED = "stopped"
    REFUSED = "refused"


@dataclass(frozen=True)
class Running:
    """The containers of one pod, on one boot of one node."""

    node: str
    boot: str
    uid: str
    namespace: str
    name: str
    since: float


@dataclass(frozen=True)
class Entry:
    """One line of the log; ``at`` is the event loop's time."""

    at: float
    node: str
    boot: str
    uid: str
    namespace: str
    name: str
    what: What
    why: str


class Truth:
    """What runs now, and all that ever happened. One for a whole fleet, so that it has an order."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.log: list[Entry] = []
        self._now = now
        self._running: dict[tuple[str, str], Running] = {}
        self._changed = asyncio.Event()

    def running(self, node: str | None = None) -> list[Running]:
        return [each for each in self._running.values() if node in (None, each.node)]

    def copies(self, namespace: str, name: str) -> list[str]:
        """The nodes on which a pod of that name runs now, whatever its uid."""
        return sorted(
            each.node
            for each in self._running.values()
            if (each.namespace, each.name) == (namespace, name)
        )

    def most_copies(self, namespace: str, name: str) -> int:
        """How many ran at once when there were most."""
        count = most = 0
        for entry in self.log:
            if (entry.namespace, entry.name) == (namespace, name):
                count += {What.STARTED: 1, What.STOPPED: -1, What.REFUSED: 0}[entry.what]
                most = max(most, count)
        return most

    async def until(self, holds: Callable[[], bool], *, timeout: float = 15.0) -> None:
        """Waits for something to become true of what runs; ``TimeoutError`` if it does not."""
        async with asyncio.timeout(timeout):
            while not holds():
                await self._changed.wait()

    def record(
        self, what: What, *, node: str, boot: str, uid: str, namespace: str, name: str, why: str
    ) -> None:
        at = self._now()
        self.log.append(Entry(at, node, boot, uid, namespace, name, what, why))
        if what is What.STARTED:
            self._running[node, uid] = Running(node, boot, uid, namespace, name, at)
        elif what is What.STOPPED:
            del self._running[node, uid]
        # Whoever waits is woken; whoever begins to wait now, waits for the next change.
        self._changed.set()
        self._changed = asyncio.Event()
