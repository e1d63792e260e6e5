"""Moments: the time of day as it stands in objects, for people and for what is to end some day.

Whether something is alive or late is never read off a time of day: nobody's clock is believed.
What people have set an end to goes by several clocks at once (``Now``), because anybody can set
one of them, and nobody has meant that by it.
"""

from datetime import UTC, datetime
from typing import Self

import msgspec


class Now(msgspec.Struct, frozen=True):
    """How late it is by the clocks that can be asked: by none of them before ``earliest``, nor
    after ``latest``."""

    earliest: datetime
    latest: datetime

    @classmethod
    def by(cls, ours: datetime, *others: datetime | None) -> Self:
        """A clock that cannot be asked is None."""
        told = (ours, *(each for each in others if each is not None))
        return cls(min(told), max(told))


def moment_of(text: str) -> datetime | None:
    """None for what is no time of day; one without a zone is taken for ours, UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def time_text(at: datetime) -> str:
    """As it is written."""
    return at.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
