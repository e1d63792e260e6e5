"""Lifecycle: start, stop, restart and migrate, as virt-api serves them.

``PUT /apis/subresources.kubevirt.io/v1/namespaces/NS/virtualmachines/NAME/VERB``. To migrate is to
make a migration; what each of the others does is a matter of the run strategy:

=================  ===================================  ===============  ==============
run strategy       start                                stop             restart
=================  ===================================  ===============  ==============
Always             refused                              becomes Halted   asked for
RerunOnFailure     asked for; refused if it has failed  asked for        asked for
Manual             asked for                            asked for        asked for
Once               refused                              becomes Halted   refused
Halted             becomes Always                       refused          refused
=================  ===================================  ===============  ==============

``PUT .../virtualmachineinstances/NAME/evacuate/cancel`` has a guest forget that it was to leave its
node; a migration that is there already goes on.

What is asked for stands in the VM's ``status.stateChangeRequests`` until the VM controller has
seen to it. Asking says that start failures are forgotten.
"""

from collections.abc import Sequence
from typing import Any

from backstay.kube.resource import Resource
from backstay.seam.serve import Answer, Inbound
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations, Write
from backstay.sim.api.requests import Target
from backstay.sim.api.status import Refusal, method_not_allowed, nothing_there
from backstay.sim.kubevirt.names import (
    ALWAYS,
    FAILED,
    HALTED,
    MANUAL,
    MIGRATIONS,
    ONCE,
    RERUN_ON_FAILURE,
    RUNNING,
    SUBRESOURCES,
    SUCCEEDED,
    VMIS,
    VMS,
    Json,
)
from backstay.sim.kubevirt.objects import has_condition, is_final, phase_of, run_strategy_of
from backstay.sim.kubevirt.vm_status import requests_of

_WRITE = Write("virt-api")
_VERSIONS = frozenset({"v1", "v1alpha3"})
_START: Json = {"action": "Start"}
_RECOVERY = (
    "VM recovery required: Volume migration failed, leaving some volumes pointing to "
    "non-consistent targets; manual intervention is needed to reassign them to their original "
    "volumes."
)


