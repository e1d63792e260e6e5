"""WallClock and Rng: the time of day and chance.

Decisions never use the time of day: ages and deadlines are ``loop.time()``, which no person
and no NTP server can turn back. The wall clock serves for what people and other programs read:
timestamps in objects, expiry dates in credentials, lines in a log.
"""

from datetime import datetime
from typing import Protocol


class WallClock(Protocol):
    """The time of day, with its zone (UTC)."""

    def now(self) -> datetime: ...


class Rng(Protocol):
    """Chance, for jitter and for names. Not a source of secrets."""

    def random(self) -> float:
        """From 0 up to, but not including, 1."""
        ...

    def token(self, length: int) -> str:
        """Lower-case letters and digits that are valid in a Kubernetes name."""
        ...
