"""Looks for a drain: what runs on a node, what protects it, and what stands behind it.

The pods of the node and the budgets are watched while a drain goes on; what is here is read at
once, or behind them: guests, DaemonSets, and how a migration stands. Nothing here is fatal: what
cannot be read is not known, and the API has the last word about every pod anyway.
"""

from collections.abc import Iterable, Mapping

import msgspec

from backstay.apis.drains import (
    BUDGET_PROJECTION,
    BUDGETS,
    DAEMON_SETS,
    DRAIN_POD_PROJECTION,
    DrainGuest,
    KubeVirtDefaults,
    guest_sight,
)
from backstay.apis.kubevirt import INSTANCES
from backstay.apis.machines import KUBEVIRTS, MIGRATION_PROJECTION, MIGRATIONS, MigrationRow
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError, NotFound
from backstay.kube.projection import Page, Projection
from backstay.kube.resource import PODS
from backstay.model.drain import BudgetSight, DaemonSight, GuestSight, PodSight
from backstay.seam.tasks import side_by_side
from backstay.sources.lookups import list_all

_AT_ONCE = 8
_TIMEOUT = 10.0
_ENDED = ("Succeeded", "Failed")


class _Default(msgspec.Struct, frozen=True):
    key: str
    uid: str
    version: str
    strategy: str


def _default(kubevirt: KubeVirtDefaults) -> _Default:
    meta = kubevirt.metadata
    return _Default(meta.key, meta.uid, meta.resource_version, kubevirt.eviction_strategy)


_DEFAULTS: Projection[KubeVirtDefaults, _Default] = Projection(KubeVirtDefaults, _default)


async def read_node_pods(client: KubeClient, node: str, *, selector: str = "") -> Page[PodSight]:
    """One live list (a quorum read). Raises ``KubeError``."""
    reply = await client.list(
        PODS, fields=f"spec.nodeName={node}", labels=selector or None, timeout=_TIMEOUT
    )
    return DRAIN_POD_PROJECTION.page(reply.body, call=reply.call)


async def read_budgets(client: KubeClient) -> tuple[BudgetSight, ...]:
    """All of them; none if they cannot be read."""
    try:
        page = await list_all(client, BUDGETS, BUDGET_PROJECTION, timeout=_TIMEOUT)
    except KubeError:
        return ()
    return tuple(page.rows)


async def read_guests(client: KubeClient, keys: Iterable[str]) -> dict[str, GuestSight]:
    """Those that can be read, by key."""
    wanted = sorted({*keys})
    if not wanted:
        return {}
    usual = await _usual_strategy(client)

    async def read(key: str) -> GuestSight | None:
        namespace, _, name = key.partition("/")
        try:
            reply = await client.get(INSTANCES, name, namespace=namespace, timeout=_TIMEOUT)
            sight = guest_sight(reply.into(DrainGuest))
        except KubeError:
            return None
        strategy = sight.strategy or usual
        return msgspec.structs.replace(sight, strategy=strategy)

    found = await side_by_side(wanted, read, at_once=_AT_ONCE)
    return {each.key: each for each in found if each is not None}


async def _usual_strategy(client: KubeClient) -> str:
    """What holds for guests that say nothing themselves."""
    try:
        page = await list_all(client, KUBEVIRTS, _DEFAULTS, timeout=_TIMEOUT)
    except KubeError:
        return ""
    return next((each.strategy for each in page.rows if each.strategy), "")


async def read_daemons(client: KubeClient, keys: Iterable[str]) -> Mapping[str, DaemonSight]:
    async def read(key: str) -> DaemonSight:
        namespace, _, name = key.partition("/")
        try:
            await client.get(DAEMON_SETS, name, namespace=namespace, timeout=_TIMEOUT)
        except NotFound:
            return DaemonSight(False)
        except KubeError as error:
            return DaemonSight(None, str(error))
        return DaemonSight(True)

    wanted = sorted({*keys} - {""})
    return dict(zip(wanted, await side_by_side(wanted, read, at_once=_AT_ONCE), strict=True))


async def read_migrations(client: KubeClient, guest: str) -> tuple[MigrationRow, ...]:
    """Of that guest, the oldest first; raises ``KubeError``."""
    namespace, _, name = guest.partition("/")
    reply = await client.list(MIGRATIONS, namespace=namespace, timeout=_TIMEOUT)
    page = MIGRATION_PROJECTION.page(reply.body, call=reply.call)
    rows = [row for row in page.rows if row.guest == name]
    return tuple(sorted(rows, key=lambda row: (len(row.version), row.version)))


def under_way(migrations: Iterable[MigrationRow]) -> tuple[MigrationRow, ...]:
    return tuple(row for row in migrations if row.phase not in _ENDED)
