"""Sets: what keeps a number of guests, or of VMs, by making others for those that are lost.

* A ``VirtualMachineInstanceReplicaSet`` has guests without VMs. One that has ended, or whose pod is
  merely going, does not count any more: another is made at once, of another name, and the old one
  is deleted.
* A ``VirtualMachinePool`` has VMs, numbered from 0. Their run strategies see to their guests; the
  pool only makes VMs that are missing.

Not here: scaling down, rolling out a changed template, and claims of a pool's own.
"""

from collections.abc import Callable

from backstay.kube.resource import Resource
from backstay.seam.clock import Rng
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations
from backstay.sim.api.store import Commit, Key
from backstay.sim.kubevirt.names import POOL_GROUP, POOLS, SETS, VMIS, VMS, Json
from backstay.sim.kubevirt.objects import (
    has_condition,
    is_controlled_by,
    is_final,
    is_going,
    owned_by,
)
from backstay.sim.kubevirt.reconciler import Connected, Reconciler


class _SetController(Reconciler):
    """``kept`` are the sets that it looks after, ``made`` what it makes for them."""

    kept: Resource
    made: Resource

    def begin(self) -> None:
        for each in self.all(self.kept):
            self.add(each.key)

    def note(self, commit: Commit) -> None:
        # Where there is no set, nothing is any of its business, and no chance is drawn for it.
        if self.all(self.kept) or commit.storage == self.kept.label:
            super().note(commit)

    def hear(self, commit: Commit) -> None:
        if commit.storage == self.kept.label:
            self.add(commit.after.key)
        elif commit.storage == self.made.label:
            owners = commit.after.object["metadata"].get("ownerReferences") or ()
            for owner in owners:
                if owner["kind"] == self.kept.kind:
                    self.add((commit.after.key[0], owner["name"]))

    def _members(self, found: Object) -> list[Object]:
        meta = found["metadata"]
        return [
            each.object
            for each in self.all(self.made)
            if each.key[0] == meta["namespace"] and is_controlled_by(each.object, meta["uid"])
        ]

    async def _report(
        self, key: Key, found: Object, members: list[Object], is_ready: Callable[[Object], bool]
    ) -> None:
        ready = sum(map(is_ready, members))
        status: Json = {**(found.get("status") or {}), "replicas": len(members)}
        status["readyReplicas"] = ready
        if status != found.get("status"):
            await self.replace(self.kept, key, {**found, "status": status}, "status")


class ReplicaSetController(_SetController):
    """Works on the keys of VirtualMachineInstanceReplicaSets."""

    kept, made = SETS, VMIS
    hears = (SETS, VMIS)

    def __init__(self, operations: Operations, *, rng: Rng, connected: Connected) -> None:
        super().__init__("replicaset-controller", operations, rng=rng, connected=connected)
        # The names of those that were made and that nobody has heard of yet.
        self._expected: dict[Key, set[str]] = {}

    async def reconcile(self, key: Key) -> float | None:
        found = self.find(SETS, key)
        if found is None or is_going(found):
            return None
        members = self._members(found)
        active = [each for each in members if _is_active(each)]
        expected = self._expected.setdefault(key, set())
        expected -= {each["metadata"]["name"] for each in members}
        for _ in range(int(found["spec"].get("replicas", 1)) - len(active) - len(expected)):
            made = await self.create(VMIS, key[0], _instance(found))
            expected.add(made["metadata"]["name"])
        for each in members:
            if not _is_active(each) and not is_going(each):
                await self.delete(VMIS, (key[0], each["metadata"]["name"]))
        await self._report(key, found, active, _is_ready)
        return None


class PoolController(_SetController):
    """Works on the keys of VirtualMachinePools."""

    kept, made = POOLS, VMS
    hears = (POOLS, VMS)

    def __init__(self, operations: Operations, *, rng: Rng, connected: Connected) -> None:
        super().__init__("pool-controller", operations, rng=rng, connected=connected)

    async def reconcile(self, key: Key) -> float | None:
        found = self.find(POOLS, key)
        if found is None or is_going(found):
            return None
        members = self._members(found)
        known = {each["metadata"]["name"] for each in members}
        for number in range(int(found["spec"].get("replicas", 1))):
            name = f"{key[1]}-{number}"
            if name not in known:
                await self.create(VMS, key[0], _machine(found, name))
        await self._report(
            key, found, members, lambda vm: bool((vm.get("status") or {}).get("ready"))
        )
        return None


def _is_active(vmi: Object) -> bool:
    terminating = has_condition(vmi, "Ready", "False", "PodTerminating")
    return not is_final(vmi) and not is_going(vmi) and not terminating


def _is_ready(vmi: Object) -> bool:
    return has_condition(vmi, "Ready", "True")


def _instance(found: Object) -> Json:
    template = found["spec"]["template"]
    said = template.get("metadata") or {}
    return {
        "metadata": {
            **{k: v for k, v in said.items() if k in ("labels", "annotations", "finalizers")},
            "generateName": found["metadata"]["name"],
            "ownerReferences": owned_by(SETS.kind, found),
        },
        "spec": template["spec"],
    }


def _machine(found: Object, name: str) -> Json:
    template = found["spec"]["virtualMachineTemplate"]
    [owner] = owned_by(POOLS.kind, found)
    return {
        "metadata": {
            **(template.get("metadata") or {}),
            "name": name,
            "ownerReferences": [{**owner, "apiVersion": f"{POOL_GROUP}/v1beta1"}],
        },
        "spec": template["spec"],
    }
