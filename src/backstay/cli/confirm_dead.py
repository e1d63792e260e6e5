"""``backstay confirm-dead``: a person's word that a node is off.

This is the one piece of evidence that no machine checks, so the command does what it can to keep
a tired person from a mistake: it says what is at stake, looks for signs of life for as long as a
living kubelet needs to show one, has the node's name typed, and looks again right before it writes.
What it writes counts for this boot of this node alone.
"""

from collections.abc import Sequence
from contextlib import suppress

import click
import msgspec

from backstay.apis.backstay import (
    CONFIRMATION_PROJECTION,
    CONFIRMATIONS,
    ConfirmationRow,
    ConfirmationSpec,
)
from backstay.apis.core import NODE_PROJECTION, NodeRow
from backstay.cli.consent import Blind, at_terminal, near, our_kinds, own_name, say, wrapped
from backstay.cli.output import columns, output_option, show
from backstay.cli.session import Session, Target, in_session, target_options
from backstay.cli.signs import LeaseRow, Signs, View, read_signs, watch
from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.kube.errors import Json
from backstay.kube.resource import NODES
from backstay.model.labels import COMPONENT, MANAGER

_AT_STAKE = (
    "Unreachable is not off: a node that is only cut off still runs its VMs, and a second copy "
    "would write to the same disks. Confirm only what you have seen yourself: the power is off, "
    "or the machine is gone."
)
_STOPPED = (
    "Backstay no longer takes it for dead: what is still held stays held, and nothing more is "
    "taken from the node. What has started elsewhere already goes on running there."
)


class Outcome(msgspec.Struct, frozen=True):
    """What became of one node."""

    node: str
    result: str
    detail: str


