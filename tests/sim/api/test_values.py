"""Quantities and times: in which form they are kept, and what is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.sim.api import values


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("0", "0"),
        ("0Mi", "0"),
        ("100m", "100m"),
        ("1000m", "1"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("+5", "5"),
        ("1.", "1"),
        (2, "2"),
        (0.25, "250m"),
        ("1500", "1500"),
        ("15000", "15k"),
        ("1000k", "1M"),
        ("1024", "1024"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("1e3", "1e3"),
        ("12e4", "120e3"),
        ("0.0000000001", "1n"),
        ("-1500m", "-1500m"),
    ],
)
def test_a_quantity_is_kept_in_its_usual_form(sent: str | float, kept: str) -> None:
    assert values.quantity(sent) == kept


@given(st.integers(0, 10**15), st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "Gi"]))
def test_the_usual_form_is_its_own_usual_form(number: int, suffix: str) -> None:
    kept = values.quantity(f"{number}{suffix}")
    assert values.quantity(kept) == kept


@pytest.mark.parametrize("sent", ["lots", "", "1 Gi", "1..2", "Gi", True, None])
def test_what_is_no_quantity_is_refused(sent: object) -> None:
    with pytest.raises(values.Unreadable, match="quantities must match"):
        values.quantity(sent)


def test_a_suffix_that_nobody_knows_is_refused() -> None:
    with pytest.raises(values.Unreadable, match="unable to parse quantity's suffix"):
        values.quantity("1KK")


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05Z"),
        ("2026-01-31T03:04:05Z", "2026-01-31T03:04:05Z"),
    ],
)
def test_a_time_is_kept_in_utc_and_whole_seconds(sent: str, kept: str) -> None:
    assert values.time(sent) == kept


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ("now", 'cannot parse "now" as "2006"'),
        ("2026-01-02", 'cannot parse "" as "T"'),
        ("2026-01-02T03:04:05", 'cannot parse "" as "Z07:00"'),
        ("2026-13-02T03:04:05Z", "month out of range"),
        ("2026-02-30T03:04:05Z", "day out of range"),
        ("2026-02-03T25:04:05Z", "hour out of range"),
        ("2026-02-03T03:04:05Zz", 'extra text: "z"'),
    ],
)
def test_what_is_no_time_is_refused(sent: str, why: str) -> None:
    with pytest.raises(values.Unreadable) as refused:
        values.time(sent)
    assert str(refused.value).endswith(why)
