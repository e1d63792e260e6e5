"""Pulse: does this process still get its turn?

A loop that is held up answers no probe, which a prober sees by itself. What it does not see is
that everything else was late: renewals, looks at leases, decisions. The pulse beats once a second
and notes by how much it was late.
"""

import asyncio
import math

_PERIOD = 1.0
_REMEMBERED = 60


class Pulse:
    """``run`` beats until cancelled."""

    def __init__(self) -> None:
        self._beat_at = -math.inf
        self._late: list[float] = []

    @property
    def worst(self) -> float:
        """The longest delay of the last minute, in seconds."""
        return max(self._late, default=0.0)

    def silence(self, now: float) -> float:
        """Seconds since the last beat; infinite if there was none."""
        return now - self._beat_at

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._beat_at = loop.time()
        while True:
            await asyncio.sleep(_PERIOD)
            late = loop.time() - self._beat_at - _PERIOD
            self._late = [*self._late[1 - _REMEMBERED :], max(0.0, late)]
            self._beat_at = loop.time()
