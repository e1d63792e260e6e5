"""What is told of a maintenance: its status, Events and a line in the log, in the same words.

The status is written when there is news: that something has lasted a second longer is none. The
Events of the Node Maintenance Operator are told beside our own, for whoever has built on them.
"""

import logging

import msgspec

from backstay.apis.maintenance import NODE_MAINTENANCES, MaintenanceRow
from backstay.kube.client import KubeClient
from backstay.kube.events import EventRecorder, EventType, ObjectRef
from backstay.kube.resource import NODES
from backstay.model.drain_reasons import DrainReason
from backstay.model.labels import MANAGER
from backstay.model.maintenance import BlockerRecord, MaintenanceStatus
from backstay.model.moments import time_text
from backstay.model.reasons import Why
from backstay.record import logs
from backstay.record.telling import same_why
from backstay.seam.clock import WallClock

_log = logging.getLogger("backstay.maintenance")

_FIELDS = tuple(MaintenanceStatus.__struct_encode_fields__)

_ALARMING = frozenset(
    reason.name
    for reason in (
        DrainReason.DrainBlocked,
        DrainReason.NotSafeYet,
        DrainReason.NodeMissing,
        DrainReason.AnotherMaintenance,
        DrainReason.ControlPlaneQuorum,
        DrainReason.CordonedAgain,
        DrainReason.EvacuationGoesOn,
        DrainReason.MaintenanceDisarmed,
        DrainReason.MaintenanceRolledBack,
    )
)


class MaintenanceBook:
    """See the module."""

    def __init__(self, client: KubeClient, events: EventRecorder, *, wall: WallClock) -> None:
        self.writes = 0
        self._client = client
        self._events = events
        self._wall = wall
        self._written: dict[str, MaintenanceStatus] = {}
        """What was written last, by uid. What the API keeps of it may be less."""
        self.standing: dict[str, Why] = {}
        """How each stands, as it was last told."""
        self._said: dict[str, Why] = {}

    def begin(self) -> None:
        """Of a term: what others have written meanwhile is not known."""
        for kept in (self._written, self.standing, self._said):
            kept.clear()

    def known(self, row: MaintenanceRow) -> MaintenanceStatus:
        """As it was written last, by us or by whoever came before us."""
        return self._written.get(row.uid, row.status)

    async def write(
        self, row: MaintenanceRow, status: MaintenanceStatus, *, not_after: float
    ) -> None:
        """Raises ``Conflict`` if it is another of that name by now."""
        self.standing[row.uid] = Why(status.code, status.sentence, status.next)
        if _is_alike(self.known(row), status):
            return
        now = time_text(self._wall.now())
        status = msgspec.structs.replace(status, last_update=now)
        patch = {
            "metadata": {"uid": row.uid},
            "status": {**dict.fromkeys(_FIELDS), **msgspec.to_builtins(status)},
        }
        await self._client.merge_patch(
            NODE_MAINTENANCES,
            row.key,
            patch,
            subresource="status",
            manager=MANAGER,
            not_after=not_after,
        )
        self.writes += 1
        self._written[row.uid] = status

    def say(
        self, row: MaintenanceRow, why: Why, *, node_uid: str = "", news: Why | None = None
    ) -> None:
        """Of the maintenance and of its node, once until something else is said; ``news`` is what
        is new about it, where that is not all of it."""
        last, news = self._said.get(row.uid), news or why
        if last is not None and same_why(last, news):
            return
        self._said[row.uid] = news
        message = f"{why.sentence} NEXT: {why.next}" if why.next else why.sentence
        kind: EventType = "Warning" if is_alarming(why) else "Normal"
        for about in _about(row, node_uid):
            self._events.record(
                about=about,
                type=kind,
                reason=why.code,
                message=message,
            )
        with logs.about(node=row.node):
            logs.say(_log, why)

    def begun(self, row: MaintenanceRow) -> None:
        self._as_before(row, "BeginMaintenance", "Begin a node maintenance")

    def succeeded(self, row: MaintenanceRow) -> None:
        self._as_before(row, "SucceedMaintenance", "Node maintenance was succeeded")

    def removed(self, row: MaintenanceRow) -> None:
        self._as_before(row, "RemovedMaintenance", "Removed a node maintenance")

    def uncordoned(self, row: MaintenanceRow, *, node_uid: str) -> None:
        about = ObjectRef.to(NODES, name=row.node, uid=node_uid)
        self._events.record(
            about=about, type="Normal", reason="UncordonNode", message="Uncordon a node"
        )

    def _as_before(self, row: MaintenanceRow, reason: str, message: str) -> None:
        about = ObjectRef.to(NODE_MAINTENANCES, name=row.key, uid=row.uid)
        self._events.record(about=about, type="Normal", reason=reason, message=message)

    def forget(self, uid: str) -> None:
        for kept in (self._written, self.standing, self._said):
            kept.pop(uid, None)


def is_alarming(why: Why) -> bool:
    """Whether it waits for somebody."""
    return why.code in _ALARMING


def _about(row: MaintenanceRow, node_uid: str) -> tuple[ObjectRef, ...]:
    own = ObjectRef.to(NODE_MAINTENANCES, name=row.key, uid=row.uid)
    if not node_uid:
        return (own,)
    return own, ObjectRef.to(NODES, name=row.node, uid=node_uid)


def _is_alike(one: MaintenanceStatus, other: MaintenanceStatus) -> bool:
    """Whether they say the same, but for when, and for how many seconds."""
    if len(one.blockers) != len(other.blockers):
        return False
    same = all(map(_same_blocker, one.blockers, other.blockers))
    return same and same_why(_why(one), _why(other)) and _rest(one) == _rest(other)


def _same_blocker(one: BlockerRecord, other: BlockerRecord) -> bool:
    return one.uid == other.uid and one.pod == other.pod and same_why(_why(one), _why(other))


def _why(record: BlockerRecord | MaintenanceStatus) -> Why:
    return Why(record.code, record.sentence, record.next)


def _rest(status: MaintenanceStatus) -> MaintenanceStatus:
    return msgspec.structs.replace(
        status, last_update="", last_error="", sentence="", blockers=(), next=""
    )
