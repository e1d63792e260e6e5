"""``backstay arm``: lets Backstay act.

Before it asks, it shows what that means: how each node would fare, what would be acted on at once,
and who else acts on dead nodes here. The rules are those of the controller itself.
"""

from collections.abc import Iterable, Mapping, Sequence

import click
import msgspec

from backstay.apis.backstay import ConfigRow
from backstay.cli.configuration import read_config, write_config
from backstay.cli.consent import agreed, own_name, say
from backstay.cli.output import columns, output_option, show
from backstay.cli.session import Session, Target, in_session, target_options
from backstay.cli.words import paragraph
from backstay.decide.failover import CHAIN, decide
from backstay.decide.readiness import Ending, NodeOutlook, readiness
from backstay.model.labels import ARMED
from backstay.model.policy import Job, Mode, Ownership, Policy, Times
from backstay.model.reasons import Reason
from backstay.settings import Settings
from backstay.sources.foreign import Survey, survey
from backstay.sources.picture import take, workloads_everywhere

_DEFAULTS = Settings(identity="backstay arm")
_TIMES = Times()


class Armed(msgspec.Struct, frozen=True):
    mode: str
    detail: str


class Preview(msgspec.Struct, frozen=True):
    """What arming would mean. ``config`` is what it was worked out for."""

    config: ConfigRow | None
    policy: Policy
    owners: dict[Job, Ownership]
    nodes: tuple[NodeOutlook, ...]
    at_once: tuple[str, ...]
    others: Survey
    problems: tuple[str, ...]


@click.command(name="arm")
@click.option("--yes", is_flag=True, help="Do not ask; for scripts.")
@click.option(
    "--own", "owned", multiple=True, type=click.Choice([job.value for job in Job]), metavar="JOB",
    help="Do this job although somebody else was found to do it; may be given several times.",
)  # fmt: skip
@target_options
@output_option
def command(
    yes: bool, owned: Sequence[str], kubeconfig: str | None, context: str | None, output: str
) -> None:
    """Let Backstay act; shows what that changes, and asks.

    A job that another program was found to do (failover, detach, addresses, fencing,
    maintenance) is left to that program, unless it is claimed with --own.
    """
    target = Target(kubeconfig, context)
    preview = in_session(target, lambda session: _preview(session, map(Job, owned)))
    if preview.policy.mode is Mode.ARMED and not preview.policy.rolled_back:
        done = Armed(Mode.ARMED, "Backstay is armed already.")
    else:
        say(_described(preview))
        say()
        agreed("Arm Backstay?", yes=yes, command="backstay arm --yes")
        in_session(target, lambda session: _arm(session, preview))
        done = Armed(Mode.ARMED, "Backstay is armed: it acts as soon as a death is proven.")
    show(done, output=output, table=lambda: done.detail)
    say("NEXT: backstay status")


async def _arm(session: Session, preview: Preview) -> None:
    """The stamp tells this arming from any other, also from one in a backup of the API."""
    stamp = f"{session.seams.wall.now().isoformat()} by {await own_name(session.client)}"
    owners = {job.value: owner.value for job, owner in preview.owners.items()}
    await write_config(
        session.client,
        preview.config,
        {"mode": Mode.ARMED, "disarmed": None, "owners": owners or None},
        annotations={ARMED: stamp},
    )


async def _preview(session: Session, owned: Iterable[Job]) -> Preview:
    client, wall = session.client, session.seams.wall
    config, others = await read_config(client), await survey(client)
    owners = _owners(config, others, owned)
    picture = await take(
        client, wall, namespace=_DEFAULTS.namespace, lease=_DEFAULTS.lease, times=_TIMES
    )
    policy = msgspec.structs.replace(picture.policy, owners=owners)
    found = await workloads_everywhere(client, opt_in=picture.opt_in)
    as_armed = msgspec.structs.replace(policy, mode=Mode.ARMED, rolled_back="")
    nodes, at_once = [], []
    for node in picture.nodes:
        seen = picture.snapshot(node, found.on(node.name))
        nodes.append(readiness(seen, times=_TIMES, chain=CHAIN))
        armed = msgspec.structs.replace(seen, policy=as_armed)
        decision = decide(armed, picture.now, times=_TIMES, chain=CHAIN)
        at_once += [f"{verdict.workload} on {node.name}" for verdict in decision.releases]
    problems = (*picture.problems, *found.problems, *others.problems)
    return Preview(config, policy, owners, tuple(nodes), tuple(at_once), others, problems)


