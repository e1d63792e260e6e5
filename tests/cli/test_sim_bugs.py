"""``backstay sim bugs``, and the page that speaks of the same bugs."""

from pathlib import Path

import msgspec

from backstay.cli.sim_bugs import Listed
from backstay.lab.bugs import BUGS
from backstay.lab.invariants import INVARIANTS
from backstay.lab.liveness import PROMISES
from tests.cli.test_main import backstay

SAFETY = Path(__file__).parents[2] / "docs" / "safety.md"


def test_programs_are_told_what_each_bug_takes_away_and_what_catches_it() -> None:
    said = backstay("sim", "bugs", "--output", "json")
    assert said.returncode == 0
    listed = msgspec.json.decode(said.stdout, type=list[Listed])
    assert [each.name for each in listed] == [bug.name for bug in BUGS]
    assert all(each.guard and each.invariant and each.case for each in listed)


def test_people_are_told_in_a_sentence() -> None:
    said = backstay("sim", "bugs")
    assert said.returncode == 0
    assert "silence-is-death" in said.stdout
    assert "Silence counts as death." in said.stdout


def test_what_a_bug_takes_away_is_in_the_shipped_code() -> None:
    source = Path(__file__).parents[2] / "src" / "backstay"
    for bug in BUGS:
        file, _, part = bug.guard.partition(": ")
        text = (source / file).read_text()
        assert f"def {part.rpartition('.')[2]}(" in text, bug.guard


def test_the_safety_page_names_every_invariant_and_only_bugs_that_there_are() -> None:
    page = SAFETY.read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`" in line]
    for invariant in [*(each.name for each in INVARIANTS), *PROMISES.values()]:
        assert any(row.startswith(f"| {invariant} (") for row in rows), invariant
    table = page[page.index("| invariant |") :].split("\n\n")[0]
    named = {word.strip("`,") for word in table.split() if word.startswith("`")}
    assert named <= {bug.name for bug in BUGS}
