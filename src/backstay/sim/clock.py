"""Clocks of a simulated machine: ``Oscillator``, which ``loop.time()`` is read from, and
``LoopClock``, the time of day.

No two machines agree on either. Monotonic clocks were started at different moments and drift;
the time of day goes with its machine's monotonic clock, and can be set by anybody.
"""

import asyncio
import math
from datetime import UTC, datetime, timedelta


class Oscillator:
    """A monotonic clock: ``ahead`` seconds when the world begins, ``rate`` seconds a second. It
    showed ``read_then`` at the moment ``since``."""

    def __init__(self, *, ahead: float = 0.0, rate: float = 1.0) -> None:
        self.since = 0.0
        self.read_then = ahead
        self.rate = _checked(rate)

    @property
    def shows_true_time(self) -> bool:
        return self.since == self.read_then == 0.0 and self.rate == 1.0

    def read(self, moment: float) -> float:
        """What it shows at that moment of true time."""
        return self.read_then + (moment - self.since) * self.rate

    def moment(self, reading: float) -> float:
        """When it shows ``reading``; never a moment at which it does not show it yet, because
        whoever wakes up to see that it is still too early would try for ever."""
        moment = self.since + (reading - self.read_then) / self.rate
        while self.read_then + (moment - self.since) * self.rate < reading:
            moment += max(math.ulp(moment), math.ulp(reading) / self.rate)
        return moment

    def drift(self, rate: float, *, now: float) -> None:
        """Go at this rate from ``now`` on. Timers have to be set again: see ``VirtualLoop``."""
        self.read_then, self.since = self.read(now), now
        self.rate = _checked(rate)


class LoopClock:
    """The time of day is ``start`` when ``loop.time()`` is zero."""

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self.start = start

    def now(self) -> datetime:
        return self.start + timedelta(seconds=asyncio.get_running_loop().time())

    def step(self, seconds: float) -> None:
        """As a person or an NTP server does, in either direction."""
        self.start += timedelta(seconds=seconds)


def _checked(rate: float) -> float:
    if not 0.0 < rate < math.inf:
        raise ValueError(f"a clock cannot go at {rate:g} seconds a second")
    return rate
