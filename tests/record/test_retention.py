"""Which incidents are kept."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from backstay.apis.backstay import IncidentRow, IncidentSpec
from backstay.model.incident import IncidentStatus, Intent, Step
from backstay.model.moments import time_text
from backstay.record.retention import AGE, BOXES, MOST, NEWEST, expendable, with_decisions

NOW = datetime(2030, 6, 1, tzinfo=UTC)
SPEC = IncidentSpec("n1", "u", "b")


def over(name: str, *, days: float, epoch: int = 1) -> IncidentRow:
    closed = time_text(NOW - timedelta(days=days))
    return IncidentRow(name, "uid", "1", SPEC, IncidentStatus(closed_at=closed, epoch=epoch))


def still_open(name: str) -> IncidentRow:
    return IncidentRow(name, "uid", "1", SPEC, IncidentStatus(opened_at="2020-01-01T00:00:00Z"))


def daily(count: int, *, days_apart: float = 1.0) -> list[IncidentRow]:
    """From today backwards; the higher the number, the older."""
    return [over(f"n-{n:04}", days=n * days_apart) for n in range(count)]


def names(rows: Sequence[IncidentRow]) -> list[str]:
    return [row.key for row in rows]


def test_a_quiet_cluster_keeps_its_newest_hundred_however_old() -> None:
    assert expendable(daily(NEWEST, days_apart=30.0), NOW) == []


def test_beyond_a_hundred_what_ended_a_month_ago_goes_and_the_oldest_first() -> None:
    rows = [*daily(NEWEST, days_apart=0.01), over("young", days=29), over("a", days=31)]
    rows.append(over("older", days=400))
    assert names(expendable(rows, NOW)) == ["older", "a"]


def test_more_than_five_hundred_are_too_many_however_young() -> None:
    rows = daily(MOST + 3, days_apart=0.001)
    assert names(expendable(rows, NOW)) == ["n-0502", "n-0501", "n-0500"]


def test_an_open_incident_stays_and_takes_no_place_of_another() -> None:
    rows = [*daily(NEWEST), *(still_open(f"open-{n}") for n in range(NEWEST))]
    assert expendable(rows, NOW) == []


def test_the_one_with_the_highest_epoch_stays() -> None:
    rows = [*daily(NEWEST), over("high", days=300, epoch=9), over("low", days=200, epoch=8)]
    assert names(expendable(rows, NOW)) == ["low"]


def test_the_epoch_of_an_intent_counts_too() -> None:
    high = over("high", days=300)
    intent = Intent(Step.BARRIER, 9, (), "")
    status = msgspec.structs.replace(high.status, intent=intent)
    rows = [*daily(NEWEST), msgspec.structs.replace(high, status=status)]
    assert expendable(rows, NOW) == []


def test_what_has_no_time_that_can_be_read_is_old() -> None:
    strange = msgspec.structs.replace(over("x", days=0), status=IncidentStatus(closed_at="?"))
    bare = IncidentStatus(closed_at=(NOW - AGE * 2).strftime("%Y-%m-%dT%H:%M:%S"))
    rows = [*daily(NEWEST, days_apart=0.01), strange]
    rows.append(msgspec.structs.replace(strange, key="y", status=bare))
    assert sorted(names(expendable(rows, NOW))) == ["x", "y"]


def test_decisions_are_kept_of_open_incidents_and_of_the_newest() -> None:
    rows = [*daily(BOXES + 5), still_open("open")]
    assert with_decisions(rows) == {"open", *names(rows[:BOXES])}
