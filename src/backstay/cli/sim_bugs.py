"""``backstay sim bugs``: the deliberate bugs, and what catches each.

``backstay sim fuzz --bug NAME`` plays disasters against a controller that has one of them.
"""

import click
import msgspec

from backstay.cli.output import columns, output_option, show
from backstay.lab.bug import Bug
from backstay.lab.bugs import BUGS


class Listed(msgspec.Struct, frozen=True):
    """``guard`` is what the bug takes away, ``invariant`` what catches it in its ``case``."""

    name: str
    sentence: str
    guard: str
    invariant: tuple[str, ...]
    case: str


@click.command(name="bugs")
@output_option
def command(output: str) -> None:
    """List the deliberate bugs: what each takes away, and the invariants that catch it."""
    listed = [_listed(bug) for bug in BUGS]
    show(listed, output=output, table=lambda: _table(listed))


def _listed(bug: Bug) -> Listed:
    return Listed(bug.name, bug.sentence, bug.guard, tuple(sorted(bug.caught_by)), bug.case.name)


def _table(listed: list[Listed]) -> str:
    rows = [(each.name, f"{each.sentence} Caught by {_both(each.invariant)}.") for each in listed]
    return columns(("BUG", "WHAT IT DOES"), rows)


def _both(names: tuple[str, ...]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
