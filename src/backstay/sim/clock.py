"""LoopClock: a time of day that goes with the loop's time, and can be set like any clock."""

import asyncio
from datetime import UTC, datetime, timedelta


class LoopClock:
    """The time of day is ``start`` when ``loop.time()`` is zero."""

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self.start = start

    def now(self) -> datetime:
        return self.start + timedelta(seconds=asyncio.get_running_loop().time())
