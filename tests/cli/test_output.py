"""Tables fit the terminal and lose nothing."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.cli.output import columns, show

words = st.text("abcdefgh", min_size=1, max_size=12)


@given(
    rows=st.lists(st.tuples(words, words, st.lists(words, max_size=12).map(" ".join)), max_size=6),
    width=st.integers(60, 120),
)
def test_no_line_is_wider_than_the_terminal_and_no_word_is_lost(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    text = columns(("A", "B", "DETAIL"), rows, width=width)
    assert max(len(line) for line in text.split("\n")) <= width
    assert text.split() == " ".join(" ".join(row) for row in [("A", "B", "DETAIL"), *rows]).split()


def test_a_wrapped_cell_continues_under_itself() -> None:
    text = columns(("CHECK", "DETAIL"), [("nodes", "one two three four five six")], width=30)
    first, *rest = text.split("\n")[1:]
    assert first.startswith("nodes   one")
    assert rest
    assert all(line.startswith(" " * 8) and line[8] != " " for line in rest)


class Thing(msgspec.Struct):
    name: str
    count: int


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_programs_get_the_data_and_not_the_table(
    capsys: pytest.CaptureFixture[str], output: str
) -> None:
    show([Thing("a", 1)], output=output, table=lambda: pytest.fail("nobody asked for a table"))
    said = capsys.readouterr().out
    if output == "json":
        assert json.loads(said) == [{"name": "a", "count": 1}]
    else:
        assert said == "- name: a\n  count: 1\n"
