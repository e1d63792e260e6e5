"""``backstay status``: what is down, why it is held, and what to do.

It asks the cluster and not the controller, so that it answers also when the controller is what
is down. Where a controller lives, its own account of an incident is shown; where none does, the
same rules are applied here to what the API says, and it is said that nobody acts.
"""

from collections.abc import Iterator, Sequence

import click
import msgspec

from backstay.cli.main import EXIT_BLIND, EXIT_HELD
from backstay.cli.maintenances import Maintenance, maintenances_of, section, waits_for_us
from backstay.cli.output import columns, output_option, show
from backstay.cli.session import Session, Target, in_session, target_options
from backstay.cli.words import ago, bullet, counted, join, next_steps, paragraph
from backstay.decide.failover import CHAIN, decide
from backstay.model.incident import Progress
from backstay.model.node import Life
from backstay.model.policy import Mode, Policy, Times
from backstay.model.reasons import Reason
from backstay.model.workload import Workload
from backstay.settings import Settings
from backstay.sources.picture import Picture, Sight, take, workloads_on

_DEFAULTS = Settings(identity="backstay status")
_TIMES = Times()

_SHOWN = 5
"""Of what is held on one node for one reason: a list that fills the screen hides the rest."""

_UNDER_WAY = (Progress.DUE, Progress.MARKED, Progress.RELEASED)


class Held(msgspec.Struct, frozen=True):
    """A workload that is down and waits. ``next`` is what would let it go on."""

    workload: str
    code: str
    sentence: str
    next: str = ""


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is not well. ``seconds`` is since when, as the API says; None if it does not."""

    node: str
    state: str
    seconds: float | None
    code: str
    sentence: str
    next: str = ""
    workloads: int = 0
    under_way: int = 0
    recovered: int = 0
    held: tuple[Held, ...] = ()
    incident: str = ""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What is printed; ``blind`` says why what is seen is not to be relied on."""

    mode: str
    mode_sentence: str
    controller: str
    kubevirt: str
    nodes: int
    healthy: int
    unwell: tuple[NodeStatus, ...]
    maintenances: tuple[Maintenance, ...] = ()
    blind: str = ""
    notes: tuple[str, ...] = ()
    """What the controller wants people to know, while there is one."""
    problems: tuple[str, ...] = ()
    next: tuple[str, ...] = ()

    @property
    def held(self) -> int:
        return sum(len(node.held) for node in self.unwell)


@click.command(name="status")
@target_options
@output_option
def command(kubeconfig: str | None, context: str | None, output: str) -> int:
    """Show what is down, why it is held, and what to do next.

    Exit code 0 when nothing is held, 2 when workloads are held, 3 when the API cannot be reached
    or what it says is not to be relied on.
    """
    status = in_session(Target(kubeconfig, context), _look)
    show(status, output=output, table=lambda: _table(status))
    if status.blind:
        return EXIT_BLIND
    return EXIT_HELD if status.held else 0


async def _look(session: Session) -> Status:
    picture = await take(
        session.client,
        session.seams.wall,
        namespace=_DEFAULTS.namespace,
        lease=_DEFAULTS.lease,
        times=_TIMES,
    )
    unwell = [node for node in picture.nodes if not node.well]
    names = [node.name for node in unwell]
    found = await workloads_on(session.client, names, opt_in=picture.opt_in)
    judged = [_node(picture, node, found.on(node.name)) for node in unwell]
    return _status(picture, judged, found.problems)


def _status(picture: Picture, unwell: Sequence[NodeStatus], problems: Sequence[str]) -> Status:
    blind = "" if picture.trustworthy else _why_blind(picture)
    steps = [held.next for node in unwell for held in node.held] + [node.next for node in unwell]
    maintenances = maintenances_of(picture)
    steps += [step for each in maintenances for step in each.next]
    if any(node.held for node in unwell) or waits_for_us(picture, maintenances):
        steps = [who_acts(picture), *steps]
    if picture.policy.rolled_back:
        steps = [Reason.ApiRolledBack.because(because="").next, *steps]
    return Status(
        mode=Mode.DISARMED if picture.policy.rolled_back else picture.policy.mode,
        mode_sentence=mode_sentence(picture),
        controller=controller_sentence(picture),
        kubevirt={True: "installed", False: "not installed", None: "unknown"}[picture.kubevirt],
        nodes=len(picture.nodes),
        healthy=len(picture.nodes) - len(unwell),
        unwell=tuple(unwell),
        maintenances=maintenances,
        blind=blind,
        notes=tuple(_notes(picture, maintenances)),
        problems=(*picture.problems, *problems),
        next=tuple(dict.fromkeys(filter(None, ["backstay doctor" if blind else "", *steps]))),
    )


def _notes(picture: Picture, maintenances: Sequence[Maintenance]) -> Iterator[str]:
    """Of a leader that lives; but what its maintenances say themselves is not said twice."""
    if picture.leader is None or not picture.leader.alive:
        return
    for note in picture.leader.notes:
        if not any(each.sentence.startswith(note) for each in maintenances):
            yield note


def _why_blind(picture: Picture) -> str:
    return (
        f"{len(picture.silent)} of {counted(len(picture.nodes), 'node')} seem silent. It is more "
        "likely that the API lags behind, or that the clock of this machine is wrong, than that "
        "most nodes died at once. Nothing here is to be relied on."
    )


