"""``backstay config show``: what holds, field by field, and who has said so.

For a workload these are the very terms that a decision about it rests on.
"""

import click
import msgspec

from backstay.apis.backstay import ConfigRow
from backstay.cli.arm import shares
from backstay.cli.configuration import read_config
from backstay.cli.output import columns, output_option, show
from backstay.cli.session import Session, Target, in_session, target_options
from backstay.cli.subject import Kind, Subject, parse
from backstay.cli.where import is_meant, node_of
from backstay.cli.words import bullet
from backstay.decide.policy import explained, terms_of
from backstay.decide.storm import most_down
from backstay.model.policy import Job, Ownership, Policy, Times
from backstay.settings import Settings
from backstay.sources.foreign import Survey, survey
from backstay.sources.picture import Picture, take, workloads_on

_DEFAULTS = Settings(identity="backstay config show")
_BUILT_IN, _CLUSTER = "default", "BackstayConfig cluster"


class Setting(msgspec.Struct, frozen=True):
    setting: str
    value: str
    origin: str


class Configuration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``about`` is a workload, or the cluster."""

    about: str
    settings: tuple[Setting, ...]
    jobs: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@click.command(name="show")
@click.argument("subject", metavar="[vm/NAMESPACE/NAME | pod/NAMESPACE/NAME]", default="")
@target_options
@output_option
def command(subject: str, kubeconfig: str | None, context: str | None, output: str) -> None:
    """Show what holds in the cluster, or for one workload, and who has said so."""
    about = parse(subject) if subject else None
    if about is not None and about.kind is Kind.NODE:
        raise click.BadParameter("A node has no terms of its own: name a VM or a pod.")

    async def ask(session: Session) -> Configuration:
        picture = await take(
            session.client,
            session.seams.wall,
            namespace=_DEFAULTS.namespace,
            lease=_DEFAULTS.lease,
            times=Times(),
        )
        if about is not None:
            return await _of_workload(session, picture, about)
        found = await survey(session.client)
        return _of_cluster(await read_config(session.client), picture, found)

    told = in_session(Target(kubeconfig, context), ask)
    show(told, output=output, table=lambda: _table(told))


async def _of_workload(session: Session, picture: Picture, about: Subject) -> Configuration:
    policy = picture.policy
    where = await node_of(session, about)
    if where is None:
        raise click.ClickException(
            f"{about} does not run, so it is not known which labels its pod would have. "
            "NEXT: start it, and ask again"
        )
    found = await workloads_on(session.client, [where], opt_in=picture.opt_in)
    meant = [workload for workload in found.on(where) if is_meant(about, workload)]
    if not meant:
        raise click.ClickException(f"{about} belongs to {where} itself: no terms apply to it.")
    terms = terms_of(meant[0], policy)
    unread = policy.unread.get(meant[0].namespace)
    return Configuration(
        about=str(meant[0]),
        settings=tuple(Setting(*each) for each in explained(terms)),
        notes=(*terms.notes, *((unread,) if unread else ())),
    )


def _of_cluster(config: ConfigRow | None, picture: Picture, found: Survey) -> Configuration:
    policy = picture.policy
    owners = {job: policy.owner_of(job) for job in Job}
    notes = [
        f"{job} is ours, and {' and '.join(actor.name for actor in doing)} does it too"
        for job, doing in found.claimed().items()
        if owners[job] is Ownership.OURS
    ]
    return Configuration(
        about="cluster" if config else "cluster (nothing is configured: Backstay only observes)",
        settings=tuple(_settings(policy, len(picture.nodes))),
        jobs=tuple(shares(owners, found)),
        policies=tuple(f"{rule.namespace}/{rule.name}" for rule in policy.rules),
        notes=(*notes, *policy.unread.values(), *found.problems, *picture.problems),
    )


_SHOWN = {
    "mode": "mode",
    "virtual_machines": "protect.virtualMachines",
    "stateful_sets": "protect.statefulSets",
    "weakest": "proof.weakest",
    "presume_block": "proof.presumeBlock",
    "presume_after": "proof.presumeAfterSeconds",
    "on_kubelet_loss": "defaults.onKubeletLoss",
    "detach": "defaults.detach",
    "start": "defaults.start",
    "attempts": "limits.attempts",
    "cool_down": "limits.coolDownMinutes",
    "storm_pace": "limits.releasesPerMinute",
    "highest_priority": "limits.highestPriority",
    "network_fences": "fencing.networkFence.enabled",
    "power": "fencing.power.enabled",
    "power_on": "fencing.power.powerOn",
}


def _settings(policy: Policy, nodes: int) -> list[Setting]:
    built_in = Policy()
    rows = []
    for field, name in _SHOWN.items():
        value = getattr(policy, field)
        origin = _BUILT_IN if value == getattr(built_in, field) else _CLUSTER
        rows.append(Setting(name, _spoken(field, value), origin))
    most = str(most_down(nodes, policy))
    origin = f"default for {nodes} nodes" if policy.storm_most is None else _CLUSTER
    rows.append(Setting("limits.nodesDown", most, origin))
    if policy.storm_released:
        rows.append(Setting("stormRelease", policy.storm_released, _CLUSTER))
    return rows


def _spoken(field: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value / 60 if field == 'cool_down' else value:g}"
    return str(value)


def _table(told: Configuration) -> str:
    rows = [(each.setting, each.value, each.origin) for each in told.settings]
    parts = [f"What holds for {told.about}:", columns(("SETTING", "VALUE", "SAID BY"), rows)]
    for title, lines in (
        ("JOBS", told.jobs), ("POLICIES", told.policies), ("NOTE", told.notes),
    ):  # fmt: skip
        if lines:
            parts.append("\n".join([title, *map(bullet, lines)]))
    return "\n\n".join(parts)
