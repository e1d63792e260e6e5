"""Rewriting a node: a change is made to the node as it is, at the version that was looked at.

Lists such as taints are built from the live object, because a row leaves fields out. Somebody else
writes to nodes all the time, so a conflict is tried again, a few times, from a new look.
"""

from collections.abc import Callable
from typing import Any

from backstay.act.leave import Leave
from backstay.kube.client import KubeClient
from backstay.kube.errors import Conflict
from backstay.kube.resource import NODES
from backstay.model.labels import MANAGER

_TRIES = 5

Json = dict[str, Any]
Change = Callable[[Json], Json | None]
"""From the live node to what is to be patched; None if nothing is."""


async def rewrite(
    client: KubeClient,
    node: str,
    change: Change,
    *,
    uid: str | None,
    leave: Leave,
    boot_id: str | None = None,
) -> bool | None:
    """Whether anything was written; None if the node is another one, or has booted since. What is
    not given is not asked about. Raises ``NotFound``."""
    for attempt in range(1, _TRIES + 1):
        live = (await client.get(NODES, node)).json()
        if uid not in (None, live["metadata"]["uid"]) or boot_id not in (None, _boot_id(live)):
            return None
        patch = change(live)
        if patch is None:
            return False
        try:
            await client.merge_patch(NODES, node, patch, manager=MANAGER, not_after=leave())
        except Conflict:
            if attempt == _TRIES:
                raise
        else:
            return True
    raise AssertionError("the loop ends by returning or raising")


def taints_of(live: Json) -> list[Json]:
    return live["spec"].get("taints") or []


def _boot_id(node: Json) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get("bootID") or "")
