"""Ground: where the programs of an embedded cluster run.

* ``WorldGround``: in a ``World``, under virtual time. Every program is a process.
* ``LoopGround``: on the loop that runs already, in real time. Every program is a task, and the
  network between them is in memory all the same; clocks, dice, files and programs are those of
  the seams that it is given.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from backstay.kube.limits import RateLimit
from backstay.seam import Seams
from backstay.seam.clock import Rng, WallClock
from backstay.seam.tasks import Tasks
from backstay.seam.transport import Transport
from backstay.sim.clock import LoopClock
from backstay.sim.network import Network
from backstay.sim.nodes.machine import LoopMachine, Machine, WorldMachine
from backstay.sim.world import World

# On an ordinary loop machines that boot in the same instant would hold everybody up.
_BOOTS_A_SECOND = 100


class Ground(Protocol):
    """``transport`` is for those who look on from outside; programs have their own."""

    @property
    def transport(self) -> Transport: ...

    @property
    def network(self) -> Network: ...

    @property
    def wall(self) -> WallClock: ...

    @property
    def rng(self) -> Rng: ...

    def now(self) -> float:
        """True time, which no program's clock has to agree with."""
        ...

    def machine(self, name: str) -> Machine: ...


class WorldGround:
    """See the module."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.network = world.network
        self.transport = world.network.transport
        self.wall = LoopClock()
        self.rng = world.dice("cluster")

    def now(self) -> float:
        return self.world.now

    def machine(self, name: str) -> Machine:
        return WorldMachine(name, self.world)


class LoopGround:
    """See the module. Its machines run within ``tasks``."""

    def __init__(self, seams: Seams, tasks: Tasks) -> None:
        self.network = network = Network(keeps_record=False)
        self.transport = network.transport
        self.wall = seams.wall
        self.rng = seams.rng
        self._seams = dataclasses.replace(seams, transport=self.transport, serve=network.serve)
        self._tasks = tasks
        self._turnstile = RateLimit(_BOOTS_A_SECOND, _BOOTS_A_SECOND)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def machine(self, name: str) -> Machine:
        return LoopMachine(name, self._seams, tasks=self._tasks, turnstile=self._turnstile)


@asynccontextmanager
async def on_this_loop(seams: Seams) -> AsyncIterator[LoopGround]:
    """Until the end of the block, with which all programs end."""
    async with Tasks("cluster") as tasks:
        yield LoopGround(seams, tasks)
