"""Our taints on a node, put on and taken off without touching anybody else's.

There are two. The one of our own name keeps the scheduler away. The other is Kubernetes' own, for
a node that is out of service; anybody may put that on, so an annotation beside it says that it is
ours. Where it was there before, it is not ours and stays.

A list of taints is never built from what a cache keeps of it, which is less than what is there:
the live object is read, changed and written back at its version.
"""

from collections.abc import Callable
from typing import Any

from backstay.act.leave import Leave
from backstay.kube.client import KubeClient
from backstay.kube.errors import Conflict
from backstay.kube.resource import NODES
from backstay.model.labels import MANAGER, OUT_OF_SERVICE, OUT_OF_SERVICE_OURS, TAINT

_TRIES = 5

Json = dict[str, Any]
Change = Callable[[Json], Json | None]
"""From the live node to what is to be patched; None if nothing is."""


async def put_on(client: KubeClient, node: str, *, uid: str, boot_id: str, leave: Leave) -> bool:
    """Keeps the scheduler away. False if this boot of the node of that uid is over."""

    def change(live: Json) -> Json | None:
        ours = {"key": TAINT, "effect": "NoSchedule"}
        return None if _has(live, TAINT) else _tainted(live, [*_taints(live), ours])

    return await _rewrite(client, node, change, uid=uid, boot_id=boot_id, leave=leave)


async def put_out_of_service(
    client: KubeClient, node: str, *, uid: str, boot_id: str, incident: str, leave: Leave
) -> bool:
    """Has Kubernetes take everything from the node. False if this boot of it is over."""

    def change(live: Json) -> Json | None:
        said = live["metadata"].get("annotations") or {}
        # Ours that somebody has taken off again is not put back.
        if _has(live, OUT_OF_SERVICE) or said.get(OUT_OF_SERVICE_OURS) == incident:
            return None
        ours = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
        patch = _tainted(live, [*_taints(live), ours])
        patch["metadata"]["annotations"] = {OUT_OF_SERVICE_OURS: incident}
        return patch

    return await _rewrite(client, node, change, uid=uid, boot_id=boot_id, leave=leave)


async def take_off(client: KubeClient, node: str, *, uid: str, leave: Leave) -> bool:
    """Both of ours. False if there is no node of that uid any more."""

    def change(live: Json) -> Json | None:
        marked = OUT_OF_SERVICE_OURS in (live["metadata"].get("annotations") or {})
        ours = {TAINT, OUT_OF_SERVICE} if marked else {TAINT}
        left = [taint for taint in _taints(live) if taint["key"] not in ours]
        if left == _taints(live) and not marked:
            return None
        patch = _tainted(live, left)
        if marked:
            patch["metadata"]["annotations"] = {OUT_OF_SERVICE_OURS: None}
        return patch

    return await _rewrite(client, node, change, uid=uid, leave=leave)


async def _rewrite(
    client: KubeClient,
    node: str,
    change: Change,
    *,
    uid: str,
    leave: Leave,
    boot_id: str | None = None,
) -> bool:
    for attempt in range(1, _TRIES + 1):
        live = (await client.get(NODES, node)).json()
        if live["metadata"]["uid"] != uid or boot_id not in (None, _boot_id(live)):
            return False
        patch = change(live)
        if patch is None:
            return True
        try:
            await client.merge_patch(NODES, node, patch, manager=MANAGER, not_after=leave())
        except Conflict:
            if attempt == _TRIES:
                raise
        else:
            return True
    raise AssertionError("the loop ends by returning or raising")


def _tainted(live: Json, taints: list[Json]) -> Json:
    return {
        "metadata": {"resourceVersion": live["metadata"]["resourceVersion"]},
        "spec": {"taints": taints or None},
    }


def _taints(live: Json) -> list[Json]:
    return live["spec"].get("taints") or []


def _has(live: Json, key: str) -> bool:
    return any(taint["key"] == key for taint in _taints(live))


def _boot_id(node: Json) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get("bootID") or "")
