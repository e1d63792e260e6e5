"""What was done of late: how often a workload was moved, and how much in the last minute."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from backstay.apis.backstay import IncidentRow, IncidentSpec
from backstay.control.history import History
from backstay.model.incident import IncidentStatus, Progress, WorkloadRecord
from tests.support.virtual import virtual_time

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOUR = 3600.0
TILL = "VirtualMachine/shop/till"
NOWHERE = ("", "")


@dataclass
class Watch:
    """A clock that is set by hand."""

    time: datetime = NOON

    def now(self) -> datetime:
        return self.time


def incident(
    boot: str,
    *,
    opened: str | datetime = NOON,
    progress: Progress = Progress.RECOVERED,
    node: str = "n1",
    closed: str = "",
) -> IncidentRow:
    """One in which the VM came so far."""
    record = WorkloadRecord(TILL, progress, "", "")
    at = opened if isinstance(opened, str) else opened.isoformat()
    status = IncidentStatus(opened_at=at, closed_at=closed, workloads=(record,))
    return IncidentRow(f"{node}-{boot}", "", "", IncidentSpec(node, f"uid-{node}", boot), status)


def attempts(history: History, *, apart_from: tuple[str, str] = NOWHERE) -> int:
    return history.attempts([TILL], within=HOUR, apart_from=apart_from).get(TILL, 0)


def test_every_boot_from_which_it_was_moved_is_an_attempt() -> None:
    history = History(Watch())
    history.read([incident("b1"), incident("b2"), incident("b1", node="n2")])
    assert attempts(history) == 3


def test_an_incident_that_is_read_again_is_no_further_attempt() -> None:
    history = History(Watch())
    history.read([incident("b1", progress=Progress.RELEASED)])
    history.read([incident("b1", closed=NOON.isoformat())])
    assert attempts(history) == 1


@pytest.mark.parametrize("progress", Progress)
def test_only_what_was_taken_from_its_node_has_been_moved(progress: Progress) -> None:
    history = History(Watch())
    history.read([incident("b1", progress=progress)])
    moved = {Progress.RELEASED, Progress.RECOVERED, Progress.STAYS_DOWN}
    assert attempts(history) == (progress in moved)


def test_the_boot_that_it_is_on_now_is_not_held_against_it() -> None:
    """What was begun there is to be finished, also by another leader."""
    history = History(Watch())
    history.read([incident("b1"), incident("b2")])
    assert attempts(history, apart_from=("uid-n1", "b2")) == 1


def test_an_attempt_grows_old() -> None:
    watch = Watch()
    history = History(watch)
    history.read([incident("b1"), incident("b2", opened=NOON + timedelta(minutes=30))])
    watch.time = NOON + timedelta(minutes=61)
    assert attempts(history) == 1
    watch.time = NOON + timedelta(minutes=91)
    assert attempts(history) == 0


def test_a_new_leader_learns_of_every_attempt_from_the_incidents() -> None:
    rows = [incident("b1", closed=NOON.isoformat()), incident("b2")]
    before, after = History(Watch()), History(Watch(NOON + timedelta(minutes=5)))
    before.read(rows)
    after.read(rows)
    assert attempts(before) == attempts(after) == 2


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_clock_that_was_wrong_only_shifts_when_an_attempt_is_forgotten(hours: int) -> None:
    """Written by one that was ahead it is remembered for longer; by one that was behind it is
    forgotten, and the next incident is counted as ever."""
    watch = Watch()
    history = History(watch)
    history.read([incident("b1", opened=NOON + timedelta(hours=hours)), incident("b2")])
    assert attempts(history) == (2 if hours > 0 else 1)
    watch.time = NOON + timedelta(hours=max(hours, 0) + 1, seconds=1)
    assert attempts(history) == 0


@pytest.mark.parametrize("opened", ["", "yesterday", "12:00", "2026-13-01T00:00:00Z"])
def test_an_incident_that_does_not_say_when_it_began_is_left_out(opened: str) -> None:
    history = History(Watch())
    history.read([incident("b1", opened=opened), incident("b2")])
    assert attempts(history) == 1


def test_a_time_without_a_zone_is_taken_for_universal_time() -> None:
    history = History(Watch())
    history.read([incident("b1", opened="2026-03-01T11:30:00")])
    assert attempts(history) == 1


@virtual_time
async def test_what_was_released_counts_for_a_minute() -> None:
    history = History(Watch())
    history.released(2)
    await asyncio.sleep(40)
    history.released(3)
    assert history.released_lately() == 5
    await asyncio.sleep(21)
    assert history.released_lately() == 3
    await asyncio.sleep(40)
    assert history.released_lately() == 0
