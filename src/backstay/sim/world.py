"""World: one seed, one history.

A world has processes that know of each other only through its network, and a scenario outside of
them, which starts them, makes trouble, and looks on with eyes that no process has::

    with World(seed=7) as world:
        world.run(scenario(world))
        assert b"leading" in world.log.text

From the seed come separate dice for separate matters: ``chance`` for what the world does,
``faults`` for what goes wrong on purpose, and others for the network, for each disk, for the
order between processes, and for each process's own jitter. Two runs with one seed give the same
log, byte for byte, also if both ``turn_to`` another seed at the same point; see ``hash_seed`` for
the one thing that Python must be told beforehand.

A process whose main function fails ends the run with ``ProcessFailed``, unless the scenario waits
for it.
"""

import asyncio
import gc
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from backstay.sim.caller import name_of
from backstay.sim.chance import Chance
from backstay.sim.clock import Oscillator
from backstay.sim.lane import current_lane
from backstay.sim.loop import VirtualLoop
from backstay.sim.network import Network
from backstay.sim.process import Main, Process
from backstay.sim.wire import Latency, Wires

T = TypeVar("T")

_LATENCY = (0.0002, 0.005)
_DISK_LATENCY = (0.0001, 0.01)


class ProcessFailed(Exception):
    """The main function of a process raised, and nobody had asked how it would end."""


class Log(logging.Handler):
    """What was said in a world: when, by true time, and by whom."""

    def __init__(self, loop: VirtualLoop, level: int) -> None:
        super().__init__(level)
        self._loop = loop
        self._lines: list[str] = []
        self._complete = False

    def close(self) -> None:
        """What is said from now on is no part of the history."""
        self._complete = True
        super().close()

    @property
    def text(self) -> bytes:
        return "".join(self._lines).encode()

    def note(self, what: str) -> None:
        if self._complete:
            return
        who = name_of(current_lane())
        self._lines.append(f"{self._loop.true_time:.6f} {who}: {what}\n")

    def emit(self, record: logging.LogRecord) -> None:
        self.note(f"{record.levelname} {record.name} {record.getMessage()}")
        if record.exc_info and record.exc_info[1] is not None:
            self.note(f"  {record.exc_info[1]!r}")


class World:
    """See the module. ``level`` is what the log listens to, of all that Backstay says."""

    def __init__(self, seed: int, *, level: int = logging.INFO) -> None:
        self._seed = seed
        self._dice: list[Chance] = []
        self.chance = self.dice("world")
        self.faults = self.dice("faults")
        self.loop = VirtualLoop(self.dice("order"))
        network_chance = self.dice("network")
        least, most = _LATENCY
        latency = Latency(least, most - least, network_chance.random)
        self.network = Network(latency=latency, keeps_record=False)
        self.processes: dict[str, Process] = {}
        self.log = Log(self.loop, level)
        self._scenario: asyncio.Task[Any] | None = None
        self._failed: Process | None = None
        self._collects_later = False

    @property
    def wires(self) -> Wires:
        return self.network.wires

    @property
    def now(self) -> float:
        """True time."""
        return self.loop.true_time

    def dice(self, name: str) -> Chance:
        """For one matter of this world."""
        dice = Chance(self._seed, name)
        self._dice.append(dice)
        return dice

    def turn_to(self, seed: int) -> None:
        """From now on everything that is left to chance goes by this seed: worlds that have one
        past go different ways from here."""
        self._seed = seed
        for dice in self._dice:
            dice.turn_to(seed)

    def start(self, name: str, main: Main, *, clock: Oscillator | None = None) -> Process:
        """A new process, which begins at once."""
        if name in self.processes:
            raise ValueError(f"there is a process {name!r} already: restart it")
        disk = self.dice(f"disk of {name}")
        process = Process(
            name,
            main,
            loop=self.loop,
            network=self.network,
            dice=self.dice,
            clock=clock or Oscillator(),
            disk_latency=lambda: disk.between(*_DISK_LATENCY),
            on_failure=self._process_failed,
        )
        self.processes[name] = process
        process.start()
        return process

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        """Runs until the scenario ends. What the processes were doing then, they leave undone."""
        self._scenario = task = self.loop.create_task(scenario, name="scenario")
        with self._listening():
            try:
                return self.loop.run_until_complete(task)
            except asyncio.CancelledError:
                if self._failed is None:
                    raise
                raise ProcessFailed(
                    f"{self._failed.name} failed at {self.now:g} s: {self._failed.failure!r}"
                ) from self._failed.failure

    def close(self) -> None:
        """Lets go of everything. What was suspended is torn down unseen and unheard."""
        self.log.close()
        lanes = [lane for process in self.processes.values() for lane in process.abandon()]
        self.loop.end(*lanes)
        self.loop.wind_up()

    def __enter__(self) -> Self:
        self._collects_later = gc.isenabled()
        gc.disable()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        # Not before: what is looked through while the world still stands is looked through in vain.
        if self._collects_later:
            gc.enable()

    def _process_failed(self, process: Process) -> None:
        self._failed = self._failed or process
        assert self._scenario is not None
        self._scenario.cancel()

    @contextmanager
    def _listening(self) -> Iterator[None]:
        logger = logging.getLogger("backstay")
        before = logger.level
        logger.setLevel(min(self.log.level, logger.getEffectiveLevel()))
        logger.addHandler(self.log)
        try:
            yield
        finally:
            logger.removeHandler(self.log)
            logger.setLevel(before)
