"""Fences: which nodes the storage refuses, as csi-addons tells.

While a node is silent, all network fences are listed every few seconds. One speaks of the node if
it covers *all* addresses by which the storage may know it: the node's own (InternalIP), and those
that the driver has reported for it. It counts while the storage says that it holds, whoever asked
for it: Rook puts up fences of its own. Only ours are ours to lift (``act/fences.py``).

Where csi-addons is not installed there is nothing to see, and that is looked at again now and then.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec

from backstay.apis.core import Node
from backstay.apis.csiaddons import (
    ADDONS_NODE_PROJECTION,
    ADDONS_NODES,
    FENCE_PROJECTION,
    FENCED,
    NETWORK_FENCES,
    AddonsNodeRow,
    FenceRow,
)
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError, NotFound
from backstay.kube.resource import NODES
from backstay.model.evidence import Fence, Testimony
from backstay.model.fences import FenceSight, Fencing
from backstay.model.labels import FENCED_NODE, INCIDENT
from backstay.model.node import NodeFacts
from backstay.model.workload import Workload
from backstay.sources.lookups import list_all

_ABSENT = 60.0
"""Seconds until it is looked again whether csi-addons is there."""

_DRIVERS = 60.0
"""Seconds until it is looked again which drivers can fence."""

_TIMEOUT = 5.0


@dataclass
class _Seen:
    """As of ``at``; ``addresses`` are those of the nodes that are watched, by their uid."""

    at: float = 0.0
    fences: tuple[FenceRow, ...] = ()
    drivers: tuple[AddonsNodeRow, ...] = ()
    addresses: dict[str, tuple[str, ...]] = field(default_factory=dict)


class FenceSource:
    """See the module; a ``Source``. It looks every ``interval`` seconds."""

    name = "fences"

    def __init__(self, client: KubeClient, *, interval: float) -> None:
        self.trouble = ""
        self._client = client
        self._interval = interval
        self._watched: Mapping[str, NodeFacts] = {}
        self._watching_since = 0.0
        self._seen = _Seen()
        self._absent_until = 0.0
        self._drivers_until = 0.0
        self._news = asyncio.Event()

    def age(self, now: float) -> float | None:
        if not self._watched or now < self._absent_until:
            return None
        return now - max(self._seen.at, self._watching_since)

    async def run(self) -> NoReturn:
        while True:
            if not self._watched:
                self._seen = _Seen()
                self._news.clear()
                await self._news.wait()
            await self._look()
            await asyncio.sleep(self._interval)

    def watch(self, nodes: Sequence[NodeFacts]) -> None:
        if not self._watched:
            self._watching_since = asyncio.get_running_loop().time()
        self._watched = {node.name: node for node in nodes}
        self._news.set()

    def testimony(self, node: NodeFacts) -> Testimony:
        addresses = self._addresses(node)
        return Testimony(
            fences=tuple(
                Fence(
                    name=f"NetworkFence {row.key}",
                    detail=f"{row.driver} refuses {', '.join(row.cidrs)}",
                    observed_at=self._seen.at,
                    driver=row.driver,
                    cluster=row.cluster,
                    ours=INCIDENT in row.annotations,
                )
                for row in self._seen.fences
                if row.holds and row.covers(addresses.get(row.driver, addresses[""]))
            )
        )

    async def ask(self, node: NodeFacts, workloads: Sequence[Workload]) -> Testimony:
        if node.name not in self._watched:
            return Testimony()
        return self.testimony(node) if await self._look() else Testimony()

    def fencing(self, node: NodeFacts) -> Fencing:
        """What could be fenced, by which addresses, and what we have asked for already."""
        return Fencing(
            drivers=frozenset(row.driver for row in self._seen.drivers),
            addresses=self._addresses(node),
            ours=_ours(self._seen.fences, node.uid),
        )

    async def ours(self, node_uid: str) -> tuple[FenceSight, ...]:
        """Our fences against a node, by a quorum read. Raises ``KubeError``."""
        try:
            page = await list_all(self._client, NETWORK_FENCES, FENCE_PROJECTION, timeout=_TIMEOUT)
        except NotFound:
            return ()
        return _ours(page.rows, node_uid)

    def _addresses(self, node: NodeFacts) -> dict[str, tuple[str, ...]]:
        """By driver; under the empty name for all that say nothing themselves."""
        own = self._seen.addresses.get(node.uid, ())
        found = {"": own}
        for row in self._seen.drivers:
            if row.node == node.name and row.clients and own:
                found[row.driver] = tuple(dict.fromkeys((*own, *row.clients)))
        return found

    async def _look(self) -> bool:
        """Whether all could be seen. What was seen before is out of date if not."""
        started = asyncio.get_running_loop().time()
        if started < self._absent_until:
            return False
        try:
            fences = await list_all(
                self._client, NETWORK_FENCES, FENCE_PROJECTION, timeout=_TIMEOUT
            )
            drivers = await self._read_drivers(started)
            addresses = {
                node.uid: self._seen.addresses.get(node.uid) or await self._read_addresses(node)
                for node in self._watched.values()
            }
        except NotFound:
            self._absent_until, self._seen = started + _ABSENT, _Seen()
            return False
        except (KubeError, msgspec.MsgspecError) as error:
            self.trouble = f"network fences cannot be read: {error}"
            return False
        self.trouble = ""
        self._seen = _Seen(started, tuple(fences.rows), drivers, addresses)
        return True

    async def _read_drivers(self, now: float) -> tuple[AddonsNodeRow, ...]:
        """There is one for each driver on each node, and they hardly ever change."""
        if not self._seen.drivers or now >= self._drivers_until:
            page = await list_all(
                self._client, ADDONS_NODES, ADDONS_NODE_PROJECTION, timeout=_TIMEOUT
            )
            self._drivers_until = now + _DRIVERS
            return tuple(page.rows)
        return self._seen.drivers

    async def _read_addresses(self, node: NodeFacts) -> tuple[str, ...]:
        live = (await self._client.get(NODES, node.name, timeout=_TIMEOUT)).into(Node)
        if live.metadata.uid != node.uid:
            return ()
        found = live.status.addresses or ()
        return tuple(each.address for each in found if each.type == "InternalIP")


def _ours(rows: Iterable[FenceRow], node_uid: str) -> tuple[FenceSight, ...]:
    return tuple(
        FenceSight(
            name=row.key,
            uid=row.uid,
            version=row.version,
            driver=row.driver,
            cluster=row.cluster,
            incident=row.annotations[INCIDENT],
            fenced=row.state == FENCED,
            holds=row.holds,
            lifted=row.is_lifted,
            answer=f"{row.result}: {row.message}" if row.result else "",
        )
        for row in rows
        if INCIDENT in row.annotations and row.annotations.get(FENCED_NODE) == node_uid
    )
