"""Pulse: does this process still get its turn?

A loop that is held up answers no probe, which a prober sees by itself. What it does not see is
that everything else was late: renewals, looks at leases, decisions. The pulse beats once a second
and notes by how much it was late. It is a timer that sets itself again, and no task that sleeps:
nothing else here is done so often.
"""

import asyncio
import math
from collections import deque

_PERIOD = 1.0
_REMEMBERED = 60


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
            self._late.append(max(0.0, now - self._beat_at - _PERIOD))
            self._beat_at = now
            timer = loop.call_at(now + _PERIOD, beat)

        self._beat_at = loop.time()
        timer = loop.call_at(self._beat_at + _PERIOD, beat)
        try:
            await loop.create_future()
        finally:
            timer.cancel()
