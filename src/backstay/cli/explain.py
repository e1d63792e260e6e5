"""``backstay explain``: the whole story of a node, a VM or a pod.

What is known, what was made of it, check by check, what has happened so far and what to do next.
The checks are those of a running controller, asked one by one (``decide.failover.examine``); here
they are asked of what the API says at this moment.
"""

from collections.abc import Iterable, Sequence

import click
import msgspec

from backstay.cli.main import EXIT_HELD
from backstay.cli.maintenances import Maintenance, for_pods, maintenances_of, section
from backstay.cli.output import columns, output_option, show
from backstay.cli.session import Session, Target, in_session, target_options
from backstay.cli.status import controller_sentence, mode_sentence, who_acts
from backstay.cli.subject import Kind, Subject, parse, unknown
from backstay.cli.where import is_meant, node_of
from backstay.cli.words import ago, bullet, counted, fields, join, next_steps, paragraph, volume
from backstay.decide import life as lives
from backstay.decide.failover import CHAIN, Action, Decision, decide, examine
from backstay.decide.guests import notes
from backstay.decide.policy import terms_of
from backstay.decide.proof import void
from backstay.decide.readiness import readiness
from backstay.model.addresses import AddressClaim
from backstay.model.incident import Moment
from backstay.model.node import Life
from backstay.model.policy import Policy, Times
from backstay.model.reasons import Why
from backstay.model.workload import Workload
from backstay.settings import Settings
from backstay.sources.picture import Inventory, Picture, Sight, take, workloads_on

_DEFAULTS = Settings(identity="backstay explain")
_TIMES = Times()


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One check of the chain. ``result`` is ok, Hold or Leave."""

    question: str
    result: str
    code: str = ""
    sentence: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One workload: what is decided about it, and how."""

    workload: str
    action: Action
    code: str
    sentence: str
    known: tuple[tuple[str, str], ...] = ()
    chain: tuple[Step, ...] = ()
    if_it_died: str = ""


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """What is printed. ``about`` is the subject; ``answers`` are its workloads."""

    about: str
    sentence: str
    cluster: tuple[str, ...] = ()
    known: tuple[tuple[str, str], ...] = ()
    evidence: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()
    incident: str = ""
    timeline: tuple[Moment, ...] = ()
    maintenances: tuple[Maintenance, ...] = ()
    """Of the node; of what is in the way only what concerns the subject."""
    problems: tuple[str, ...] = ()
    next: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        return any(answer.action is Action.HOLD for answer in self.answers)


@click.command(name="explain")
@click.argument("subject", metavar="node/NAME | vm/NAMESPACE/NAME | pod/NAMESPACE/NAME")
@target_options
@output_option
def command(subject: str, kubeconfig: str | None, context: str | None, output: str) -> int:
    """Tell the whole story of a node, a VM or a pod: what is known, every check and its answer,
    what has happened so far, and what to do next.

    Exit code 2 when what was asked about is held.
    """
    about = parse(subject)

    async def ask(session: Session) -> Story:
        return await _tell(session, about)

    story = in_session(Target(kubeconfig, context), ask)
    show(story, output=output, table=lambda: _table(story))
    return EXIT_HELD if story.held else 0


async def _tell(session: Session, about: Subject) -> Story:
    where = await node_of(session, about)
    if where is None:
        sentence = f"{about} runs on no node, so there is nothing to fail over."
        return Story(about=str(about), sentence=sentence)
    picture = await take(
        session.client,
        session.seams.wall,
        namespace=_DEFAULTS.namespace,
        lease=_DEFAULTS.lease,
        times=_TIMES,
    )
    node = picture.node(where)
    if node is None:
        raise unknown(Subject(Kind.NODE, "", where), (each.name for each in picture.nodes))
    found = await workloads_on(session.client, [where], opt_in=picture.opt_in)
    return _story(picture, node, about, found)


# What is to be told


