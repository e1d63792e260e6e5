"""``backstay sim run``: plays scenarios, and shows what happened when.

One scenario is told line by line; of several there is a line each. What to play is a file, or the
name of a scenario that comes with Backstay. All of them are read before the first is played.
"""

import shutil
import textwrap
from collections.abc import Iterator

import click
import msgspec

from backstay.cli.main import EXIT_ERROR
from backstay.cli.output import columns, output_option, show
from backstay.cli.sim import EXIT_BROKEN
from backstay.lab import shipped
from backstay.lab.play import Played, play
from backstay.lab.scenario import BadScenario, Scenario, load
from backstay.seam.files import Files
from backstay.seam.real import open_seams, run


@click.command(name="run")
@click.argument("files", metavar="FILE...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Play all that come with Backstay.")
@click.option("--seed", type=int, help="Play with this seed instead of the scenario's own.")
@output_option
def command(files: tuple[str, ...], everything: bool, seed: int | None, output: str) -> int:
    """Play scenarios, and show what happened when.

    FILE is a YAML file, or the name of a scenario that comes with Backstay. Exit code 0 if all
    came as expected, 1 if something did not, 4 if an invariant broke that should not have.
    """
    if bool(files) == everything:
        raise click.UsageError("Name what to play, such as node-dies, or say --all.")
    scenarios = run(_read_all(files or tuple(shipped.names())))
    if seed is not None:
        scenarios = [msgspec.structs.replace(each, seed=seed) for each in scenarios]
    try:
        played = [play(scenario) for scenario in scenarios]
    except BadScenario as error:
        raise click.ClickException(str(error)) from None
    show(
        played,
        output=output,
        table=lambda: story(played[0]) if len(played) == 1 else _table(played),
    )
    if any(each.astray for each in played):
        return EXIT_BROKEN
    return EXIT_ERROR if any(each.unmet for each in played) else 0


async def _read_all(names: tuple[str, ...]) -> list[Scenario]:
    async with open_seams() as seams:
        return [await _read(seams.files, name) for name in names]


async def _read(files: Files, name: str) -> Scenario:
    try:
        return load(await files.read(name), file=name)
    except FileNotFoundError:
        pass
    except BadScenario as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{name} cannot be read: {error.strerror or error}.") from None
    if name in shipped.names():
        return shipped.find(name)
    raise click.ClickException(
        f"{name} is neither a file nor a scenario that comes with Backstay: "
        "see docs/scenarios.md for their names."
    )


# For people


def story(played: Played, *, width: int = 0) -> str:
    """The question, a line for everything that happened, and how it stood at the end."""
    width = width or shutil.get_terminal_size((100, 24)).columns
    lines = [played.question, ""]
    longest = max((len(line.who) for line in played.timeline), default=0)
    for line in played.timeline:
        start = f"{line.at:8.1f}  {line.who:<{longest}}  "
        lines += _hanging(start, line.what, width)
    return "\n".join([*lines, "", *_ending(played, width)])


def _ending(played: Played, width: int) -> Iterator[str]:
    """What there is none of is left out."""
    facts = {
        "recovered": [f"{name} on {node}" for name, node in played.recovered.items()],
        "held": [f"{name} ({code})" for name, code in played.held.items()],
        "untouched": played.untouched,
        "migrated": played.migrated,
        "maintained": [f"{node} ({phase})" for node, phase in played.maintained.items()],
        "blocked": [f"{node} ({', '.join(c)})" for node, c in played.blocked.items() if c],
        "down": played.down,
        "cordoned": played.cordoned,
        "our taint": played.taints,
        "open": played.open,
        "broken": played.broken,
    }
    for label, names in facts.items():
        if names:
            yield from _hanging(f"{label:<10} ", ", ".join(names), width)
    yield ""
    yield from textwrap.wrap(_verdict(played), width)
    yield f"({played.checked} happenings were checked, and {played.calls} calls made by us.)"


def _hanging(start: str, text: str, width: int) -> list[str]:
    room = max(40, width)
    return textwrap.wrap(
        text, room, initial_indent=start, subsequent_indent=" " * len(start),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _verdict(played: Played) -> str:
    if not played.unmet:
        return "As expected."
    return "Not as expected: " + "; ".join(played.unmet) + "."


def _table(played: list[Played]) -> str:
    rows = [(each.name, _verdict(each).rstrip(".")) for each in played]
    return columns(("SCENARIO", "OUTCOME"), rows)
