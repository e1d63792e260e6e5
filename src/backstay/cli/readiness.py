"""``backstay readiness``: what would happen if a node died now.

The answer is that of the very rules that a failover goes by (``decide/readiness.py``), asked of
what runs in the cluster at this moment. It needs no controller, no configuration and none of our
kinds: it is worth having before anything is installed. Where the environment says how LINSTOR is
reached (``LS_CONTROLLERS``), it is asked what DRBD would prove; how the BMCs of nodes are, which
nobody but a controller can ask, is what a controller has last told.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence

import click
import msgspec

from backstay.cli.output import columns, output_option, show
from backstay.cli.piraeus import linstor_of
from backstay.cli.session import Session, Target, in_session, target_options
from backstay.cli.subject import Kind, Subject, parse_node, unknown
from backstay.cli.words import counted, fields, join, next_steps, paragraph, volume
from backstay.decide.failover import CHAIN
from backstay.decide.readiness import Ending, NodeOutlook, Outlook, readiness
from backstay.drivers.linstor.client import Linstor
from backstay.model.node import Life
from backstay.model.policy import Times
from backstay.model.power import DeviceReport
from backstay.model.workload import Workload
from backstay.record.devices import read_devices
from backstay.settings import Settings
from backstay.sources.linstor_outlook import Replication, replication
from backstay.sources.picture import (
    Inventory,
    Picture,
    Sight,
    take,
    workloads_everywhere,
    workloads_on,
)
from backstay.sources.places import places

_DEFAULTS = Settings(identity="backstay readiness")
_TIMES = Times()


class Known(msgspec.Struct, frozen=True):
    """What can prove a death besides people: DRBD, the devices of nodes if a controller has told of
    them, and on how many nodes controllers run."""

    drbd: Replication
    devices: Mapping[str, DeviceReport] | None
    places: int | None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One workload, as programs see it."""

    workload: str
    ending: Ending
    by_itself: bool
    code: str
    sentence: str
    volumes: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    fix: str = ""


class NodeReadiness(msgspec.Struct, frozen=True, kw_only=True):
    """One node, and where it stands at present."""

    node: str
    state: Life
    recover: int
    by_itself: int
    stay_down: int
    held: int
    left: int
    proof: tuple[str, ...]
    workloads: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    @property
    def ours(self) -> int:
        return self.recover + self.stay_down + self.held


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    nodes: tuple[NodeReadiness, ...]
    kubevirt: bool | None
    problems: tuple[str, ...] = ()


@click.command(name="readiness")
@click.argument("node", required=False, metavar="[node/NAME]")
@target_options
@output_option
def command(node: str | None, kubeconfig: str | None, context: str | None, output: str) -> None:
    """Show what would happen if a node died now.

    Without a node, one line for each; with one, all that would happen to each of its workloads,
    and what would make it better.
    """
    name = parse_node(node) if node else None

    async def ask(session: Session) -> Readiness:
        return await (_one(session, name) if name else _all(session))

    report = in_session(Target(kubeconfig, context), ask)
    show(report, output=output, table=lambda: _detail(report) if name else _summary(report))


async def _all(session: Session) -> Readiness:
    picture, count = await _picture(session), await places(session.client)
    found = await workloads_everywhere(session.client, opt_in=picture.opt_in)
    return await _report(session, picture, picture.nodes, found, count)


async def _one(session: Session, name: str) -> Readiness:
    picture, count = await _picture(session), await places(session.client)
    node = picture.node(name)
    if node is None:
        raise unknown(Subject(Kind.NODE, "", name), (each.name for each in picture.nodes))
    found = await workloads_on(session.client, [name], opt_in=picture.opt_in)
    return await _report(session, picture, (node,), found, count)


