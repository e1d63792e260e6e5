"""The catalogue of reasons and its page."""

import re
from pathlib import Path

from backstay.record.reasons_page import CATALOGUES, groups, page

ROOT = Path(__file__).parents[2]
EVERY = [reason for catalogue in CATALOGUES for reason in catalogue]


def test_the_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "reasons.md").read_text()
    assert written == page(), "run: python -m backstay.record.reasons_page > docs/reasons.md"


def test_every_reason_has_a_section_in_some_group() -> None:
    listed = [reason for reasons in groups().values() for reason in reasons]
    assert listed == EVERY
    assert all(groups())


def test_a_reason_is_a_code_and_a_whole_sentence() -> None:
    for reason in EVERY:
        entry = reason.entry
        assert re.fullmatch(r"[A-Z][a-zA-Z]+", reason.name)
        assert entry.sentence.endswith(".")
        assert entry.meaning.endswith(".")
        assert not entry.next.endswith(".")


def test_no_two_reasons_share_a_code() -> None:
    assert len({reason.name for reason in EVERY}) == len(EVERY)