def _story(picture: Picture, node: Sight, about: Subject, found: Inventory) -> Story:
    workloads = found.on(node.name)
    snapshot = picture.snapshot(node, workloads)
    decision = decide(snapshot, picture.now, times=_TIMES, chain=CHAIN)
    ours = [w for w in workloads if about.kind is Kind.NODE or is_meant(about, w)]
    if not ours and about.kind is not Kind.NODE:
        return Story(about=str(about), sentence=_not_a_workload(about, node))
    alone = len(ours) == 1 and about.kind is not Kind.NODE
    answers = tuple(_answer(picture, node, workload, decision, whole=alone) for workload in ours)
    told = node.incident
    steps = [verdict.why.next for verdict in decision.verdicts if verdict.workload in ours]
    maintenances = [each for each in maintenances_of(picture) if each.node == node.name]
    if about.kind is not Kind.NODE:
        pods = {pod.key for workload in ours for pod in workload.pods}
        maintenances = [for_pods(each, pods) for each in maintenances]
    leaving = [step for each in maintenances for step in each.next]
    return Story(
        about=str(about),
        sentence=answers[0].sentence if alone else decision.why.sentence,
        cluster=tuple(filter(None, (mode_sentence(picture), controller_sentence(picture)))),
        known=_said_of(_known_of_node(picture, node)),
        evidence=_evidence(picture, node),
        answers=answers,
        incident=told.key if told else "",
        timeline=told.status.timeline if told else (),
        maintenances=tuple(maintenances),
        problems=(*picture.problems, *found.problems),
        next=tuple(dict.fromkeys(filter(None, [*_steps(picture, decision, steps), *leaving]))),
    )


def _steps(picture: Picture, decision: Decision, steps: Sequence[str]) -> list[str]:
    """Where something is held, only what would let it go on: to protect more things is nobody's
    business in a bad night."""
    if not decision.held:
        return [decision.why.next, *steps]
    held = {verdict.why.next for verdict in decision.held}
    return [decision.why.next, who_acts(picture), *(step for step in steps if step in held)]


def _not_a_workload(about: Subject, node: Sight) -> str:
    if about.kind is Kind.POD:
        return (
            f"{about} belongs to {node.name} itself (a DaemonSet's, or a static pod), or is what "
            "a finished migration left behind: there is nothing to fail over."
        )
    return f"{about} has no pod on {node.name}: there is nothing to fail over."


def _said_of(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in pairs if value)


def _known_of_node(picture: Picture, node: Sight) -> tuple[tuple[str, str], ...]:
    facts = node.facts
    lease = "none" if node.lease_age is None else f"renewed {ago(node.lease_age)} ago"
    heartbeat = facts.heartbeat_changed_at
    seen = "" if heartbeat is None else f"heartbeat {ago(picture.now - heartbeat)} ago"
    lasts = "" if node.life.state is Life.HEALTHY else f", for {ago(picture.now - node.life.since)}"
    return (
        ("state", f"{node.life.state}{lasts}"),
        ("Ready", facts.ready),
        ("lease", f"{lease}, as the API says"),
        ("virt-handler", seen and f"{seen}, as the API says"),
        ("boot id", facts.boot_id),
        ("exempt", "yes: its workloads are left alone" if facts.exempt else ""),
        ("tainted", "yes, by Backstay: nothing new is put there" if facts.tainted else ""),
        ("power", _power(node)),
    )


def _power(node: Sight) -> str:
    """What its device was asked for. That a request was sent says nothing of what became of it."""
    asked = node.incident.status.power if node.incident else None
    if asked is None:
        return ""
    times = {"off": asked.offs, "on": asked.ons}
    said = [f"{way} {counted(count, 'time')}" for way, count in times.items() if count]
    return f"asked to go {' and '.join(said)}, last at {asked.at}" if said else ""


def _evidence(picture: Picture, node: Sight) -> tuple[str, ...]:
    """Each confirmation, and whether it counts. That a living node has none goes unsaid."""
    if not node.confirmations and node.life.state is not Life.HEALTHY:
        return (f"none: nothing proves that {node.name} is dead",)
    said = []
    for word in node.confirmations:
        given = (
            f"{word.by} confirmed the death {ago(picture.now - word.seen_at)} ago: {word.reason}"
        )
        because = void(word, node.facts)
        if because is None and lives.guests_alive(node.life, node.facts, _TIMES):
            because = "the node's virt-handler is heard of"
        verdict = "It counts" if because is None else f"It does not count: {because}"
        said.append(f"{given}. {verdict}.")
    return tuple(said)


