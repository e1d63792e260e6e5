"""``backstay arm``: lets Backstay act.

Before it asks, it shows what that means: how each node would fare, what would be acted on at once,
and who else acts on dead nodes here. The rules are those of the controller itself.
"""

from collections.abc import Sequence

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
from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.kube.discovery import discover
from backstay.model.labels import ARMED
from backstay.model.policy import Mode, Policy, Times
from backstay.model.reasons import Reason
from backstay.settings import Settings
from backstay.sources.operator import policy_of
from backstay.sources.picture import take, workloads_everywhere

_DEFAULTS = Settings(identity="backstay arm")
_TIMES = Times()

# Whose kinds tell that they are installed, and what they do to dead nodes.
_OTHERS = {
    "nodehealthchecks.remediation.medik8s.io": "Node Health Check (remediates unhealthy nodes)",
    "selfnoderemediations.self-node-remediation.medik8s.io": "Self Node Remediation (reboots them)",
    "fenceagentsremediations.fence-agents-remediation.medik8s.io":
        "Fence Agents Remediation (reboots them)",
    "machinehealthchecks.machine.openshift.io": "MachineHealthCheck (replaces machines)",
    "linstorclusters.piraeus.io": "Piraeus, whose HA controller deletes pods of lost volumes",
}  # fmt: skip


class Armed(msgspec.Struct, frozen=True):
    mode: str
    detail: str


class Preview(msgspec.Struct, frozen=True):
    """What arming would mean. ``config`` is what it was worked out for."""

    config: ConfigRow | None
    policy: Policy
    nodes: tuple[NodeOutlook, ...]
    at_once: tuple[str, ...]
    others: tuple[str, ...]
    problems: tuple[str, ...]


@click.command(name="arm")
@click.option("--yes", is_flag=True, help="Do not ask; for scripts.")
@target_options
@output_option
def command(yes: bool, kubeconfig: str | None, context: str | None, output: str) -> None:
    """Let Backstay act; shows what that changes, and asks."""
    target = Target(kubeconfig, context)
    preview = in_session(target, _preview)
    if preview.policy.mode is Mode.ARMED and not preview.policy.rolled_back:
        done = Armed(Mode.ARMED, "Backstay is armed already.")
    else:
        say(_described(preview))
        say()
        agreed("Arm Backstay?", yes=yes, command="backstay arm --yes")
        in_session(target, lambda session: _arm(session, preview.config))
        done = Armed(Mode.ARMED, "Backstay is armed: it acts as soon as a death is proven.")
    show(done, output=output, table=lambda: done.detail)
    say("NEXT: backstay status")


async def _arm(session: Session, known: ConfigRow | None) -> None:
    """The stamp tells this arming from any other, also from one in a backup of the API."""
    stamp = f"{session.seams.wall.now().isoformat()} by {await own_name(session.client)}"
    await write_config(
        session.client,
        known,
        {"mode": Mode.ARMED, "disarmed": None},
        annotations={ARMED: stamp},
    )


async def _preview(session: Session) -> Preview:
    client, wall = session.client, session.seams.wall
    config = await read_config(client)
    picture = await take(
        client, wall, namespace=_DEFAULTS.namespace, lease=_DEFAULTS.lease, times=_TIMES
    )
    policy = msgspec.structs.replace(
        policy_of(config, wall.now()), rolled_back=picture.policy.rolled_back
    )
    found = await workloads_everywhere(client)
    as_armed = msgspec.structs.replace(policy, mode=Mode.ARMED, rolled_back="")
    nodes, at_once = [], []
    for node in picture.nodes:
        seen = picture.snapshot(node, found.on(node.name))
        nodes.append(readiness(seen, times=_TIMES, chain=CHAIN))
        armed = msgspec.structs.replace(seen, policy=as_armed)
        decision = decide(armed, picture.now, times=_TIMES, chain=CHAIN)
        at_once += [f"{verdict.workload} on {node.name}" for verdict in decision.releases]
    problems = (*picture.problems, *found.problems)
    others = await _others(client)
    return Preview(config, policy, tuple(nodes), tuple(at_once), others, problems)


async def _others(client: KubeClient) -> tuple[str, ...]:
    try:
        catalogue = await discover(client)
    except errors.KubeError as error:
        return (f"whoever it is: it could not be looked up ({error})",)
    return tuple(words for label, words in _OTHERS.items() if catalogue.find(label))


def _described(preview: Preview) -> str:
    parts = [_now(preview.policy), _nodes(preview.nodes)]
    if preview.at_once:
        parts.append(
            _listed("At once these would be taken from their dead nodes:", preview.at_once)
        )
    if preview.others:
        intro = "Others that act on dead nodes are installed; let one of you do it:"
        parts.append(_listed(intro, preview.others))
    if preview.problems:
        parts.append(_listed("This preview is not complete:", preview.problems))
    return "\n\n".join(parts)


def _now(policy: Policy) -> str:
    if policy.rolled_back:
        why = Reason.ApiRolledBack.because(because=policy.rolled_back)
        return paragraph(
            f"{why.sentence} Arming accepts the API as it is now: look first whether guests run "
            "twice, or on other nodes than it says."
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
