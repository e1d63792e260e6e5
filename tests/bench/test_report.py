"""The table and the file."""

from pathlib import Path

import pytest

from bench import report
from bench.report import Result
from bench.rows import ROWS

PAGE = "before\n<!-- results: python -m bench.report -->\nold\n<!-- end of results -->\nafter\n"


def result(name: str = "cli.help_ms", ours: float = 50.0, peer: float = 200.0) -> Result:
    return Result.of(name, (ours, peer), peer_name="somebody", unit="ms")


def test_the_ratio_is_ours_by_the_peers() -> None:
    assert result(ours=50, peer=200).ratio == 0.25


def test_two_zeros_are_equal() -> None:
    assert result(ours=0, peer=0).ratio == 1


def test_figures_claim_no_more_than_four_digits() -> None:
    assert result(ours=123.456789, peer=3).ours == 123.5


def test_the_whole_table_fits_a_terminal_of_100_columns() -> None:
    figures = (123_456.0, 0.01234)
    results = [
        Result.of(row.name, figures, peer_name=row.peer.label, unit=row.unit) for row in ROWS
    ]

    assert max(map(len, report.table(results).splitlines())) <= 100


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    report.write(path, [result("a"), result("b")])

    assert report.read(path) == [result("a"), result("b")]


def test_rows_that_were_not_measured_again_stay() -> None:
    merged = report.merged([result("a"), result("b", ours=1)], [result("b", ours=2)])

    assert merged == {"a": result("a"), "b": result("b", ours=2)}


def test_the_docs_get_the_table_between_their_markers() -> None:
    page = report.inserted(PAGE, [result()])

    assert page.startswith("before\n<!-- results")
    assert page.endswith("<!-- end of results -->\nafter\n")
    assert "| cli.help_ms | 50 | 200 | 0.25 | ms | somebody |" in page
    assert "old" not in page


def test_inserting_twice_changes_nothing() -> None:
    once = report.inserted(PAGE, [result()])

    assert report.inserted(once, [result()]) == once


def test_a_page_without_markers_is_left_alone() -> None:
    with pytest.raises(ValueError, match="no lines"):
        report.inserted("a page about something else\n", [result()])
