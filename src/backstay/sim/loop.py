"""VirtualLoop: an event loop in which waiting costs nothing, and one seed gives one history.

* Time stands still while anything is ready to run, and jumps to the next timer when nothing is.
  An hour of heartbeats passes in milliseconds, and a test can assert the exact moment of each.
* Within a lane (a process, see ``lane``) order is first in, first out, also among timers of the
  same moment. Between lanes that are ready at the same moment, chance decides: as processes on
  different machines, they may overtake each other in every way.
* Each lane has its own clock. ``loop.time()`` is the time of the lane that asks, and a timer goes
  by the clock of the lane that it will run in.
* Nothing hangs on addresses in memory: tasks and futures hash by number, tasks that are left over
  are cancelled in the order of their birth, and garbage is collected at moments that are counted,
  not whenever Python feels like it.
* There are no sockets, threads or signals: the world comes in through the seams' doubles.
* When nothing is ready and no timer is left, nothing can ever happen again: ``Deadlock`` names
  the tasks that wait, where a real loop would hang. ``Livelock`` is the opposite: so much happens
  that time never goes on.

Code under it uses plain asyncio; true time starts at zero.
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context, copy_context
from functools import partial
from heapq import heapify, heappop, heappush
from pathlib import Path
from types import AsyncGeneratorType
from typing import Any, NoReturn, TypeAlias, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

from backstay.seam.clock import Rng
from backstay.sim.chance import Chance
from backstay.sim.clock import Oscillator
from backstay.sim.handle import Handle, Timer
from backstay.sim.lane import LANE, Lane

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_Coroutine: TypeAlias = Coroutine[Any, Any, T] | Generator[Any, None, T]
_AsyncGenerator: TypeAlias = AsyncGeneratorType[Any, Any]

_ASYNCIO = str(Path(asyncio.__file__).parent)

# Below this many cancelled timers, rebuilding the heap costs more than keeping them.
_SWEEP_FROM = 128

# Callbacks between two collections of garbage; every so many of them look at old objects too.
_COLLECT_EVERY = 20_000
_COLLECT_OLD_EVERY = 16

_PATIENCE = 1_000_000

# What the mechanics of the world run in: no lane.
_NOWHERE = Context()

# What ``asyncio.sleep`` sets its timer for.
_WAKES_A_SLEEPER: Callable[..., None] = vars(asyncio.futures)["_set_result_unless_cancelled"]


_Entry: TypeAlias = tuple[float, int, Timer, Lane]
"""A timer in the heap: its moment, and its number among those of the same moment."""


class Deadlock(Exception):
    """Every task waits for something that nobody is left to do."""


class Livelock(Exception):
    """Callbacks follow each other without end, and time cannot go on."""


class Unfinished(Exception):
    """An asynchronous generator was left to the garbage collector."""


class _NumberedFuture(asyncio.Future[T]):
    """A future whose place in a set follows from when it was first put into one."""

    __slots__ = ("_number",)
    _number: int

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            loop = self.get_loop()
            assert isinstance(loop, VirtualLoop)
            loop._numbered += 1
            self._number = loop._numbered
            return self._number


class _NumberedTask(asyncio.Task[T]):
    """A task whose place in a set follows from when it was made, not from where it lies."""

    def __init__(self, number: int, lane: Lane, coro: _Coroutine[T], **options: Any) -> None:
        self.number = number
        self.lane = lane
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module. Only what waits and orders is replaced; the rest is asyncio's own.

    ``order`` draws the next lane where several are ready. ``patience`` is how many callbacks may
    run at one moment.
    """

    _closed: bool
    _stopping: bool

    def __init__(self, order: Rng | None = None) -> None:
        super().__init__()
        self.patience = _PATIENCE
        self._draw = (order or Chance(0, "order")).random
        self.true_time = 0.0
        """Seconds since the world began, whatever any clock in it shows."""
        self._numbered = 0
        self._outside = Lane("world")
        self._mechanics = Lane("mechanics")
        self._running = self._outside
        self._lined_up: list[Lane] = []
        # Whether what lines up next would be alone in line, behind nothing but what lets it do so.
        self._goes_first = False
        self._first: tuple[Handle, Lane] | None = None
        self._ended: list[Lane] = []
        self._timers: list[_Entry] = []
        self._cancelled_timers = 0
        self._generators: WeakKeyDictionary[_AsyncGenerator, Lane] = WeakKeyDictionary()
        self._abandoned: list[str] = []
        self._collecting = False
        self._collections = 0
        self._until_collection = _COLLECT_EVERY
        self._at_this_moment = 0
        # Every sleep makes one: without a function in between.
        vars(self)["create_future"] = partial(_NumberedFuture[Any], loop=self)

    # Time

    def time(self) -> float:
        # Of the lane whose callback runs: to look up the context would take as long again.
        clock = self._running.clock
        if clock is None:
            return self.true_time
        # As ``clock.read`` has it: this is asked for more often than anything else.
        return clock.read_then + (self.true_time - clock.since) * clock.rate

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """``when`` is by the clock of the lane that ``context`` is in."""
        if context is None:
            context = copy_context()
        lane = context.get(LANE, self._outside)
        moment = when if lane.clock is None else lane.clock.moment(when)
        timer: Any = Timer(callback, args, context, when, self._timer_cancelled)
        # The heap of the base class leaves timers of the same moment in no particular order.
        self._numbered = number = self._numbered + 1
        heappush(self._timers, (moment, number, timer, lane))
        stand_in: asyncio.TimerHandle = timer
        return stand_in

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        if context is None:
            context = copy_context()
        lane = context.get(LANE, self._outside)
        if lane.clock is None:
            when = moment = self.true_time + delay
        else:
            when = lane.clock.read(self.true_time) + delay
            moment = lane.clock.moment(when)
        # As ``call_at`` goes on: every sleep comes through here.
        timer: Any = Timer(callback, args, context, when, self._timer_cancelled)
        self._numbered = number = self._numbered + 1
        heappush(self._timers, (moment, number, timer, lane))
        stand_in: asyncio.TimerHandle = timer
        return stand_in

    def set_in_motion(self, moment: float, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Calls it at a moment of true time, ahead of all that is ready then: for the mechanics of
        the world, which end with letting others line up, and so need no place in line."""
        timer = Timer(callback, args, _NOWHERE, moment, None)
        self._numbered = number = self._numbered + 1
        heappush(self._timers, (moment, number, timer, self._mechanics))

    def _timer_cancelled(self) -> None:
        # Each request arms a timeout and cancels it: unswept, they would pile up by the million.
        self._cancelled_timers += 1
        if self._cancelled_timers >= _SWEEP_FROM and 2 * self._cancelled_timers >= len(
            self._timers
        ):
            live = [entry for entry in self._timers if entry[2].callback is not None]
            self._set_timers(live)

    def _set_timers(self, timers: list[_Entry]) -> None:
        self._timers[:] = timers
        heapify(self._timers)
        self._cancelled_timers = 0

    def drift(self, clock: Oscillator, rate: float) -> None:
        """Let a clock go at another rate from now on, and the timers that go by it."""
        clock.drift(rate, now=self.true_time)
        self._set_timers(
            [
                (clock.moment(timer.when()), number, timer, lane)
                if lane.clock is clock
                else (moment, number, timer, lane)
                for moment, number, timer, lane in self._timers
            ]
        )

    # Lanes

    def pause(self, lane: Lane) -> None:
        """Run nothing of this lane until it goes on; for everybody else, time goes on."""
        lane.paused = True
        self._leave_line(lane)

    def resume(self, lane: Lane) -> None:
        if not lane.paused or lane.ended:
            return
        lane.paused = False
        # As a process that was stopped: it sees what has come in before it looks at its timers.
        lane.ready.extend(lane.overdue)
        lane.overdue.clear()
        if lane.ready:
            self._lined_up.append(lane)
        else:
            lane.idle = True

    def end(self, *lanes: Lane) -> None:
        """Run nothing of these lanes any more, not even to clean up."""
        ending = set(lanes)
        for lane in lanes:
            lane.ended = True
            self._leave_line(lane)
        tasks = [task for task in self._tasks() if task.lane in ending]
        for task in tasks:
            asyncio.tasks._unregister_task(task)
            task.lane.keep(task)
        for _, _, timer, lane in self._timers:
            if lane in ending:
                lane.keep(timer)
        self._set_timers([entry for entry in self._timers if entry[3] not in ending])
        for generator, lane in self._generators.items():
            if lane in ending:
                lane.keep(generator)
        at_work = {task.lane for task in tasks}
        self._ended += [lane for lane in lanes if lane.ready or lane in at_work]

    def tasks_in(self, lane: Lane | None) -> list[asyncio.Task[Any]]:
        """The unfinished tasks of a lane (None: of the world itself), the oldest first."""
        lane = lane or self._outside
        return [task for task in self._tasks() if task.lane is lane]

    def _tasks(self) -> list[_NumberedTask[Any]]:
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, _NumberedTask)]
        return sorted(tasks, key=lambda task: task.number)

    def _leave_line(self, lane: Lane) -> None:
        lane.idle = False
        if lane in self._lined_up:
            self._lined_up.remove(lane)

    # Running

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        if context is None:
            context = copy_context()
        handle: Any = Handle(callback, args, context)
        stand_in: asyncio.Handle = handle
        lane = context.get(LANE, self._outside)
        if lane.idle:
            if self._goes_first:
                self._goes_first = False
                self._first = handle, lane
                return stand_in
            if self._closed:
                raise RuntimeError("Event loop is closed")
            lane.idle = False
            self._lined_up.append(lane)
        lane.ready.append(handle)
        return stand_in

    # Every future asks for it, and there is no more to be known about a world that can be repeated.
    get_debug = staticmethod(bool)

    # There are no threads that it could be called from.
    call_soon_threadsafe = call_soon

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> NoReturn:
        raise RuntimeError("a thread runs in real time and has no place under virtual time")

    def create_task(
        self, coro: _Coroutine[T], *, name: object = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        lane = LANE.get(self._outside) if context is None else context.get(LANE, self._outside)
        self._numbered = number = self._numbered + 1
        # asyncio counts its own names through the whole program, from one run to the next.
        name = name or f"Task-{number}"
        return _NumberedTask(number, lane, coro, loop=self, name=name, context=context)

    def run_forever(self) -> None:
        automatic = gc.isenabled()
        gc.disable()
        gc.callbacks.append(self._collection)
        try:
            super().run_forever()
        finally:
            self._running = self._outside
            gc.callbacks.remove(self._collection)
            if automatic:
                gc.enable()

    def after_fork(self, task: asyncio.Task[Any]) -> None:
        """Called in the copy of a process, by the task that runs there: both go on in it. (asyncio
        remembers for which process a loop runs, and forgets the task in a copy from Python 3.14
        on.)"""
        asyncio._set_running_loop(self)
        if asyncio.current_task(self) is None:
            asyncio.tasks._enter_task(self, task)

    def _run_once(self) -> None:  # noqa: C901 - each callback would pay for each part of it
        """One callback after the other, until it is told to stop."""
        lined_up, timers = self._lined_up, self._timers
        while True:
            if not lined_up or (timers and timers[0][0] <= self.true_time):
                self._let_due_timers_line_up()
            if self._first is not None:
                (handle, lane), self._first = self._first, None
            elif lined_up:
                place = 0
                if lined_up[-1] is not lined_up[0]:
                    place = int(self._draw() * len(lined_up))
                lane = lined_up[place]
                handle = lane.ready.popleft()
                if not lane.ready:
                    lane.idle = True
                    last = lined_up.pop()
                    if last is not lane:
                        lined_up[place] = last
            elif self._stopping:
                return
            else:
                continue
            self._running = lane
            if (callback := handle.callback) is not None:
                try:
                    handle.context.run(callback, *handle.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as asyncio does
                    self._failed(handle, error)
            self._at_this_moment += 1
            self._until_collection -= 1
            if self._until_collection < 0:
                self._collect_garbage()
            if self._at_this_moment > self.patience:
                raise Livelock(self._who_runs())
            if self._abandoned:
                raise Unfinished(_left_behind(self._abandoned[0]))
            if self._stopping:
                return

    def _collect_garbage(self) -> None:
        self._until_collection = _COLLECT_EVERY
        self._collections += 1
        gc.collect(1 if self._collections % _COLLECT_OLD_EVERY else 2)

    def _failed(self, handle: Handle, error: BaseException) -> None:
        message = f"Exception in callback {handle!r}"
        self.call_exception_handler({"message": message, "exception": error, "handle": handle})

    def _let_due_timers_line_up(self) -> None:  # noqa: C901 - so would each timer
        """Where nobody is ready to run, time goes on. Who would be alone in line is the first to
        run and need not line up."""
        timers, lined_up = self._timers, self._lined_up
        if not (lined_up or self._stopping):
            while timers and timers[0][2].callback is None:
                heappop(timers)
                self._cancelled_timers -= 1
            if not timers:
                raise Deadlock(self._who_waits())
            if timers[0][0] > self.true_time:
                self.true_time = timers[0][0]
                self._at_this_moment = 0
        alone = False
        while not alone and timers and timers[0][0] <= self.true_time:
            _, _, timer, lane = heappop(timers)
            timer.on_cancel = None
            alone = not lined_up and not (timers and timers[0][0] <= self.true_time)
            if (callback := timer.callback) is None:
                self._cancelled_timers -= 1
            elif lane is self._mechanics:
                self._running = lane
                self._goes_first = alone
                callback(*timer.args)
                self._goes_first = False
            elif lane.paused:
                lane.overdue.append(timer)
            elif callback is _WAKES_A_SLEEPER:
                # It only lets another callback line up, and takes the place of that.
                timer.callback = None
                sleeper, result = timer.args
                if not sleeper.cancelled():
                    self._goes_first = alone
                    sleeper.set_result(result)
                    self._goes_first = False
            elif alone:
                self._first = timer, lane
            else:
                lane.ready.append(timer)
                if lane.idle:
                    lane.idle = False
                    lined_up.append(lane)

    # The end

    def wind_up(self) -> None:
        """Cancel what is left of the world itself and let it clean up; then close."""
        if self._closed:
            return
        self._at_this_moment = 0
        try:
            left = self.tasks_in(None)
            for task in left:
                task.cancel()
            if left:
                self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            for task in left:
                if not task.cancelled() and (error := task.exception()) is not None:
                    message = "a task failed while it was cancelled at the end"
                    self.call_exception_handler(
                        {"message": message, "exception": error, "task": task}
                    )
            self.run_until_complete(self.shutdown_asyncgens())
        finally:
            self.end(*{task.lane: None for task in self._tasks()})
            self.close()
            for lane in self._ended:
                lane.bury()

    async def shutdown_asyncgens(self) -> None:
        """The oldest first, where asyncio would go by their addresses."""
        for generator, lane in list(self._generators.items()):
            if lane is self._outside:
                await generator.aclose()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # That a task was never finished, or its failure never looked at, is no news of the dead.
        task = context.get("task") or context.get("future")
        if isinstance(task, _NumberedTask) and task.lane.ended:
            return
        super().call_exception_handler(context)

    def _collection(self, phase: str, info: dict[str, int]) -> None:
        self._collecting = phase == "start"

    def _asyncgen_firstiter_hook(self, agen: _AsyncGenerator) -> None:
        self._generators[agen] = LANE.get(self._outside)

    def _asyncgen_finalizer_hook(self, agen: _AsyncGenerator) -> None:
        if self._closed:
            return
        if self._collecting:
            self._abandoned.append(agen.__qualname__)
        else:
            # Its last owner let go of it just now, and that is a moment like any other.
            self.call_soon(self.create_task, agen.aclose())

    # What to say when it goes wrong

    def _who_waits(self) -> str:
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        waiting = "; ".join(f"{task.get_name()}{_paused(task)} at {_where(task)}" for task in tasks)
        return (
            f"at {self.true_time:g} s nothing is left that could happen, but these wait: {waiting}"
        )

    def _who_runs(self) -> str:
        handles: list[Any] = [handle for lane in self._lined_up for handle in lane.ready]
        owners = [getattr(handle.callback, "__self__", handle) for handle in handles]
        running = "; ".join(
            f"{each.get_name()} at {_where(each)}" if isinstance(each, asyncio.Task) else repr(each)
            for each in owners
        )
        return f"at {self.true_time:g} s time cannot go on, because these never stop: {running}"


def _left_behind(generator: str) -> str:
    return (
        f"{generator} was begun, not finished, and left to the garbage collector, which comes at "
        "no particular moment: close it, with contextlib.aclosing"
    )


def _where(task: asyncio.Task[Any]) -> str:
    """The innermost line at which the task waits, not counting asyncio's own."""
    coro: Any = task.get_coro()
    place = repr(coro)
    while (frame := getattr(coro, "cr_frame", None)) is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_ASYNCIO):
            place = f"{path}:{frame.f_lineno} ({coro.__qualname__})"
        coro = coro.cr_await
    return place


def _paused(task: asyncio.Task[Any]) -> str:
    return " (paused)" if isinstance(task, _NumberedTask) and task.lane.paused else ""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` on a loop of its own to its end; tasks that it leaves behind are cancelled."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.wind_up()
