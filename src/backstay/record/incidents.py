"""IncidentBook: incidents as they are kept in the API.

* A row is what was read or confirmed last. To change it is a compare-and-swap on its version, and
  hands back the next row; nothing is changed in place, and nothing is written that says what is
  there already.
* A conflict is raised and never merged: somebody else has written, so the caller has to read and
  to decide anew. The same goes for an outcome that is not known.
* ``open`` first looks for an open incident of the same boot. Asked again after an answer that was
  lost, or by the next leader, it finds what is there.
* Whoever begins to lead has to know of all that there are (``recall``). It may begin in the very
  moment in which the API is restarted: then it waits, and does nothing about any node meanwhile.
* ``follow`` keeps an eye on which there are. ``kept`` tells whoever subscribes to it of one that is
  deleted, for nobody else would: what is no news is not written, and so is not missed.
* An intent is written before a batch of writes and its outcome after it (``telling``).
* Every write carries ``not_after``, the end of the right to act.
"""

import logging
from collections.abc import Mapping
from typing import NoReturn

import msgspec

from backstay.apis.backstay import (
    INCIDENT_PROJECTION,
    INCIDENTS,
    Incident,
    IncidentRow,
    IncidentSpec,
    incident_row,
)
from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.errors import AlreadyExists
from backstay.kube.limits import until_answered
from backstay.kube.projection import Meta, Projection
from backstay.kube.reflector import Reflector
from backstay.model.incident import IncidentStatus, Intent
from backstay.model.labels import COMPONENT, MANAGER
from backstay.model.moments import time_text
from backstay.model.reasons import Why
from backstay.record import telling
from backstay.seam.clock import Rng, WallClock

_log = logging.getLogger("backstay.incidents")

_TIMEOUT = 10.0
_ATTEMPTS = 5
_NAME_LIMIT = 253


class _IntentEpoch(msgspec.Struct, frozen=True):
    epoch: int = 0


class _Epochs(msgspec.Struct, frozen=True):
    epoch: int = 0
    intent: _IntentEpoch | None = None


class _EpochWire(msgspec.Struct, frozen=True):
    """No more than the epochs: an incident that is strange in some other way must not hide its
    own from whoever is about to lead."""

    metadata: Meta
    status: _Epochs = _Epochs()


class KeptIncident(msgspec.Struct, frozen=True, gc=False):
    """That there is one, and the highest epoch in it."""

    key: str
    uid: str
    version: str
    epoch: int


def _kept(wire: _EpochWire) -> KeptIncident:
    meta, status = wire.metadata, wire.status
    intent = status.intent.epoch if status.intent else 0
    return KeptIncident(meta.key, meta.uid, meta.resource_version, max(status.epoch, intent))


_EPOCHS: Projection[_EpochWire, KeptIncident] = Projection(_EpochWire, _kept)


