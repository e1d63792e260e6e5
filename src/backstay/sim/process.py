"""Process: one program on a machine of its own, which can suffer what processes suffer.

* ``pause`` and ``resume``: as SIGSTOP and SIGCONT, or a virtual machine that is moved. None of
  its code runs, time goes on, its clocks with it. When it goes on it sees what has come in
  meanwhile, and then that its timers are long due.
* ``kill``: none of its code runs ever again, no ``finally`` and no ``except``. Its machine closes
  its connections, behind what had already been sent.
* ``lose_power``: the same, but nobody is left to close anything: its peers hear nothing at all,
  until its machine is back.
* ``restart``: its main function begins afresh, with the clocks of its machine and the files that
  survived.
* ``drift``: its monotonic clock goes at another rate; ``wall.step`` sets its time of day.
* ``terminate``: the polite way. Its main function is cancelled, and can clean up.

A process is known by what its code runs in (see ``lane``), so the code itself is unmodified: it
gets ``Seams`` and cannot tell.
"""

import asyncio
import enum
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, NoReturn, TypeAlias

from backstay.seam import Seams
from backstay.sim.chance import Chance
from backstay.sim.clock import LoopClock, Oscillator
from backstay.sim.exec import Program, SimulatedExec
from backstay.sim.files import MemoryFiles
from backstay.sim.lane import Lane, current_lane
from backstay.sim.loop import VirtualLoop
from backstay.sim.network import Network

Main: TypeAlias = Callable[[Seams], Coroutine[Any, Any, None]]


class State(enum.Enum):
    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"


class Process:
    """See the module. ``World.start`` makes one."""

    def __init__(
        self,
        name: str,
        main: Main,
        *,
        loop: VirtualLoop,
        network: Network,
        dice: Callable[[str], Chance],
        clock: Oscillator,
        disk_latency: Callable[[], float],
        on_failure: Callable[["Process"], None],
    ) -> None:
        self.name = name
        self.files = MemoryFiles(disk_latency)
        self.wall = LoopClock()
        self.programs: dict[str, Program] = {}
        self.seams = Seams(
            transport=network.transport,
            serve=network.serve,
            exec=SimulatedExec(self.programs, self._lane_of_its_own),
            files=self.files,
            wall=self.wall,
            rng=dice(f"process {name}"),
        )
        self.failure: BaseException | None = None
        self._main = main
        self._loop = loop
        self._network = network
        self._clock = clock
        self._crashes = dice(f"crashes of {name}")
        self._lanes: list[Lane] = []
        self._main_task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._has_power = True
        self._waited_for = False
        self._on_failure = on_failure

    @property
    def state(self) -> State:
        if not self._lanes:
            return State.ENDED
        return State.PAUSED if self._lanes[0].paused else State.RUNNING

    def time(self) -> float:
        """What ``loop.time()`` is in this process."""
        return self._clock.read(self._loop.true_time)

    def start(self) -> None:
        if self._lanes:
            raise RuntimeError(f"{self.name} is {self.state.value} and cannot be started again")
        if not self._has_power:
            self._has_power = True
            self._network.has_power_again(self.name)
        self.failure = None
        self._waited_for = False
        self._over = asyncio.Event()
        lane = self._open_lane()
        task = self._loop.create_task(self._live(lane), name=self.name, context=lane.context())
        task.add_done_callback(self._main_ended, context=Context())
        self._main_task = task

    def restart(self) -> None:
        if self._lanes:
            self.kill()
        self.start()

    def pause(self) -> None:
        for lane in self._lanes:
            self._loop.pause(lane)

    def resume(self) -> None:
        for lane in self._lanes:
            self._loop.resume(lane)

    def kill(self) -> None:
        self._must_be_done_from_outside("killed")
        self._end()

    def lose_power(self) -> None:
        self._must_be_done_from_outside("switched off")
        for lane in self._lanes:
            self._network.lost_power(lane)
        # Also when the process was killed before: nobody is left to refuse for it.
        self._network.wires.power_off(self.name)
        self._has_power = False
        self._end(tell_peers=False)

    async def die(self) -> NoReturn:
        """For the process itself: it is killed here and now, and does not come back from this."""
        self._end()
        await self._loop.create_future()
        raise AssertionError("the dead do not wake up")

    def terminate(self) -> None:
        if self._main_task is not None:
            self._main_task.cancel()

    def drift(self, rate: float) -> None:
        for lane in self._lanes:
            lane.clock = self._clock
        self._loop.drift(self._clock, rate)

    async def wait(self) -> None:
        """Returns when it has ended, by itself or by force; raises what its main function did."""
        self._waited_for = True
        await self._over.wait()
        if self.failure is not None:
            raise self.failure

    def abandon(self) -> list[Lane]:
        """The world is over, and nobody has to be told: the lanes in which nothing is to run any
        more."""
        lanes, self._lanes = self._lanes, []
        return lanes

    async def _live(self, lane: Lane) -> None:
        me = asyncio.current_task()
        try:
            await self._main(self.seams)
        finally:
            # As asyncio.run does.
            while left := [task for task in self._loop.tasks_in(lane) if task is not me]:
                for task in left:
                    task.cancel()
                await asyncio.wait(left)

    def _main_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.failure = task.exception()
        self._end()
        if self.failure is not None and not self._waited_for:
            self._on_failure(self)

    def _end(self, *, tell_peers: bool = True) -> None:
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            self._loop.end(lane)
            if tell_peers:
                self._network.left(lane)
        if lanes:
            self.files.crash(self._crashes)
            self._over.set()

    def _open_lane(self) -> Lane:
        # Who reads true time needs no clock for it: that is nearly everybody, all the time.
        lane = Lane(self.name, None if self._clock.shows_true_time else self._clock)
        self._lanes.append(lane)
        return lane

    @contextmanager
    def _lane_of_its_own(self) -> Iterator[Lane]:
        """For a program that the process runs."""
        lane = self._open_lane()
        try:
            yield lane
        finally:
            if lane in self._lanes:
                self._lanes.remove(lane)
                self._loop.end(lane)
                self._network.left(lane)

    def _must_be_done_from_outside(self, what: str) -> None:
        if current_lane() in self._lanes:
            raise RuntimeError(
                f"{self.name} cannot be {what} by its own code, which would go on to its next "
                "await: use die() there"
            )