class Lifecycle:
    """Each method is one request: it is accepted, or raises a ``Refusal``."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def answer(self, inbound: Inbound) -> Answer:
        """A request to the group ``subresources.kubevirt.io``."""
        actions = {
            "start": self.start, "stop": self.stop, "restart": self.restart,
            "migrate": self.migrate,
        }  # fmt: skip
        match inbound.path.strip("/").split("/"):
            case ["apis", _, version, "namespaces", namespace, "virtualmachines", name, verb] if (
                version in _VERSIONS and verb in actions
            ):
                if inbound.method != "PUT":
                    raise method_not_allowed()
                actions[verb](namespace, name)
                return Answer(status=202)
            case [
                "apis", _, version, "namespaces", namespace, "virtualmachineinstances", name,
                "evacuate", "cancel",
            ] if version in _VERSIONS:  # fmt: skip
                if inbound.method != "PUT":
                    raise method_not_allowed()
                self.cancel_evacuation(namespace, name)
                return Answer(status=202)
        raise nothing_there(SUBRESOURCES)

    def start(self, namespace: str, name: str) -> None:
        vm, vmi = self._find(namespace, name)
        if vmi is not None and phase_of(vmi) and not is_final(vmi):
            raise _conflict(name, "VM is already running")
        if has_condition(vm, "ManualRecoveryRequired", "True"):
            raise _conflict(name, _RECOVERY)
        strategy = run_strategy_of(vm)
        if strategy == HALTED:
            self._become(vm, ALWAYS)
        elif strategy in (ALWAYS, ONCE):
            raise _conflict(name, f"{strategy} does not support manual start requests")
        elif vmi is None:
            self._ask(vm, _START)
        elif strategy == RERUN_ON_FAILURE and phase_of(vmi) == FAILED:
            why = f"{RERUN_ON_FAILURE} does not support starting VM from failed state"
            raise _conflict(name, why)
        elif strategy == MANUAL or phase_of(vmi) == SUCCEEDED:
            self._ask(vm, _stop(vmi), _START)
        else:
            self._ask(vm, _START)

    def stop(self, namespace: str, name: str) -> None:
        vm, vmi = self._find(namespace, name)
        strategy = run_strategy_of(vm)
        if strategy in (ALWAYS, ONCE):
            self._become(vm, HALTED)
            return
        if vmi is None or is_final(vmi):
            raise _conflict(name, "VM is not running")
        if strategy == HALTED:
            why = f"{HALTED} only supports manual stop requests with a shorter graceperiod"
            raise _conflict(name, why)
        self._ask(vm, _stop(vmi))

    def restart(self, namespace: str, name: str) -> None:
        vm, vmi = self._find(namespace, name)
        strategy = run_strategy_of(vm)
        if strategy in (HALTED, ONCE):
            why = f"RunStategy {strategy} does not support manual restart requests"
            raise _conflict(name, why)
        if vmi is None:
            raise _conflict(name, f"VM is not running: {HALTED}")
        self._ask(vm, _stop(vmi), _START)

    def migrate(self, namespace: str, name: str) -> None:
        _, vmi = self._find(namespace, name)
        if vmi is None or phase_of(vmi) != RUNNING:
            raise _conflict(name, "VM is not running")
        made: Json = {
            "metadata": {"generateName": "kubevirt-migrate-vm-"}, "spec": {"vmiName": name},
        }  # fmt: skip
        self._operations.create(self._target(MIGRATIONS, namespace, ""), made, _WRITE)

    def cancel_evacuation(self, namespace: str, name: str) -> None:
        def stays(obj: Object) -> Object:
            status = obj.get("status") or {}
            left = {key: value for key, value in status.items() if key != "evacuationNodeName"}
            return {**obj, "status": left}

        self._operations.patch(self._target(VMIS, namespace, name), stays, _WRITE)

    def _find(self, namespace: str, name: str) -> tuple[Object, Object | None]:
        vm = self._operations.find(self._target(VMS, namespace, name)).object
        vmi = self._operations.store.get(VMIS.label, (namespace, name))
        return vm, vmi.object if vmi is not None else None

    def _become(self, vm: Object, strategy: str) -> None:
        old = "running" in vm["spec"]
        wanted: dict[str, Any] = (
            {"running": strategy == ALWAYS} if old else {"runStrategy": strategy}
        )
        self._operations.patch(
            self._target_of(vm), lambda obj: {**obj, "spec": {**obj["spec"], **wanted}}, _WRITE
        )

    def _ask(self, vm: Object, *asked: Json) -> None:
        if requests_of(vm) and not _is_stop(asked):
            why = "unable to complete request: stop/start already underway"
            raise Refusal(500, "InternalError", f"Internal error occurred: {why}")
        status = {k: v for k, v in (vm.get("status") or {}).items() if k != "startFailure"}
        status["stateChangeRequests"] = list(asked)
        target = self._target_of(vm, "status")
        self._operations.patch(target, lambda obj: {**obj, "status": status}, _WRITE)

    def _target_of(self, vm: Object, subresource: str = "") -> Target:
        meta = vm["metadata"]
        return self._target(VMS, meta["namespace"], meta["name"], subresource)

    def _target(
        self, resource: Resource, namespace: str, name: str, subresource: str = ""
    ) -> Target:
        info = self._operations.kinds.find(resource.group, resource.version, resource.plural)
        assert info is not None, "whoever serves this serves the kinds too"
        return Target(info, namespace, name, subresource)


def _stop(vmi: Object) -> Json:
    return {"action": "Stop", "uid": vmi["metadata"]["uid"]}


def _is_stop(asked: Sequence[Json]) -> bool:
    """A request to stop takes the place of all others."""
    return len(asked) == 1 and asked[0]["action"] == "Stop"


def _conflict(name: str, why: str) -> Refusal:
    return Refusal(
        409, "Conflict",
        f'Operation cannot be fulfilled on virtualmachine.kubevirt.io "{name}": {why}',
        details={"name": name, "group": "kubevirt.io", "kind": "virtualmachine"},
    )  # fmt: skip