class IncidentBook:
    """See the module. ``writes`` counts the requests that changed something, and ``trouble`` says
    why it is not known which incidents there are."""

    def __init__(self, client: KubeClient, *, wall: WallClock, rng: Rng) -> None:
        self.writes = 0
        self.trouble = ""
        self.kept: Cache[KeptIncident] = Cache()
        self._client = client
        self._wall = wall
        self._rng = rng

    @property
    def now_text(self) -> str:
        return time_text(self._wall.now())

    async def follow(self) -> NoReturn:
        """Keep ``kept`` up to date, until cancelled."""
        await Reflector(self._client, INCIDENTS, _EPOCHS, self.kept, rng=self._rng).run()

    # Reading, always what is true now

    async def all(self) -> list[IncidentRow]:
        """Those that can be read, the oldest name first."""
        reply = await self._client.list(INCIDENTS, timeout=_TIMEOUT)
        page = INCIDENT_PROJECTION.page(reply.body, call=reply.call)
        for strange in page.unreadable:
            _log.warning("incident %s cannot be read: %s", strange.key, strange.why)
        return sorted(page.rows, key=lambda row: row.key)

    async def recall(self) -> list[IncidentRow]:
        """The same, as soon as there is an answer."""
        return await until_answered(self.all, rng=self._rng, tell=self._complain)

    def _complain(self, because: str) -> None:
        self.trouble = because
        if because:
            _log.warning("nothing is done about any node yet: %s", because)

    async def adopt(self, spec: IncidentSpec) -> IncidentRow | None:
        """The open incident of this very boot; of several, the one that everybody would pick."""
        of_this_boot = (spec.node_uid, spec.boot_id)
        for row in await self.all():
            if row.open and (row.spec.node_uid, row.spec.boot_id) == of_this_boot:
                return row
        return None

    async def read(self, name: str) -> IncidentRow:
        reply = await self._client.get(INCIDENTS, name, timeout=_TIMEOUT)
        return incident_row(reply.into(Incident))

    async def highest_epoch(self) -> int:
        """The floor of ``kube.lease.Leadership``: closed incidents count as well."""
        reply = await self._client.list(INCIDENTS, timeout=_TIMEOUT)
        page = _EPOCHS.page(reply.body, call=reply.call)
        return max((row.epoch for row in page.rows), default=0)

    # Writing

    async def open(self, spec: IncidentSpec, *, not_after: float) -> IncidentRow:
        """The incident of this boot, which is created unless there is one."""
        return await self.adopt(spec) or await self._create(spec, not_after=not_after)

    async def update(
        self, row: IncidentRow, status: IncidentStatus, *, not_after: float
    ) -> IncidentRow:
        """The row with this status. Raises ``Conflict`` if it is not ``row`` any more."""
        if status == row.status:
            return row
        body = {
            "metadata": {"resourceVersion": row.version, "uid": row.uid},
            "status": status_patch(status),
        }
        reply = await self._client.merge_patch(
            INCIDENTS, row.key, body,
            subresource="status", manager=MANAGER, timeout=_TIMEOUT, not_after=not_after,
        )  # fmt: skip
        self.writes += 1
        return incident_row(reply.into(Incident))

    async def intend(self, row: IncidentRow, intent: Intent, *, not_after: float) -> IncidentRow:
        """Say what is about to be done. Only after this has returned may it be done."""
        return await self.update(row, telling.intended(row.status, intent), not_after=not_after)

    async def settle(
        self,
        row: IncidentRow,
        outcome: str,
        *,
        not_after: float,
        status: IncidentStatus | None = None,
    ) -> IncidentRow:
        """Say what became of the intent and, in the same write, what else is new (``status``)."""
        settled = telling.settled(status or row.status, outcome)
        return await self.update(row, settled, not_after=not_after)

    async def close(self, row: IncidentRow, why: Why, *, not_after: float) -> IncidentRow:
        closed = telling.closed(row.status, why, now_text=self.now_text)
        return await self.update(row, closed, not_after=not_after)

    async def remove(self, row: IncidentRow, *, not_after: float) -> None:
        """For good, if it still is what was read. Only what is over and old is removed."""
        await self._client.delete(
            INCIDENTS, row.key,
            conditions={"uid": row.uid, "resource_version": row.version},
            timeout=_TIMEOUT, not_after=not_after,
        )  # fmt: skip
        self.writes += 1

    async def _create(self, spec: IncidentSpec, *, not_after: float) -> IncidentRow:
        stem = f"{self._wall.now():%Y%m%d-%H%M%S}"
        name = incident_name(spec.node, stem)
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._create_as(name, spec, not_after)
            except AlreadyExists:
                # Of another boot, in the same second: one of this boot would have been found.
                name = incident_name(spec.node, f"{stem}-{self._rng.token(4)}")
        return await self._create_as(name, spec, not_after)

    async def _create_as(self, name: str, spec: IncidentSpec, not_after: float) -> IncidentRow:
        body = {
            "apiVersion": INCIDENTS.api_version,
            "kind": INCIDENTS.kind,
            "metadata": {"name": name, "labels": {COMPONENT: MANAGER}},
            "spec": msgspec.to_builtins(spec),
        }
        reply = await self._client.create(
            INCIDENTS, body, manager=MANAGER, timeout=_TIMEOUT, not_after=not_after
        )
        self.writes += 1
        return incident_row(reply.into(Incident))


def incident_name(node: str, stem: str) -> str:
    """``n1-20261116-080512``, also for a node whose name leaves no room for more."""
    return f"{node[: _NAME_LIMIT - len(stem) - 1].rstrip('-.')}-{stem}"


def status_patch(status: IncidentStatus) -> Mapping[str, object]:
    """The whole status as a merge patch. What is empty is taken away by name: left out, a merge
    would keep what was there before, such as the outcome of the last intent."""
    patch = _with_nulls(status)
    if status.intent is not None:
        patch["intent"] = _with_nulls(status.intent)
    return patch


def _with_nulls(struct: msgspec.Struct) -> dict[str, object]:
    said = msgspec.to_builtins(struct)
    return {field: said.get(field) for field in struct.__struct_encode_fields__}
