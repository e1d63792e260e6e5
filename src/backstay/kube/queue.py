"""The work queue: which key a controller looks at next.

A key stands for "look at this thing again", not for an event: however often something changes,
one look at its present state is enough. Therefore:

* A key waits at most once. Adding it again merges: the earlier moment and the more urgent
  priority win.
* Nobody works on a key twice at the same time. A key that is added while it is being worked on
  is worked on once more afterwards, so that no change goes unseen.
* A key is never lost. It leaves the queue only through a handler that returned. One that failed
  comes back with backoff, one that was cancelled is put back at once.

``Schedule`` holds these rules: it is pure, told the time, and O(log n). ``WorkQueue`` is its shell
on asyncio: it waits, runs handlers side by side up to a limit, and decides when a failure is
tried again:

* after the key's own exponential backoff, or later if the server asked for it (``retry_after``,
  as far as the longest wait of the backoff);
* a refusal that the same call would meet again (``Terminal``, ``ConfigError``) at the longest wait
  from the start. It is not given up: the cure (a role granted, a quota raised) may come without an
  event that would add the key. If one does come, that addition overtakes the wait;
* a refusal that only says that the world moved on (``Conflict``, ``NotFound``, ...) is not of that
  kind: the next look sees the new world, so it has the short backoff.
"""

import asyncio
import heapq
import logging
import math
from collections.abc import Awaitable, Callable, Hashable
from enum import IntEnum
from functools import partial
from itertools import count
from typing import Generic, NamedTuple, TypeVar

import msgspec

from backstay.kube.errors import (
    AlreadyExists,
    ConfigError,
    Conflict,
    Gone,
    KubeError,
    NotFound,
    Terminal,
    TooLate,
)
from backstay.kube.limits import Backoff
from backstay.seam.clock import Rng

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=tuple[float, ...])

_THE_WORLD_MOVED_ON = (AlreadyExists, Conflict, Gone, NotFound, TooLate)


class Priority(IntEnum):
    """Which of several waiting keys is first: the lower number. Any other integer will do too."""

    URGENT = 0
    NORMAL = 10
    BACKGROUND = 20


# The rules


class _Ready(NamedTuple):
    priority: int
    arrival: int
    since: float


class _Delayed(NamedTuple):
    due: float
    arrival: int
    priority: int


class _Parked(NamedTuple):
    """What was asked for while the key was being worked on."""

    priority: int
    due: float


class _Ranking(Generic[K, R]):
    """Keys by rank, lowest first. A key can be ranked anew or removed wherever it stands.

    The heap keeps outdated entries until they surface, and is rebuilt once they are the
    majority. Ranks are unique, so that keys themselves are never compared.
    """

    def __init__(self) -> None:
        self._ranks: dict[K, R] = {}
        self._heap: list[tuple[R, K]] = []

    def __len__(self) -> int:
        return len(self._ranks)

    def get(self, key: K) -> R | None:
        return self._ranks.get(key)

    def put(self, key: K, rank: R) -> None:
        self._ranks[key] = rank
        heapq.heappush(self._heap, (rank, key))
        if len(self._heap) > 2 * len(self._ranks) + 8:
            self._heap = [(rank, key) for key, rank in self._ranks.items()]
            heapq.heapify(self._heap)

    def remove(self, key: K) -> R:
        return self._ranks.pop(key)

    def lowest(self) -> tuple[R, K] | None:
        heap = self._heap
        while heap:
            rank, key = lowest = heap[0]
            if key in self._ranks and self._ranks[key] == rank:
                return lowest
            heapq.heappop(heap)
        return None

    def first_put(self) -> R | None:
        """The rank of the key that has been here longest."""
        return next(iter(self._ranks.values()), None)


