"""Guests on a node whose kubelet is silent: what the node's living virt-handler does with them.

Where virt-handler outlives the kubelet it still says how its guests are. While it does, their VMIs
are looked at every few seconds, and the migrations that we have asked for. What is seen:

* **A guest is being shut down**: its VMI is being deleted.
* **A guest has stopped.** Its VMI is in a final phase while its launcher is still there: in that
  case nobody but virt-handler says so, and it says so of an end that it has seen. That is believed
  only if virt-handler was heard of *after* we had first seen the VMI being deleted, or ended: a
  phase that nobody alive has written is worth nothing. Whoever has just begun to look waits for the
  next heartbeat, a minute or two.
* **A guest is being migrated**, or was, or could not be.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec

from backstay.apis.kubevirt import INSTANCE_PROJECTION, INSTANCES, InstanceRow
from backstay.apis.machines import MIGRATION_PROJECTION, MIGRATIONS, MigrationRow
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError, NotFound
from backstay.model.evidence import GuestMove, GuestStop, Testimony
from backstay.model.labels import LAUNCHER_UID, NODE_NAME
from backstay.model.node import NodeFacts
from backstay.model.workload import Workload
from backstay.sources.lookups import beside
from backstay.sources.nodes import NodeSource

_log = logging.getLogger("backstay.guests")

_FINAL = frozenset({"Succeeded", "Failed"})
_TIMEOUT = 10.0


@dataclass
class _Watch:
    """One boot of one node. ``since`` is when each VMI, by its uid, was first seen to be on its way
    out; ``begun`` when each migration was first seen."""

    uid: str
    boot_id: str
    instances: tuple[InstanceRow, ...] = ()
    moves: tuple[MigrationRow, ...] = ()
    since: dict[str, float] = field(default_factory=dict)
    begun: dict[str, float] = field(default_factory=dict)

    def note(
        self, instances: Iterable[InstanceRow], moves: Iterable[MigrationRow], now: float
    ) -> None:
        """One that was there and is gone was cancelled, unless it had ended: it is not tried again
        against whoever has done that."""
        there = {row.uid: row for row in moves}
        gone = (row for row in self.moves if row.uid not in there)
        cancelled = (row if row.phase in _FINAL else _cancelled(row) for row in gone)
        self.instances, self.moves = tuple(instances), (*there.values(), *cancelled)
        for row in self.instances:
            if row.deleting or row.phase in _FINAL:
                self.since.setdefault(row.uid, now)
        for move in self.moves:
            self.begun.setdefault(move.uid, now)


class GuestSource:
    """See the module; a ``Source``."""

    name = "guests"

    def __init__(self, client: KubeClient, nodes: NodeSource, *, interval: float) -> None:
        self._client = client
        self._nodes = nodes
        self._interval = interval
        self._watches: dict[str, _Watch] = {}
        self._has_watches = asyncio.Event()
        self._trouble = ""
        self._looked_at: float | None = None

    @property
    def trouble(self) -> str:
        return self._trouble

    def age(self, now: float) -> float | None:
        return None if self._looked_at is None or not self._watches else now - self._looked_at

    def watch(self, nodes: Sequence[NodeFacts]) -> None:
        before, self._watches = self._watches, {}
        for node in nodes:
            known = before.get(node.name)
            if known is None or (known.uid, known.boot_id) != (node.uid, node.boot_id):
                known = _Watch(node.uid, node.boot_id)
            self._watches[node.name] = known
        if self._watches:
            self._has_watches.set()
        else:
            self._has_watches.clear()

    async def run(self) -> NoReturn:
        while True:
            await self._has_watches.wait()
            for name in list(self._watches):
                facts = self._nodes.facts(name)
                if facts is not None and _outlived(facts):
                    await self._look(name)
            await asyncio.sleep(self._interval)

    def testimony(self, node: NodeFacts) -> Testimony:
        watch = self._watches.get(node.name)
        if watch is None or (watch.uid, watch.boot_id) != (node.uid, node.boot_id):
            return Testimony()
        now = asyncio.get_running_loop().time()
        return Testimony(
            stops=tuple(_stops(watch, node, now)),
            stopping=tuple(
                uid
                for row in watch.instances
                if row.deleting and row.phase not in _FINAL
                for uid in _launchers(row, node.name)
            ),
            moves=tuple(_move(row, watch.begun[row.uid]) for row in watch.moves),
        )

    async def ask(self, node: NodeFacts, workloads: Sequence[Workload]) -> Testimony:
        if _outlived(node) and any(workload.guest is not None for workload in workloads):
            await self._look(node.name)
        return self.testimony(node)

    async def _look(self, name: str) -> None:
        """What could not be seen anew is forgotten: nothing rests on an old view of it."""
        watch = self._watches.get(name)
        if watch is None:
            return
        try:
            instances = await self._instances(name)
            moves = await self._moves()
        except KubeError as error:
            if not self._trouble:
                _log.warning("cannot look at the guests of %s: %s", name, error)
            self._trouble = f"the guests of {name} cannot be looked at: {error}"
            instances, moves = [], list(watch.moves)
        else:
            self._trouble = ""
            self._looked_at = asyncio.get_running_loop().time()
        watch.note(instances, moves, asyncio.get_running_loop().time())

    async def _instances(self, node: str) -> list[InstanceRow]:
        reply = await self._client.list(INSTANCES, labels=f"{NODE_NAME}={node}", timeout=_TIMEOUT)
        return INSTANCE_PROJECTION.page(reply.body, call=reply.call).rows

    async def _moves(self) -> list[MigrationRow]:
        """All that we have asked for, on any node: there are few."""
        try:
            reply = await self._client.list(MIGRATIONS, labels=LAUNCHER_UID, timeout=_TIMEOUT)
        except NotFound:
            return []
        return MIGRATION_PROJECTION.page(reply.body, call=reply.call).rows


def _cancelled(row: MigrationRow) -> MigrationRow:
    failure = "somebody has deleted the migration"
    return msgspec.structs.replace(row, phase="Failed", failure=failure)


def _outlived(node: NodeFacts) -> bool:
    """Whether virt-handler was heard of after the kubelet."""
    beat, renewed = node.heartbeat_changed_at, node.lease_changed_at
    return beat is not None and (renewed is None or beat > renewed)


def _stops(watch: _Watch, node: NodeFacts, now: float) -> Iterable[GuestStop]:
    beat = node.heartbeat_changed_at
    for row in watch.instances:
        since = watch.since.get(row.uid)
        if row.phase not in _FINAL or since is None or beat is None or beat <= since:
            continue
        for uid in _launchers(row, node.name):
            detail = f"the guest of {row.key} has stopped there ({row.phase})"
            yield GuestStop(launcher=uid, detail=detail, observed_at=now)


def _launchers(row: InstanceRow, node: str) -> list[str]:
    return [uid for uid, place in row.pods.items() if place == node]


def _move(row: MigrationRow, since: float) -> GuestMove:
    return GuestMove(
        guest=beside(row.key, row.guest),
        launcher=row.labels.get(LAUNCHER_UID, ""),
        phase=row.phase,
        since=since,
        target=row.target,
        because=row.failure,
    )
