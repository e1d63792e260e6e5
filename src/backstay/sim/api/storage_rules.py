"""The rules of volumes: claims, what they are bound to, where that is attached, and classes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from backstay.sim.api import causes, fieldsets
from backstay.sim.api.defaults import filled
from backstay.sim.api.kinds import Object
from backstay.sim.api.names import NOT_A_SUBDOMAIN, is_subdomain
from backstay.sim.api.rules import KindRules, with_field
from backstay.sim.api.status import Cause

Json = Mapping[str, Any]


class Claims(KindRules):
    """Almost nothing of the spec may change, and that only once they are bound."""

    returns_deleted = True

    def defaulted(self, obj: Object) -> Object:
        return with_field(obj, "spec", filled(obj.get("spec"), {"volumeMode": "Filesystem"}))

    def on_create(self, obj: Object) -> Object:
        return {**obj, "status": {"phase": "Pending"}}

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        found = list(_claim_problems(new["spec"]))
        if old is not None and not _is_same_claim(new, old):
            found.append(causes.forbidden("spec", _CLAIM_IS_FIXED))
        return found


_CLAIM_IS_FIXED = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
    "bound claims"
)


def _claim_problems(spec: Json) -> Iterator[Cause]:
    if not spec.get("accessModes"):
        yield causes.required("spec.accessModes", "at least 1 access mode is required")
    if not ((spec.get("resources") or {}).get("requests") or {}).get("storage"):
        yield causes.required("spec.resources[storage]")


def _is_same_claim(new: Object, old: Object) -> bool:
    """But for what may change: the volume and the class if there was none yet, and of a bound
    claim how much it asks for."""
    now, then = new["spec"], old["spec"]
    for field in ("volumeName", "storageClassName"):
        if not then.get(field):
            now = with_field(now, field, then.get(field))
    if (new.get("status") or {}).get("phase") == "Bound":
        now = with_field(now, "resources", then.get("resources"))
        field = "volumeAttributesClassName"
        now = with_field(now, field, then.get(field))
    return bool(now == then)


class Volumes(KindRules):
    """What they are a volume of never changes."""

    returns_deleted = True

    def defaulted(self, obj: Object) -> Object:
        usual = {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}
        return with_field(obj, "spec", filled(obj.get("spec"), usual))

    def on_create(self, obj: Object) -> Object:
        return {**obj, "status": {"phase": "Pending"}}

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        spec = new["spec"]
        found = [
            causes.required(f"spec.{field}")
            for field in ("accessModes", "capacity")
            if not spec.get(field)
        ]
        if not spec.get("capacity"):
            found.append(causes.not_supported("spec.capacity", None, ("storage",)))
        if not _source(spec):
            found.append(causes.required("spec", "must specify a volume type"))
        if old is not None and _source(spec) != _source(old["spec"]):
            why = "spec.persistentvolumesource is immutable after creation"
            found.append(causes.forbidden("spec.persistentvolumesource", why))
        return found


_NOT_THE_SOURCE = frozenset({
    "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity",
    "persistentVolumeReclaimPolicy", "storageClassName", "volumeAttributesClassName", "volumeMode",
})  # fmt: skip


def _source(spec: Json) -> Object:
    """What is left of a volume's spec is the one thing that it is a volume of."""
    return {k: v for k, v in spec.items() if k not in _NOT_THE_SOURCE and v is not None}


class _Source(msgspec.Struct, rename="pascal"):
    persistent_volume_name: str | None
    inline_volume_spec: Any


class _Attachment(msgspec.Struct, rename="pascal"):
    """A VolumeAttachment's spec as the server shows it."""

    attacher: str
    source: _Source
    node_name: str


class VolumeAttachments(KindRules):
    """Never changed, only confirmed."""

    blind_update = False
    returns_deleted = True
    kept_by_status = fieldsets.of([("metadata",), ("spec",)])

    def on_status_update(self, new: Object, old: Object) -> Object:
        meta = with_field(old["metadata"], "managedFields", new["metadata"].get("managedFields"))
        return {**super().on_status_update(new, old), "metadata": meta}

    def on_create(self, obj: Object) -> Object:
        return {**obj, "status": {"attached": False}}

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        spec = new.get("spec") or {}
        found = list(_attachment_problems(spec))
        if old is not None and spec != old["spec"]:
            source = spec.get("source") or {}
            shown = _Attachment(
                spec.get("attacher", ""),
                _Source(source.get("persistentVolumeName"), source.get("inlineVolumeSpec")),
                spec.get("nodeName", ""),
            )
            found.append(causes.invalid("spec", shown, "field is immutable"))
        return found


def _attachment_problems(spec: Json) -> Iterator[Cause]:
    if not spec.get("attacher"):
        yield causes.required("spec.attacher")
    source = spec.get("source") or {}
    if bool(source.get("persistentVolumeName")) == bool(source.get("inlineVolumeSpec")):
        why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        yield causes.required("spec.source", why)
    node = spec.get("nodeName") or ""
    if not is_subdomain(node):
        yield causes.invalid("spec.nodeName", node, NOT_A_SUBDOMAIN)


class StorageClasses(KindRules):
    """Nothing that decides about volumes may change."""

    returns_deleted = True

    def defaulted(self, obj: Object) -> Object:
        return filled(obj, {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        found = [] if new.get("provisioner") else [causes.required("provisioner")]
        if old is None:
            return found
        if new.get("parameters") != old.get("parameters"):
            found.append(causes.forbidden("parameters", "updates to parameters are forbidden."))
        for field in ("provisioner", "reclaimPolicy", "volumeBindingMode"):
            if new.get(field) != old.get(field):
                value = new.get(field) or ""
                found.append(causes.invalid(field, value, "field is immutable"))
        return found
