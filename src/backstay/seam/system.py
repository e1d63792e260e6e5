"""The machine's clocks and dice.

``SuspendAwareLoop`` belongs here because ``loop.time()`` is Backstay's monotonic clock. The
clock that asyncio uses stands still while the machine is suspended, so a lease that expired in
the meantime would look fresh on waking. This loop's clock goes on counting.
"""

import asyncio
import random
import string
import time
from datetime import UTC, datetime

_NAME_CHARACTERS = string.ascii_lowercase + string.digits


def boot_time() -> float:
    """Seconds since the machine started, including those it was suspended for."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SuspendAwareLoop(asyncio.SelectorEventLoop):
    """The event loop for programs that hold leases: time slept through has passed."""

    def time(self) -> float:
        return boot_time()


class SystemClock:
    """The machine's time of day."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class SystemRng:
    """Chance from the machine, or the same chance again for the same ``seed``."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)  # noqa: S311 - jitter and names are no secrets

    def random(self) -> float:
        return self._random.random()

    def token(self, length: int) -> str:
        return "".join(self._random.choices(_NAME_CHARACTERS, k=length))
