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
from backstay.cli.words import fields, join, next_steps
from backstay.model.incident import IncidentStatus, Moment


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
    """Show one incident: its timeline, its workloads and the evidence."""
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
    return join([about, _evidence(status), _timeline(status), _workloads(status), *_lines(nexts)])


def _lines(nexts: Sequence[str]) -> list[str]:
    found = next_steps(nexts)
    return ["\n".join(found)] if found else []


def _evidence(status: IncidentStatus) -> str:
    rows = [(each.kind, each.source, each.detail) for each in status.evidence]
    return columns(("EVIDENCE", "BY", "DETAIL"), rows) if rows else ""


def _workloads(status: IncidentStatus) -> str:
    rows = [(each.workload, str(each.progress), each.sentence) for each in status.workloads]
    return columns(("WORKLOAD", "PROGRESS", "WHY"), rows) if rows else ""


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