async def _report(
    session: Session,
    picture: Picture,
    nodes: Sequence[Sight],
    found: Inventory,
    count: int | None,
) -> Readiness:
    drbd = await _replication(session, nodes, found)
    devices = await read_devices(session.client, namespace=_DEFAULTS.namespace)
    known = Known(drbd, devices, count)
    return Readiness(
        nodes=tuple(_judged(picture, node, found.on(node.name), known) for node in nodes),
        kubevirt=picture.kubevirt,
        problems=(*picture.problems, *found.problems, *drbd.problems),
    )


async def _replication(session: Session, nodes: Sequence[Sight], found: Inventory) -> Replication:
    access = linstor_of(os.environ)  # noqa: TID251 - commands are composed here
    if access is None:
        return Replication()
    linstor = Linstor(session.seams.transport, session.seams.files, access)
    used = {node.name: found.on(node.name) for node in nodes}
    return await replication(linstor, used, _DEFAULTS.linstor_terms)


async def _picture(session: Session) -> Picture:
    return await take(
        session.client,
        session.seams.wall,
        namespace=_DEFAULTS.namespace,
        lease=_DEFAULTS.lease,
        times=_TIMES,
    )


def _judged(
    picture: Picture,
    node: Sight,
    workloads: Sequence[Workload],
    known: Known,
) -> NodeReadiness:
    seen = picture.snapshot(node, workloads, quorums=known.drbd.sights.get(node.name, ()))
    outlook: NodeOutlook = readiness(
        seen, times=_TIMES, chain=CHAIN, places=known.places, devices=known.devices
    )
    return NodeReadiness(
        node=node.name,
        state=node.life.state,
        recover=outlook.count(Ending.RECOVERS),
        by_itself=sum(each.by_itself for each in outlook.outlooks),
        stay_down=outlook.count(Ending.STAYS_DOWN),
        held=outlook.count(Ending.HELD),
        left=outlook.count(Ending.LEFT),
        proof=outlook.proof,
        workloads=tuple(map(_line, outlook.outlooks)),
        notes=tuple(f"{why.sentence} ({why.code})" for why in outlook.notes),
    )


def _line(outlook: Outlook) -> Line:
    workload = outlook.workload
    because = outlook.down
    return Line(
        workload=str(workload),
        ending=outlook.ending,
        by_itself=outlook.by_itself,
        code=outlook.then.code,
        sentence=f"{workload} stays down: {because}." if because else outlook.then.sentence,
        volumes=tuple(map(volume, workload.volumes)) + workload.also_writes,
        caveats=tuple(why.sentence for why in outlook.caveats),
        fix=outlook.fix,
    )


# For people

_CONFIRM = "backstay confirm-dead"
_MOST_NOTES = 3
_UNCHECKED = "Whether the other nodes have room is not checked."


def _summary(report: Readiness) -> str:
    rows = [
        (_named(node), str(node.ours), str(node.recover), _obstacles(node)) for node in report.nodes
    ]
    if_any = "If any one node died now, what runs on it"
    parts = [
        paragraph(_in_short(report.nodes, if_any)),
        columns(("NODE", "WORKLOADS", "RECOVER", "THE OTHERS"), rows),
        _notes(report.nodes),
        _unread(report),
    ]
    worst = max(report.nodes, key=lambda node: node.ours - node.recover, default=None)
    if worst and worst.ours > worst.recover:
        parts.append("\n".join(next_steps([f"backstay readiness node/{worst.node}"])))
    return join(parts)


def _notes(nodes: Sequence[NodeReadiness]) -> str:
    """A few of each kind: what is wrong with one node is often wrong with all."""
    lines, counts = list[str](), Counter[str]()
    for note in (note for node in nodes for note in node.notes):
        code = note.rpartition("(")[2].rstrip(")")
        counts[code] += 1
        if counts[code] <= _MOST_NOTES:
            lines.append(paragraph(f"Note: {note}"))
    more = ((code, count - _MOST_NOTES) for code, count in counts.items() if count > _MOST_NOTES)
    lines += [paragraph(f"Note: {count} more nodes like that ({code})") for code, count in more]
    return "\n".join(lines)