def who_acts(picture: Picture) -> str:
    """What to do about there being nobody who would act; empty if there is somebody."""
    if not picture.installed:
        return "backstay manifests | kubectl apply -f -"
    alive = picture.leader is not None and picture.leader.alive
    return "" if alive else f"kubectl get pods -n {_DEFAULTS.namespace}"


def mode_sentence(picture: Picture) -> str:
    """What Backstay may do in this cluster at present."""
    policy: Policy = picture.policy
    if not picture.installed:
        return "Backstay is not installed here: nothing acts when a node dies."
    if policy.rolled_back:
        return Reason.ApiRolledBack.because(because=policy.rolled_back).sentence
    if policy.mode is Mode.ARMED:
        return "Backstay is armed: it acts as soon as a death is proven."
    if policy.mode is Mode.DISARMED:
        return f"Backstay is disarmed until {policy.disarmed_until}: {policy.disarmed_because}."
    return "Backstay observes: it says what it would do and changes nothing."


def controller_sentence(picture: Picture) -> str:
    leader = picture.leader
    if not picture.installed:
        return ""
    if leader is None:
        return "No controller is running, so nobody acts."
    if leader.alive:
        return f"Controller: {leader.holder} leads, and renewed its lease {ago(leader.age)} ago."
    return f"NO CONTROLLER: the last one, {leader.holder}, was heard of {ago(leader.age)} ago."


def _node(picture: Picture, node: Sight, workloads: Sequence[Workload]) -> NodeStatus:
    told = node.incident
    if told is not None and told.status.state and picture.leader and picture.leader.alive:
        return _as_told(picture, node, len(workloads))
    decision = decide(picture.snapshot(node, workloads), picture.now, times=_TIMES, chain=CHAIN)
    held = tuple(
        Held(str(v.workload), v.why.code, v.why.sentence, v.why.next) for v in decision.held
    )
    down = node.life.state is not Life.HEALTHY
    return NodeStatus(
        node=node.name,
        state=node.life.state if down else "NotReady",
        seconds=picture.now - node.life.since if down else None,
        code=decision.why.code if down else "NotReady",
        sentence=decision.why.sentence if down else _not_ready(node),
        next="" if down else f"kubectl describe node {node.name}",
        workloads=len(workloads),
        under_way=len(decision.releases),
        held=held,
        incident=told.key if told else "",
    )


def _not_ready(node: Sight) -> str:
    return f"{node.name} is alive, but its condition Ready is {node.row.ready}."


def _as_told(picture: Picture, node: Sight, workloads: int) -> NodeStatus:
    """By the controller, in its incident."""
    assert node.incident is not None
    status = node.incident.status
    held = tuple(
        Held(record.workload, record.code, record.sentence, record.next)
        for record in status.workloads
        if record.progress is Progress.HELD
    )
    return NodeStatus(
        node=node.name,
        state=status.state,
        seconds=picture.now - node.life.since,
        code=status.code,
        sentence=status.sentence,
        next=status.next,
        workloads=len(status.workloads) or workloads,
        under_way=sum(record.progress in _UNDER_WAY for record in status.workloads),
        recovered=status.recovered,
        held=held,
        incident=node.incident.key,
    )


def _table(status: Status) -> str:
    head = [
        status.mode_sentence,
        status.controller,
        f"{counted(status.nodes, 'node')}, {status.healthy} healthy. KubeVirt: {status.kubevirt}.",
    ]
    parts = ["\n".join(paragraph(line) for line in head if line)]
    if status.blind:
        parts.append(paragraph(f"BLIND: {status.blind}"))
    if status.unwell:
        parts.append(_nodes(status.unwell))
    parts += [_held(node) for node in status.unwell if node.held]
    parts.append(section(status.maintenances))
    if status.notes:
        parts.append("\n".join(["NOTE", *map(bullet, status.notes)]))
    if status.problems:
        parts.append("\n".join(paragraph(f"Could not be read: {why}") for why in status.problems))
    if not status.unwell and not status.blind:
        parts.append("Nothing is down.")
    parts.append("\n".join(next_steps(status.next)))
    return join(parts)


def _nodes(unwell: Sequence[NodeStatus]) -> str:
    rows = [(node.node, node.state, _since(node), _tally(node), node.sentence) for node in unwell]
    return columns(("NODE", "STATE", "FOR", "WORKLOADS", "WHY"), rows)


def _since(node: NodeStatus) -> str:
    return "" if node.seconds is None else ago(node.seconds)


def _tally(node: NodeStatus) -> str:
    parts = [
        (len(node.held), "held"), (node.under_way, "moving"), (node.recovered, "recovered"),
    ]  # fmt: skip
    said = [f"{count} {what}" for count, what in parts if count]
    return ", ".join(said) or str(node.workloads)


def _held(node: NodeStatus) -> str:
    """The first few for each reason: what differs must not drown in what is the same."""
    lines = [f"HELD ON {node.node} ({len(node.held)})"]
    by_reason: dict[str, list[Held]] = {}
    for held in node.held:
        by_reason.setdefault(held.code, []).append(held)
    for code, alike in by_reason.items():
        lines += [bullet(held.sentence) for held in alike[:_SHOWN]]
        if len(alike) > _SHOWN:
            lines.append(f"  - and {len(alike) - _SHOWN} more for the same reason, {code}")
    if len(lines) <= len(node.held):
        lines.append(f"    all of them: backstay explain node/{node.node}")
    return "\n".join(lines)
