"""``backstay sim hunt``: after how many cases of chance each deliberate bug is caught.

Cases that were tuned on some seeds say little about others. So a hunt can go through several ranges
of seeds, each from its own beginning, and a bug counts as caught if it was in most of them.

With ``--jobs`` it starts others like itself and hands each one bug at a time.
"""

import sys
from collections.abc import Sequence

import click

from backstay.cli.ending import end_as_after_ctrl_c, ended_by_signals
from backstay.cli.output import columns, output_option, show
from backstay.cli.sim import EXIT_BROKEN
from backstay.cli.sim_elsewhere import elsewhere
from backstay.lab.bugs import BUGS
from backstay.lab.hunt import Hunted, hunt
from backstay.seam.real import open_seams, run
from backstay.seam.tasks import side_by_side

_ONE_BUG_SECONDS = 3600.0


@click.command(name="hunt")
@click.option("--bugs", metavar="NAME,...", default="", help="Of 'backstay sim bugs', or all.")
@click.option("--seeds", metavar="N", type=click.IntRange(1), default=200, show_default=True)
@click.option("--first", metavar="SEED", type=click.IntRange(0), default=1, show_default=True)
@click.option(
    "--ranges",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Hunt in so many ranges of seeds, one after the other.",
)
@click.option(
    "--jobs", metavar="N", type=click.IntRange(1, 64), default=1, help="Processes (default: 1)."
)
@output_option
def command(bugs: str, seeds: int, first: int, ranges: int, jobs: int, output: str) -> int:
    """Play cases of chance against each deliberate bug until it is caught, and tell how soon.

    Exit code 4 when one was not caught in most of the ranges.
    """
    wanted = _wanted(bugs)
    end_as_after_ctrl_c()
    beginnings = range(first, first + ranges * seeds, seeds)
    if jobs == 1:
        found = [
            _told(hunt(bug, range(beginning, beginning + seeds)))
            for bug in wanted
            for beginning in beginnings
        ]
    else:
        options = ("--seeds", str(seeds), "--first", str(first), "--ranges", str(ranges))
        found = run(_shared_out(wanted, options, jobs))
    show(found, output=output, table=lambda: _table(found))
    return 0 if all(_is_caught(each) for each in _by_bug(found).values()) else EXIT_BROKEN


def _wanted(bugs: str) -> list[str]:
    known = [bug.name for bug in BUGS]
    wanted = [name.strip() for name in bugs.split(",") if name.strip()] or known
    for name in wanted:
        if name not in known:
            raise click.UsageError(f"there is no bug {name!r}: 'backstay sim bugs' lists them.")
    return wanted


async def _shared_out(wanted: Sequence[str], options: Sequence[str], jobs: int) -> list[Hunted]:
    async with open_seams() as seams:

        async def one(bug: str) -> list[Hunted]:
            found = await elsewhere(
                seams.exec, "hunt", "--bugs", bug, *options,
                kind=list[Hunted],
                undone=f"The hunt for {bug} did not come to its end",
                timeout=_ONE_BUG_SECONDS,
            )  # fmt: skip
            return [_told(each) for each in found]

        with ended_by_signals():
            found = await side_by_side(wanted, one, at_once=jobs)
    return [each for hunts in found for each in hunts]


def _by_bug(found: Sequence[Hunted]) -> dict[str, list[Hunted]]:
    by_bug: dict[str, list[Hunted]] = {}
    for each in found:
        by_bug.setdefault(each.bug, []).append(each)
    return by_bug


def _is_caught(hunts: Sequence[Hunted]) -> bool:
    return 2 * sum(bool(each.broken) for each in hunts) > len(hunts)


# For people


def _told(hunted: Hunted) -> Hunted:
    """Tells somebody who waits."""
    if sys.stderr.isatty():
        click.echo(f"{hunted.bug}: {_how_soon(hunted)}", err=True)
    return hunted


def _how_soon(hunted: Hunted) -> str:
    return str(hunted.seeds) if hunted.broken else f"not in {hunted.seeds}"


def _table(found: Sequence[Hunted]) -> str:
    rows = [
        (
            bug,
            ", ".join(map(_how_soon, hunts)),
            ", ".join(sorted({name for each in hunts for name in each.broken})),
        )
        for bug, hunts in _by_bug(found).items()
    ]
    return columns(("BUG", "SEEDS", "CAUGHT BY"), rows)
