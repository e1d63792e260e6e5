"""VirtualLoop: an event loop in which waiting costs nothing.

* Time stands still while anything is ready to run, and jumps to the next timer when nothing is.
  An hour of heartbeats passes in milliseconds, and a test can assert the exact moment of each.
* Order is first in, first out, also among timers of the same moment, and sets of tasks do not
  depend on addresses in memory: two runs are identical.
* There are no sockets, threads or signals: the world comes in through the seams' doubles.
* When nothing is ready and no timer is left, nothing can ever happen again: ``Deadlock`` names
  the tasks that wait, where a real loop would hang.

Code under it uses plain asyncio; ``loop.time()`` starts at zero.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_Coroutine: TypeAlias = Coroutine[Any, Any, T] | Generator[Any, None, T]

_ASYNCIO = str(Path(asyncio.__file__).parent)

# Below this many cancelled timers, rebuilding the heap costs more than keeping them.
_SWEEP_FROM = 128


class Deadlock(Exception):
    """Every task waits for something that nobody is left to do."""


class _NumberedTask(asyncio.Task[T]):
    """A task whose place in a set follows from when it was made, not from where it lies."""

    def __init__(self, number: int, coro: _Coroutine[T], **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module. Only what waits and orders is replaced; the rest is asyncio's own."""

    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._serial = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._cancelled_timers = 0
        self._tasks_made = 0
        self.set_task_factory(self._new_task)

    def time(self) -> float:
        return self._now

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        # The heap of the base class leaves timers of the same moment in no particular order.
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._serial += 1
        heapq.heappush(self._timers, (when, self._serial, timer))
        return timer

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> NoReturn:
        raise RuntimeError("a thread runs in real time and has no place under virtual time")

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, coro: _Coroutine[T], **options: Any
    ) -> asyncio.Task[T]:
        self._tasks_made += 1
        return _NumberedTask(self._tasks_made, coro, loop=loop, **options)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        # Each request arms a timeout and cancels it: unswept, they would pile up by the million.
        self._cancelled_timers += 1
        if self._cancelled_timers >= max(_SWEEP_FROM, len(self._timers) // 2):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def _write_to_self(self) -> None:
        """Called to wake a loop that sleeps in a system call; this one never does."""

    def _run_once(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not self._ready and not self._stopping:
            if not timers:
                raise Deadlock(self._who_waits())
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(timers)[2])
        # Only what is ready now: what these callbacks add belongs to the next turn, in which
        # timers that have become due are looked at first.
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _who_waits(self) -> str:
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        waiting = "; ".join(f"{task.get_name()} at {_where(task)}" for task in tasks)
        return f"at {self._now:g} s nothing is left that could happen, but these wait: {waiting}"


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


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` on a loop of its own to its end; tasks that it leaves behind are cancelled."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