@click.command(name="confirm-dead")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@click.option("--reason", metavar="TEXT", default="", help="How you know; it is recorded.")
@click.option("--withdraw", is_flag=True, help="Take a confirmation back.")
@click.option(
    "--watch",
    "seconds",
    metavar="SECONDS",
    type=click.FloatRange(0, 600),
    default=12.0,
    show_default=True,
    help="How long to look for signs of life.",
)
@click.option(
    "--yes",
    metavar="NODE",
    multiple=True,
    help="The node's name once more, in place of the question; for scripts.",
)
@target_options
@output_option
def command(
    nodes: tuple[str, ...],
    reason: str,
    withdraw: bool,
    seconds: float,
    yes: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> None:
    """Vouch that a node is off, so that its workloads can start elsewhere.

    Exit code 0 when it was written, 1 when it was refused (nothing is written then), 3 when our
    view of the cluster cannot be relied on.
    """
    target, names = Target(kubeconfig, context), tuple(dict.fromkeys(nodes))
    if withdraw:
        outcomes = in_session(target, lambda session: _withdraw(session, names))
    else:
        outcomes = _confirm(target, names, reason=reason, seconds=seconds, yes=yes)
    show(outcomes, output=output, table=lambda: _table(outcomes))
    say("NEXT: backstay status")


def _confirm(
    target: Target, names: Sequence[str], *, reason: str, seconds: float, yes: Sequence[str]
) -> list[Outcome]:
    _check_answers(names, yes)
    say(wrapped(_AT_STAKE))
    say()
    view = in_session(target, lambda session: _look(session, names, reason=reason, seconds=seconds))
    for signs in view.signs:
        say(_described(signs, view))
        say()
    _refuse_signs_of_life(view)
    if not yes:
        for name in names:
            _ask(name)
    return in_session(target, lambda session: _write(session, view.signs, reason))


def _check_answers(names: Sequence[str], yes: Sequence[str]) -> None:
    if yes and {*yes} != {*names}:
        raise click.UsageError(
            f"--yes must name what is confirmed ({', '.join(names)}), and nothing else."
        )
    if not yes and not at_terminal():
        again = " ".join(f"--yes={name}" for name in names)
        raise click.ClickException(
            "Nobody is here to be asked, so nothing was written. "
            f"NEXT: backstay confirm-dead {' '.join(names)} {again}"
        )


def _ask(name: str) -> None:
    typed = click.prompt(
        f"If {name} is off, type its name", default="", show_default=False, err=True
    )
    if typed.strip() != name:
        raise click.ClickException(f"That is not {name}. Nothing was written.")


# Looking


async def _look(session: Session, names: Sequence[str], *, reason: str, seconds: float) -> View:
    client = session.client
    await _confirmations(client)
    nodes = await _nodes(client)
    for name in names:
        if name not in nodes:
            raise click.ClickException(
                f"There is no node {name!r} in this cluster.{near(name, nodes)}"
            )
        if not nodes[name].boot_id:
            raise click.ClickException(
                f"{name} has never told its boot id, and a confirmation is bound to one."
            )
    # Nobody should wait, and type a name, for a refusal.
    by = await own_name(client)
    for name in names:
        with suppress(errors.AlreadyExists):
            await client.create(CONFIRMATIONS, _body(nodes[name], None, by, reason), dry_run=True)
    show_seconds = _Progress(", ".join(names))
    try:
        return await watch(client, nodes, names, seconds=seconds, progress=show_seconds.left)
    finally:
        show_seconds.done()


async def _nodes(client: KubeClient) -> dict[str, NodeRow]:
    reply = await client.list(NODES)
    return {row.key: row for row in NODE_PROJECTION.page(reply.body, call=reply.call).rows}


async def _confirmations(client: KubeClient) -> list[ConfirmationRow]:
    with our_kinds():
        reply = await client.list(CONFIRMATIONS)
    return CONFIRMATION_PROJECTION.page(reply.body, call=reply.call).rows


class _Progress:
    """The seconds that are left: in place at a terminal, and once for a log."""

    def __init__(self, names: str) -> None:
        self._names = names
        self._in_place = at_terminal()
        self._said = False

    def left(self, seconds: float) -> None:
        text = f"Looking for signs of life of {self._names}: {seconds:.0f} s"
        if self._in_place:
            click.echo(f"\r{text}   ", err=True, nl=False)
        elif not self._said:
            say(text)
        self._said = True

    def done(self) -> None:
        if self._in_place and self._said:
            say("\n")


def _described(signs: Signs, view: View) -> str:
    within = f"within {signs.watched:.0f} s" if signs.watched else "(not watched)"
    lease = "none" if signs.lease is None else f"{_happened(signs.lease_renewed)}renewed {within}"
    beat = f"{_happened(signs.heartbeat_sent)}sent {within}" if signs.row.heartbeat else "none"
    others = "there are none to compare with"
    if view.others and signs.watched:
        others = f"{view.others_alive} of {view.others} renewed their lease"
    rows = [
        ("Ready", signs.row.ready),
        ("lease", lease),
        ("heartbeat of virt-handler", beat),
        ("boot id", signs.row.boot_id),
        ("other nodes", others),
    ]
    return columns((signs.node, ""), rows, width=79)


def _happened(it_did: bool) -> str:
    return "" if it_did else "not "


def _refuse_signs_of_life(view: View) -> None:
    for signs in view.signs:
        refusal = _life(signs) or _too_soon(signs)
        if refusal:
            raise click.ClickException(f"{refusal} Nothing was written.")
    watched = any(signs.watched for signs in view.signs)
    if watched and view.others and not view.others_alive:
        raise Blind(
            "No other node renewed its lease while we watched: it may be our view that stands "
            "still. Nothing was written. NEXT: backstay doctor, then again with a longer --watch"
        )


def _life(signs: Signs) -> str:
    """A sign of life, in a sentence; empty if there was none."""
    node = signs.node
    if signs.rebooted:
        return f"{node} has rebooted or was replaced since we looked: it is not off."
    if signs.lease_renewed:
        return f"{node} is alive: its kubelet renewed its lease."
    if signs.status_posted:
        return f"{node} is alive: its kubelet posted its status."
    if signs.heartbeat_sent:
        return f"{node} is alive: its virt-handler sent a heartbeat, so its VMs may be running."
    return ""


def _too_soon(signs: Signs) -> str:
    """Kubernetes itself has missed the kubelet for long (Unknown), or we have."""
    if signs.row.ready == "Unknown" or signs.long_enough:
        return ""
    if signs.lease is None:
        return f"{signs.node} is not known to be silent: it has no lease that could be watched."
    return (
        f"{signs.node} was heard of not long ago (Ready is {signs.row.ready}), and "
        f"{signs.watched:.0f} s are too short to see whether it lives: "
        f"--watch {signs.lease.interval:.0f} or more."
    )


# Writing


async def _write(session: Session, seen: Sequence[Signs], reason: str) -> list[Outcome]:
    by = await own_name(session.client)
    for signs in seen:
        now = await read_signs(session.client, signs)
        if now is None:
            raise click.ClickException(f"{signs.node} is gone. Nothing was written.")
        refusal = _life(now)
        if refusal:
            raise click.ClickException(f"{refusal} Nothing was written.")
    known = await _confirmations(session.client)
    return [
        await _put(
            session.client,
            signs,
            [row for row in known if row.node == signs.node],
            by,
            reason,
        )
        for signs in seen
    ]


async def _put(
    client: KubeClient,
    signs: Signs,
    known: Sequence[ConfirmationRow],
    by: str,
    reason: str,
) -> Outcome:
    node = signs.row
    body = _body(node, signs.lease, by, reason)
    for row in known:
        if _says_the_same(row, body["spec"]) and not (row.refuted or row.lapsed):
            return Outcome(node.key, "already confirmed", f"by {row.by or 'somebody'}, as it is")
    # One for a former boot, or from before a sign of life or a restore, counts no more; but one
    # that life has refuted holds everything as long as it is there, whatever it is called.
    for row in known:
        await client.delete(CONFIRMATIONS, row.key, conditions={"uid": row.uid})
    await client.create(CONFIRMATIONS, body, manager=MANAGER)
    replaced = ", in place of one that no longer counted" if known else ""
    return Outcome(node.key, "confirmed dead", f"by {by}, for boot {node.boot_id}{replaced}")


def _body(node: NodeRow, lease: LeaseRow | None, by: str, reason: str) -> Json:
    spec = ConfirmationSpec(
        node=node.key,
        node_uid=node.uid,
        boot_id=node.boot_id,
        by=by,
        reason=reason or "no reason given",
        last_renewal="" if lease is None else lease.renewed,
        last_heartbeat=node.heartbeat,
        last_status=node.posted,
    )
    return {
        "apiVersion": CONFIRMATIONS.api_version,
        "kind": CONFIRMATIONS.kind,
        "metadata": {"name": node.key, "labels": {COMPONENT: "backstay"}},
        "spec": msgspec.to_builtins(spec),
    }


def _says_the_same(row: ConfirmationRow, spec: Json) -> bool:
    """Whether it is about the same boot, and nothing was heard of the node since it was given."""
    about = (row.node_uid, row.boot_id, row.last_renewal, row.last_heartbeat)
    same = about == (
        spec["nodeUID"], spec["bootID"], spec["lastRenewal"], spec["lastHeartbeat"],
    )  # fmt: skip
    return same and row.last_status in ("", spec["lastStatus"])


async def _withdraw(session: Session, names: Sequence[str]) -> list[Outcome]:
    client = session.client
    known = await _confirmations(client)
    confirmed = {row.node for row in known}
    nodes: dict[str, NodeRow] = {}
    if {*names} - confirmed:
        nodes = await _nodes(client)
    outcomes = []
    for name in names:
        if name not in confirmed and name not in nodes:
            raise click.ClickException(
                f"There is no node {name!r} in this cluster.{near(name, {*nodes, *confirmed})}"
            )
        mine = [row for row in known if row.node == name]
        outcomes.append(await _take_back(client, name, mine))
    if confirmed & {*names}:
        say(wrapped(_STOPPED))
    return outcomes


async def _take_back(client: KubeClient, name: str, mine: Sequence[ConfirmationRow]) -> Outcome:
    for row in mine:
        # Somebody else who took it back at the same moment wanted the same.
        with suppress(errors.NotFound):
            await client.delete(CONFIRMATIONS, row.key, conditions={"uid": row.uid})
    if not mine:
        return Outcome(name, "nothing to withdraw", "nobody has confirmed that it is dead")
    return Outcome(name, "withdrawn", f"it was confirmed by {mine[0].by or 'somebody'}")


def _table(outcomes: Sequence[Outcome]) -> str:
    rows = [(outcome.node, outcome.result, outcome.detail) for outcome in outcomes]
    return columns(("NODE", "RESULT", "DETAIL"), rows)
