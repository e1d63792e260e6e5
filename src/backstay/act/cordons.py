"""Cordons: keeping a node free for a maintenance, and giving it back as it was.

Cordon, taint and label are written together with the annotation that says which of them are ours,
in one write at the version that was looked at. So nothing that was there before is ever taken for
ours, whoever dies in between: either all of it stands on the node, or none.
"""

import msgspec

from backstay.act.leave import Leave
from backstay.act.rewriting import Json, rewrite, taints_of
from backstay.kube.client import KubeClient
from backstay.kube.errors import NotFound
from backstay.kube.resource import NODES
from backstay.model.labels import DRAIN_TAINT, EXCLUDE, MAINTENANCE, MANAGER
from backstay.model.maintenance import Marks, marks_of


async def mark(
    client: KubeClient,
    node: str,
    *,
    uid: str,
    maintenance: str,
    name: str,
    inherits: bool,
    leave: Leave,
) -> bool:
    """Keeps the scheduler away from the node on account of that maintenance. True if anything had
    to be written. ``inherits`` says that another program may have begun it: then what it has put
    there is this maintenance's, and ours to take back."""

    def change(live: Json) -> Json | None:
        before = marks_of(_annotations(live).get(MAINTENANCE, ""))
        cordoned, tainted, labelled = _stands(live)
        inherited = inherits and before is None and tainted
        ours = before or Marks(maintenance, name, inherited, inherited, inherited and labelled)
        after = Marks(
            maintenance,
            name,
            cordon=ours.cordon or not cordoned,
            taint=ours.taint or not tainted,
            label=ours.label or not labelled,
        )
        if after == before and cordoned and tainted and labelled:
            return None
        patch = _patch(live, unschedulable=True, marks=after)
        if not labelled:
            patch["metadata"]["labels"] = {EXCLUDE: "true"}
        if not tainted:
            taint = {"key": DRAIN_TAINT, "effect": "NoSchedule"}
            patch["spec"]["taints"] = [*taints_of(live), taint]
        return patch

    return await rewrite(client, node, change, uid=uid, leave=leave) is True


async def give_back(
    client: KubeClient, node: str, *, maintenance: str, inherits: bool, leave: Leave
) -> Marks | None:
    """Takes off what was put there for that maintenance, and nothing else; what that was. None if
    there was nothing, or the node is gone."""
    given: list[Marks] = []

    def change(live: Json) -> Json | None:
        given.clear()
        marks = marks_of(_annotations(live).get(MAINTENANCE, ""))
        cordoned, tainted, labelled = _stands(live)
        if marks is None and inherits and tainted:
            marks = Marks(maintenance, node, cordoned, tainted, labelled)
        if marks is None or marks.maintenance != maintenance:
            return None
        given.append(marks)
        patch = _patch(live, unschedulable=None if marks.cordon else cordoned or None, marks=None)
        if marks.label and labelled:
            patch["metadata"]["labels"] = {EXCLUDE: None}
        if marks.taint:
            left = [taint for taint in taints_of(live) if taint["key"] != DRAIN_TAINT]
            patch["spec"]["taints"] = left or None
        return patch

    try:
        await rewrite(client, node, change, uid=None, leave=leave)
    except NotFound:
        return None
    return given[0] if given else None


async def cordon(client: KubeClient, node: str, *, dry_run: bool = False) -> bool:
    """As ``kubectl cordon`` does. False if it was cordoned already."""
    live = (await client.get(NODES, node)).json()
    if live["spec"].get("unschedulable"):
        return False
    patch = {
        "metadata": {"resourceVersion": live["metadata"]["resourceVersion"]},
        "spec": {"unschedulable": True},
    }
    await client.merge_patch(NODES, node, patch, manager=MANAGER, dry_run=dry_run)
    return True


def _patch(live: Json, *, unschedulable: bool | None, marks: Marks | None) -> Json:
    written = None if marks is None else msgspec.json.encode(marks).decode()
    metadata: Json = {
        "resourceVersion": live["metadata"]["resourceVersion"],
        "annotations": {MAINTENANCE: written},
    }
    return {"metadata": metadata, "spec": {"unschedulable": unschedulable}}


def _stands(live: Json) -> tuple[bool, bool, bool]:
    """Whether cordon, taint and label are there. A label with another value is somebody's own."""
    labels = live["metadata"].get("labels") or {}
    tainted = any(taint["key"] == DRAIN_TAINT for taint in taints_of(live))
    return bool(live["spec"].get("unschedulable")), tainted, EXCLUDE in labels


def _annotations(live: Json) -> dict[str, str]:
    return live["metadata"].get("annotations") or {}
