"""Foresight: what a drain would do, before it does anything.

``foresee`` looks, and asks nobody. ``preflight`` asks the API to evict each pod without doing it:
it gives the very answers that a drain would get, KubeVirt's and the budgets', and none has an
effect.
"""

from functools import partial

import msgspec

from backstay.act import cordons, evictions
from backstay.control.asking import refusal_of
from backstay.decide.drain import answer_of, plan
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError
from backstay.model.drain import DrainOptions, Fate, Plan, Planned, Verdict
from backstay.model.drain_reasons import DrainReason
from backstay.seam.clock import WallClock
from backstay.seam.tasks import side_by_side
from backstay.sources.drains import read_budgets, read_daemons, read_guests, read_node_pods

_AT_ONCE = 8


async def foresee(client: KubeClient, node: str, options: DrainOptions, *, wall: WallClock) -> Plan:
    """By one look. Raises ``KubeError``."""
    page = await read_node_pods(client, node, selector=options.pod_selector)
    pods = page.rows
    return plan(
        node,
        pods,
        options=options,
        budgets=await read_budgets(client),
        guests=await read_guests(client, (pod.guest for pod in pods if pod.guest)),
        daemons=await read_daemons(client, (pod.daemon for pod in pods)),
        now=wall.now(),
    )


async def preflight(
    client: KubeClient, node: str, options: DrainOptions, *, wall: WallClock
) -> Plan:
    """With the API's own answers. What the options refuse is not asked, as nothing would be."""
    foreseen = await foresee(client, node, options, wall=wall)
    if foreseen.refused:
        return foreseen
    ask = partial(_ask, client, options)
    answered = await side_by_side(foreseen.planned, ask, at_once=_AT_ONCE)
    return msgspec.structs.replace(foreseen, planned=tuple(answered))


async def _ask(client: KubeClient, options: DrainOptions, planned: Planned) -> Planned:
    if not planned.asked:
        return planned
    verb = evictions.delete if options.disable_eviction else evictions.evict
    try:
        await verb(client, planned.pod, grace=options.grace, dry_run=True)
    except KubeError as error:
        answer = answer_of(refusal_of(error), planned.pod)
        if answer.verdict is Verdict.GONE:
            leaves = DrainReason.LeavesAlready.because()
            return msgspec.structs.replace(planned, fate=Fate.GONE, why=leaves)
        if answer.verdict is Verdict.MOVING:
            return _moving(planned)
        why = planned.why if answer.why is None else answer.why
        return msgspec.structs.replace(planned, fate=Fate.BLOCKED, why=why, budget=answer.budget)
    return _granted(planned)


def _moving(planned: Planned) -> Planned:
    if planned.fate is Fate.MIGRATE:
        return planned
    why = DrainReason.WillBeMigrated.because(guest=planned.pod.guest or planned.pod.key)
    return msgspec.structs.replace(planned, fate=Fate.MIGRATE, why=why)


def _granted(planned: Planned) -> Planned:
    """What was foreseen to be refused, or moved, would go all the same."""
    if planned.fate in (Fate.EVICT, Fate.SHUTDOWN):
        return planned
    if planned.pod.guest and not planned.pod.ended:
        why = DrainReason.WillBeRestarted.because(guest=planned.pod.guest)
        return msgspec.structs.replace(planned, fate=Fate.SHUTDOWN, why=why)
    why = DrainReason.WillBeEvicted.because()
    return msgspec.structs.replace(planned, fate=Fate.EVICT, why=why)


async def cordon(client: KubeClient, node: str, *, dry_run: bool = False) -> bool:
    """As ``kubectl cordon`` does. False if it was cordoned already. Raises ``KubeError``."""
    return await cordons.cordon(client, node, dry_run=dry_run)
