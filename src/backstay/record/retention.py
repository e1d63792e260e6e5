"""Retention: which incidents that are over are kept, and of which the decisions as well.

* An incident that is open stays.
* The newest hundred stay, however old they are: on a quiet cluster that is years.
* Beyond these stays what ended in the last thirty days, so that a bad month can be looked at as a
  whole; but no more than five hundred in all, so that a node which comes and goes does not fill
  the cluster's store. They are some ten KB each, and never more than 400.
* The one with the highest epoch stays: whoever leads next begins above all that was recorded.
* Decisions (``blackbox``) are larger and less asked for: those of the open incidents and of the
  newest fifty.

The times of day are what other controllers wrote, on other machines. A clock that is wrong makes
this keep too much or too little of what is old, and never touches the newest hundred.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from backstay.apis.backstay import IncidentRow
from backstay.model.moments import moment_of

NEWEST = 100
AGE = timedelta(days=30)
MOST = 500
BOXES = 50

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def expendable(rows: Collection[IncidentRow], now: datetime) -> list[IncidentRow]:
    """Those that can go, the oldest first."""
    newest = _newest_first(rows)
    highest = max((_epoch(row) for row in rows), default=0)
    keepers = [row for row in newest if highest and _epoch(row) == highest][:1]
    old = [
        row
        for place, row in enumerate(newest)
        if place >= MOST or (place >= NEWEST and now - _ended(row) > AGE)
    ]
    return [row for row in reversed(old) if row not in keepers]


def with_decisions(rows: Collection[IncidentRow]) -> set[str]:
    """The incidents whose decisions are kept, by name."""
    return {row.key for row in (*filter(_is_open, rows), *_newest_first(rows)[:BOXES])}


def _newest_first(rows: Collection[IncidentRow]) -> Sequence[IncidentRow]:
    over = (row for row in rows if not row.open)
    return sorted(over, key=lambda row: (_ended(row), row.key), reverse=True)


def _is_open(row: IncidentRow) -> bool:
    return row.open


def _epoch(row: IncidentRow) -> int:
    intent = row.status.intent
    return max(row.status.epoch, intent.epoch if intent else 0)


def _ended(row: IncidentRow) -> datetime:
    """What has no time that can be read is old."""
    return moment_of(row.status.closed_at) or _LONG_AGO
