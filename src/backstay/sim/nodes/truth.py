"""The ground truth: which containers really run, and where, whatever the API says.

It is written by the machines themselves (``runtime.py``) at the moment when something starts or
stops, and read by whoever must know: two copies of one workload at once are the disaster that
Backstay exists to prevent, and the API alone can never show it. The log is only ever added to.

Who can write to a volume follows from what runs: every running pod that has it, on each node
that the storage does not refuse (``bar``, or as the storage itself says: ``ask``), unless nothing
in that pod writes at the moment (``hold_back``: the target of a migration). A volume goes by the
name of its PersistentVolume. Who uses an address follows from what runs as well.
"""

import asyncio
import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace


class What(enum.Enum):
    """``REFUSED`` is a pod that a kubelet learned of and will never start; ``HELD_BACK`` and
    ``WRITING`` are pods that run on; ``BARRED`` and ``ADMITTED`` are of a node and volumes, and
    ``SWITCHED_OFF`` and ``SWITCHED_ON`` of a node whose power somebody has switched."""

    STARTED = "started"
    STOPPED = "stopped"
    REFUSED = "refused"
    HELD_BACK = "held back"
    WRITING = "writing"
    BARRED = "barred"
    ADMITTED = "admitted"
    SWITCHED_OFF = "switched off"
    SWITCHED_ON = "switched on"


@dataclass(frozen=True)
class Running:
    """The containers of one pod, on one boot of one node."""

    node: str
    boot: str
    uid: str
    namespace: str
    name: str
    since: float
    volumes: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """One line of the log; ``at`` is the event loop's time. ``volumes`` are those that the pod
    can write to, if it can write at all, or those that a node is barred from."""

    at: float
    node: str
    boot: str
    uid: str
    namespace: str
    name: str
    what: What
    why: str
    volumes: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


Follower = Callable[[Entry], None]
Storage = Callable[[str, str], bool | None]
"""Whether a node can write to a volume; None for volumes of others."""


class Truth:
    """What runs now, and all that ever happened. One for a whole fleet, so that it has an order."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.log: list[Entry] = []
        self._now = now
        self._running: dict[tuple[str, str], Running] = {}
        self._held_back: set[tuple[str, str]] = set()
        self._barred: set[tuple[str, str]] = set()
        self._storage: Storage | None = None
        self._followers: tuple[Follower, ...] = ()
        self._changed = asyncio.Event()

    # What runs

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
                count += {What.STARTED: 1, What.STOPPED: -1}.get(entry.what, 0)
                most = max(most, count)
        return most

    def users(self, address: str) -> list[Running]:
        """The pods that have this address now."""
        return [each for each in self._running.values() if address in each.addresses]

    # Who can write

    def writers(self, volume: str) -> list[Running]:
        """The pods that can complete a write to this volume now."""
        return [
            each
            for (node, uid), each in self._running.items()
            if volume in each.volumes
            and not self.is_barred(node, volume)
            and (node, uid) not in self._held_back
        ]

    def bar(self, node: str, volumes: Iterable[str], *, why: str) -> None:
        """The storage refuses what this node writes to these volumes from now on."""
        barred = tuple(volumes)
        self._barred.update((node, volume) for volume in barred)
        self._add(Entry(self._now(), node, "", "", "", "", What.BARRED, why, barred))

    def admit(self, node: str, volumes: Iterable[str], *, why: str) -> None:
        """The storage takes its writes again."""
        admitted = tuple(volumes)
        self._barred.difference_update((node, volume) for volume in admitted)
        self._add(Entry(self._now(), node, "", "", "", "", What.ADMITTED, why, admitted))

    def is_barred(self, node: str, volume: str) -> bool:
        if (node, volume) in self._barred:
            return True
        return self._storage is not None and self._storage(node, volume) is False

    def ask(self, storage: Storage) -> None:
        """Of its own volumes, this storage knows itself who can write; ``turned`` is how it tells
        that this has changed."""
        self._storage = storage

    def turned(self, node: str, volume: str, *, writable: bool, why: str) -> None:
        what = What.ADMITTED if writable else What.BARRED
        self._add(Entry(self._now(), node, "", "", "", "", what, why, (volume,)))

    def switched(self, node: str, *, on: bool, by: str) -> None:
        """Somebody has switched the power of its machine; what came of that is told already."""
        what = What.SWITCHED_ON if on else What.SWITCHED_OFF
        self._add(Entry(self._now(), node, "", "", "", "", what, by))

    def hold_back(self, node: str, uid: str, *, why: str) -> None:
        """Nothing in this pod writes for now, as in a migration's target until the guest is there
        and in its source from then on."""
        self._held_back.add((node, uid))
        self._note(self._running[node, uid], What.HELD_BACK, why)

    def let_write(self, node: str, uid: str, *, why: str) -> None:
        self._held_back.discard((node, uid))
        self._note(self._running[node, uid], What.WRITING, why)

    def is_held_back(self, node: str, uid: str) -> bool:
        return (node, uid) in self._held_back

    def plug(self, node: str, uid: str, volumes: Iterable[str], *, why: str) -> None:
        """A pod that runs can write to these as well from now on, if it can write at all."""
        run = self._running[node, uid]
        both = tuple(dict.fromkeys((*run.volumes, *volumes)))
        plugged = self._running[node, uid] = replace(run, volumes=both)
        idle = self.is_held_back(node, uid)
        self._note(plugged, What.HELD_BACK if idle else What.WRITING, why)

    # Following it

    def follow(self, follower: Follower) -> Callable[[], None]:
        """Calls it with every new entry, when what the entry tells is already true; returns how
        to end that."""
        self._followers = (*self._followers, follower)

        def release() -> None:
            self._followers = tuple(each for each in self._followers if each is not follower)

        return release

    async def until(self, holds: Callable[[], bool], *, timeout: float = 15.0) -> None:
        """Waits for something to become true of what runs; ``TimeoutError`` if it does not."""
        async with asyncio.timeout(timeout):
            while not holds():
                await self._changed.wait()

    # What the machines tell

    def record(
        self,
        what: What,
        *,
        node: str,
        boot: str,
        uid: str,
        namespace: str,
        name: str,
        why: str,
        volumes: tuple[str, ...] = (),
        addresses: tuple[str, ...] = (),
        idle: bool = False,
    ) -> None:
        """``idle`` is a pod that starts held back."""
        at = self._now()
        if what is What.STARTED:
            self._running[node, uid] = Running(
                node, boot, uid, namespace, name, at, volumes, addresses
            )
            if idle:
                self._held_back.add((node, uid))
        elif what is What.STOPPED:
            del self._running[node, uid]
            self._held_back.discard((node, uid))
        self._add(Entry(at, node, boot, uid, namespace, name, what, why, volumes, addresses))

    def _note(self, run: Running, what: What, why: str) -> None:
        self._add(
            Entry(
                self._now(), run.node, run.boot, run.uid, run.namespace, run.name, what, why,
                run.volumes,
            )
        )  # fmt: skip

    def _add(self, entry: Entry) -> None:
        self.log.append(entry)
        for follower in self._followers:
            follower(entry)
        # Whoever waits is woken; whoever begins to wait now, waits for the next change.
        self._changed.set()
        self._changed = asyncio.Event()
