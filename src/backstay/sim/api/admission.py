"""Admission: what the server adds to an object, or refuses it for, by what else is in the cluster.

These are the plugins of a real server that are on by default and that somebody would miss: pods
get the priority of their class and a limit to how long they stay on a node that is gone, claims
get the default storage class, claims and volumes are kept while in use, nodes begin as not ready,
and services get addresses and ports. What admission adds is nobody's (see ``managed``).
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from backstay.sim.api import defaults, services
from backstay.sim.api.kinds import Object
from backstay.sim.api.requests import Target
from backstay.sim.api.rules import with_field
from backstay.sim.api.status import Refusal, forbidden
from backstay.sim.api.store import Store

PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
STORAGE_CLASSES = "storageclasses.storage.k8s.io"
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}

_DEFAULT_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_OLD_CLASS_NAME = "volume.beta.kubernetes.io/storage-class"
_PREEMPTS = "PreemptLowerPriority"


class _Priority(msgspec.Struct, frozen=True, rename="camel"):
    """What a PriorityClass says."""

    value: int = 0
    preemption_policy: str = _PREEMPTS


# Every server makes these two when it starts.
_SYSTEM_PRIORITIES = {
    "system-node-critical": _Priority(2_000_001_000),
    "system-cluster-critical": _Priority(2_000_000_000),
}


class Admission:
    """Admits objects to one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._on_create: Mapping[str, Callable[[Target, Object], Object]] = {
            "pods": self._pod,
            "nodes": _node,
            "services": lambda _, obj: services.allocated(self._store, obj, None),
            "persistentvolumeclaims": self._claim,
            "persistentvolumes": lambda _, obj: _finalized(obj, "kubernetes.io/pv-protection"),
        }
        self._on_update: Mapping[str, Callable[[Object, Object], Object]] = {
            "pods": _updated_pod,
            "services": lambda new, old: services.allocated(self._store, new, old),
        }

    def create(self, target: Target, obj: Object) -> Object:
        """Raises a ``Refusal``."""
        admit = None if target.info.group else self._on_create.get(target.info.plural)
        return obj if admit is None else admit(target, obj)

    def update(self, target: Target, new: Object, old: Object) -> Object:
        admit = None if target.info.group else self._on_update.get(target.info.plural)
        return new if admit is None else admit(new, old)

    def _pod(self, target: Target, pod: Object) -> Object:
        spec = pod.get("spec") or {}
        name = spec.get("priorityClassName") or ""
        if name:
            priority = self._priority_of(name)
            if priority is None:
                raise _refused(target, pod, f"no PriorityClass with name {name} was found")
        else:
            name, priority = self._usual_priority()
        for field, word, computed in (
            ("priority", "integer value of priority", priority.value),
            ("preemptionPolicy", "string value of PreemptionPolicy", priority.preemption_policy),
        ):
            said = spec.get(field)
            if said is not None and said != computed:
                why = (
                    f"the {word} ({said}) must not be provided in pod spec; priority admission "
                    f"controller computed {computed} from the given PriorityClass name"
                )
                raise _refused(target, pod, why)
        spec = {**spec, "priority": priority.value, "preemptionPolicy": priority.preemption_policy}
        return {**pod, "spec": _patient(with_field(spec, "priorityClassName", name or None))}

    def _priority_of(self, name: str) -> _Priority | None:
        found = self._store.get(PRIORITY_CLASSES, ("", name))
        if found is None:
            return _SYSTEM_PRIORITIES.get(name)
        return msgspec.convert(found.object, _Priority)

    def _usual_priority(self) -> tuple[str, _Priority]:
        usual = [
            (msgspec.convert(each.object, _Priority), each.key[1])
            for each in self._store.all(PRIORITY_CLASSES)
            if each.object.get("globalDefault")
        ]
        if not usual:
            return "", _Priority()
        priority, name = min(usual, key=lambda each: each[0].value)
        return name, priority

    def _claim(self, target: Target, claim: Object) -> Object:
        claim = _finalized(claim, "kubernetes.io/pvc-protection")
        spec = claim.get("spec") or {}
        said = spec.get("storageClassName")
        if said is not None or _OLD_CLASS_NAME in (claim["metadata"].get("annotations") or {}):
            return claim
        usual = self._usual_storage_class()
        return {**claim, "spec": {**spec, "storageClassName": usual}} if usual else claim

    def _usual_storage_class(self) -> str:
        """Of several the newest, of those the first by name."""
        usual = [
            each.object["metadata"]
            for each in self._store.all(STORAGE_CLASSES)
            if _is_default(each.object["metadata"].get("annotations") or {})
        ]
        if not usual:
            return ""
        newest = max(meta["creationTimestamp"] for meta in usual)
        names: list[str] = [m["name"] for m in usual if m["creationTimestamp"] == newest]
        return min(names)


def _refused(target: Target, obj: Object, why: str) -> Refusal:
    return forbidden(target.info, obj["metadata"].get("name", ""), why)


def _is_default(annotations: Mapping[str, Any]) -> bool:
    return any(annotations.get(each) == "true" for each in _DEFAULT_CLASS)


def _updated_pod(new: Object, old: Object) -> Object:
    spec = new.get("spec") or {}
    for field in ("priority", "preemptionPolicy"):
        if spec.get(field) is None:
            spec = with_field(spec, field, old["spec"].get(field))
    return with_field(new, "spec", _patient(spec))


def _patient(spec: Object) -> Object:
    """Every pod leaves a node that is gone in the end, unless it says otherwise."""
    said = spec.get("tolerations") or []
    missing = [t for t in defaults.TOLERATIONS if not any(_tolerates(s, t) for s in said)]
    return {**spec, "tolerations": [*said, *map(dict, missing)]} if missing else spec


def _tolerates(said: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    key, effect = said.get("key") or "", said.get("effect") or ""
    return key in ("", wanted["key"]) and effect in ("", wanted["effect"])


def _node(_: Target, node: Object) -> Object:
    spec = node.get("spec") or {}
    taints = spec.get("taints") or []
    if any({k: t.get(k) for k in NOT_READY} == NOT_READY for t in taints):
        return node
    return {**node, "spec": {**spec, "taints": [*taints, dict(NOT_READY)]}}


def _finalized(obj: Object, finalizer: str) -> Object:
    meta = obj["metadata"]
    finalizers = [*(meta.get("finalizers") or []), finalizer]
    return {**obj, "metadata": {**meta, "finalizers": list(dict.fromkeys(finalizers))}}
