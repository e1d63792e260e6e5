"""Served: LINSTOR's controller, listening.

``serving`` is for whoever wants to talk to one: over a socket of this machine or in memory, as the
``Serve`` says that it is given. ``Lab`` is for those who need nothing else than a few nodes that
can be cut off, without a cluster::

    lab = Lab("n1", "n2", "n3")
    lab.define("pvc-1")
    async with serving(serve, lab.controller()) as linstor:
        ...
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from backstay.seam.serve import Serve, ServerTls
from backstay.seam.tasks import Tasks
from backstay.sim.linstor.clockwork import Clockwork
from backstay.sim.linstor.controller import Controller, Hearing
from backstay.sim.linstor.database import QUORUM, Database
from backstay.sim.linstor.drbd import Drbd
from backstay.sim.linstor.drbd import Pace as DrbdPace
from backstay.sim.linstor.front import Faults, Front
from backstay.sim.linstor.replicas import Kind

PORT = 3370
_QUICK = 0.01
"""Without a cluster there is nothing to wait for: all takes a hundredth of the time."""


@dataclass(frozen=True)
class Served:
    url: str
    controller: Controller
    front: Front
    faults: Faults


@asynccontextmanager
async def serving(
    serve: Serve,
    controller: Controller,
    *,
    faults: Faults | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ServerTls | None = None,
) -> AsyncIterator[Served]:
    """Until the end of the block."""
    faults = faults or Faults()
    front = Front(controller, faults)
    async with Tasks("linstor-controller") as tasks:
        listener = await serve.listen(front.handle, host=host, port=port, tls=tls)
        tasks.spawn(controller.run(), name="satellites")
        try:
            yield Served(listener.url, controller, front, faults)
        finally:
            controller.promotions.end()
            await listener.close()


class Lab:
    """DRBD on a few nodes, and what LINSTOR knows of them. See the module."""

    def __init__(self, *nodes: str) -> None:
        self.drbd = Drbd(
            now=lambda: asyncio.get_running_loop().time(),
            between=_earliest,
            reaches=lambda one, other: not self.away & {one, other},
            pace=DrbdPace().scaled(_QUICK),
        )
        self.database = Database(self.drbd)
        self.hearing = Hearing()
        self.away: set[str] = set()
        """The nodes that nobody hears."""
        self._clockwork = Clockwork(self.drbd)
        for node in nodes:
            self.database.add_node(node)

    def define(self, name: str, *, quorum: str = "majority", has_drbd: bool = True) -> None:
        """A resource with a disk on every node."""
        replicas = dict.fromkeys(self.database.nodes, Kind.DISKFUL)
        self.database.define(name, replicas, props={QUORUM: quorum}, has_drbd=has_drbd)

    def controller(self) -> Controller:
        """A new one, which knows nothing yet."""
        return Controller(
            self.database,
            hears=lambda node: None if node in self.away else "boot",
            between=lambda low, high: _QUICK * _earliest(low, high),
            hearing=self.hearing,
        )

    def cut_off(self, node: str) -> None:
        self.away.add(node)
        self.drbd.look_around()

    def heal(self, node: str) -> None:
        self.away.discard(node)
        self.drbd.look_around()

    def stop_satellite(self, node: str) -> None:
        self.hearing.stopped.add(node)
        self.drbd.look_around()

    def start_satellite(self, node: str) -> None:
        self.hearing.stopped.discard(node)
        self.drbd.look_around()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits until something is true of DRBD."""
        while not holds():
            await self.drbd.changed()

    def close(self) -> None:
        self._clockwork.stop()


def _earliest(low: float, _high: float) -> float:
    return low
