"""Nodes: whether they live, as far as we can see.

Nodes are watched. Their leases, of which each is renewed every ten seconds, are listed every few
seconds instead: at a thousand nodes a watch on them would cost more than all the rest together.

* A lease or a heartbeat counts as a sign of life when *we* saw it change. What it says about the
  time is another machine's word and is not read.
* A list may come from an API server that lags behind: an older version is no news.
* Silence is counted only while we look. If the API could not be asked for a while, the leases did
  not grow old before our eyes, and every count begins again.
* Our view is sound only if most of the other nodes were seen to live: where everybody is silent,
  it is we who are deaf.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass
from typing import NoReturn

import msgspec

from backstay.apis.core import NODE_PROJECTION, Node, NodeRow, node_row
from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError, NotFound
from backstay.kube.projection import Meta, Projection
from backstay.kube.reflector import Reflector
from backstay.kube.resource import LEASES, NODES
from backstay.kube.versions import is_older
from backstay.model.labels import DRAIN_TAINT, LEASE_NAMESPACE, MANAGER, TAINT
from backstay.model.node import NodeFacts
from backstay.seam.clock import Rng

_log = logging.getLogger("backstay.nodes")

# A list that came later than so many intervals after the one before shows nothing about silence.
_GAP = 3

_TIMEOUT = 10.0

_OUR_TAINT = f"{TAINT}:"
_DRAIN = f"{DRAIN_TAINT}:"


class _LeaseSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    renew_time: str | None = None


class _Lease(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta
    spec: _LeaseSpec = _LeaseSpec()


class LeaseSight(msgspec.Struct, frozen=True, gc=False):
    """What a node's lease showed. ``renewed`` is compared with itself, never with a clock."""

    key: str
    uid: str
    version: str
    renewed: str


def _sight(lease: _Lease) -> LeaseSight:
    meta = lease.metadata
    return LeaseSight(meta.name, meta.uid, meta.resource_version, lease.spec.renew_time or "")


_LEASES: Projection[_Lease, LeaseSight] = Projection(_Lease, _sight)


@dataclass(slots=True)
class _Track:
    """One value of one node that changes while the node lives. ``seen_at`` is since when it has
    been waited for."""

    value: str
    version: str
    seen_at: float
    changed_at: float | None = None

    def see(self, value: str, version: str, now: float) -> None:
        if value != self.value and not is_older(version, self.version):
            self.value, self.version, self.changed_at = value, version, now


def _see(tracks: dict[str, _Track], node: str, value: str, version: str, now: float) -> None:
    """What is seen for the first time is no change."""
    track = tracks.get(node)
    if track is None:
        tracks[node] = _Track(value, version, seen_at=now)
    else:
        track.see(value, version, now)


