"""What is wrong with the schema of a custom resource: it has to say what each field is.

Not every rule of the server is here, only those that somebody who writes a schema runs into.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from backstay.sim.api import causes, cel_rules, schema_check
from backstay.sim.api.status import Cause

Json = Mapping[str, Any]

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_NOT_SUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies",
                  "$ref")  # fmt: skip
_EMPTY_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_KEY_NEEDS = (
    "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required "
    "property"
)


def schema_problems(schema: Json, path: str) -> Iterator[Cause]:
    """``path`` is where the definition has its schema."""
    if schema.get("nullable"):
        yield causes.forbidden(f"{path}.nullable", "nullable cannot be true at the root")
    if not _speaks_otherwise(schema):
        structure = list(_structure(schema, path, "root"))
        # Defaults are looked at only in a schema that makes sense.
        yield from structure or _defaults(schema, path)
    yield from _vocabulary(schema, path)


def _speaks_otherwise(schema: Json) -> bool:
    """Whether it uses words without which nothing can be said of its structure."""
    if any(schema.get(word) is not None for word in _NOT_SUPPORTED):
        return True
    return any(_speaks_otherwise(each) for each, _, _ in _below(schema, ""))


def _below(schema: Json, path: str) -> Iterator[tuple[Json, str, str]]:
    """Every schema directly inside of this one, its place and what it is there."""
    for name, each in (schema.get("properties") or {}).items():
        yield each, f"{path}.properties[{name}]", "field"
    if schema.get("items"):
        yield schema["items"], f"{path}.items", "item"
    if isinstance(schema.get("additionalProperties"), dict):
        yield schema["additionalProperties"], f"{path}.additionalProperties", "field"


# Structure: what every node has to say


def _structure(schema: Json, path: str, level: str) -> Iterator[Cause]:
    kind = schema.get("type") or ""
    if kind == "array" and not schema.get("items"):
        yield causes.required(f"{path}.items", "must be specified")
    if level == "root" and schema.get("additionalProperties") is not None:
        yield causes.forbidden(f"{path}.additionalProperties", "must not be used at the root")
    is_resource = schema.get("x-kubernetes-embedded-resource")
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields")
    if is_resource and kind != "object":
        why = "must be object if x-kubernetes-embedded-resource is true"
        yield _typed(f"{path}.type", kind, why)
    elif not kind and not open_ended and not schema.get("x-kubernetes-int-or-string"):
        yield causes.required(f"{path}.type", _EMPTY_TYPE[level])
    if level == "root" and kind not in ("", "object"):
        yield causes.invalid(f"{path}.type", kind, "must be object at the root")
    yield from _pattern(schema, path)
    if level == "root":
        yield from _metadata(schema, path)
    for each, place, what in _below(schema, path):
        yield from _structure(each, place, what)


def _typed(path: str, kind: str, why: str) -> Cause:
    return causes.invalid(path, kind, why) if kind else causes.required(path, why)


def _pattern(schema: Json, path: str) -> Iterator[Cause]:
    pattern = schema.get("pattern")
    if pattern:
        try:
            schema_check.compiled(pattern)
        except re.error as error:
            why = f"must be a valid regular expression, but isn't: error parsing regexp: {error}"
            yield causes.invalid(f"{path}.pattern", pattern, why)


def _metadata(schema: Json, path: str) -> Iterator[Cause]:
    meta = (schema.get("properties") or {}).get("metadata")
    if meta is None:
        return
    place = f"{path}.properties[metadata]"
    if meta.get("type") != "object":
        yield causes.invalid(f"{place}.type", meta.get("type") or "", "must be object")
    said = set(meta) - {"type", "properties", "description"}
    if said or not set(meta.get("properties") or {}) <= {"name", "generateName"}:
        yield causes.forbidden(
            place,
            "must not specify anything other than name and generateName, but metadata is "
            "implicitly specified",
        )


def _defaults(schema: Json, path: str) -> Iterator[Cause]:
    if schema.get("default") is not None:
        yield from schema_check.Checker(schema).check(schema["default"], root=f"{path}.default")
        return
    for each, place, _ in _below(schema, path):
        yield from _defaults(each, place)


# Vocabulary: what no node may say


def _vocabulary(schema: Json, path: str) -> Iterator[Cause]:
    kind = schema.get("type") or ""
    if kind and kind not in _TYPES:
        yield causes.not_supported(f"{path}.type", kind, _TYPES)
    for word in _NOT_SUPPORTED:
        if schema.get(word) is not None:
            yield causes.forbidden(f"{path}.{word}", f"{word} is not supported")
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield causes.forbidden(f"{path}.uniqueItems", why)
    others = schema.get("additionalProperties")
    if others is not None and others is not True and schema.get("properties"):
        why = "additionalProperties and properties are mutual exclusive"
        yield causes.forbidden(f"{path}.additionalProperties", why)
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        why = "must be true or undefined"
        yield causes.invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, why)
    yield from _lists(schema, path)
    yield from cel_rules.problems(schema, path)
    for each, place, _ in _below(schema, path):
        yield from _vocabulary(each, place)


def _lists(schema: Json, path: str) -> Iterator[Cause]:
    kind, list_type = schema.get("type") or "", schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or []
    place = f"{path}.x-kubernetes-list-type"
    if list_type is not None and kind != "array":
        why = "must be array if x-kubernetes-list-type is specified"
        yield _typed(f"{path}.type", kind, why)
    if list_type not in (None, "atomic", "set", "map"):
        yield causes.not_supported(place, list_type, ("atomic", "set", "map"))
    if keys and list_type != "map":
        why = "must be map if x-kubernetes-list-map-keys is non-empty"
        yield _typed(place, list_type or "", why)
    if list_type == "map":
        yield from _keys(schema, path, keys)


def _keys(schema: Json, path: str, keys: list[str]) -> Iterator[Cause]:
    place = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        yield causes.required(place, "must not be empty if x-kubernetes-list-type is map")
    items = schema.get("items") or {}
    if items.get("type") != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        yield causes.invalid(f"{path}.items.type", items.get("type") or "", why)
        return
    properties = items.get("properties") or {}
    for key in keys:
        declared = properties.get(key)
        if declared is None:
            yield causes.invalid(place, keys, "entries must all be names of item properties")
        elif declared.get("default") is None and key not in (items.get("required") or ()):
            yield causes.required(f"{path}.items.properties[{key}].default", _KEY_NEEDS)
