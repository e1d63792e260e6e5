"""Pulse: does this process still get its turn?

A loop that is held up answers no probe, which a prober sees by itself. What it does not see is
that everything else was late: renewals, looks at leases, decisions. The pulse beats as often as a
leader renews, because what holds up no renewal does no harm, and notes by how much it was late. It
is a timer that sets itself again, and no task that sleeps: little else here is done so often.
"""

import asyncio
import math
from collections import deque

_PERIOD = 2.0
_REMEMBERED = 30


class Pulse:
    """``run`` beats until cancelled."""

    def __init__(self) -> None:
        self._beat_at = -math.inf
        self._late: deque[float] = deque(maxlen=_REMEMBERED)

    @property
    def worst(self) -> float:
        """The longest delay of the last minute, in seconds."""
        return max(self._late, default=0.0)

    def silence(self, now: float) -> float:
        """Seconds since the last beat; infinite if there was none."""
        return now - self._beat_at

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def beat() -> None:
            nonlocal timer
            now = loop.time()
            late = now - self._beat_at - _PERIOD
            self._late.append(late if late > 0.0 else 0.0)
            self._beat_at = now
            timer = loop.call_at(now + _PERIOD, beat)

        self._beat_at = loop.time()
        timer = loop.call_at(self._beat_at + _PERIOD, beat)
        try:
            await loop.create_future()
        finally:
            timer.cancel()
