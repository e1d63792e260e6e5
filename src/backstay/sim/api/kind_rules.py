"""The rules of the kinds that have some of their own, one class each, in one table at the end.

To teach the embedded API a habit of a kind, write its class here and add it to the table.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from backstay.sim.api import defaults
from backstay.sim.api.defaults import filled
from backstay.sim.api.definitions import Definitions
from backstay.sim.api.kinds import KindInfo, Object
from backstay.sim.api.rules import KindRules, with_field
from backstay.sim.api.status import Cause, forbidden

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


# Without these the server itself could not live.
_IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


class Spec(KindRules):
    """A kind with a spec whose changes are counted."""

    generation = True


def _with_old_metadata(new: Object, old: Object, *fields: str) -> Object:
    """With these fields of the metadata as they were."""
    meta = new["metadata"]
    for field in fields:
        meta = with_field(meta, field, old["metadata"].get(field))
    return {**new, "metadata": meta}


class Workload(Spec):
    """A kind that makes pods from a template; ``spec_defaults`` is what its spec is filled with."""

    spec_defaults: Mapping[str, Any] = {}
    status_on_create: Mapping[str, Any] = {}

    def on_create(self, obj: Object) -> Object:
        spec = filled(obj.get("spec"), self.spec_defaults)
        template = spec.get("template") or {}
        if template.get("spec"):
            spec["template"] = {**template, "spec": defaults.pod_spec(template["spec"])}
        return {**obj, "spec": spec, "status": dict(self.status_on_create)}

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        spec = new["spec"]
        if not (spec.get("selector") or {}):
            return [Cause("FieldValueRequired", "Required value", "spec.selector")]
        return ()


class Deployments(Workload):
    spec_defaults = defaults.DEPLOYMENT_SPEC

    def on_status_update(self, new: Object, old: Object) -> Object:
        return _with_old_metadata(super().on_status_update(new, old), old, "labels")


class StatefulSets(Workload):
    spec_defaults = defaults.STATEFUL_SET_SPEC
    status_on_create: Mapping[str, Any] = {"replicas": 0, "availableReplicas": 0}


class DaemonSets(Workload):
    spec_defaults = defaults.DAEMON_SET_SPEC
    status_on_create: Mapping[str, Any] = {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }


class ReplicaSets(Workload):
    spec_defaults: Mapping[str, Any] = {"replicas": 1}
    status_on_create: Mapping[str, Any] = {"replicas": 0}


class Jobs(Workload):
    spec_defaults = defaults.JOB_SPEC

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        return ()


_POD_MUTABLE = frozenset(
    {"activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates"}
)


class Pods(Spec):
    """Deleted gracefully; almost nothing of the spec may change."""

    returns_deleted = True

    def on_create(self, obj: Object) -> Object:
        spec = defaults.pod_spec(obj.get("spec") or {})
        spec = filled(
            spec,
            {"priority": 0, "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority"},
        )
        said = spec.get("tolerations") or []
        keys = {toleration.get("key") for toleration in said}
        spec["tolerations"] = [
            *said,
            *(dict(t) for t in defaults.TOLERATIONS if t["key"] not in keys and None not in keys),
        ]
        status = {"phase": "Pending", "qosClass": defaults.quality_of_service(spec)}
        return {**obj, "spec": spec, "status": status}

    def on_status_update(self, new: Object, old: Object) -> Object:
        return _with_old_metadata(super().on_status_update(new, old), old, "ownerReferences")

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        if not new["spec"].get("containers"):
            return [Cause("FieldValueRequired", "Required value", "spec.containers")]
        if old is None or _pod_core(new["spec"]) == _pod_core(old["spec"]):
            return ()
        why = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
            "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to "
            "be set to 1 if it was previously negative)"
        )
        return [Cause("FieldValueForbidden", why, "spec")]

    def grace(self, obj: Object, requested: int | None) -> int:
        spec, status = obj["spec"], obj.get("status") or {}
        period = spec.get("terminationGracePeriodSeconds", 0) if requested is None else requested
        if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
            return 0
        return 1 if period < 0 else int(period)


def _pod_core(spec: Object) -> Object:
    """The part of a pod's spec that may not change."""
    core = {k: v for k, v in spec.items() if k not in _POD_MUTABLE}
    for field in ("containers", "initContainers"):
        if field in core:
            core[field] = [{**container, "image": ""} for container in core[field]]
    return core