def _named(node: NodeReadiness) -> str:
    return node.node if node.state == Life.HEALTHY else f"{node.node} ({node.state} now)"


def _in_short(nodes: Sequence[NodeReadiness], if_it_died: str) -> str:
    ours, recover = sum(node.ours for node in nodes), sum(node.recover for node in nodes)
    if not ours:
        return "There is nothing here that Backstay protects: no virtual machines, no StatefulSets."
    alone = sum(node.by_itself for node in nodes)
    waits = f"would wait until a person confirms the death ({_CONFIRM})"
    if not alone:
        then = f"Then {recover} of {counted(ours, 'workload')} would recover."
        return f"{if_it_died} {waits}. {then} {_UNCHECKED}"
    others = f" The others {waits}; then {recover} would." if alone < recover else ""
    return (
        f"{if_it_died} is {counted(ours, 'workload')}, of which {alone} would recover without "
        f"anybody's word, on {_whose(nodes)}.{others} {_UNCHECKED}"
    )


def _whose(nodes: Sequence[NodeReadiness]) -> str:
    """Whose word it would be instead of a person's."""
    said = [proof for node in nodes for proof in node.proof]
    words = {"that of its BMC": "its BMC", "DRBD's": "DRBD"}
    return " or ".join(w for w, of in words.items() if any(p.startswith(of) for p in said))


def _obstacles(node: NodeReadiness) -> str:
    """What stands in the way of those that would not recover."""
    counts = Counter(
        _OBSTACLES.get(line.code, line.code)
        for line in node.workloads
        if line.ending in (Ending.STAYS_DOWN, Ending.HELD)
    )
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


_OBSTACLES = {
    "CannotRunElsewhere": "bound to the node",
    "StaysDown": "not started again",
    "RunsOnce": "not started again",
    "NobodyStartsIt": "not started again",
    "NeedsRecovery": "to be recovered by hand first",
    "LookupFailed": "not readable",
    "AddressBound": "without its address elsewhere",
    "AddressUnreadable": "without a readable address",
}


def _detail(report: Readiness) -> str:
    [node] = report.nodes
    ours = [line for line in node.workloads if line.ending is not Ending.LEFT]
    left = [line for line in node.workloads if line.ending is Ending.LEFT]
    parts = [paragraph(_in_short(report.nodes, _if_it_died(node))), _notes(report.nodes)]
    parts += [_block(line) for line in ours]
    if left:
        parts.append(_left(left))
    parts.append(_unread(report))
    return join(parts)


def _if_it_died(node: NodeReadiness) -> str:
    if node.state == Life.HEALTHY:
        return f"If {node.node} died now, what runs on it"
    return f"{node.node} is {node.state} now. If it is dead, what ran on it"


_BY_ITSELF = "recovers by itself"
_WORDS = {
    Ending.RECOVERS: "recovers once the death is confirmed",
    Ending.STAYS_DOWN: "STAYS DOWN",
    Ending.HELD: "IS HELD",
}


def _block(line: Line) -> str:
    sentence = "" if line.ending is Ending.RECOVERS else line.sentence
    notes = [("note", caveat) for caveat in line.caveats]
    volumes = [("volume", each) for each in line.volumes]
    how = _BY_ITSELF if line.by_itself else _WORDS[line.ending]
    title = f"{line.workload}   {how}"
    body = fields([*volumes, ("why", sentence), *notes, ("to fix", line.fix)], whole="to fix")
    return f"{title}\n{body}" if body else title


def _left(left: Sequence[Line]) -> str:
    lines = [f"LEFT ALONE ({len(left)})"]
    return "\n".join([*lines, *(paragraph(line.sentence, indent=2) for line in left)])


def _unread(report: Readiness) -> str:
    return "\n".join(paragraph(f"Could not be read: {why}") for why in report.problems)
