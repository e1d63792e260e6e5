"""Signs of life: what can be seen of a node in the time that a person has to wait anyway.

"Changed" means that we saw it change; no timestamp that another machine wrote is compared with
ours. Other nodes are watched as well: if none of them moves either, it is our view that stands
still.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping

import msgspec

from backstay.apis.core import Node, NodeRow, node_row
from backstay.kube.client import KubeClient
from backstay.kube.errors import NotFound
from backstay.kube.projection import Meta, Projection
from backstay.kube.resource import LEASES, NODES
from backstay.model.labels import LEASE_NAMESPACE

_INTERVAL = 1.0

# A kubelet renews when a quarter of its lease's duration has passed; a little more shows silence.
_RENEWAL = 0.3


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class _Lease(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: _LeaseSpec = _LeaseSpec()


class LeaseRow(msgspec.Struct, frozen=True):
    key: str
    uid: str
    version: str
    renewed: str
    interval: float
    """Within how many seconds a living kubelet renews it."""


def _lease_row(lease: _Lease) -> LeaseRow:
    meta, spec = lease.metadata, lease.spec
    duration = spec.lease_duration_seconds or 40
    renewed = spec.renew_time or ""
    return LeaseRow(meta.name, meta.uid, meta.resource_version, renewed, duration * _RENEWAL)


_LEASES: Projection[_Lease, LeaseRow] = Projection(_Lease, _lease_row)


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """One node, as it was watched for ``watched`` seconds; ``row`` is how it was seen last.

    ``lease`` is None where it has none. What is said to have happened, we saw happen.
    """

    row: NodeRow
    lease: LeaseRow | None
    watched: float
    lease_renewed: bool = False
    status_posted: bool = False
    heartbeat_sent: bool = False
    rebooted: bool = False

    @property
    def node(self) -> str:
        return self.row.key

    @property
    def long_enough(self) -> bool:
        """Whether a living kubelet would have renewed its lease while we watched."""
        return self.lease is not None and self.watched >= self.lease.interval


class View(msgspec.Struct, frozen=True):
    """What was seen: the nodes that were asked for, and how many of the others moved."""

    signs: tuple[Signs, ...]
    others: int
    others_alive: int


async def read_signs(client: KubeClient, before: Signs) -> Signs | None:
    """Quorum reads: what has happened to a node since it was seen. None if it is gone."""
    row, lease = await _read_node(client, before.node), await _read_lease(client, before.node)
    return None if row is None else _compared(before.row, row, before.lease, lease, before.watched)


async def watch(
    client: KubeClient,
    nodes: Mapping[str, NodeRow],
    names: Collection[str],
    *,
    seconds: float,
    progress: Callable[[float], None],
) -> View:
    """Looks again and again, for ``seconds``, at the nodes of these names and at all leases."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    first = leases = await _read_leases(client, nodes)
    rows = {name: nodes[name] for name in names}
    while (passed := loop.time() - began) < seconds:
        progress(seconds - passed)
        await asyncio.sleep(min(_INTERVAL, seconds - passed))
        leases = leases | await _read_leases(client, nodes)
        for name in names:
            rows[name] = await _read_node(client, name) or rows[name]
    watched = loop.time() - began if seconds else 0.0
    others = [name for name in first if name not in rows]
    return View(
        tuple(
            _compared(nodes[name], row, first.get(name), leases.get(name), watched)
            for name, row in rows.items()
        ),
        others=len(others),
        others_alive=sum(leases[name].renewed != first[name].renewed for name in others),
    )


def _compared(
    before: NodeRow, row: NodeRow, old: LeaseRow | None, new: LeaseRow | None, watched: float
) -> Signs:
    return Signs(
        row=row,
        lease=new or old,
        watched=watched,
        lease_renewed=new is not None and (old is None or new.renewed != old.renewed),
        status_posted=row.posted != before.posted,
        heartbeat_sent=row.heartbeat != before.heartbeat,
        rebooted=(row.uid, row.boot_id) != (before.uid, before.boot_id),
    )


async def _read_node(client: KubeClient, name: str) -> NodeRow | None:
    try:
        return node_row((await client.get(NODES, name)).into(Node))
    except NotFound:
        return None


async def _read_lease(client: KubeClient, name: str) -> LeaseRow | None:
    try:
        return _lease_row((await client.get(LEASES, name, namespace=LEASE_NAMESPACE)).into(_Lease))
    except NotFound:
        return None


async def _read_leases(client: KubeClient, nodes: Collection[str]) -> dict[str, LeaseRow]:
    """By node. A lease that is no node's proves nothing."""
    reply = await client.list(LEASES, namespace=LEASE_NAMESPACE)
    page = _LEASES.page(reply.body, call=reply.call)
    return {row.key: row for row in page.rows if row.key in nodes}
