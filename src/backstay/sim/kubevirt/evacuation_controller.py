"""The evacuation controller: moves guests away from nodes that they were asked to leave.

A VMI is asked by ``status.evacuationNodeName``, which the eviction webhook writes, or all of a node
are by the taint ``kubevirt.io/drain``. It makes a migration for each that can be moved and has
none, at most as many as may run at once, and again as soon as one has failed: a guest that was
asked to leave is asked until it has left.
"""

from backstay.kube.resource import NODES, PODS
from backstay.seam.clock import Rng
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations
from backstay.sim.api.store import Commit, Key
from backstay.sim.kubevirt.names import EVACUATION, FINAL, MIGRATIONS, VMIS, Json
from backstay.sim.kubevirt.objects import (
    has_condition,
    is_controlled_by,
    is_final,
    is_going,
    phase_of,
)
from backstay.sim.kubevirt.reconciler import Connected, Reconciler

_MOST_AT_ONCE = 5
_RECHECK = 5.0
_DRAIN = {"key": "kubevirt.io/drain", "effect": "NoSchedule"}
_MOVES_BY_ITSELF = frozenset({"LiveMigrate", "LiveMigrateIfPossible"})


class EvacuationController(Reconciler):
    """Works on the keys of nodes."""

    hears = (NODES, VMIS, MIGRATIONS)

    def __init__(self, operations: Operations, *, rng: Rng, connected: Connected) -> None:
        super().__init__("disruptionbudget-controller", operations, rng=rng, connected=connected)

    def begin(self) -> None:
        for node in self.all(NODES):
            self.add(node.key)

    def concerns(self, commit: Commit) -> bool:
        if commit.storage == NODES.label:
            before = commit.before.object if commit.before else {"spec": {}}
            return _has_drain_taint(commit.after.object) and not _has_drain_taint(before)
        return commit.storage != VMIS.label or self._node_to_leave(commit.after.object) != ""

    def hear(self, commit: Commit) -> None:
        if commit.storage == NODES.label:
            self.add(commit.after.key)
        elif commit.storage == VMIS.label:
            self._add_node_of(commit.after.object)
        elif commit.storage == MIGRATIONS.label:
            namespace = commit.after.key[0]
            vmi = self.find(VMIS, (namespace, commit.after.object["spec"]["vmiName"]))
            if vmi is not None:
                self._add_node_of(vmi)

    def _add_node_of(self, vmi: Object) -> None:
        if name := self._node_to_leave(vmi):
            self.add(("", name))

    def _node_to_leave(self, vmi: Object) -> str:
        """The node that a VMI is on, if it was asked to leave it."""
        status = vmi.get("status") or {}
        name = str(status.get("nodeName") or "")
        if not name or status.get("evacuationNodeName"):
            return name
        node = self.find(NODES, ("", name))
        return name if node is not None and _has_drain_taint(node) else ""

    async def reconcile(self, key: Key) -> float | None:
        node = self.find(NODES, key)
        if node is None:
            return None
        under_way = [
            each.object for each in self.all(MIGRATIONS) if phase_of(each.object) not in FINAL
        ]
        moving = {(each["metadata"]["namespace"], each["spec"]["vmiName"]) for each in under_way}
        waiting = [
            vmi.object
            for vmi in self.all(VMIS)
            if vmi.key not in moving and self._must_leave(vmi.object, node)
        ]
        room = max(0, _MOST_AT_ONCE - len(under_way))
        for vmi in waiting[:room]:
            await self._move(vmi, key[1])
        return _RECHECK if len(waiting) > room else None

    def _must_leave(self, vmi: Object, node: Object) -> bool:
        status, name = vmi.get("status") or {}, node["metadata"]["name"]
        asked = status.get("evacuationNodeName") == name or _has_drain_taint(node)
        return (
            status.get("nodeName") == name
            and asked
            and vmi["spec"].get("evictionStrategy") in _MOVES_BY_ITSELF
            and has_condition(vmi, "LiveMigratable", "True")
            and not is_final(vmi)
            and not is_going(vmi)
            and len(self._running_pods(vmi)) <= 1
        )

    def _running_pods(self, vmi: Object) -> list[Object]:
        uid = vmi["metadata"]["uid"]
        return [
            each.object
            for each in self.all(PODS)
            if is_controlled_by(each.object, uid)
            and (each.object.get("status") or {}).get("phase") not in FINAL
        ]

    async def _move(self, vmi: Object, node: str) -> None:
        meta = vmi["metadata"]
        migration: Json = {
            "metadata": {"generateName": "kubevirt-evacuation-", "annotations": {EVACUATION: node}},
            "spec": {"vmiName": meta["name"], "priority": "system-critical"},
        }
        made = await self.create(MIGRATIONS, meta["namespace"], migration)
        name = made["metadata"]["name"]
        self.tell(VMIS, vmi, "SuccessfulCreate", f"Created Migration {name}")


def _has_drain_taint(node: Object) -> bool:
    taints = (node.get("spec") or {}).get("taints") or ()
    return bool(taints) and any(_DRAIN.items() <= taint.items() for taint in taints)
