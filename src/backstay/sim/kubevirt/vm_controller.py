"""The VM controller: whether a VM should have a VMI is a matter of its run strategy.

=================  =================================  =====================================
run strategy       its VMI has ended                  its VMI is gone
=================  =================================  =====================================
Always             is deleted                         a new one
RerunOnFailure     is deleted; if it failed, a start  a new one if a start was asked for, or
                   is asked for                       if the VM has just become so
Manual             stays                              a new one if a start was asked for
Once               stays                              a new one
Halted             is deleted                         none
=================  =================================  =====================================

A VMI that never ran makes the next start of an Always or RerunOnFailure wait. Everything else
happens as soon as the controller hears of its reason: there are no timers.
"""

from backstay.seam.clock import Rng
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations
from backstay.sim.api.store import Commit, Key
from backstay.sim.kubevirt.names import (
    ALWAYS,
    FAILED,
    KEPT_FOR_PODS,
    KEPT_FOR_VM,
    OBSERVED_VERSIONS,
    RERUN_ON_FAILURE,
    VM_GENERATION,
    VMIS,
    VMS,
    Json,
)
from backstay.sim.kubevirt.objects import (
    finalizers_of,
    has_condition,
    is_controlled_by,
    is_final,
    is_going,
    owned_by,
    phase_of,
    run_strategy_of,
    with_metadata,
)
from backstay.sim.kubevirt.reconciler import Connected, Reconciler, tested
from backstay.sim.kubevirt.vm_status import (
    WAITS,
    Sight,
    backoff_left,
    requests_of,
    unbound,
    vm_status,
    wants_start,
    wants_stop,
    what_matters,
)
from backstay.sim.kubevirt.vmi_controller import CLAIMS


