"""The node controller: what KubeVirt itself does about a node whose virt-handler is silent.

It is little, and late: after five minutes without a heartbeat it takes the node's label
``schedulable`` away and fails those VMIs of the node that have no living pod left. A pod that is
going is a living pod, so a VMI on a node that died stays as it is for ever. A node without a
heartbeat counts as responsive, a node that is gone does not.
"""

from datetime import timedelta

from backstay.kube.resource import NODES, PODS
from backstay.seam.clock import Rng
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations, parse_stamp
from backstay.sim.api.store import Commit, Key
from backstay.sim.kubevirt.names import (
    FAILED,
    FINAL,
    HANDED_OVER,
    HEARTBEAT,
    NODE_NAME,
    SCHEDULABLE,
    VMIS,
)
from backstay.sim.kubevirt.objects import controller_of, phase_of
from backstay.sim.kubevirt.reconciler import Connected, Reconciler

_SILENCE = timedelta(minutes=5)
_RECHECK = 60.0
_REASON = "NodeUnresponsive"


class NodeController(Reconciler):
    """Works on the keys of nodes."""

    hears = (NODES, VMIS)

    def __init__(self, operations: Operations, *, rng: Rng, connected: Connected) -> None:
        super().__init__("node-controller", operations, rng=rng, connected=connected)

    def begin(self) -> None:
        for node in self.all(NODES):
            self.add(node.key)
        for vmi in self.all(VMIS):
            self._add_node_of(vmi.object)

    def concerns(self, commit: Commit) -> bool:
        """Nodes that come and go, and all that happens on one that is silent. Whether one has
        fallen silent is looked at by the clock."""
        if commit.storage == NODES.label:
            return commit.before is None or commit.deleted or self._is_silent(commit.after.object)
        name = (commit.after.object.get("status") or {}).get("nodeName")
        node = self.find(NODES, ("", name)) if name else None
        return bool(name) and (node is None or self._is_silent(node))

    def hear(self, commit: Commit) -> None:
        if commit.storage == NODES.label:
            self.add(commit.after.key)
        elif commit.storage == VMIS.label and not commit.deleted:
            self._add_node_of(commit.after.object)

    def _add_node_of(self, vmi: Object) -> None:
        name = (vmi.get("status") or {}).get("nodeName")
        if name:
            self.add(("", name))

    async def reconcile(self, key: Key) -> float | None:
        node = self.find(NODES, key)
        if node is None or self._is_silent(node):
            if node is not None and _labels(node).get(SCHEDULABLE) == "true":
                await self._mark(key, node)
            await self._fail_stranded(key[1])
        return _RECHECK if node is not None else None

    def _is_silent(self, node: Object) -> bool:
        beat = (node["metadata"].get("annotations") or {}).get(HEARTBEAT)
        if beat is None:
            return False
        try:
            last = parse_stamp(beat)
        except ValueError:
            # Somebody wrote something else there; that is no reason to act.
            return False
        return last < parse_stamp(self.operations.now()) - _SILENCE

    async def _mark(self, key: Key, node: Object) -> None:
        why = "virt-handler is not responsive, marking node as unresponsive"
        self.tell(NODES, node, _REASON, why)
        path = f"/metadata/labels/{SCHEDULABLE.replace('/', '~1')}"
        await self.patch(NODES, key, [{"op": "replace", "path": path, "value": "false"}])

    async def _fail_stranded(self, node: str) -> None:
        here = [vmi for vmi in self.all(VMIS) if _is_active_on(vmi.object, node)]
        if not here:
            return
        served = self._served_on(node)
        for vmi in here:
            if vmi.object["metadata"]["uid"] in served:
                continue
            why = f"virt-handler on node {node} is not responsive, marking VMI as failed"
            self.tell(VMIS, vmi.object, _REASON, why)
            await self.patch(VMIS, vmi.key, [
                {"op": "replace", "path": "/status/phase", "value": FAILED},
                {"op": "add", "path": "/status/reason", "value": _REASON},
            ])  # fmt: skip

    def _served_on(self, node: str) -> set[str]:
        """The uids of the VMIs that have a living pod on a node."""
        uids = set()
        for pod in self.all(PODS):
            owner = controller_of(pod.object)
            here = pod.object["spec"].get("nodeName") == node
            if here and owner is not None and owner["kind"] == VMIS.kind and _lives(pod.object):
                uids.add(owner["uid"])
        return uids


def _labels(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def _is_active_on(vmi: Object, node: str) -> bool:
    return _labels(vmi).get(NODE_NAME) == node and phase_of(vmi) in HANDED_OVER


def _lives(pod: Object) -> bool:
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or ()
    all_ended = bool(containers) and all("terminated" in each["state"] for each in containers)
    return not all_ended and status.get("phase") not in FINAL