class Schedule(Generic[K]):
    """Which keys wait, since when or until when, and which are being worked on.

    ``now`` never goes back from call to call. Of two ready keys of one priority, the one that
    became ready first is taken first, also if its priority was raised later.
    """

    def __init__(self) -> None:
        self._ready: _Ranking[K, _Ready] = _Ranking()
        self._delayed: _Ranking[K, _Delayed] = _Ranking()
        self._parked: dict[K, _Parked] = {}
        self._working: dict[K, int] = {}
        self._arrivals = count()
        # Not later than the moment of any delayed key: before it, there is nothing to look for.
        self._next_due = math.inf

    @property
    def ready(self) -> int:
        """How many keys could be worked on, as of the last call that was told the time."""
        return len(self._ready)

    @property
    def delayed(self) -> int:
        """How many keys wait for their moment."""
        return len(self._delayed)

    @property
    def parked(self) -> int:
        """How many keys have been added again while they are being worked on."""
        return len(self._parked)

    @property
    def working(self) -> int:
        return len(self._working)

    @property
    def next_due(self) -> float | None:
        """The moment at which the next delayed key becomes ready."""
        lowest = self._delayed.lowest()
        return lowest[0].due if lowest else None

    def oldest_age(self, now: float) -> float:
        """For how long the key that has been ready longest has waited; 0 if none is ready."""
        self.advance(now)
        oldest = self._ready.first_put()
        return now - oldest.since if oldest else 0.0

    def add(self, key: K, *, priority: int, due: float, now: float) -> bool:
        """Have ``key`` worked on from ``due`` on; False if it was waiting already."""
        if now >= self._next_due:
            self.advance(now)
        if key in self._working:
            return self._park(key, priority, due)
        if (ready := self._ready.get(key)) is not None:
            if priority < ready.priority:
                self._ready.put(key, ready._replace(priority=priority))
            return False
        if (delayed := self._delayed.get(key)) is not None:
            if due < delayed.due or priority < delayed.priority:
                self._delayed.remove(key)
                due, priority = min(due, delayed.due), min(priority, delayed.priority)
                self._enqueue(key, priority, due, now)
            return False
        self._enqueue(key, priority, due, now)
        return True

    def take(self, now: float) -> K | None:
        """The key to work on now, if there is one; ``done`` must follow."""
        if now >= self._next_due:
            self.advance(now)
        lowest = self._ready.lowest()
        if lowest is None:
            return None
        rank, key = lowest
        self._ready.remove(key)
        self._working[key] = rank.priority
        return key

    def done(self, key: K, *, now: float, again: float | None = None) -> None:
        """Nobody works on ``key`` any more; from ``again`` on, if given, somebody should."""
        if again is not None:
            self._park(key, self._working[key], again)
        del self._working[key]
        if now >= self._next_due:
            self.advance(now)
        if (parked := self._parked.pop(key, None)) is not None:
            self._enqueue(key, parked.priority, parked.due, now)

    def advance(self, now: float) -> None:
        """Make those ready whose moment has come, in the order of their moments."""
        if now < self._next_due:
            return
        while (lowest := self._delayed.lowest()) is not None and lowest[0].due <= now:
            rank, key = lowest
            self._delayed.remove(key)
            self._ready.put(key, _Ready(rank.priority, next(self._arrivals), rank.due))
        self._next_due = math.inf if lowest is None else lowest[0].due

    def _park(self, key: K, priority: int, due: float) -> bool:
        parked = self._parked.get(key)
        if parked is not None:
            priority, due = min(priority, parked.priority), min(due, parked.due)
        self._parked[key] = _Parked(priority, due)
        return parked is None

    def _enqueue(self, key: K, priority: int, due: float, now: float) -> None:
        arrival = next(self._arrivals)
        if due <= now:
            self._ready.put(key, _Ready(priority, arrival, now))
        else:
            self._delayed.put(key, _Delayed(due, arrival, priority))
            if due < self._next_due:
                self._next_due = due


# The shell


class Done(msgspec.Struct, frozen=True):
    """Nothing to do until somebody adds the key again."""


class Again(msgspec.Struct, frozen=True):
    """Look again after so many seconds; without a number, after the key's backoff."""

    after: float | None = None


Result = Done | Again


class StrayCancellation(Exception):
    """What a handler awaited was cancelled, although nobody cancelled the handler."""


