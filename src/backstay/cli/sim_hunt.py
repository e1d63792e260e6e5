"""``backstay sim hunt``: after how many cases of chance each deliberate bug is caught.

With ``--jobs`` it starts others like itself and hands each one bug at a time.
"""

import asyncio
import os
import sys
from collections.abc import Sequence

import click
import msgspec

from backstay.cli.output import columns, output_option, show
from backstay.cli.sim import EXIT_BROKEN
from backstay.lab.bugs import BUGS
from backstay.lab.hunt import Hunted, hunt
from backstay.seam.exec import Command, Exec
from backstay.seam.real import open_seams, run

_ONE_BUG_SECONDS = 3600.0


@click.command(name="hunt")
@click.option("--bugs", metavar="NAME,...", default="", help="Of 'backstay sim bugs', or all.")
@click.option("--seeds", metavar="N", type=click.IntRange(1), default=200, show_default=True)
@click.option("--first", metavar="SEED", type=click.IntRange(0), default=1, show_default=True)
@click.option(
    "--jobs", metavar="N", type=click.IntRange(1, 64), default=1, help="Processes (default: 1)."
)
@output_option
def command(bugs: str, seeds: int, first: int, jobs: int, output: str) -> int:
    """Play cases of chance against each deliberate bug until it is caught, and tell how soon.

    Exit code 4 when one was not caught.
    """
    wanted = _wanted(bugs)
    if jobs == 1:
        found = [_told(hunt(bug, range(first, first + seeds))) for bug in wanted]
    else:
        found = run(_shared_out(wanted, seeds, first, jobs))
    show(found, output=output, table=lambda: _table(found))
    return 0 if all(each.broken for each in found) else EXIT_BROKEN


def _wanted(bugs: str) -> list[str]:
    known = [bug.name for bug in BUGS]
    wanted = [name.strip() for name in bugs.split(",") if name.strip()] or known
    for name in wanted:
        if name not in known:
            raise click.UsageError(f"there is no bug {name!r}: 'backstay sim bugs' lists them.")
    return wanted


async def _shared_out(wanted: Sequence[str], seeds: int, first: int, jobs: int) -> list[Hunted]:
    found: dict[str, Hunted] = {}
    left = iter(wanted)

    async def work(program: Exec) -> None:
        for bug in left:
            found[bug] = _told(await _elsewhere(program, bug, seeds, first))

    async with open_seams() as seams, asyncio.TaskGroup() as group:
        for _ in range(jobs):
            group.create_task(work(seams.exec))
    return [found[bug] for bug in wanted]


async def _elsewhere(program: Exec, bug: str, seeds: int, first: int) -> Hunted:
    """The same command in a process of its own."""
    options = ("--bugs", bug, "--seeds", str(seeds), "--first", str(first), "--output", "json")
    front_door = "from backstay.cli.main import main; main()"
    done = await program.run(
        Command(
            argv=(sys.executable, "-c", front_door, "sim", "hunt", *options),
            env=dict(os.environ),  # noqa: TID251 - all of it is passed on as it is
            timeout=_ONE_BUG_SECONDS,
        )
    )
    if done.code not in (0, EXIT_BROKEN):
        said = done.stderr.decode(errors="replace").strip() or f"exit code {done.code}"
        raise click.ClickException(f"The hunt for {bug} did not come to its end: {said}")
    [hunted] = msgspec.json.decode(done.stdout, type=list[Hunted])
    return hunted


# For people


def _told(hunted: Hunted) -> Hunted:
    """Tells somebody who waits."""
    if sys.stderr.isatty():
        click.echo(f"{hunted.bug}: {_how_soon(hunted)}", err=True)
    return hunted


def _how_soon(hunted: Hunted) -> str:
    return str(hunted.seeds) if hunted.broken else f"not in {hunted.seeds}"


def _table(found: Sequence[Hunted]) -> str:
    rows = [(each.bug, _how_soon(each), ", ".join(each.broken)) for each in found]
    return columns(("BUG", "SEEDS", "CAUGHT BY"), rows)
