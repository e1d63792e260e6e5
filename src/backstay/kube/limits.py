"""Limits: how fast we may ask, and how long to wait before asking again.

``TokenBucket`` is the arithmetic. ``RateLimit`` is the line in front of one, on ``loop.time()``:
it is fair (first come, first served), costs nothing while tokens are there, and loses none: a
waiter that is cancelled leaves the line, and a token that had just been handed to it goes to the
next one. A caller whose ``not_after`` cannot be met is told so at once, not after the wait.

``VerbLimits`` keeps reads and writes apart, so that a resync cannot starve a recovery, and never
holds up a lease, because a leader that waits in line for its renewal stops being one.

``Backoff`` is the one way in which Backstay waits between attempts: exponential up to a cap, with
full jitter so that many that failed together do not come back together, and never below a floor,
so that chance alone cannot turn a retry into a busy loop. ``until_answered`` asks in that way for
what has to be known before anything else is done, however long it takes.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from backstay.kube.errors import KubeError, TooLate
from backstay.kube.resource import LEASES, Resource
from backstay.seam.clock import Rng

T = TypeVar("T")


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


async def until_answered(
    ask: Callable[[], Awaitable[T]], *, rng: Rng, tell: Callable[[str], None]
) -> T:
    """What ``ask`` answers, as soon as it does not raise ``KubeError`` any more. ``tell`` is told
    why there is no answer yet, once per sentence, and with an empty one that it waits no longer."""
    backoff, told = Backoff(base=0.5, cap=10.0, rng=rng), ""
    try:
        while True:
            try:
                return await ask()
            except KubeError as error:
                if str(error) != told:
                    told = str(error)
                    tell(told)
            await asyncio.sleep(backoff.next())
    finally:
        if told:
            tell("")


class TokenBucket:
    """``rate`` tokens a second on average, ``burst`` at once after a quiet time.

    It is kept as one moment, the one at which it will be full again. Tokens are then never
    fractions that rounding could keep from ever becoming whole.
    """

    __slots__ = ("_full_at", "_slack", "interval")

    def __init__(self, rate: float, burst: int) -> None:
        if not (rate > 0 and burst >= 1):
            raise ValueError(f"a bucket needs rate > 0 and burst >= 1, not {rate} and {burst}")
        self.interval = 1 / rate
        self._slack = (burst - 1) * self.interval
        self._full_at = -math.inf

    @property
    def next_at(self) -> float:
        """The moment from which a token can be taken."""
        return self._full_at - self._slack

    def take(self, now: float) -> bool:
        """Take one token, if there is one."""
        full_at = self._full_at
        if full_at - self._slack > now:
            return False
        self._full_at = (full_at if full_at > now else now) + self.interval
        return True

    def give_back(self) -> None:
        """Return a token that was taken and not used."""
        self._full_at -= self.interval


class RateLimit:
    """A line of callers in front of a bucket."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate = rate
        self._bucket = TokenBucket(rate, burst)
        self._line: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """How many callers stand in line."""
        return len(self._line)

    def take(self, now: float) -> bool:
        """Take one token, if there is one and nobody stands in line for it."""
        return not self._line and self._bucket.take(now)

    async def acquire(self, *, not_after: float | None = None) -> None:
        """Take one token, waiting for it if need be.

        Raises ``TooLate`` when the token cannot be had by ``not_after`` (``loop.time()``): at
        once where that can be foreseen, and after the wait if this process was held up.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        if not_after is not None and max(now, self._turn_at()) > not_after:
            raise self._too_late()
        if self.take(now):
            return
        await self._stand_in_line(loop)
        if not_after is not None and loop.time() > not_after:
            self._bucket.give_back()
            self._hand_out(loop, loop.time())
            raise self._too_late()

    def _turn_at(self) -> float:
        """When somebody who comes now would get a token."""
        return self._bucket.next_at + len(self._line) * self._bucket.interval

    async def _stand_in_line(self, loop: asyncio.AbstractEventLoop) -> None:
        turn: asyncio.Future[None] = loop.create_future()
        self._line[turn] = None
        if self._timer is None:
            self._arm(loop)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the token was handed over right before the cancellation
                self._bucket.give_back()
            self._line.pop(turn, None)
            self._hand_out(loop, loop.time())
            raise

    def _hand_out(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._line and self._bucket.next_at <= now:
            turn, _ = self._line.popitem(last=False)
            if not turn.cancelled():
                self._bucket.take(now)
                turn.set_result(None)
        if self._line:
            self._arm(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        when = self._bucket.next_at
        # A timer may fire a hair before its moment; the moment itself is what it stands for.
        self._timer = loop.call_at(when, lambda: self._hand_out(loop, max(when, loop.time())))

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

    def admit_at_once(self, method: str, resource: Resource | None, now: float) -> bool:
        """Whether such a request may leave without any wait; if so, it has been counted."""
        return resource == LEASES or (self.reads if method == "GET" else self.writes).take(now)

    async def admit(
        self, method: str, resource: Resource | None, *, not_after: float | None = None
    ) -> None:
        """Return when a request of this HTTP method may leave. Raises ``TooLate``."""
        if resource == LEASES:
            return
        await (self.reads if method == "GET" else self.writes).acquire(not_after=not_after)