class WorkQueue(Generic[K]):
    """Runs a handler for each key, ``parallel`` of them side by side.

    ``added`` counts keys that came to wait, ``deduplicated`` additions of keys that did already,
    ``failures`` handlers that raised, ``retries`` attempts that were put off by backoff.
    """

    def __init__(
        self,
        name: str,
        *,
        rng: Rng,
        parallel: int,
        first_retry: float = 0.5,
        last_retry: float = 300.0,
        logger: logging.Logger | None = None,
    ) -> None:
        self.name = name
        self.added = 0
        self.deduplicated = 0
        self.retries = 0
        self.failures = 0
        self._parallel = parallel
        self._longest = last_retry
        self._new_backoff = partial(Backoff, base=first_retry, cap=last_retry, rng=rng)
        self._slowest = Backoff(base=last_retry, cap=last_retry, rng=rng)
        self._backoffs: dict[K, Backoff] = {}
        self._schedule: Schedule[K] = Schedule()
        self._tasks: dict[asyncio.Task[Result | Exception], None] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._stopped = False
        self._log = logger or logging.getLogger("backstay.queue")

    @property
    def depth(self) -> int:
        """How many keys wait for a free worker."""
        return self._schedule.ready

    @property
    def delayed(self) -> int:
        """How many keys wait for their moment."""
        return self._schedule.delayed

    @property
    def working(self) -> int:
        return self._schedule.working

    def oldest_age(self, now: float) -> float:
        """For how many seconds the oldest key has waited for a free worker."""
        return self._schedule.oldest_age(now)

    def add(self, key: K, *, after: float = 0.0, priority: int = Priority.NORMAL) -> None:
        """Have ``key`` looked at, now or ``after`` so many seconds."""
        now = asyncio.get_running_loop().time()
        if self._schedule.add(key, priority=priority, due=now + after, now=now):
            self.added += 1
        else:
            self.deduplicated += 1
        self._wake()

    def retry(self, key: K, *, priority: int = Priority.NORMAL) -> None:
        """Have ``key`` looked at after its backoff. A handler returns ``Again()`` instead."""
        now = asyncio.get_running_loop().time()
        self._schedule.add(key, priority=priority, due=now + self._back_off(key), now=now)
        self._wake()

    def forget(self, key: K) -> None:
        """Let the backoff of ``key`` start afresh. A handler that returns does so by itself."""
        self._backoffs.pop(key, None)

    async def run(self, handler: Callable[[K], Awaitable[Result]]) -> None:
        """Work until ``stop``. When cancelled, what was under way waits for the next ``run``."""
        loop = asyncio.get_running_loop()
        try:
            while not self._stopped:
                key = self._take(loop.time())
                if key is None:
                    await self._something_new(loop)
                    continue
                task = loop.create_task(_attempt(handler, key), name=f"{self.name}/{key}")
                self._tasks[task] = None
                # Not in the task itself: one that is cancelled before its first step never
                # runs a line of it, and its key would stay taken for ever.
                task.add_done_callback(partial(self._settle, key))
        except asyncio.CancelledError:
            self._cancel_all()
            raise
        finally:
            self._set_alarm(None, loop)
            await self._join()

    async def stop(self, *, within: float) -> bool:
        """Take no further key, for good, and wait for the handlers under way.

        Those that have not ended ``within`` so many seconds are cancelled, and the answer is
        False. ``run`` returns as soon as the last of them has.
        """
        self._stopped = True
        self._wake()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within)
        in_time = not self._tasks
        self._cancel_all()
        return in_time

    def _cancel_all(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    async def _join(self) -> None:
        """Until no handler is under way; whoever cancels this cancels them."""
        cancelled: asyncio.CancelledError | None = None
        while self._tasks:
            try:
                await asyncio.wait(self._tasks)
            except asyncio.CancelledError as error:
                cancelled = error
                self._cancel_all()
        if cancelled is not None:
            raise cancelled

    def _take(self, now: float) -> K | None:
        if len(self._tasks) < self._parallel:
            return self._schedule.take(now)
        self._schedule.advance(now)  # so that depth tells the truth while all are busy
        return None

    def _something_new(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """An addition, the end of a handler, a moment that comes, or the stop."""
        due = self._schedule.next_due
        # Most of what is new leaves the next moment where it is.
        if self._alarm is None or self._alarm.when() != due:
            self._set_alarm(due, loop)
        self._waiter = loop.create_future()
        return self._waiter

    def _set_alarm(self, due: float | None, loop: asyncio.AbstractEventLoop) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if due is None else loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._wake()

    def _wake(self) -> None:
        """Whoever does not wait will look again before it does."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _settle(self, key: K, task: asyncio.Task[Result | Exception]) -> None:
        try:
            outcome = task.result()
        except BaseException:  # noqa: BLE001 - cancelled, or worse: it has not been worked on
            wait: float | None = 0.0
        else:
            wait = self._wait_after(key, outcome)
        now = task.get_loop().time()
        del self._tasks[task]
        self._schedule.done(key, now=now, again=None if wait is None else now + wait)
        self._wake()

    def _wait_after(self, key: K, outcome: Result | Exception) -> float | None:
        """In how many seconds to look again, if at all."""
        if isinstance(outcome, Exception):
            return self._wait_after_failure(key, outcome)
        wait = outcome.after if isinstance(outcome, Again) else None
        if wait is None and isinstance(outcome, Again):
            return self._back_off(key)
        self.forget(key)
        return wait

    def _wait_after_failure(self, key: K, error: Exception) -> float:
        self.failures += 1
        wait = self._back_off(key)
        if isinstance(error, Terminal | ConfigError) and not isinstance(error, _THE_WORLD_MOVED_ON):
            wait = self._slowest.next()
        if isinstance(error, KubeError):
            wait = max(wait, min(error.retry_after or 0.0, self._longest))
        self._log.warning(
            "%s: %s failed and will be tried again in %.1f s: %s",
            self.name,
            key,
            wait,
            error,
            # An answer of the API speaks for itself; anything else is a fault of ours.
            exc_info=None if isinstance(error, KubeError) else error,
        )
        return wait

    def _back_off(self, key: K) -> float:
        self.retries += 1
        if key not in self._backoffs:
            self._backoffs[key] = self._new_backoff()
        return self._backoffs[key].next()


async def _attempt(handler: Callable[[K], Awaitable[Result]], key: K) -> Result | Exception:
    """The boundary at which a failure becomes a value, so that no handler can end the queue."""
    try:
        return await handler(key)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return StrayCancellation("something that the handler awaited was cancelled")
    except Exception as error:  # noqa: BLE001
        return error