def _owners(config: ConfigRow | None, others: Survey, owned: Iterable[Job]) -> dict[Job, Ownership]:
    """What was decided before stays; a job that somebody else does is left to him."""
    found = dict.fromkeys(others.claimed(), Ownership.FOREIGN)
    decided = {} if config is None else config.spec.owners
    return found | decided | dict.fromkeys(owned, Ownership.OURS)


def _described(preview: Preview) -> str:
    parts = [_now(preview.policy), _nodes(preview.nodes)]
    if preview.policy.power and preview.policy.owner_of(Job.FENCING) is Ownership.OURS:
        parts.append(paragraph(_POWER))
    if preview.at_once:
        parts.append(
            _listed("At once these would be taken from their dead nodes:", preview.at_once)
        )
    if preview.others.actors:
        intro = "Others that act on nodes are installed:"
        parts.append(_listed(intro, [str(actor) for actor in preview.others.actors]))
    if preview.owners:
        parts.append(_listed("Who does what from now on:", shares(preview.owners, preview.others)))
    if preview.problems:
        parts.append(_listed("This preview is not complete:", preview.problems))
    return "\n\n".join(parts)


_POWER = (
    "A node that is silent on every channel, and on which something waits for proof, is switched "
    "off through its BMC (fencing.power): whatever else runs there ends with it."
)


def shares(owners: Mapping[Job, Ownership], others: Survey) -> list[str]:
    """Who does which job, for people."""
    return [f"{job}: {_share(job, owner, others)}" for job, owner in owners.items()]


def _share(job: Job, owner: Ownership, others: Survey) -> str:
    doing = " and ".join(actor.name for actor in others.claimed().get(job, ()))
    match owner:
        case Ownership.FOREIGN:
            return f"left to {doing or 'another program'}; to claim it: backstay arm --own {job}"
        case Ownership.OFF:
            return "nobody: the configuration has it switched off"
        case Ownership.OURS:
            return f"Backstay, although {doing} does it too" if doing else "Backstay"


def _now(policy: Policy) -> str:
    if policy.rolled_back:
        why = Reason.ApiRolledBack.because(because=policy.rolled_back)
        return paragraph(
            f"{why.sentence} Arming accepts the API as it is now: look first whether guests run "
            "twice, or on other nodes than it says. Deaths confirmed before that count no more."
        )
    if policy.mode is Mode.DISARMED:
        return paragraph(
            f"Backstay is disarmed until {policy.disarmed_until}: {policy.disarmed_because}. "
            "Arming ends that."
        )
    return paragraph(
        "Backstay only observes. Armed, it taints a node that is proven dead and removes the pods "
        "of protected workloads from it, so that they start elsewhere. Without proof it changes "
        "nothing."
    )


def _nodes(nodes: Sequence[NodeOutlook]) -> str:
    rows = [
        (
            node.node,
            str(node.count(Ending.RECOVERS)),
            str(node.count(Ending.STAYS_DOWN)),
            str(node.count(Ending.HELD)),
            str(node.count(Ending.LEFT)),
        )
        for node in nodes
    ]
    table = columns(("IF IT DIED", "RECOVER", "STAY DOWN", "HELD", "LEFT ALONE"), rows, width=79)
    return f"{table}\nMore of it: backstay readiness"


def _listed(intro: str, lines: Sequence[str]) -> str:
    return "\n".join([intro, *(paragraph(f"- {line}", indent=2) for line in lines)])
