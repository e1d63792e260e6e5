"""The catalogue of reasons and its page."""

import re
from pathlib import Path

from backstay.model.reasons import Reason
from backstay.record.reasons_page import groups, page

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "reasons.md").read_text()
    assert written == page(), "run: python -m backstay.record.reasons_page > docs/reasons.md"


def test_every_reason_has_a_section_in_some_group() -> None:
    listed = [reason for reasons in groups().values() for reason in reasons]
    assert listed == list(Reason)
    assert all(groups())


def test_a_reason_is_a_code_and_a_whole_sentence() -> None:
    for reason in Reason:
        entry = reason.value
        assert re.fullmatch(r"[A-Z][a-zA-Z]+", reason.name)
        assert entry.sentence.endswith(".")
        assert entry.meaning.endswith(".")
        assert not entry.next.endswith(".")
