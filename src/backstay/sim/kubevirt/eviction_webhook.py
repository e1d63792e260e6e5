"""The eviction webhook: what virt-api answers when somebody wants a guest's pod to go.

It is asked before any disruption budget is. It lets the pod go, or refuses with 429 and, where the
guest can be moved, has it moved instead: whoever evicts asks again until the pod is gone.

==================================================  =========  ====================================
the pod, and the eviction strategy of its VMI       answer     and
==================================================  =========  ====================================
no launcher, or one that is over                    it may go
None, or none at all                                it may go  the guest is stopped
LiveMigrateIfPossible, not migratable               it may go  the guest is stopped
LiveMigrate, not migratable                         refused    nothing happens, ever
LiveMigrate(IfPossible) and migratable, External    refused    the VMI is marked
the same, and the VMI is marked already             refused
the same, and the pod is a migration's target       refused
a pod with plugged volumes of a guest that runs     refused
==================================================  =========  ====================================

A dry run gets the same answer, and marks nothing. A refusal has neither a reason nor a time to come
back: that is how it can be told from a budget's.
"""

from backstay.kube.resource import PODS
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations, Write
from backstay.sim.api.requests import Target
from backstay.sim.api.status import Refusal
from backstay.sim.kubevirt.hotplug import PREFIX
from backstay.sim.kubevirt.names import APP, DOMAIN, FINAL, LAUNCHER, VMIS
from backstay.sim.kubevirt.objects import controller_of, has_condition

_LAUNCHERS = "virt-launcher-eviction-interceptor.kubevirt.io"
_ATTACHMENTS = "hotplug-pod-eviction-interceptor.kubevirt.io"


class EvictionWebhook:
    """What ``ApiServer.intercept_evictions`` takes."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def __call__(self, pod: Object, write: Write) -> None:
        """Raises a ``Refusal`` if the pod is not to be evicted."""
        name = pod["metadata"]["name"]
        if name.startswith(PREFIX):
            self._check_attachment(pod)
        elif name.startswith(LAUNCHER) and _is_live_launcher(pod):
            self._check_launcher(pod, write)

    def _check_attachment(self, pod: Object) -> None:
        owner, meta = controller_of(pod), pod["metadata"]
        if owner is None:
            return
        launcher = self._operations.store.get(PODS.label, (meta["namespace"], owner["name"]))
        if launcher is None or not _is_live_launcher(launcher.object):
            return
        vmi = _instance_of(launcher.object)
        if self._find(meta["namespace"], vmi) is not None:
            raise _denied(
                _ATTACHMENTS,
                f"cannot evict hotplug pod: {meta['name']} associated with running vmi: {vmi} in "
                f"namespace {meta['namespace']}",
            )

    def _check_launcher(self, pod: Object, write: Write) -> None:
        namespace, name = pod["metadata"]["namespace"], _instance_of(pod)
        vmi = self._find(namespace, name) if name else None
        if vmi is None or not _is_to_move(vmi):
            return
        status = vmi.get("status") or {}
        evacuation = f'Eviction triggered evacuation of VMI "{namespace}/{name}"'
        if status.get("evacuationNodeName"):
            raise _denied(_LAUNCHERS, f"Evacuation in progress: {evacuation}")
        if status.get("nodeName") != pod["spec"].get("nodeName"):
            raise _denied(_LAUNCHERS, "Eviction request for target Pod")
        self._mark(vmi, write)
        raise _denied(_LAUNCHERS, evacuation)

    def _mark(self, vmi: Object, write: Write) -> None:
        meta, node = vmi["metadata"], vmi["status"]["nodeName"]
        info = self._operations.kinds.find(VMIS.group, VMIS.version, VMIS.plural)
        assert info is not None, "whoever serves this serves the kinds too"
        target = Target(info, meta["namespace"], meta["name"])
        self._operations.patch(
            target,
            lambda obj: {**obj, "status": {**obj["status"], "evacuationNodeName": node}},
            Write("virt-api", write.dry_run),
        )

    def _find(self, namespace: str, name: str) -> Object | None:
        found = self._operations.store.get(VMIS.label, (namespace, name))
        return found.object if found is not None else None


def _is_live_launcher(pod: Object) -> bool:
    labels = pod["metadata"].get("labels") or {}
    over = (pod.get("status") or {}).get("phase") in FINAL
    return labels.get(APP) == LAUNCHER and not over


def _instance_of(launcher: Object) -> str:
    return str((launcher["metadata"].get("annotations") or {}).get(DOMAIN) or "")


def _is_to_move(vmi: Object) -> bool:
    """Whether an eviction is to have the guest moved. Raises a ``Refusal`` if it is, and cannot."""
    strategy = vmi["spec"].get("evictionStrategy")
    migratable = has_condition(vmi, "LiveMigratable", "True")
    if strategy == "LiveMigrate" and not migratable:
        raise _denied(
            _LAUNCHERS,
            f"VMI {vmi['metadata']['name']} is configured with an eviction strategy but is not "
            "live-migratable",
        )
    return strategy in ("LiveMigrate", "External") or (
        strategy == "LiveMigrateIfPossible" and migratable
    )


def _denied(webhook: str, why: str) -> Refusal:
    return Refusal(429, "", f'admission webhook "{webhook}" denied the request: {why}')
