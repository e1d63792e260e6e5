"""The rules of the kinds that have some of their own, one class each, in one table at the end.

To teach the embedded API a habit of a kind, write its class here and add it to the table. Pods
and what makes them are in ``workload_rules``, volumes in ``storage_rules``.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from backstay.sim.api import causes, defaults
from backstay.sim.api.defaults import filled
from backstay.sim.api.definitions import Definitions
from backstay.sim.api.kinds import KindInfo, Object
from backstay.sim.api.rules import KindRules
from backstay.sim.api.services import Services
from backstay.sim.api.status import Cause, forbidden
from backstay.sim.api.storage_rules import Claims, StorageClasses, VolumeAttachments, Volumes
from backstay.sim.api.workload_rules import (
    DaemonSets,
    Deployments,
    Jobs,
    Pods,
    ReplicaSets,
    Spec,
    StatefulSets,
)

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TLS = ("tls.crt", "tls.key")
_NAME_LABEL = "kubernetes.io/metadata.name"
_HIGHEST_PRIORITY = 1_000_000_000

# Without these the server itself could not live.
_IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


class Nodes(KindRules):
    """A kubelet registers with a status."""

    def on_create(self, obj: Object) -> Object:
        status = filled(obj.get("status"), defaults.NODE_STATUS)
        info = {**defaults.NODE_INFO, **status["nodeInfo"]}
        return _timed({**obj, "status": {**status, "nodeInfo": info}})

    def on_status_update(self, new: Object, old: Object) -> Object:
        return _timed(super().on_status_update(new, old))

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        found = list(_taint_problems(new["spec"].get("taints") or ()))
        provider = old["spec"].get("providerID") if old is not None else ""
        if provider and new["spec"].get("providerID") != provider:
            why = 'node updates may not change providerID except from "" to valid'
            found.append(causes.forbidden("spec.providerID", why))
        return found


def _timed(node: Object) -> Object:
    return defaults.conditions(node, "lastHeartbeatTime", "lastTransitionTime")


class _Taint(msgspec.Struct, rename="pascal"):
    """A taint as the server shows it."""

    key: str
    value: str
    effect: str
    time_added: str | None


def _taint_problems(taints: Sequence[Mapping[str, Any]]) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        place = f"metadata.taints[{index}]"
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        if not key:
            yield causes.required(f"{place}.key")
        if not effect:
            yield causes.required(f"{place}.effect")
        elif effect not in _EFFECTS:
            yield causes.not_supported(f"{place}.effect", effect, _EFFECTS)
        if (key, effect) in seen:
            shown = _Taint(key, taint.get("value") or "", effect, taint.get("timeAdded"))
            why = "taints must be unique by key and effect pair"
            yield causes.duplicate(place, shown, why)
        seen.add((key, effect))


class Namespaces(KindRules):
    """Kept by a finalizer in the spec until their content is gone."""

    returns_deleted = True

    def defaulted(self, obj: Object) -> Object:
        meta = obj["metadata"]
        labels, name = meta.get("labels") or {}, meta.get("name", "")
        if labels.get(_NAME_LABEL) == name:
            return obj
        return {**obj, "metadata": {**meta, "labels": {**labels, _NAME_LABEL: name}}}

    def on_create(self, obj: Object) -> Object:
        spec = obj.get("spec") or {}
        finalizers = dict.fromkeys((*(spec.get("finalizers") or ()), "kubernetes"))
        return {
            **obj,
            "spec": {**spec, "finalizers": list(finalizers)},
            "status": {"phase": "Active"},
        }

    def on_update(self, new: Object, old: Object) -> Object:
        return {**new, "spec": old["spec"], "status": old["status"]}

    def on_subresource_update(self, subresource: str, new: Object, old: Object) -> Object:
        """``finalize`` is where a controller takes its finalizer off."""
        return {**new, "status": old["status"]}

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


class PodDisruptionBudgets(Spec):
    def on_create(self, obj: Object) -> Object:
        counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
        return {**obj, "status": dict.fromkeys(counts, 0)}


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
        found = _changes_of_immutable(new, old, ("data",))
        if old is not None and new["type"] != old["type"]:
            found.append(causes.invalid("type", new["type"], "field is immutable"))
        if new["type"] == "kubernetes.io/tls":
            missing = (field for field in _TLS if field not in (new.get("data") or {}))
            found += [causes.required(f"data[{field}]") for field in missing]
        return found

    def defaulted(self, obj: Object) -> Object:
        return filled(_encoded(obj), {"type": "Opaque"})


def _encoded(obj: Object) -> Object:
    if "stringData" not in obj:
        return obj
    text = obj.get("stringData") or {}
    data = {name: base64.b64encode(value.encode()).decode() for name, value in text.items()}
    made = {k: v for k, v in obj.items() if k != "stringData"}
    if data:
        made["data"] = {**(obj.get("data") or {}), **data}
    return made


_EMPTY_EVENT: Mapping[str, Any] = {
    "source": {}, "firstTimestamp": None, "lastTimestamp": None, "eventTime": None,
    "reportingComponent": "", "reportingInstance": "",
}  # fmt: skip


class Events(KindRules):
    """Fields that a client left out are there, and empty."""

    create_on_update = True

    def on_create(self, obj: Object) -> Object:
        return {**_EMPTY_EVENT, **obj}

    def on_update(self, new: Object, old: Object) -> Object:
        return {**_EMPTY_EVENT, **new}

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        about = (new.get("involvedObject") or {}).get("namespace") or ""
        place = new["metadata"]["namespace"]
        # What is in no namespace is told of in this one.
        if about == place or (not about and place == "default"):
            return ()
        why = "does not match event.namespace"
        return [causes.invalid("involvedObject.namespace", about, why)]


class Leases(KindRules):
    create_on_update = True
    blind_update = False

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        spec = new.get("spec") or {}
        found = []
        for field, least, why in (
            ("leaseDurationSeconds", 1, "must be greater than 0"),
            ("leaseTransitions", 0, "must be greater than or equal to 0"),
        ):
            value = spec.get(field)
            if value is not None and value < least:
                found.append(causes.invalid(f"spec.{field}", value, why))
        return found


class ServiceAccounts(KindRules):
    returns_deleted = True


class PriorityClasses(Spec):
    returns_deleted = True

    def defaulted(self, obj: Object) -> Object:
        return filled(obj, {"preemptionPolicy": "PreemptLowerPriority", "value": 0})

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        found = []
        of_system = new["metadata"].get("name", "").startswith("system-")
        if new["value"] > _HIGHEST_PRIORITY and not of_system:
            why = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
            found.append(causes.forbidden("value", why))
        if old is not None and new["value"] != old["value"]:
            found.append(causes.forbidden("value", "may not be changed in an update."))
        return found


_RULES: Mapping[str, type[KindRules]] = {
    "pods": Pods,
    "nodes": Nodes,
    "namespaces": Namespaces,
    "events": Events,
    "configmaps": ConfigMaps,
    "secrets": Secrets,
    "serviceaccounts": ServiceAccounts,
    "services": Services,
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
        if key not in self._rules:
            self._rules[key] = _RULES.get(info.storage, KindRules)(info)
        return self._rules[key]

    def put(self, info: KindInfo, rules: KindRules) -> None:
        self._rules[info.group, info.version, info.plural] = rules

    def remove(self, info: KindInfo) -> None:
        self._rules.pop((info.group, info.version, info.plural), None)
