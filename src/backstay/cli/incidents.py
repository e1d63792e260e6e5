"""``backstay incidents``: the deaths of nodes, as Backstay told them while it acted."""

from collections.abc import Sequence
from datetime import datetime

import click
import msgspec

from backstay.apis.backstay import INCIDENT_PROJECTION, INCIDENTS, IncidentRow
from backstay.cli.consent import near, our_kinds, say
from backstay.cli.main import EXIT_HELD
from backstay.cli.output import columns, output_option, show
from backstay.cli.session import Session, Target, in_session, target_options
from backstay.cli.words import fields, join, next_steps, paragraph
from backstay.model.incident import IncidentStatus, Moment, Progress
from backstay.model.workload import spoken


class Told(msgspec.Struct, frozen=True):
    """One incident, for programs."""

    name: str
    node: str
    boot_id: str
    status: IncidentStatus


@click.group(name="incidents", invoke_without_command=True)
@click.option("--all", "everything", is_flag=True, help="Those that are over, too.")
@target_options
@output_option
@click.pass_context
def command(
    ctx: click.Context, everything: bool, kubeconfig: str | None, context: str | None, output: str
) -> int:
    """Show the deaths of nodes: what was done, when and why.

    Exit code 2 when an incident that is open holds workloads.
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = Target(kubeconfig, context)
        return 0
    rows = in_session(Target(kubeconfig, context), _read)
    shown = [row for row in rows if everything or row.open]
    show([_told(row) for row in shown], output=output, table=lambda: _table(shown))
    for line in next_steps([_next(shown, len(rows) - len(shown))]):
        say(line)
    return EXIT_HELD if any(row.open and row.status.held for row in rows) else 0


@command.command(name="show")
@click.argument("name")
@target_options
@output_option
@click.pass_context
def show_one(
    ctx: click.Context, name: str, kubeconfig: str | None, context: str | None, output: str
) -> int:
    """Show one incident: how long each stage took, the evidence, the timeline, the workloads."""
    outer: Target = ctx.obj
    target = Target(kubeconfig or outer.kubeconfig, context or outer.context)
    rows = {row.key: row for row in in_session(target, _read)}
    if name not in rows:
        raise click.ClickException(f"There is no incident {name!r}.{near(name, rows)}")
    row = rows[name]
    show(_told(row), output=output, table=lambda: _described(row))
    return EXIT_HELD if row.open and row.status.held else 0


async def _read(session: Session) -> list[IncidentRow]:
    with our_kinds():
        reply = await session.client.list(INCIDENTS)
    page = INCIDENT_PROJECTION.page(reply.body, call=reply.call)
    for bad in page.unreadable:
        say(f"Incident {bad.key} cannot be read: {bad.why}")
    return sorted(page.rows, key=lambda row: row.status.opened_at)


def _told(row: IncidentRow) -> Told:
    return Told(row.key, row.spec.node, row.spec.boot_id, row.status)


def _table(rows: Sequence[IncidentRow]) -> str:
    if not rows:
        return "No incident is open."
    lines = [
        (
            row.key,
            row.status.state if row.open else "over",
            str(row.status.held),
            str(row.status.recovered),
            row.status.sentence,
        )
        for row in rows
    ]
    return columns(("INCIDENT", "STATE", "HELD", "RECOVERED", "WHY"), lines)


def _next(shown: Sequence[IncidentRow], hidden: int) -> str:
    if shown:
        return f"backstay incidents show {shown[-1].key}"
    return "backstay incidents --all" if hidden else ""


def _described(row: IncidentRow) -> str:
    status = row.status
    about = fields(
        [
            ("node", f"{row.spec.node}, boot {row.spec.boot_id}"),
            ("state", status.state if row.open else f"over since {status.closed_at}"),
            ("mode", status.mode),
            ("why", f"{status.sentence} ({status.code})" if status.code else ""),
        ]
    )
    nexts = [status.next, *(workload.next for workload in status.workloads)] if row.open else []
    parts = [about, _stages(status), _moments(status), _evidence(status)]
    return join([*parts, _timeline(status), _workloads(status), *_lines(nexts)])


def _lines(nexts: Sequence[str]) -> list[str]:
    found = next_steps(nexts)
    return ["\n".join(found)] if found else []


def _stages(status: IncidentStatus) -> str:
    """They follow each other, so a person can check them by adding up."""
    if not status.stages:
        return ""
    rows = [(each.stage, each.seconds, _STAGES.get(each.stage, "")) for each in status.stages]
    if {each.stage for each in status.stages} >= _STAGES.keys():
        total = sum(each.seconds for each in status.stages)
        rows.append(("together", total, "from the last sign of life to the first release"))
    shown = [(stage, f"{seconds:>7.1f}", words) for stage, seconds, words in rows]
    return columns(("STAGE", "SECONDS", "WHAT TOOK SO LONG"), shown)


_STAGES = {
    "detect": "silence, until the node was taken for lost",
    "prove": "until something proved that it is dead",
    "barrier": "until its pods were marked and could start there no more",
    "removal": "until the proof was looked at again and the pods were removed",
}


def _moments(status: IncidentStatus) -> str:
    """When each workload was back, counted from the last sign of life."""
    moved = [each for each in status.workloads if each.progress in _MOVED]
    if not moved:
        return ""
    rows = []
    for each in moved:
        after = (each.released_after, each.running_after, each.ready_after)
        told = ", ".join(f"{phase.phase} {_time_of_day(phase.at)}" for phase in each.phases)
        words = spoken(each.workload) + (f" (KubeVirt says: {told})" if told else "")
        rows.append((*map(_seconds, after), words))
    table = columns(("RELEASED", "RUNS", "READY", "SECONDS AFTER THE LAST SIGN OF LIFE"), rows)
    measured = any(each.released_after is not None for each in moved)
    return table if measured else join([table, paragraph(_UNMEASURED)])


_MOVED = (Progress.RELEASED, Progress.RECOVERED, Progress.STAYS_DOWN)
_UNMEASURED = (
    "No seconds are shown where the controller that saw it had not seen the node alive: times of "
    "different machines are not compared."
)


def _seconds(after: float | None) -> str:
    return "-" if after is None else f"{after:.1f}"


def _time_of_day(at: str) -> str:
    """As it was told; only the day is left out."""
    return at.partition("T")[2].removesuffix("Z") or at


def _evidence(status: IncidentStatus) -> str:
    rows = [(each.kind, each.source, each.detail) for each in status.evidence]
    return columns(("EVIDENCE", "BY", "DETAIL"), rows) if rows else ""


def _workloads(status: IncidentStatus) -> str:
    rows = [(str(each.progress), f"{each.workload}: {each.sentence}") for each in status.workloads]
    return columns(("PROGRESS", "WORKLOAD, AND WHY"), rows) if rows else ""


def _timeline(status: IncidentStatus) -> str:
    moments = status.timeline
    rows = [
        (moment.at, _seconds_after(before, moment), f"{moment.sentence} ({moment.code})")
        for before, moment in zip((None, *moments), moments, strict=False)
    ]
    return columns(("AT", "AFTER", "WHAT HAPPENED"), rows) if rows else ""


def _seconds_after(before: Moment | None, moment: Moment) -> str:
    """How long the stage before took; nothing where the moments cannot be read."""
    if before is None:
        return ""
    try:
        passed = datetime.fromisoformat(moment.at) - datetime.fromisoformat(before.at)
    except (ValueError, TypeError):
        return ""
    return f"+{passed.total_seconds():.0f} s"