class VmController(Reconciler):
    """Works on the keys of VMs, which are those of their VMIs."""

    hears = (VMS, VMIS)

    def __init__(self, operations: Operations, *, rng: Rng, connected: Connected) -> None:
        super().__init__("virtualmachine-controller", operations, rng=rng, connected=connected)
        # The uids of VMIs that were made or deleted and that nobody has heard of yet.
        self._starting: dict[Key, str] = {}
        self._stopping: dict[Key, str] = {}

    def begin(self) -> None:
        self._starting.clear()
        self._stopping.clear()
        for vm in self.all(VMS):
            self.add(vm.key)

    def concerns(self, commit: Commit) -> bool:
        """Half of what happens to a VMI changes nothing for its VM. To one that waits for a claim
        everything matters, because nobody tells when that is bound."""
        if commit.storage != VMIS.label or commit.deleted or commit.before is None:
            return True
        if what_matters(commit.before.object) != what_matters(commit.after.object):
            return True
        vm = self.find(VMS, commit.after.key)
        return vm is not None and (vm.get("status") or {}).get("printableStatus") == WAITS

    def hear(self, commit: Commit) -> None:
        key = commit.after.key
        if commit.storage == VMS.label:
            self.add(key)
        elif commit.storage == VMIS.label:
            uid = commit.after.object["metadata"]["uid"]
            if self._starting.get(key) == uid:
                del self._starting[key]
            going = commit.deleted or is_going(commit.after.object)
            if going and self._stopping.get(key) == uid:
                del self._stopping[key]
            self.add(key)

    async def reconcile(self, key: Key) -> float | None:
        vm = self.find(VMS, key)
        if vm is None:
            return None
        annotations = vm["metadata"].get("annotations") or {}
        if not OBSERVED_VERSIONS.items() <= annotations.items():
            observed = with_metadata(vm, annotations={**annotations, **OBSERVED_VERSIONS})
            vm = await self.replace(VMS, key, observed, settles=True)
        vmi = self.find(VMIS, key)
        if vmi is not None and not is_controlled_by(vmi, vm["metadata"]["uid"]):
            vmi = None
        wait = None
        if key not in self._starting and key not in self._stopping:
            if is_going(vm) and vmi is None:
                await self._let_go(key, vm)
                return None
            vm, wait = await self._sync(key, vm, vmi)
        await self._report(key, vm, vmi)
        return wait

    # Doing

    async def _let_go(self, key: Key, vm: Object) -> None:
        had = finalizers_of(vm)
        if KEPT_FOR_VM in had:
            kept = [each for each in had if each != KEPT_FOR_VM]
            await self.patch(VMS, key, tested("/metadata/finalizers", had, kept))

    async def _sync(self, key: Key, vm: Object, vmi: Object | None) -> tuple[Object, float | None]:
        """The VM as it is afterwards, and in how many seconds to look again."""
        if is_going(vm):
            assert vmi is not None
            await self._stop(key, vm, vmi)
            return vm, None
        had = finalizers_of(vm)
        if KEPT_FOR_VM not in had:
            kept = [*had, KEPT_FOR_VM]
            step = {"op": "add", "path": "/metadata/finalizers", "value": kept}
            vm = await self.patch(VMS, key, [step], settles=True)
        match run_strategy_of(vm):
            case "Always":
                return vm, await self._always(key, vm, vmi)
            case "RerunOnFailure":
                return await self._rerun_on_failure(key, vm, vmi)
            case "Manual":
                await self._manual(key, vm, vmi)
            case "Once" if vmi is None:
                await self._start(key, vm)
            case "Halted":
                await self._halted(key, vm, vmi)
        return vm, None

    async def _always(self, key: Key, vm: Object, vmi: Object | None) -> float | None:
        if vmi is None:
            return await self._start_unless_too_soon(key, vm)
        if is_final(vmi) or wants_stop(vm, vmi):
            await self._stop(key, vm, vmi)
        return None

    async def _rerun_on_failure(
        self, key: Key, vm: Object, vmi: Object | None
    ) -> tuple[Object, float | None]:
        if vmi is None:
            is_new = (vm.get("status") or {}).get("runStrategy") != RERUN_ON_FAILURE
            if wants_start(vm) or is_new:
                return vm, await self._start_unless_too_soon(key, vm)
        elif not is_going(vmi) and (is_final(vmi) or wants_stop(vm, vmi)):
            await self._stop(key, vm, vmi)
            if phase_of(vmi) == FAILED:
                return await self._ask_for_start(key, vm), None
        return vm, None

    async def _manual(self, key: Key, vm: Object, vmi: Object | None) -> None:
        if vmi is None:
            if wants_start(vm):
                await self._start(key, vm)
        elif wants_stop(vm, vmi):
            await self._stop(key, vm, vmi)

    async def _halted(self, key: Key, vm: Object, vmi: Object | None) -> None:
        if vmi is not None:
            await self._stop(key, vm, vmi)
        elif wants_start(vm):
            old = "running" in vm["spec"]
            wanted = {"running": True} if old else {"runStrategy": ALWAYS}
            await self.replace(VMS, key, {**vm, "spec": {**vm["spec"], **wanted}})

    async def _ask_for_start(self, key: Key, vm: Object) -> Object:
        """The VM keeps the version that it was read at, so that the report which follows meets a
        conflict and is made anew: that is how the real one does it."""
        asked = [*requests_of(vm), {"action": "Start"}]
        step = {"op": "add", "path": "/status/stateChangeRequests", "value": asked}
        patched = await self.patch(VMS, key, [step], "status")
        return {**vm, "status": patched["status"]}

    async def _start_unless_too_soon(self, key: Key, vm: Object) -> float | None:
        left = backoff_left(vm, self.operations.now())
        if left:
            return left
        await self._start(key, vm)
        return None

    async def _start(self, key: Key, vm: Object) -> None:
        if has_condition(vm, "ManualRecoveryRequired", "True"):
            return
        made = await self.create(VMIS, key[0], _vmi_of(vm))
        self._starting[key] = made["metadata"]["uid"]
        self.tell(VMS, vm, "SuccessfulCreate",
                  "Started the virtual machine by creating the new virtual machine instance "
                  f"{key[1]}")  # fmt: skip

    async def _stop(self, key: Key, vm: Object, vmi: Object) -> None:
        if is_going(vmi):
            return
        uid = vmi["metadata"]["uid"]
        await self.delete(VMIS, key)
        self._stopping[key] = uid
        self.tell(VMS, vm, "SuccessfulDelete",
                  f"Stopped the virtual machine by deleting the virtual machine instance {uid}"
                  )  # fmt: skip

    # Reporting

    async def _report(self, key: Key, vm: Object, vmi: Object | None) -> None:
        sight = Sight(
            vmi=vmi,
            start_expected=key in self._starting,
            stop_expected=key in self._stopping,
            unbound_claim=unbound(vm, lambda name: self.find(CLAIMS, (key[0], name))),
            now=self.operations.now(),
        )
        status = vm_status(vm, sight, self.rng)
        if status != vm.get("status"):
            # The next request is for another look, and nobody tells when a claim is bound.
            settles = not status.get("stateChangeRequests") and not sight.unbound_claim
            await self.replace(VMS, key, {**vm, "status": status}, "status", settles=settles)
        if vmi is not None and is_final(vmi) and KEPT_FOR_VM in finalizers_of(vmi):
            had = finalizers_of(vmi)
            kept = [each for each in had if each != KEPT_FOR_VM]
            await self.patch(VMIS, key, tested("/metadata/finalizers", had, kept))


def _vmi_of(vm: Object) -> Json:
    """A VMI of the VM's template."""
    template = vm["spec"]["template"]
    said = template.get("metadata") or {}
    finalizers = [each for each in said.get("finalizers") or () if each != KEPT_FOR_PODS]
    generation = str(vm["metadata"].get("generation", 1))
    return {
        "metadata": {
            "name": vm["metadata"]["name"],
            "labels": said.get("labels") or {},
            "annotations": {**(said.get("annotations") or {}), VM_GENERATION: generation},
            # The first is virt-api's, which is not here.
            "finalizers": [KEPT_FOR_PODS, *finalizers, KEPT_FOR_VM],
            "ownerReferences": owned_by(VMS.kind, vm),
        },
        "spec": template["spec"],
    }
