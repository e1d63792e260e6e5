"""Our taints on a node, put on and taken off without touching anybody else's.

There are two. The one of our own name keeps the scheduler away. The other is Kubernetes' own, for
a node that is out of service; anybody may put that on, so an annotation beside it says that it is
ours. Where it was there before, it is not ours and stays.
"""

from backstay.act.leave import Leave
from backstay.act.rewriting import Json, rewrite, taints_of
from backstay.kube.client import KubeClient
from backstay.model.labels import OUT_OF_SERVICE, OUT_OF_SERVICE_OURS, TAINT


async def put_on(client: KubeClient, node: str, *, uid: str, boot_id: str, leave: Leave) -> bool:
    """Keeps the scheduler away. False if this boot of the node of that uid is over."""

    def change(live: Json) -> Json | None:
        ours = {"key": TAINT, "effect": "NoSchedule"}
        return None if _has(live, TAINT) else _tainted(live, [*taints_of(live), ours])

    return await rewrite(client, node, change, uid=uid, boot_id=boot_id, leave=leave) is not None


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
        patch = _tainted(live, [*taints_of(live), ours])
        patch["metadata"]["annotations"] = {OUT_OF_SERVICE_OURS: incident}
        return patch

    return await rewrite(client, node, change, uid=uid, boot_id=boot_id, leave=leave) is not None


async def take_off(client: KubeClient, node: str, *, uid: str, leave: Leave) -> bool:
    """Both of ours. False if there is no node of that uid any more."""

    def change(live: Json) -> Json | None:
        marked = OUT_OF_SERVICE_OURS in (live["metadata"].get("annotations") or {})
        ours = {TAINT, OUT_OF_SERVICE} if marked else {TAINT}
        left = [taint for taint in taints_of(live) if taint["key"] not in ours]
        if left == taints_of(live) and not marked:
            return None
        patch = _tainted(live, left)
        if marked:
            patch["metadata"]["annotations"] = {OUT_OF_SERVICE_OURS: None}
        return patch

    return await rewrite(client, node, change, uid=uid, leave=leave) is not None


def _tainted(live: Json, taints: list[Json]) -> Json:
    return {
        "metadata": {"resourceVersion": live["metadata"]["resourceVersion"]},
        "spec": {"taints": taints or None},
    }


def _has(live: Json, key: str) -> bool:
    return any(taint["key"] == key for taint in taints_of(live))