class Nodes(KindRules):
    """A kubelet registers with a status; a new node is not ready until it says so."""

    def on_create(self, obj: Object) -> Object:
        spec = dict(obj.get("spec") or {})
        taints = list(spec.get("taints") or [])
        if not any(taint.get("key") == NOT_READY["key"] for taint in taints):
            taints.append(dict(NOT_READY))
        status = filled(obj.get("status"), defaults.NODE_STATUS)
        return {**obj, "spec": {**spec, "taints": taints}, "status": status}


class Namespaces(KindRules):
    """Kept by a finalizer in the spec until their content is gone."""

    returns_deleted = True

    def on_create(self, obj: Object) -> Object:
        meta = obj["metadata"]
        labels = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta.get("name", "")}
        spec = obj.get("spec") or {}
        finalizers = dict.fromkeys((*(spec.get("finalizers") or ()), "kubernetes"))
        return {
            **obj,
            "metadata": {**meta, "labels": labels},
            "spec": {**spec, "finalizers": list(finalizers)},
            "status": {"phase": "Active"},
        }

    def on_update(self, new: Object, old: Object) -> Object:
        return {**_named(new), "spec": old["spec"], "status": old["status"]}

    def on_subresource_update(self, subresource: str, new: Object, old: Object) -> Object:
        """``finalize`` is where a controller takes its finalizer off."""
        return {**_named(new), "status": old["status"]}

    def begin_deletion(self, obj: Object, now: str) -> Object:
        meta = obj["metadata"]
        if meta["name"] in _IMMORTAL:
            why = "this namespace may not be deleted"
            raise forbidden(self.info, meta["name"], why)
        return {
            **obj,
            "metadata": {**meta, "deletionTimestamp": now},
            "status": {**obj["status"], "phase": "Terminating"},
        }

    def is_held(self, obj: Object) -> bool:
        return bool((obj.get("spec") or {}).get("finalizers"))


def _named(namespace: Object) -> Object:
    """With the label that every namespace has."""
    meta = namespace["metadata"]
    labels = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta["name"]}
    return {**namespace, "metadata": {**meta, "labels": labels}}


class PodDisruptionBudgets(Spec):
    def on_create(self, obj: Object) -> Object:
        counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
        return {**obj, "status": dict.fromkeys(counts, 0)}


class Claims(KindRules):
    """Protected by a finalizer while a pod may use them."""

    def on_create(self, obj: Object) -> Object:
        spec = filled(obj.get("spec"), {"volumeMode": "Filesystem"})
        return {
            **_finalized(obj, "kubernetes.io/pvc-protection"),
            "spec": spec,
            "status": {"phase": "Pending"},
        }


