"""Limits: how fast we may ask, and how long to wait before asking again.

``RateLimit`` is a token bucket on ``loop.time()``. It is fair (first come, first served), costs
nothing while tokens are there, and loses none: a waiter that is cancelled leaves the line, and a
token that had just been handed to it goes to the next one. A caller whose ``not_after`` cannot be
met is told so at once, not after the wait.

``VerbLimits`` keeps reads and writes apart, so that a resync cannot starve a recovery, and never
holds up a lease, because a leader that waits in line for its renewal stops being one.

``Backoff`` is the one way in which Backstay waits between attempts: exponential up to a cap, with
full jitter so that many that failed together do not come back together, and never below a floor,
so that chance alone cannot turn a retry into a busy loop.
"""

import asyncio
import math
from collections import OrderedDict
from dataclasses import dataclass

from backstay.kube.errors import TooLate
from backstay.kube.resource import LEASES, Resource
from backstay.seam.clock import Rng


class Backoff:
    """The waits of one thing that fails repeatedly; ``reset`` once it has succeeded.

    The n-th wait is drawn from ``[floor, min(cap, base * factor ** n)]``; the floor is half of
    ``base``.
    """

    __slots__ = ("_base", "_cap", "_ceiling", "_factor", "_rng", "attempts", "floor")

    def __init__(self, *, base: float, cap: float, factor: float = 2.0, rng: Rng) -> None:
        if not (0 < base <= cap and factor >= 1):
            raise ValueError(
                f"a backoff needs 0 < base <= cap and factor >= 1, not {base}, {cap} and {factor}"
            )
        self._base = base
        self._cap = cap
        self._factor = factor
        self._rng = rng
        self._ceiling = base
        self.floor = base / 2
        self.attempts = 0

    def next(self) -> float:
        """How many seconds to wait now; each call counts as one failed attempt."""
        wait = self.floor + self._rng.random() * (self._ceiling - self.floor)
        # Multiplied step by step, because a power overflows where this stays at the cap.
        self._ceiling = min(self._cap, self._ceiling * self._factor)
        self.attempts += 1
        return wait

    def reset(self) -> None:
        """The attempt succeeded: the next failure starts from the base again."""
        self._ceiling = self._base
        self.attempts = 0


class RateLimit:
    """``rate`` tokens a second on average, ``burst`` at once after a quiet time.

    The bucket is kept as one moment, the one at which it will be full again. Tokens are then
    never fractions that rounding could keep from ever becoming whole.
    """

    def __init__(self, rate: float, burst: int) -> None:
        if not (rate > 0 and burst >= 1):
            raise ValueError(f"a rate limit needs rate > 0 and burst >= 1, not {rate} and {burst}")
        self.rate = rate
        self.burst = burst
        self._interval = 1 / rate
        self._full_at = -math.inf
        self._line: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """How many callers stand in line."""
        return len(self._line)

    async def acquire(self, *, not_after: float | None = None) -> None:
        """Take one token, waiting for it if need be.

        Raises ``TooLate`` when the token cannot be had by ``not_after`` (``loop.time()``): at
        once where that can be foreseen, and after the wait if this process was held up.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        ready = max(now, self._next_token_at() + len(self._line) * self._interval)
        if not_after is not None and ready > not_after:
            raise self._too_late()
        if ready <= now and not self._line:
            self._take(now)
            return
        await self._stand_in_line(loop)
        if not_after is not None and loop.time() > not_after:
            self._full_at -= self._interval
            self._hand_out(loop, loop.time())
            raise self._too_late()

    async def _stand_in_line(self, loop: asyncio.AbstractEventLoop) -> None:
        turn: asyncio.Future[None] = loop.create_future()
        self._line[turn] = None
        if self._timer is None:
            self._arm(loop)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the token was handed over right before the cancellation
                self._full_at -= self._interval
            self._line.pop(turn, None)
            self._hand_out(loop, loop.time())
            raise

    def _next_token_at(self) -> float:
        return self._full_at - (self.burst - 1) * self._interval

    def _take(self, now: float) -> None:
        self._full_at = max(self._full_at, now) + self._interval

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        when = self._next_token_at()
        # A timer may fire a hair before its moment; the moment itself is what it stands for.
        self._timer = loop.call_at(when, lambda: self._hand_out(loop, max(when, loop.time())))

    def _hand_out(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._line and self._next_token_at() <= now:
            turn, _ = self._line.popitem(last=False)
            if not turn.cancelled():
                self._take(now)
                turn.set_result(None)
        if self._line:
            self._arm(loop)

    def _too_late(self) -> TooLate:
        return TooLate(
            f"The limit of {self.rate:g} requests per second leaves no room for this call "
            "before the moment until which it is allowed."
        )


@dataclass(frozen=True)
class VerbLimits:
    """The buckets of one client: reads and writes apart, leases in neither."""

    reads: RateLimit
    writes: RateLimit

    async def admit(
        self, method: str, resource: Resource | None, *, not_after: float | None = None
    ) -> None:
        """Return when a request of this HTTP method may leave. Raises ``TooLate``."""
        if resource == LEASES:
            return
        bucket = self.reads if method in ("GET", "HEAD") else self.writes
        await bucket.acquire(not_after=not_after)