def _answer(
    picture: Picture, node: Sight, workload: Workload, decision: Decision, *, whole: bool
) -> Answer:
    """``whole`` adds what is known of the workload, and every check."""
    [verdict] = [each for each in decision.verdicts if each.workload is workload]
    short = Answer(
        workload=str(workload),
        action=verdict.action,
        code=verdict.why.code,
        sentence=verdict.why.sentence,
    )
    if not whole:
        return short
    snapshot = picture.snapshot(node, (workload,))
    answers = examine(snapshot, workload, picture.now, times=_TIMES, chain=CHAIN)
    return msgspec.structs.replace(
        short,
        known=_said_of(_known_of_workload(workload, picture.policy)),
        chain=tuple(
            Step(_question(each.check), each.objection.action, *_said(each.objection.why))
            if each.objection
            else Step(_question(each.check), "ok")
            for each in answers
        ),
        if_it_died=_forecast(picture, node, workload),
    )


def _said(why: Why) -> tuple[str, str]:
    return why.code, why.sentence


def _question(check: str) -> str:
    return f"{check.replace('_', ' ')}?"


def _forecast(picture: Picture, node: Sight, workload: Workload) -> str:
    """For a node that is well, what people really want to know."""
    if node.life.state is not Life.HEALTHY:
        return ""
    outlook = readiness(picture.snapshot(node, (workload,)), times=_TIMES, chain=CHAIN)
    [only] = outlook.outlooks
    return only.then.sentence


def _known_of_workload(workload: Workload, policy: Policy) -> tuple[tuple[str, str], ...]:
    labels = {True: "protected by its label", False: "its label says no", None: ""}
    return (
        ("node", workload.node),
        ("pods", ", ".join(f"{p.name}{' (being deleted)' * p.marked}" for p in workload.pods)),
        *(("volume", volume(each)) for each in workload.volumes),
        ("also writes", ", ".join(workload.also_writes)),
        *(
            ("address", f"{', '.join(claim.addresses)} ({_asked_for(claim)})")
            for claim in workload.addresses
        ),
        *(("note", note.sentence) for note in workload.notes),
        *(("note", note.sentence) for note in notes(workload, terms_of(workload, policy))),
        ("run strategy", workload.run_strategy),
        ("label", labels[workload.label]),
        ("bound", workload.pinned_by),
        ("unknown", workload.unread),
    )


def _asked_for(claim: AddressClaim) -> str:
    if claim.will_be_asked_for:
        return "asked for by name"
    return f"{', '.join(claim.pinned)} is asked for by name"


# For people


def _table(story: Story) -> str:
    parts = [paragraph(_title(story))]
    if story.cluster:
        parts.append("\n".join(map(paragraph, story.cluster)))
    if story.known:
        parts.append("NODE\n" + fields(story.known))
    if story.evidence:
        parts.append("EVIDENCE\n" + "\n".join(map(bullet, story.evidence)))
    parts.append(section(story.maintenances))
    parts += _answers(story.answers)
    if story.timeline:
        rows = [(each.at, each.code, each.sentence) for each in story.timeline]
        parts.append(f"INCIDENT {story.incident}\n" + columns(("AT", "WHAT", "TOLD"), rows))
    parts += [paragraph(f"Could not be read: {why}") for why in story.problems]
    parts.append("\n".join(next_steps(story.next)))
    return join(parts)


def _title(story: Story) -> str:
    """A sentence that speaks of the subject by name needs no more."""
    named = story.about.partition(" ")[2] in story.sentence
    return story.sentence if named else f"{story.about}: {story.sentence}"


def _answers(answers: Sequence[Answer]) -> list[str]:
    whole = [answer for answer in answers if answer.chain]
    if whole:
        return [part for answer in whole for part in _whole(answer)]
    rows = [(each.workload, each.action, each.sentence) for each in answers]
    return [columns(("WORKLOAD", "VERDICT", "WHY"), rows)] if rows else []


def _whole(answer: Answer) -> list[str]:
    steps = [
        (step.question, "ok" if step.result == "ok" else step.result.upper(), step.sentence)
        for step in answer.chain
    ]
    return [
        "WORKLOAD\n" + fields(answer.known),
        columns(("CHECK", "", "OBJECTION (the first one decides)"), steps),
        f"VERDICT: {answer.action} ({answer.code})",
        paragraph(f"If the node died now: {answer.if_it_died}") if answer.if_it_died else "",
    ]
