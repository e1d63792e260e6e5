"""``backstay sim fuzz``: plays cases that are drawn by chance, and keeps those that go wrong.

One process plays seed after seed. With ``--jobs`` it starts others like itself and hands each a
few seeds at a time, so that none is idle while another has work; what they report comes back as
JSON. What went wrong is written down as soon as it is known, because a long soak may be cut short;
after Ctrl-C it still tells what came of what it has played.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
import msgspec

from backstay.cli.ending import end_as_after_ctrl_c, ended_by_signals
from backstay.cli.output import output_option, show
from backstay.cli.sim import EXIT_BROKEN
from backstay.cli.sim_elsewhere import elsewhere
from backstay.lab.bugs import BUGS
from backstay.lab.campaign import MOST, Report, campaign
from backstay.lab.fuzz import SIBLINGS
from backstay.seam.exec import Exec
from backstay.seam.real import open_seams, run
from backstay.seam.system import boot_time
from backstay.seam.tasks import side_by_side

_SHRINK_SECONDS = 30.0
_AT_A_TIME = 100
"""The most groups of siblings for another process: enough that its start does not matter."""
_CHUNK_SECONDS = 3600.0
_ENDLESS = 1_000_000_000
_NEWS_SECONDS = 60.0
"""How often something is said where nobody sees a line change."""

Told = Callable[[Report], None]


@click.command(name="fuzz")
@click.option("--seeds", metavar="N", type=click.IntRange(1), help="How many (default: 100).")
@click.option("--first", metavar="SEED", type=click.IntRange(0), default=1, show_default=True)
@click.option("--seconds", metavar="S", type=click.FloatRange(1.0), help="Begin none after that.")
@click.option("--bug", metavar="NAME", default="", help="One of 'backstay sim bugs'.")
@click.option(
    "--most",
    metavar="N",
    type=click.IntRange(1),
    default=MOST,
    show_default=True,
    help="End early when so many went wrong.",
)
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
    most: int,
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
    end_as_after_ctrl_c()
    amount = seeds or (_ENDLESS if seconds else 100)
    diary = _Diary(first, corpus, _progress(amount, seconds))
    end = float("inf") if seconds is None else boot_time() + seconds
    try:
        _play_all(_Job(first, amount, end, bug, most, jobs), diary.tell)
    except KeyboardInterrupt:
        show(diary.report, output=output, table=diary.words)
        raise
    show(diary.report, output=output, table=lambda: diary.words(most))
    return EXIT_BROKEN if diary.report.findings else 0


def _play_all(job: "_Job", told: Told) -> None:
    if job.jobs > 1:
        run(_shared_out(job, told))
        return
    campaign(
        _until(job.end, job.first, job.amount),
        bug=job.bug,
        most=job.most,
        told=told,
        patience=lambda: _after(_SHRINK_SECONDS),
    )


def _until(end: float, first: int, amount: int) -> Iterator[int]:
    for seed in range(first, first + amount):
        if boot_time() >= end:
            return
        yield seed


def _after(seconds: float) -> Callable[[], bool]:
    end = boot_time() + seconds
    return lambda: boot_time() >= end


# Several processes


class _Job(msgspec.Struct, frozen=True):
    """What is to be played, by so many processes, until the ``end`` or until so many cases have
    gone wrong."""

    first: int
    amount: int
    end: float
    bug: str
    most: int
    jobs: int


async def _shared_out(job: _Job, told: Told) -> None:
    report = Report()
    chunks = _chunks(job)

    async def work(_worker: int) -> None:
        nonlocal report
        for chunk in chunks:
            if boot_time() >= job.end or len(report.findings) >= job.most:
                return
            # Apart from the addition, because others add to it meanwhile.
            found = await _play(seams.exec, chunk, job)
            report += found
            told(report)

    with ended_by_signals():
        async with open_seams() as seams:
            await side_by_side(range(job.jobs), work, at_once=job.jobs)


def _chunks(job: _Job) -> Iterator[range]:
    """Whole groups of siblings, and fewer of them towards the end, where whoever is done first
    would wait for the others."""
    start, last = job.first, job.first + job.amount
    while start < last:
        groups = (last - start) // (2 * job.jobs * SIBLINGS)
        size = SIBLINGS * max(1, min(_AT_A_TIME, groups))
        yield range(start, min(start + size, last))
        start += size


async def _play(program: Exec, seeds: range, job: _Job) -> Report:
    left = job.end - boot_time()
    limit = () if left == float("inf") else ("--seconds", f"{max(1.0, left):.1f}")
    return await elsewhere(
        program, "fuzz", "--first", str(seeds.start), "--seeds", str(len(seeds)), *limit,
        "--bug", job.bug, "--most", str(job.most),
        kind=Report,
        undone=f"The seeds from {seeds.start} to {seeds[-1]} were not played to their end",
        timeout=_CHUNK_SECONDS,
    )  # fmt: skip


# For people


class _Diary:
    """What has come of it so far, and where that is written."""

    def __init__(self, first: int, corpus: str | None, progress: Told) -> None:
        self.report = Report()
        self._first, self._began = first, boot_time()
        self._corpus, self._progress = corpus, progress
        self._files: dict[int, str] = {}
        if corpus is not None:
            # Now, and not after an hour, when there is something to write.
            with _writing_to(corpus):
                os.makedirs(corpus, exist_ok=True)

    def tell(self, report: Report) -> None:
        self.report = report
        if self._corpus is not None:
            self._write(self._corpus)
        self._progress(report)

    def _write(self, corpus: str) -> None:
        """What is not written yet."""
        for finding in self.report.findings:
            if finding.seed in self._files:
                continue
            path = os.path.join(corpus, f"fuzz-{finding.seed}.yaml")
            with _writing_to(corpus), open(path, "w", encoding="utf-8") as file:
                file.write(finding.scenario)
            self._files[finding.seed] = path

    def words(self, most: int | None = None) -> str:
        """With a word on why it ended early if it did because ``most`` had gone wrong."""
        report, lines = self.report, list[str]()
        for finding in report.findings:
            lines += [f"Seed {finding.seed} broke {', '.join(finding.broken)}:"]
            lines += [f"  {sentence}" for sentence in dict.fromkeys(finding.sentences)]
            where = self._files.get(finding.seed)
            lines += [f"  NEXT: backstay sim run {where}"] if where else ["", finding.scenario]
        if most is not None and len(report.findings) >= most:
            lines.append(f"Ended early: {most} that went wrong are enough (--most).")
        took = boot_time() - self._began
        lines.append(
            f"{report.seeds} seeds from {self._first} on in {took:.0f} s: {report.recovered} "
            f"workloads recovered, {report.checked} happenings checked, "
            f"{len(report.findings)} seeds went wrong."
        )
        return "\n".join(lines)


@contextmanager
def _writing_to(corpus: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise click.ClickException(
            f"{corpus} cannot be written to: {error.strerror or error}."
        ) from None


def _progress(amount: int, seconds: float | None) -> Told:
    """A line that changes, for a person who looks; one a minute for a log."""
    whole = f"{seconds:g} s" if amount == _ENDLESS else f"{amount} seeds"
    looked_at = sys.stderr.isatty()
    next_news = boot_time() + _NEWS_SECONDS

    def told(report: Report) -> None:
        nonlocal next_news
        line = f"{report.seeds} seeds of {whole}, {len(report.findings)} went wrong"
        if looked_at:
            click.echo(f"\r{line}", nl=report.seeds == amount, err=True)
        elif boot_time() >= next_news:
            next_news += _NEWS_SECONDS
            click.echo(line, err=True)

    return told
