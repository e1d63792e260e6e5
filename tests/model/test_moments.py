"""The time of day, as it stands in objects."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from backstay.model.moments import moment_of, time_text

NOON = datetime(2026, 11, 16, 12, 0, 5, tzinfo=UTC)


def test_what_is_written_can_be_read() -> None:
    assert time_text(NOON) == "2026-11-16T12:00:05Z"
    assert moment_of(time_text(NOON)) == NOON


def test_another_zone_is_the_same_moment() -> None:
    assert moment_of("2026-11-16T13:00:05+01:00") == NOON.astimezone(timezone(timedelta(hours=1)))


def test_one_without_a_zone_is_ours() -> None:
    assert moment_of("2026-11-16T12:00:05") == NOON


@pytest.mark.parametrize("text", ["", "soon", "2026-13-45T00:00:00Z"])
def test_what_is_no_time_of_day_is_none(text: str) -> None:
    assert moment_of(text) is None
