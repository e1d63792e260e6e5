"""The rules of pods, and of the kinds that make pods from a template."""

from collections.abc import Mapping, Sequence
from typing import Any

from backstay.sim.api import causes, defaults, fieldsets
from backstay.sim.api.defaults import filled
from backstay.sim.api.kinds import Object
from backstay.sim.api.label_selectors import selects
from backstay.sim.api.rules import KindRules, with_field
from backstay.sim.api.status import Cause


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

    def defaulted(self, obj: Object) -> Object:
        spec = defaults.template(filled(obj.get("spec"), self.spec_defaults))
        return with_field(obj, "spec", spec)

    def on_create(self, obj: Object) -> Object:
        return {**obj, "status": dict(self.status_on_create)}

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        selector = new["spec"].get("selector")
        found = [] if selector else [causes.required("spec.selector")]
        labels = ((new["spec"].get("template") or {}).get("metadata") or {}).get("labels") or {}
        if not selects(selector, labels):
            why = "`selector` does not match template `labels`"
            found.append(causes.invalid("spec.template.metadata.labels", labels, why))
        return found


class Deployments(Workload):
    spec_defaults = defaults.DEPLOYMENT_SPEC
    kept_by_status = fieldsets.of([("spec",), ("metadata", "labels")])

    def on_status_update(self, new: Object, old: Object) -> Object:
        return _with_old_metadata(super().on_status_update(new, old), old, "labels")


_SET_MUTABLE = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip


def _fixed(spec: Object) -> Object:
    return {k: v for k, v in spec.items() if k not in _SET_MUTABLE}


def _claim(template: Object) -> Object:
    usual = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "status": {"phase": "Pending"}}
    spec = filled(template.get("spec"), {"volumeMode": "Filesystem"})
    return filled(with_field(template, "spec", spec), usual)


class StatefulSets(Workload):
    spec_defaults = defaults.STATEFUL_SET_SPEC
    status_on_create: Mapping[str, Any] = {"replicas": 0, "availableReplicas": 0}

    def defaulted(self, obj: Object) -> Object:
        obj = super().defaulted(obj)
        held = obj["spec"].get("volumeClaimTemplates")
        if not held or (made := defaults.each_filled(held, _claim)) is held:
            return obj
        return {**obj, "spec": {**obj["spec"], "volumeClaimTemplates": made}}

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        found = list(super().validate(new, old))
        if old is not None and _fixed(new["spec"]) != _fixed(old["spec"]):
            *most, last = (f"'{field}'" for field in _SET_MUTABLE)
            found.append(
                causes.forbidden(
                    "spec",
                    "updates to statefulset spec for fields other than "
                    f"{', '.join(most)} and {last} are forbidden",
                )
            )
        return found


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
    graceful = True
    kept_by_status = fieldsets.of(
        [("spec",), ("metadata", "deletionTimestamp"), ("metadata", "ownerReferences")]
    )

    def defaulted(self, obj: Object) -> Object:
        spec = filled(defaults.pod_spec(obj.get("spec") or {}), {"enableServiceLinks": True})
        return with_field(obj, "spec", defaults.requests(spec))

    def on_create(self, obj: Object) -> Object:
        status = {"phase": "Pending", "qosClass": defaults.quality_of_service(obj["spec"])}
        return {**obj, "status": status}

    def on_status_update(self, new: Object, old: Object) -> Object:
        new = _with_old_metadata(super().on_status_update(new, old), old, "ownerReferences")
        return defaults.conditions(new, "lastProbeTime", "lastTransitionTime")

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
