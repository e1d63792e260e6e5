"""Machine: what a node's programs run on, and what can befall all of them together.

Two kinds, which behave alike as far as an ordinary loop allows:

* ``WorldMachine``: each program is a ``Process`` of a ``World``. It is paused where it stands, dies
  without another step, and reaches others through the world's wires, which can be cut in one
  direction alone.
* ``LoopMachine``: each program is a task of an ordinary loop, and its network a ``Cable``. To stop
  it is to cancel it; after a freeze its main function is called again, so what it has in mind has
  to live outside of that. A cut is always one in both directions.
"""

import asyncio
import dataclasses
import enum
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias

from backstay.kube.limits import RateLimit
from backstay.seam import Seams
from backstay.seam.clock import WallClock
from backstay.seam.tasks import Tasks
from backstay.sim.nodes.cable import Cable
from backstay.sim.process import Process, State
from backstay.sim.world import World

Main: TypeAlias = Callable[[Seams], Coroutine[Any, Any, None]]


class Cut(enum.Enum):
    """What no longer passes: what the node says, what it would hear, or both; or both, and only
    between it and the control plane."""

    OUT = "out"
    IN = "in"
    BOTH = "both"
    API = "api"


CONTROL_PLANE = "control-plane"
"""The machine of that name."""


class Machine(Protocol):
    """``start`` and ``kill`` are of one program; the rest befalls all that there are.

    ``has_ports`` says whether what befalls it shows at its ports as it does at real ones.
    """

    @property
    def has_ports(self) -> bool: ...

    def start(self, name: str, main: Main) -> None: ...

    def kill(self, name: str) -> None: ...

    def lose_power(self) -> None:
        """All programs are gone, and none of them tells anybody."""
        ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def cut_off(self, what: Cut) -> None: ...

    def heal(self) -> None: ...

    def step_clock(self, seconds: float) -> None:
        """Sets its time of day, forward or back."""
        ...

    def slow_down(self, seconds: float) -> None:
        """How much longer all takes that it tells others, and that others tell it."""
        ...


class _SettableClock:
    """Another clock, and by how much it was set."""

    def __init__(self, wall: WallClock) -> None:
        self._wall = wall
        self._ahead = timedelta()

    def now(self) -> datetime:
        return self._wall.now() + self._ahead

    def step(self, seconds: float) -> None:
        self._ahead += timedelta(seconds=seconds)


class LoopMachine:
    """See the module. ``turnstile`` keeps many machines from connecting in the same instant."""

    has_ports = False

    def __init__(self, name: str, seams: Seams, *, tasks: Tasks, turnstile: RateLimit) -> None:
        self._name = name
        self._cable = Cable(seams.transport)
        self._wall = _SettableClock(seams.wall)
        self._seams = dataclasses.replace(seams, transport=self._cable, wall=self._wall)
        self._owner = tasks
        self._turnstile = turnstile
        self._mains: dict[str, Main] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._frozen = False

    def start(self, name: str, main: Main) -> None:
        self._mains[name] = main
        if not self._frozen:
            self._spawn(name)

    def kill(self, name: str) -> None:
        del self._mains[name]
        self._running.pop(name).cancel()

    def lose_power(self) -> None:
        self._mains.clear()
        self._cancel_all()

    def freeze(self) -> None:
        self._frozen = True
        self._cancel_all()

    def thaw(self) -> None:
        if self._frozen:
            self._frozen = False
            for name in self._mains:
                self._spawn(name)

    def cut_off(self, what: Cut) -> None:
        self._cable.pull()

    def heal(self) -> None:
        self._cable.plug_in()

    def step_clock(self, seconds: float) -> None:
        self._wall.step(seconds)

    def slow_down(self, seconds: float) -> None:
        self._cable.delay = seconds

    def _cancel_all(self) -> None:
        for task in self._running.values():
            task.cancel()
        self._running.clear()

    def _spawn(self, name: str) -> None:
        task = self._owner.spawn(self._run(self._mains[name]), name=f"{self._name}/{name}")
        self._running[name] = task

    async def _run(self, main: Main) -> None:
        await self._turnstile.acquire()
        await main(self._seams)


class WorldMachine:
    """See the module. The programs of ``n1`` are the processes ``n1/kubelet`` and so on."""

    has_ports = True

    def __init__(self, name: str, world: World) -> None:
        self._name = name
        self._world = world
        self._mains: dict[str, Main] = {}
        self._cut: Cut | None = None
        self._blocked: list[tuple[str, str]] = []
        self._frozen = False
        self._ahead = 0.0
        self._slow = 0.0

    def start(self, name: str, main: Main) -> None:
        self._mains[name] = main
        full = f"{self._name}/{name}"
        process = self._world.processes.get(full)
        if process is not None:
            process.start()
        else:
            process = self._world.start(full, lambda seams: self._mains[name](seams))
            process.wall.step(self._ahead)
            self._world.wires.slow_down(full, self._slow)
        if self._frozen:
            process.pause()
        if self._cut is not None:
            self._block(full, self._cut)

    def kill(self, name: str) -> None:
        self._world.processes[f"{self._name}/{name}"].kill()

    def lose_power(self) -> None:
        for process in self._processes():
            process.lose_power()

    def freeze(self) -> None:
        self._frozen = True
        for process in self._processes():
            process.pause()

    def thaw(self) -> None:
        self._frozen = False
        for process in self._processes():
            if process.state is State.PAUSED:
                process.resume()

    def cut_off(self, what: Cut) -> None:
        before, self._blocked = self._blocked, []
        self._cut = what
        for process in self._processes():
            self._block(process.name, what)
        # Last, so that nothing slips through which was held back and still is to be.
        for pair in before:
            if pair not in self._blocked:
                self._world.wires.unblock(*pair)

    def heal(self) -> None:
        self._cut = None
        for process in self._processes():
            self._world.wires.open_up(process.name)
        for source, target in self._blocked:
            self._world.wires.unblock(source, target)
        self._blocked.clear()

    def step_clock(self, seconds: float) -> None:
        self._ahead += seconds
        for process in self._processes():
            process.wall.step(seconds)

    def slow_down(self, seconds: float) -> None:
        self._slow = seconds
        for process in self._processes():
            self._world.wires.slow_down(process.name, seconds)

    def _processes(self) -> Iterator[Process]:
        for name in self._mains:
            yield self._world.processes[f"{self._name}/{name}"]

    def _block(self, mine: str, what: Cut) -> None:
        wires = self._world.wires
        if what is not Cut.API:
            wires.wall_off(mine, mute=what is not Cut.IN, deaf=what is not Cut.OUT)
            return
        for other in self._world.processes:
            if other.startswith(f"{CONTROL_PLANE}/"):
                wires.part([mine], [other])
                self._blocked += [(mine, other), (other, mine)]
        wires.open_up(mine)
