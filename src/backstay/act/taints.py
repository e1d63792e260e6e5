"""Our taint on a node, put on and taken off without touching anybody else's.

A list of taints is never built from what a cache keeps of it, which is less than what is there:
the live object is read, changed and written back at its version.
"""

from typing import Any

from backstay.kube.client import KubeClient
from backstay.kube.errors import Conflict
from backstay.kube.resource import NODES
from backstay.model.labels import MANAGER, TAINT

_TRIES = 5

Taints = list[dict[str, Any]]


async def put_on(
    client: KubeClient, node: str, *, uid: str, boot_id: str, not_after: float
) -> bool:
    """Keeps the scheduler away. False if this boot of the node of that uid is over."""
    ours = {"key": TAINT, "effect": "NoSchedule"}
    return await _rewrite(
        client, node, uid=uid, boot_id=boot_id, with_ours=[ours], not_after=not_after
    )


async def take_off(client: KubeClient, node: str, *, uid: str, not_after: float) -> bool:
    return await _rewrite(client, node, uid=uid, with_ours=[], not_after=not_after)


async def _rewrite(
    client: KubeClient,
    node: str,
    *,
    uid: str,
    with_ours: Taints,
    not_after: float,
    boot_id: str | None = None,
) -> bool:
    for attempt in range(1, _TRIES + 1):
        live = (await client.get(NODES, node)).json()
        if live["metadata"]["uid"] != uid or boot_id not in (None, _boot_id(live)):
            return False
        present: Taints = live["spec"].get("taints") or []
        wanted = [taint for taint in present if taint["key"] != TAINT] + with_ours
        if [t["key"] for t in wanted] == [t["key"] for t in present]:
            return True
        patch = {
            "metadata": {"resourceVersion": live["metadata"]["resourceVersion"]},
            "spec": {"taints": wanted or None},
        }
        try:
            await client.merge_patch(NODES, node, patch, manager=MANAGER, not_after=not_after)
        except Conflict:
            if attempt == _TRIES:
                raise
        else:
            return True
    raise AssertionError("the loop ends by returning or raising")


def _boot_id(node: dict[str, Any]) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get("bootID") or "")
