"""Moments: the time of day as it stands in objects, for people and for what is to end some day.

Whether something is alive or late is never read off a time of day: nobody's clock is believed.
"""

from datetime import UTC, datetime


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
