"""``backstay sim fuzz``: plays cases that are drawn by chance, and keeps those that go wrong.

One process plays seed after seed. With ``--jobs`` it starts others like itself and hands each a
few seeds at a time, so that none is idle while another has work; what they report comes back as
JSON.
"""

import os
import sys
from collections.abc import Callable, Iterator

import click
import msgspec

from backstay.cli.output import output_option, show
from backstay.cli.sim import EXIT_BROKEN
from backstay.cli.sim_elsewhere import elsewhere
from backstay.lab.bugs import BUGS
from backstay.lab.campaign import ENOUGH, Report, campaign
from backstay.lab.fuzz import SIBLINGS
from backstay.seam.exec import Exec
from backstay.seam.real import open_seams, run
from backstay.seam.system import boot_time
from backstay.seam.tasks import side_by_side

_SHRINK_SECONDS = 30.0
_AT_A_TIME = 20 * SIBLINGS
"""The most seeds for another process: enough that its start does not matter, and whole groups."""
_CHUNK_SECONDS = 1800.0
_ENDLESS = 1_000_000_000

Told = Callable[[Report], None]


@click.command(name="fuzz")
@click.option("--seeds", metavar="N", type=click.IntRange(1), help="How many (default: 100).")
@click.option("--first", metavar="SEED", type=click.IntRange(0), default=1, show_default=True)
@click.option("--seconds", metavar="S", type=click.FloatRange(1.0), help="Begin none after that.")
@click.option("--bug", metavar="NAME", default="", help="One of 'backstay sim bugs'.")
@click.option(
    "--jobs", metavar="N", type=click.IntRange(1, 64), default=1, help="Processes (default: 1)."
)
@click.option("--corpus", metavar="DIR", help="Where to write what went wrong, as YAML.")
@output_option
def command(
    seeds: int | None,
    first: int,
    seconds: float | None,
    bug: str,
    jobs: int,
    corpus: str | None,
    output: str,
) -> int:
    """Play disasters that are drawn by chance, each from a seed, and check every invariant.

    The same seed gives the same case and the same outcome, on every machine. What goes wrong is
    made as small as it gets within half a minute, for 'backstay sim run'. Exit code 4 when an
    invariant broke.
    """
    if bug and bug not in {each.name for each in BUGS}:
        raise click.UsageError(f"there is no bug {bug!r}: 'backstay sim bugs' lists them.")
    amount = seeds or (_ENDLESS if seconds else 100)
    began = boot_time()
    time_is_up = _after(seconds)
    told = _progress(amount, seconds)
    if jobs == 1:
        chosen = _until(time_is_up, first, amount)
        report = campaign(chosen, bug=bug, told=told, patience=lambda: _after(_SHRINK_SECONDS))
    else:
        report = run(_shared_out(_Job(first, amount, bug, jobs), time_is_up, told))
    files = _write(report, corpus) if corpus else {}
    show(report, output=output, table=lambda: _words(report, files, first, boot_time() - began))
    return EXIT_BROKEN if report.findings else 0


def _after(seconds: float | None) -> Callable[[], bool]:
    if seconds is None:
        return lambda: False
    end = boot_time() + seconds
    return lambda: boot_time() >= end


def _until(time_is_up: Callable[[], bool], first: int, amount: int) -> Iterator[int]:
    for seed in range(first, first + amount):
        if time_is_up():
            return
        yield seed


# Several processes


class _Job(msgspec.Struct, frozen=True):
    """What is to be shared out among so many processes."""

    first: int
    amount: int
    bug: str
    jobs: int


async def _shared_out(job: _Job, time_is_up: Callable[[], bool], told: Told) -> Report:
    report, last = Report(), job.first + job.amount
    size = max(1, min(_AT_A_TIME, job.amount // job.jobs))
    chunks = iter(range(job.first, last, size))

    async def work(_worker: int) -> None:
        nonlocal report
        for start in chunks:
            if time_is_up() or report.enough:
                return
            # Apart from the addition, because others add to it meanwhile.
            found = await _play(seams.exec, start, min(size, last - start), job.bug)
            report += found
            told(report)

    async with open_seams() as seams:
        await side_by_side(range(job.jobs), work, at_once=job.jobs)
    return report


async def _play(program: Exec, first: int, seeds: int, bug: str) -> Report:
    return await elsewhere(
        program, "fuzz", "--first", str(first), "--seeds", str(seeds), "--bug", bug,
        kind=Report,
        undone=f"The seeds from {first} to {first + seeds - 1} were not played to their end",
        timeout=_CHUNK_SECONDS,
    )  # fmt: skip


# For people


def _progress(amount: int, seconds: float | None) -> Told:
    if not sys.stderr.isatty():
        return lambda _: None
    whole = f"{seconds:g} s" if amount == _ENDLESS else f"{amount} seeds"

    def told(report: Report) -> None:
        line = f"{report.seeds} seeds of {whole}, {len(report.findings)} went wrong"
        click.echo(f"\r{line}", nl=False, err=True)
        if report.seeds == amount:
            click.echo(err=True)

    return told


def _write(report: Report, corpus: str) -> dict[int, str]:
    """Where each finding is."""
    files = {}
    try:
        os.makedirs(corpus, exist_ok=True)
        for finding in report.findings:
            path = files[finding.seed] = os.path.join(corpus, f"fuzz-{finding.seed}.yaml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(finding.scenario)
    except OSError as error:
        raise click.ClickException(
            f"{corpus} cannot be written to: {error.strerror or error}."
        ) from None
    return files


def _words(report: Report, files: dict[int, str], first: int, seconds: float) -> str:
    lines: list[str] = []
    for finding in report.findings:
        lines += [f"Seed {finding.seed} broke {', '.join(finding.broken)}:"]
        lines += [f"  {sentence}" for sentence in dict.fromkeys(finding.sentences)]
        where = files.get(finding.seed)
        lines += [f"  NEXT: backstay sim run {where}"] if where else ["", finding.scenario]
    if report.enough:
        lines.append(f"Stopped early: {ENOUGH} cases are enough to begin with.")
    lines.append(
        f"{report.seeds} seeds from {first} on in {seconds:.0f} s: {report.recovered} workloads "
        f"recovered, {report.checked} happenings checked, {len(report.findings)} seeds went wrong."
    )
    return "\n".join(lines)
