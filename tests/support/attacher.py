"""The storage driver's part in attaching volumes, on a control plane where there is no storage.

As a real one does, it puts its finalizer on every attachment of its driver, says that the volume is
attached, and takes the finalizer off once the attachment is deleted.
"""

from typing import Any

import msgspec

from backstay.apis.storage import ATTACHMENTS
from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.errors import NotFound
from backstay.kube.projection import Projection
from backstay.kube.reflector import Reflector
from backstay.seam.system import SystemRng
from backstay.seam.tasks import Tasks

FINALIZER = "external-attacher/csi-example"

Json = dict[str, Any]


class _Row(msgspec.Struct, frozen=True):
    key: str
    uid: str
    version: str
    body: Json


def _row(body: Json) -> _Row:
    meta = body["metadata"]
    return _Row(meta["name"], meta["uid"], meta["resourceVersion"], body)


class Attacher:
    """For the volumes of one driver. ``steps`` is what it saw of each node and volume, in order:
    ``(node, volume, "attached" | "deleting" | "gone")``."""

    def __init__(self, client: KubeClient, driver: str, tasks: Tasks) -> None:
        self.steps: list[tuple[str, str, str]] = []
        self._client = client
        self._driver = driver
        self._tasks = tasks
        self._cache: Cache[_Row] = Cache()
        self._cache.subscribe(self._changed)
        reflector = Reflector(
            client, ATTACHMENTS, Projection(dict, _row), self._cache, rng=SystemRng()
        )
        tasks.spawn(reflector.run(), name="attacher")

    def has(self, node: str) -> set[str]:
        """The volumes that are attached there now, or on their way."""
        return {
            row.body["spec"]["source"]["persistentVolumeName"]
            for row in self._cache
            if row.body["spec"]["nodeName"] == node
        }

    def _changed(self, old: _Row | None, new: _Row | None) -> None:
        row = new or old
        if row is None or row.body["spec"]["attacher"] != self._driver:
            return
        if new is None:
            self._note(row, "gone")
        else:
            self._tasks.spawn(self._do(new), name=f"attach {new.key}")

    def _note(self, row: _Row, what: str) -> None:
        spec = row.body["spec"]
        self.steps.append((spec["nodeName"], spec["source"]["persistentVolumeName"], what))

    async def _do(self, row: _Row) -> None:
        meta = row.body["metadata"]
        ours = FINALIZER in (meta.get("finalizers") or ())
        try:
            if meta.get("deletionTimestamp"):
                if ours:
                    self._note(row, "deleting")
                    await self._patch(row, {"metadata": {"finalizers": None}})
            elif not ours:
                await self._patch(row, {"metadata": {"finalizers": [FINALIZER]}})
            elif not (row.body.get("status") or {}).get("attached"):
                self._note(row, "attached")
                await self._patch(row, {"status": {"attached": True}}, subresource="status")
        except NotFound:
            return

    async def _patch(self, row: _Row, change: Json, *, subresource: str | None = None) -> None:
        await self._client.merge_patch(ATTACHMENTS, row.key, change, subresource=subresource)