class Volumes(KindRules):
    def on_create(self, obj: Object) -> Object:
        spec = filled(
            obj.get("spec"),
            {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"},
        )
        return {
            **_finalized(obj, "kubernetes.io/pv-protection"),
            "spec": spec,
            "status": {"phase": "Pending"},
        }


def _finalized(obj: Object, finalizer: str) -> Object:
    meta = obj["metadata"]
    finalizers = [*(meta.get("finalizers") or []), finalizer]
    return {**obj, "metadata": {**meta, "finalizers": list(dict.fromkeys(finalizers))}}


class ConfigMaps(KindRules):
    """What was declared immutable stays as it is."""

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        return _changes_of_immutable(new, old, ("data", "binaryData"))


def _changes_of_immutable(new: Object, old: Object | None, fields: Sequence[str]) -> list[Cause]:
    if old is None or not old.get("immutable"):
        return []
    why = "Forbidden: field is immutable when `immutable` is set"
    changed = [field for field in fields if new.get(field) != old.get(field)]
    if not new.get("immutable"):
        changed.insert(0, "immutable")
    return [Cause("FieldValueForbidden", why, field) for field in changed]


class Secrets(KindRules):
    """What was written as text is kept as base64."""

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        return _changes_of_immutable(new, old, ("data",))

    def on_create(self, obj: Object) -> Object:
        return filled(_encoded(obj), {"type": "Opaque"})

    def on_update(self, new: Object, old: Object) -> Object:
        return _encoded(new)


def _encoded(obj: Object) -> Object:
    text = obj.get("stringData") or {}
    data = {name: base64.b64encode(value.encode()).decode() for name, value in text.items()}
    made = {k: v for k, v in obj.items() if k != "stringData"}
    if data:
        made["data"] = {**(obj.get("data") or {}), **data}
    return made


class Events(KindRules):
    """Fields that a client left out are there, and empty."""

    create_on_update = True

    def on_create(self, obj: Object) -> Object:
        empty: Object = {
            "source": {}, "firstTimestamp": None, "lastTimestamp": None, "eventTime": None,
            "reportingComponent": "", "reportingInstance": "",
        }  # fmt: skip
        return {**empty, **obj}


class Leases(KindRules):
    create_on_update = True
    blind_update = False


class VolumeAttachments(KindRules):
    blind_update = False

    def on_status_update(self, new: Object, old: Object) -> Object:
        meta = with_field(old["metadata"], "managedFields", new["metadata"].get("managedFields"))
        return {**super().on_status_update(new, old), "metadata": meta}

    def on_create(self, obj: Object) -> Object:
        return {**obj, "status": {"attached": False}}


class StorageClasses(KindRules):
    def on_create(self, obj: Object) -> Object:
        return filled(obj, {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})


class PriorityClasses(Spec):
    def on_create(self, obj: Object) -> Object:
        return filled(obj, {"preemptionPolicy": "PreemptLowerPriority"})


_RULES: Mapping[str, type[KindRules]] = {
    "pods": Pods,
    "nodes": Nodes,
    "namespaces": Namespaces,
    "events": Events,
    "configmaps": ConfigMaps,
    "secrets": Secrets,
    "persistentvolumeclaims": Claims,
    "persistentvolumes": Volumes,
    "deployments.apps": Deployments,
    "statefulsets.apps": StatefulSets,
    "daemonsets.apps": DaemonSets,
    "replicasets.apps": ReplicaSets,
    "jobs.batch": Jobs,
    "poddisruptionbudgets.policy": PodDisruptionBudgets,
    "leases.coordination.k8s.io": Leases,
    "volumeattachments.storage.k8s.io": VolumeAttachments,
    "storageclasses.storage.k8s.io": StorageClasses,
    "priorityclasses.scheduling.k8s.io": PriorityClasses,
    "networkpolicies.networking.k8s.io": Spec,
    "ingresses.networking.k8s.io": Spec,
    "customresourcedefinitions.apiextensions.k8s.io": Definitions,
}


class RuleBook:
    """The rules of every kind that is served. Custom resources bring their own with them."""

    def __init__(self) -> None:
        self._rules: dict[tuple[str, str, str], KindRules] = {}

    def __call__(self, info: KindInfo) -> KindRules:
        key = (info.group, info.version, info.plural)
        rules = self._rules.get(key)
        if rules is None:
            rules = self._rules[key] = _RULES.get(info.storage, KindRules)(info)
        return rules

    def put(self, info: KindInfo, rules: KindRules) -> None:
        self._rules[info.group, info.version, info.plural] = rules

    def remove(self, info: KindInfo) -> None:
        self._rules.pop((info.group, info.version, info.plural), None)
