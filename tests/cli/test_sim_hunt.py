"""``backstay sim hunt``: how soon chance catches a deliberate bug."""

import msgspec
from click.testing import CliRunner

from backstay.cli.sim_hunt import command
from backstay.lab.hunt import Hunted
from tests.support.sim_command import backstay_sim

FIRST = 60
"""A seed whose case shows the first of the bugs below; that of the next one does not."""


def test_it_tells_of_each_bug_how_soon_it_was_caught_and_the_exit_code_whether_all_were() -> None:
    bugs = ("silence-is-death", "hears-no-warning")
    case = ("--first", str(FIRST), "--seeds", "1", "--jobs", "2", "--output", "json")
    done = backstay_sim("hunt", "--bugs", ",".join(bugs), *case)
    assert done.returncode == 4, done.stderr
    caught, at_large = msgspec.json.decode(done.stdout, type=list[Hunted])
    assert (caught.bug, caught.seeds) == (bugs[0], 1)
    assert "NoDeleteWithoutEvidence" in caught.broken
    assert at_large == Hunted(bug=bugs[1], first=FIRST, seeds=1)


def test_a_bug_counts_as_caught_that_was_caught_in_most_ranges() -> None:
    case = ("--first", str(FIRST), "--seeds", "1", "--bugs", "silence-is-death")
    one, two = (
        CliRunner().invoke(command, [*case, "--ranges", ranges], standalone_mode=False)
        for ranges in "12"
    )
    assert (one.return_value, two.return_value) == (0, 4)
    assert "1, not in 1" in two.output


def test_an_unknown_bug_is_named() -> None:
    said = CliRunner().invoke(command, ["--bugs", "nonsense"])
    assert said.exit_code != 0
    assert "there is no bug 'nonsense': 'backstay sim bugs' lists them." in said.output
