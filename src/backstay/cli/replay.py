"""``backstay replay``: would today's rules decide again as they did?

All recordings are read before anything is decided, so that one which is none of ours spoils no
half of an answer. Files need no cluster; ``--incident`` takes what was kept there of an incident.
"""

import textwrap

import click
import msgspec

from backstay.cli.output import output_option, show
from backstay.cli.session import Session, Target, in_session, target_options
from backstay.decide.failover import CHAIN
from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.record.blackbox import read_frames
from backstay.record.replay import Difference, NotARecording, Recording, read_recording, replay
from backstay.seam.files import Files
from backstay.seam.real import open_seams, run
from backstay.settings import Settings

EXIT_DIFFERENT = 4


class FileReport(msgspec.Struct, frozen=True, rename="camel"):
    """What came of one file."""

    file: str
    recorded_by: str
    decisions: int
    cut_off: bool
    rules: str
    differences: tuple[Difference, ...]


@click.command(name="replay")
@click.argument("files", metavar="[FILE...]", nargs=-1)
@click.option(
    "--incident",
    "incidents",
    metavar="NAME",
    multiple=True,
    help="Take the last decisions of this incident from the cluster.",
)
@click.option(
    "--namespace",
    default=Settings(identity="").namespace,
    show_default=True,
    help="Where the controller keeps them.",
)
@target_options
@output_option
def command(
    files: tuple[str, ...],
    incidents: tuple[str, ...],
    namespace: str,
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> int:
    """Decide again what the flight recorder kept, and show where today's rules differ.

    Exit code 0 when every decision is the same, 4 when one differs, 1 when a recording cannot be
    read.
    """
    if not files and not incidents:
        raise click.UsageError("Name the files to replay, or an incident with --incident.")
    recordings = run(_read_all(files)) if files else []
    if incidents:
        target = Target(kubeconfig, context)
        recordings += in_session(target, lambda at: _fetch_all(at, incidents, namespace))
    reports = [_report(name, recording) for name, recording in recordings]
    show(reports, output=output, table=lambda: "\n".join(map(_words, reports)))
    return EXIT_DIFFERENT if any(report.differences for report in reports) else 0


async def _read_all(names: tuple[str, ...]) -> list[tuple[str, Recording]]:
    async with open_seams() as seams:
        return [(name, await _read(seams.files, name)) for name in names]


async def _read(files: Files, name: str) -> Recording:
    try:
        return read_recording(name, await files.read(name))
    except NotARecording as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        sentence = f"{name} cannot be read: {error.strerror or error}."
        raise click.ClickException(sentence) from None


async def _fetch_all(
    session: Session, incidents: tuple[str, ...], namespace: str
) -> list[tuple[str, Recording]]:
    return [(name, await _fetch(session.client, name, namespace)) for name in incidents]


async def _fetch(client: KubeClient, incident: str, namespace: str) -> Recording:
    try:
        return await read_frames(client, namespace=namespace, incident=incident)
    except NotARecording as error:
        raise click.ClickException(str(error)) from None
    except ValueError:
        raise click.ClickException(f"{incident!r} is not the name of an incident.") from None
    except errors.NotFound:
        raise click.ClickException(
            f"No decisions of an incident {incident!r} are kept in {namespace}. "
            "NEXT: backstay incidents --all"
        ) from None


def _report(name: str, recording: Recording) -> FileReport:
    made = replay(recording, CHAIN)
    return FileReport(
        file=name,
        recorded_by=recording.header.program,
        decisions=made.frames,
        cut_off=recording.cut_off,
        rules=made.rules,
        differences=made.differences,
    )


def _words(report: FileReport) -> str:
    count = "1 decision" if report.decisions == 1 else f"{report.decisions} decisions"
    lines = [f"{report.file}: {count}, recorded by {report.recorded_by}"]
    if report.cut_off:
        lines.append("  The last line was cut off, as by a crash, and is left out.")
    if report.rules:
        lines.append(f"  Since then {report.rules}.")
    if not report.differences:
        lines.append("  Today's rules decide the same.")
    for difference in report.differences:
        lines.append(f"  {difference.at}  {difference.subject}")
        lines += _paragraph("recorded", difference.recorded)
        lines += _paragraph("today", difference.today)
    return "\n".join(lines)


def _paragraph(label: str, sentence: str) -> list[str]:
    start = f"    {label:<10}"
    return textwrap.wrap(
        sentence or "(nothing)",
        width=80,
        initial_indent=start,
        subsequent_indent=" " * len(start),
    )
