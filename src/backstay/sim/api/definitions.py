"""CustomResourceDefinitions: what they are filled with, what is wrong with them, how they end.

What all versions of a definition have in common is checked, and complained about, as if it were
said once for all of them: that is how the server keeps it (see ``_places``).
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from backstay.sim.api import causes
from backstay.sim.api.definition_schemas import schema_problems
from backstay.sim.api.kinds import Object
from backstay.sim.api.names import NOT_A_SUBDOMAIN, is_subdomain
from backstay.sim.api.rules import KindRules
from backstay.sim.api.status import Cause

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
APPROVAL = "api-approved.kubernetes.io"

Json = Mapping[str, Any]

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_NOT_A_LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_LONGEST_LABEL = 63
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_PROTECTED = re.compile(r"(.*\.)?(k8s|kubernetes)\.io\Z")


class Definitions(KindRules):
    """The rules of CustomResourceDefinitions."""

    generation = True
    blind_update = False

    def defaulted(self, obj: Object) -> Object:
        return {**obj, "spec": _filled(obj.get("spec") or {})}

    def on_create(self, obj: Object) -> Object:
        spec = obj["spec"]
        status = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": [v["name"] for v in spec.get("versions") or () if v.get("storage")][
                :1
            ],
        }
        return {**obj, "status": status}

    def on_update(self, new: Object, old: Object) -> Object:
        spec, status = new["spec"], old["status"]
        stored = list(status.get("storedVersions") or ())
        stored += [
            v["name"]
            for v in spec.get("versions") or ()
            if v.get("storage") and v["name"] not in stored
        ][:1]
        return {**new, "status": {**status, "storedVersions": stored}}

    def validate(self, new: Object, old: Object | None) -> list[Cause]:
        if old is None:
            return list(_problems(new))
        if new["spec"] == old["spec"]:
            # It was looked at when it came.
            return []
        return [*_problems(new), *_changes(new["spec"], old)]

    def begin_deletion(self, obj: Object, now: str) -> Object:
        meta, status = obj["metadata"], obj["status"]
        finalizers = [*(meta.get("finalizers") or ()), CLEANUP]
        return {
            **obj,
            "metadata": {**meta, "deletionTimestamp": now, "finalizers": finalizers},
            "status": {
                **status,
                "conditions": with_condition(
                    status.get("conditions"),
                    "Terminating",
                    "True",
                    "InstanceDeletionPending",
                    "CustomResourceDefinition marked for deletion; CustomResource deletion will "
                    "begin soon",
                    now,
                ),
            },
        }


def _filled(spec: Json) -> Object:
    names = dict(spec.get("names") or {})
    kind = names.get("kind") or ""
    if not names.get("singular"):
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"
    return {**spec, "names": names, "conversion": spec.get("conversion") or {"strategy": "None"}}


def is_true(obj: Json, condition: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c["type"] == condition and c["status"] == "True" for c in conditions)


def with_condition(
    conditions: list[Object] | None, kind: str, status: str, reason: str, message: str, now: str
) -> list[Object]:
    """The same conditions, with this one in its place or at the end."""
    made = {
        "type": kind, "status": status, "lastTransitionTime": now,
        "reason": reason, "message": message,
    }  # fmt: skip
    before = list(conditions or ())
    for index, old in enumerate(before):
        if old["type"] == kind:
            if old["status"] == status:
                made["lastTransitionTime"] = old["lastTransitionTime"]
            before[index] = made
            return before
    return [*before, made]


# What is wrong


def _problems(obj: Object) -> Iterator[Cause]:
    spec = obj["spec"]
    names = spec["names"]
    name = obj["metadata"].get("name") or ""
    if name != f"{names.get('plural') or ''}.{spec.get('group') or ''}":
        why = 'must be spec.names.plural+"."+spec.group'
        yield causes.invalid("metadata.name", name, why)
    yield from _group(spec.get("group") or "")
    yield from _one_of("spec.scope", spec.get("scope") or "", ("Cluster", "Namespaced"))
    versions = spec.get("versions") or []
    yield from _versions(versions, obj["status"].get("storedVersions") or [])
    for field in ("plural", "singular", "kind", "listKind"):
        if not names.get(field):
            yield causes.required(f"spec.names.{field}")
    yield from _names(names)
    yield from _contents(versions)
    yield from _conversion(spec["conversion"])
    if spec.get("preserveUnknownFields"):
        why = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead"
        )
        yield causes.invalid("spec.preserveUnknownFields", True, why)
    yield from _approval(obj)


def _group(group: str) -> Iterator[Cause]:
    if not group:
        yield causes.required("spec.group")
    elif not is_subdomain(group):
        yield causes.invalid("spec.group", group, NOT_A_SUBDOMAIN)
    elif "." not in group:
        yield causes.invalid("spec.group", group, "should be a domain with at least one dot")


def _one_of(field: str, value: str, accepted: tuple[str, ...]) -> Iterator[Cause]:
    if not value:
        yield causes.required(field)
    elif value not in accepted:
        yield causes.not_supported(field, value, accepted)


def _versions(versions: list[Object], stored: list[str]) -> Iterator[Cause]:
    for index, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            yield causes.required(f"spec.versions[{index}].schema.openAPIV3Schema")
    for index, version in enumerate(versions):
        yield from _label(f"spec.versions[{index}].name", version.get("name") or "")
    listed = [version.get("name") for version in versions]
    kept = [version for version in versions if version.get("storage")]
    shown = [_shown_version(version) for version in versions]
    if len(set(listed)) < len(listed):
        yield causes.invalid("spec.versions", shown, "must contain unique version names")
    if len(kept) != 1:
        why = "must have exactly one version marked as storage version"
        yield causes.invalid("spec.versions", shown, why)
    if versions:
        yield from _label("spec.version", versions[0].get("name") or "")
    yield from _stored(kept, listed, stored)


class _Shown(msgspec.Struct, rename="pascal"):
    """A version as the server shows it, which has its own names for the fields. What it would
    show of the contents of several versions is left out."""

    name: str
    served: bool
    storage: bool
    deprecated: bool
    deprecation_warning: str | None = None
    schema: None = None
    subresources: None = None
    additional_printer_columns: None = None
    selectable_fields: None = None


def _shown_version(version: Json) -> _Shown:
    return _Shown(
        version.get("name") or "",
        bool(version.get("served")),
        bool(version.get("storage")),
        bool(version.get("deprecated")),
        version.get("deprecationWarning"),
    )


def _stored(kept: list[Object], listed: list[Any], stored: list[str]) -> Iterator[Cause]:
    field = "status.storedVersions"
    if not stored:
        yield causes.invalid(field, None, "must have at least one stored version")
        return
    for version in kept:
        if version["name"] not in stored:
            yield causes.invalid(field, stored, f"must have the storage version {version['name']}")
    for index, name in enumerate(stored):
        if name not in listed:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions"
            )
            yield causes.invalid(f"{field}[{index}]", name, why)


def _names(names: Json) -> Iterator[Cause]:
    for field in ("plural", "singular"):
        if names.get(field):
            yield from _label(f"spec.names.{field}", names[field])
    for field in ("kind", "listKind"):
        value = names.get(field) or ""
        if value and not _is_label(value.lower()):
            why = f"may have mixed case, but should otherwise match: {_NOT_A_LABEL}"
            yield causes.invalid(f"spec.names.{field}", value, why)
    for field in ("shortNames", "categories"):
        for index, value in enumerate(names.get(field) or ()):
            yield from _label(f"spec.names.{field}[{index}]", value)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        why = "kind and listKind may not be the same"
        yield causes.invalid("spec.names.listKind", names["listKind"], why)


def _is_label(value: str) -> bool:
    return len(value) <= _LONGEST_LABEL and _LABEL.match(value) is not None


def _label(field: str, value: str) -> Iterator[Cause]:
    if not _is_label(value):
        yield causes.invalid(field, value, _NOT_A_LABEL)


# Each of many worlds has the same definitions as the one before it.
@lru_cache(maxsize=256)
def _schema_problems(encoded: bytes, path: str) -> tuple[Cause, ...]:
    return tuple(schema_problems(msgspec.json.decode(encoded), path))


def _contents(versions: list[Object]) -> Iterator[Cause]:
    for place, schema in _places(versions, "schema", "spec.validation"):
        if schema.get("openAPIV3Schema"):
            encoded = msgspec.json.encode(schema["openAPIV3Schema"])
            yield from _schema_problems(encoded, f"{place}.openAPIV3Schema")
    for place, subresources in _places(versions, "subresources", "spec.subresources"):
        if subresources.get("scale") is not None:
            yield from _scale(subresources["scale"], f"{place}.scale")
    columns = "spec.additionalPrinterColumns"
    for place, listed in _places(versions, "additionalPrinterColumns", columns):
        for index, column in enumerate(listed):
            yield from _column(column, f"{place}[{index}]")
    yield from _selectable(versions)


def _places(versions: list[Object], field: str, common: str) -> Iterator[tuple[str, Any]]:
    """A part of the versions and where it is: once, if all versions say the same."""
    said = [version.get(field) for version in versions]
    if said and all(each == said[0] for each in said):
        if said[0]:
            yield common, said[0]
        return
    for index, each in enumerate(said):
        if each:
            yield f"spec.versions[{index}].{field}", each


def _scale(scale: Json, place: str) -> Iterator[Cause]:
    for field, roots in (
        ("specReplicasPath", (".spec.",)),
        ("statusReplicasPath", (".status.",)),
        ("labelSelectorPath", (".spec.", ".status.")),
    ):
        path, where = scale.get(field) or "", f"{place}.{field}"
        if not path:
            if field != "labelSelectorPath":
                yield causes.required(where)
        elif not path.startswith("."):
            yield causes.invalid(where, path, "must be a simple json path starting with .")
        elif not path.startswith(roots):
            under = " or ".join(root[:-1] for root in roots)
            either = "either " if len(roots) > 1 else ""
            yield causes.invalid(where, path, f"should be a json path under {either}{under}")


def _column(column: Json, place: str) -> Iterator[Cause]:
    if not column.get("name"):
        yield causes.required(f"{place}.name")
    kind, types = column.get("type") or "", f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        yield causes.required(f"{place}.type", types)
    elif kind not in _COLUMN_TYPES:
        yield causes.invalid(f"{place}.type", kind, types)
    path = column.get("jsonPath") or ""
    if not path:
        yield causes.required(f"{place}.JSONPath")
    elif not path.startswith("."):
        why = "must be a simple json path starting with ."
        yield causes.invalid(f"{place}.JSONPath", path, why)


def _selectable(versions: list[Object]) -> Iterator[Cause]:
    schemas = [(v.get("schema") or {}).get("openAPIV3Schema") or {} for v in versions]
    for place, fields in _places(versions, "selectableFields", "spec.selectableFields"):
        for index, each in enumerate(fields):
            where, path = f"{place}[{index}].jsonPath", each.get("jsonPath") or ""
            kinds = {_type_at(schema, path) for schema in schemas if schema}
            if not path:
                yield causes.required(where)
            elif None in kinds:
                why = "is an invalid path: does not refer to a valid field"
                yield causes.invalid(where, path, why)
            elif not kinds <= {"string", "boolean", "integer"}:
                yield causes.invalid(
                    where,
                    path,
                    "must point to a field of type string, boolean or integer. Enum string fields "
                    "and strings with formats are allowed.",
                )


def _type_at(schema: Json, path: str) -> str | None:
    """The type of the field that a path leads to; None if it leads nowhere."""
    node: Any = schema
    for step in path.removeprefix(".").split("."):
        node = (node.get("properties") or {}).get(step)
        if node is None:
            return None
    return node.get("type") or ""


def _conversion(conversion: Json) -> Iterator[Cause]:
    strategy = conversion.get("strategy") or ""
    yield from _one_of("spec.conversion.strategy", strategy, ("None", "Webhook"))
    if strategy == "Webhook" and not conversion.get("webhook"):
        why = "required when strategy is set to Webhook"
        yield causes.required("spec.conversion.webhookClientConfig", why)
        yield causes.required("spec.conversion.conversionReviewVersions")


def _approval(obj: Object) -> Iterator[Cause]:
    """Groups of Kubernetes' own are not anybody's to define."""
    annotations = obj["metadata"].get("annotations") or {}
    if _PROTECTED.match(obj["spec"].get("group") or "") and not annotations.get(APPROVAL):
        yield causes.required(
            f"metadata.annotations[{APPROVAL}]",
            f'protected groups must have approval annotation "{APPROVAL}", see '
            "https://github.com/kubernetes/enhancements/pull/1111",
        )


def _changes(spec: Json, old: Object) -> Iterator[Cause]:
    before = old["spec"]
    names, names_before = spec["names"], before["names"]
    for field, now, then, always in (
        ("scope", spec.get("scope"), before.get("scope"), False),
        ("names.kind", names.get("kind"), names_before.get("kind"), False),
        ("group", spec.get("group"), before.get("group"), True),
        ("names.plural", names.get("plural"), names_before.get("plural"), True),
    ):
        if now != then and (always or is_true(old, "Established")):
            yield causes.invalid(f"spec.{field}", now or "", "field is immutable")