class NodeSource:
    """See the module. ``run`` keeps it up to date, with a look at the leases every ``interval``
    seconds; ``on_look`` is called after each, and ``saw`` is told the version that it showed. A
    node counts as lively until it was not seen to renew for ``window`` seconds."""

    def __init__(
        self,
        client: KubeClient,
        *,
        rng: Rng,
        interval: float,
        window: float,
        on_look: Callable[[], None],
        saw: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.cache: Cache[NodeRow] = Cache()
        self.reflector = Reflector(client, NODES, NODE_PROJECTION, self.cache, rng=rng)
        self.trouble: KubeError | None = None
        self.looks = 0
        self._client = client
        self._rng = rng
        self._interval = interval
        self._window = window
        self._on_look = on_look
        self._saw = saw
        self._leases: dict[str, _Track] = {}
        self._heartbeats: dict[str, _Track] = {}
        self._statuses: dict[str, _Track] = {}
        self._boots: dict[str, str] = {}
        self._control_plane: set[str] = set()
        self._lively: set[str] = set()
        self._known: dict[str, tuple[NodeRow, NodeFacts]] = {}
        """Facts that were asked for since anything was last seen of their node, and the row that
        they are of: they are asked for often."""
        self._looked_at: float | None = None
        self._counting_since = 0.0
        self.cache.subscribe(self._node_changed)

    # What is known

    def facts(self, name: str) -> NodeFacts | None:
        """None for a node that the API does not know (any more)."""
        row = self.cache.get(name)
        if row is None:
            return None
        known = self._known.get(name)
        if known is None or known[0] is not row:
            known = self._known[name] = row, self._facts(row)
        return known[1]

    @property
    def names(self) -> Set[str]:
        return self.cache.keys

    @property
    def lively(self) -> Set[str]:
        """The nodes that were seen to renew their lease of late: none of them is silent."""
        return self._lively

    @property
    def control_plane(self) -> Set[str]:
        """The nodes that bear the cluster itself."""
        return self._control_plane

    def age(self, now: float) -> float:
        """Of the last look at the leases; infinite before the first."""
        if self._looked_at is None or not self.cache.synced:
            return float("inf")
        return now - self._looked_at

    def is_sound(self, name: str, *, without: Collection[str] = ()) -> bool:
        """Whether most of the others were seen to live of late; those that are known to be dead
        (``without``) are not asked."""
        not_asked = {name, *without}
        others = len(self._leases) - len(not_asked & self._leases.keys())
        lively = len(self._lively) - len(not_asked & self._lively)
        return others > 0 and 2 * lively >= others

    def _facts(self, row: NodeRow) -> NodeFacts:
        lease, heartbeat = self._leases.get(row.key), self._heartbeats.get(row.key)
        status = self._statuses.get(row.key)
        return NodeFacts(
            name=row.key,
            uid=row.uid,
            boot_id=row.boot_id,
            ready=row.ready,
            looked_at=self._looked_at or 0.0,
            renewal="" if lease is None else lease.value,
            heartbeat=row.heartbeat,
            status=row.posted,
            lease_seen_at=None if lease is None else max(lease.seen_at, self._counting_since),
            lease_changed_at=None if lease is None else lease.changed_at,
            heartbeat_changed_at=None if heartbeat is None else heartbeat.changed_at,
            status_changed_at=None if status is None else status.changed_at,
            exempt=row.exempt,
            runtime=row.runtime,
            system_uuid=row.system_uuid,
            in_maintenance=any(taint.startswith(_DRAIN) for taint in row.taints),
            control_plane=row.control_plane,
            tainted=row.out_of_service == MANAGER
            or any(taint.startswith(_OUR_TAINT) for taint in row.taints),
        )

    # How it comes to be known

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reflector.run(), name="nodes")
            while True:
                await self._look_once()
                await asyncio.sleep(self._interval * (0.95 + 0.1 * self._rng.random()))

    async def _look_once(self) -> None:
        started = asyncio.get_running_loop().time()
        try:
            # Any cached state will do: an old one shows no change, and acting takes a quorum read.
            reply = await self._client.list(
                LEASES, namespace=LEASE_NAMESPACE, resource_version="0", timeout=_TIMEOUT
            )
            page = _LEASES.page(reply.body, call=reply.call)
        except KubeError as error:
            if self.trouble is None:
                _log.warning("cannot look at the nodes' leases: %s", error)
            self.trouble = error
            return
        self.trouble = None
        self._saw(page.version)
        self._take(page.rows, started)

    def _take(self, sights: list[LeaseSight], started: float) -> None:
        if self._looked_at is not None and started - self._looked_at > _GAP * self._interval:
            self._counting_since = started
        self._looked_at = started
        self._known.clear()
        leases, window = self._leases, self._window
        for sight in sights:
            track = leases.get(sight.key)
            # As a rule nothing is new: a lease is looked at more often than it is renewed.
            if track is None or track.value != sight.renewed:
                self._see_lease(sight, started)
        if len(leases) > len(sights):
            for gone in leases.keys() - {sight.key for sight in sights}:
                del leases[gone]
        self._lively = {
            name
            for name, track in leases.items()
            if track.changed_at is not None and started - track.changed_at < window
        }
        self.looks += 1
        self._on_look()

    def _see_lease(self, sight: LeaseSight, now: float) -> None:
        self._known.pop(sight.key, None)
        _see(self._leases, sight.key, sight.renewed, sight.version, now)

    def _node_changed(self, old: NodeRow | None, new: NodeRow | None) -> None:
        if new is not None:
            self._see_node(new, asyncio.get_running_loop().time())
        elif old is not None:
            self._known.pop(old.key, None)
            self._heartbeats.pop(old.key, None)
            self._statuses.pop(old.key, None)
            self._boots.pop(old.key, None)
            self._control_plane.discard(old.key)

    def _see_node(self, row: NodeRow, now: float) -> None:
        self._known.pop(row.key, None)
        if row.heartbeat:
            _see(self._heartbeats, row.key, row.heartbeat, row.version, now)
        if row.posted:
            _see(self._statuses, row.key, row.posted, row.version, now)
        lease = self._leases.get(row.key)
        if lease is not None and self._boots.get(row.key, row.boot_id) != row.boot_id:
            # Somebody must have told us of the new boot: its silence begins now.
            lease.seen_at = now
        self._boots[row.key] = row.boot_id
        (self._control_plane.add if row.control_plane else self._control_plane.discard)(row.key)

    # Asking the API itself, right before something is done

    async def look_closely(self, name: str) -> NodeFacts | None:
        """Quorum reads of one node and its lease; what they show counts like anything else that
        was seen. None if the node is gone."""
        started = asyncio.get_running_loop().time()
        row = await self._read_node(name)
        if row is None:
            return None
        sight = await self._read_lease(name)
        if sight is not None:
            self._see_lease(sight, started)
        self._see_node(row, started)
        return msgspec.structs.replace(self._facts(row), looked_at=started)

    async def _read_node(self, name: str) -> NodeRow | None:
        try:
            reply = await self._client.get(NODES, name)
        except NotFound:
            return None
        return node_row(reply.into(Node))

    async def _read_lease(self, name: str) -> LeaseSight | None:
        try:
            reply = await self._client.get(LEASES, name, namespace=LEASE_NAMESPACE)
        except NotFound:
            return None
        return _sight(reply.into(_Lease))
