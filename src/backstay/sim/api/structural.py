"""Structural schemas: what becomes of a custom resource before anybody checks it.

A custom resource keeps only what its schema mentions (``prune``), unless the schema says that it
keeps the rest too; a null where none may be is as good as nothing (``without_nulls``); and what
was left out gets its default (``with_defaults``). Lists may promise that their items are unique
(``duplicates``). ``merging`` is what server-side apply needs to know.

Objects are immutable: each step returns the very same object if it has nothing to do.
"""

from collections.abc import Callable, Iterator, Mapping
from operator import is_
from typing import Any

import msgspec

from backstay.sim.api import causes
from backstay.sim.api.kinds import ANY, Object, Schema, facts
from backstay.sim.api.status import Cause

META = "apis.meta.v1.ObjectMeta"
_OWN_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_COMPOUND = (dict, list)
_GONE: Any = object()
_SCALARS = frozenset({"string", "integer", "number", "boolean"})


class Structural(msgspec.Struct, frozen=True):
    """One node of a schema, without what only validation looks at."""

    type: str = ""
    nullable: bool = False
    default: Any = None
    properties: dict[str, "Structural"] = {}
    others: "Structural | None" = None
    items: "Structural | None" = None
    preserves: bool = False
    is_resource: bool = False
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    atomic: bool = False
    # Whether there is any of that here or below; most schemas have none, and most writes need
    # not look for it then.
    defaults: bool = False
    promises: bool = False
    resources: bool = False


def parse(raw: Mapping[str, Any]) -> Structural:
    others = raw.get("additionalProperties")
    items = raw.get("items")
    node = Structural(
        type=raw.get("type") or "",
        nullable=bool(raw.get("nullable")),
        default=raw.get("default"),
        properties={name: parse(each) for name, each in (raw.get("properties") or {}).items()},
        # Whatever keys there are, but no schema for what they hold.
        others=Structural() if others is True else parse(others) if others else None,
        items=parse(items) if items else None,
        preserves=bool(raw.get("x-kubernetes-preserve-unknown-fields")),
        is_resource=bool(raw.get("x-kubernetes-embedded-resource")),
        list_type=raw.get("x-kubernetes-list-type") or "atomic",
        list_keys=tuple(raw.get("x-kubernetes-list-map-keys") or ()),
        atomic=raw.get("x-kubernetes-map-type") == "atomic",
    )
    below = [*node.properties.values(), *filter(None, (node.others, node.items))]
    return msgspec.structs.replace(
        node,
        defaults=node.default is not None or any(each.defaults for each in below),
        promises=node.list_type != "atomic" or any(each.promises for each in below),
        resources=node.is_resource or any(each.resources for each in below),
    )


def parse_root(raw: Mapping[str, Any]) -> Structural:
    """The schema of a whole object, which has a kind and metadata even if it does not say so."""
    return msgspec.structs.replace(parse(raw), is_resource=True)


def prune(value: Any, node: Structural | None) -> Any:
    """Without what the schema does not mention."""
    if type(value) is list:
        items = node.items if node is not None else None
        if node is not None and node.preserves:
            items = msgspec.structs.replace(items, preserves=True) if items is not None else None
            if items is None:
                return value
        return _changed_list(value, lambda item: prune(item, items))
    return _pruned_map(value, node) if type(value) is dict and value else value


def _pruned_map(value: Object, node: Structural | None) -> Object:
    if node is None:
        return {}
    changes: Object = {}
    for field, item in value.items():
        if node.is_resource and field in _OWN_FIELDS:
            continue
        below = node.properties.get(field, node.others)
        if below is None:
            if not node.preserves:
                changes[field] = _GONE
        elif type(item) in _COMPOUND and (new := prune(item, below)) is not item:
            changes[field] = new
    return _changed(value, changes) if changes else value


def unknown(value: Any, node: Structural | None, path: str = "") -> Iterator[str]:
    """The fields that ``prune`` would take away."""
    if type(value) is list:
        if node is not None and node.items is not None and not node.preserves:
            for index, item in enumerate(value):
                yield from unknown(item, node.items, f"{path}[{index}]")
        return
    if type(value) is not dict or node is None:
        return
    for field, item in value.items():
        if node.is_resource and field in _OWN_FIELDS:
            continue
        below = node.properties.get(field, node.others)
        if below is None:
            if not node.preserves:
                yield f"{path}.{field}" if path else field
        elif type(item) in _COMPOUND:
            yield from unknown(item, below, f"{path}.{field}" if path else field)


def without_nulls(value: Any, node: Structural | None) -> Any:
    """Without nulls where none may be and no default can take their place."""
    if node is None:
        return value
    if type(value) is list:
        items = node.items
        return _changed_list(value, lambda item: without_nulls(item, items))
    if type(value) is not dict:
        return value
    changes: Object = {}
    for field, item in value.items():
        if item is None:
            below = node.properties.get(field, node.others)
            if below is not None and not below.nullable and below.default is None:
                changes[field] = _GONE
        elif type(item) in _COMPOUND:
            new = without_nulls(item, node.properties.get(field, node.others))
            if new is not item:
                changes[field] = new
    return _changed(value, changes) if changes else value


def with_defaults(value: Any, node: Structural | None) -> Any:
    """With what was left out."""
    if node is None or not node.defaults:
        return value
    if type(value) is list:
        return _changed_list(value, lambda item: _defaulted(item, node.items))
    if type(value) is not dict:
        return value
    missing = {
        name: below.default
        for name, below in node.properties.items()
        if below.default is not None and name not in value
    }
    filled = {**value, **missing} if missing else value
    return _changed_map(
        filled, lambda field, item: _defaulted(item, node.properties.get(field, node.others))
    )


def _defaulted(value: Any, node: Structural | None) -> Any:
    if value is None and node is not None and not node.nullable:
        value = node.default
    return with_defaults(value, node)


def _changed_map(value: Object, change: Callable[[str, Any], Any]) -> Object:
    changes: Object = {}
    for field, item in value.items():
        new = change(field, item)
        if new is not item:
            changes[field] = new
    return _changed(value, changes) if changes else value


def _changed(value: Object, changes: Object) -> Object:
    return {field: item for field, item in (value | changes).items() if item is not _GONE}


def _changed_list(value: list[Any], change: Callable[[Any], Any]) -> list[Any]:
    changed = [change(item) for item in value]
    return value if all(map(is_, changed, value)) else changed


# Lists that promise something


def duplicates(value: Any, node: Structural | None, path: str = "") -> Iterator[Cause]:
    """Items that are there twice where each may be there once."""
    if node is None or not node.promises:
        return
    if type(value) is dict:
        for field, item in value.items():
            if field in node.properties:
                below = f"{path}.{field}" if path else field
            else:
                below = f"{path}[{field}]"
            yield from duplicates(item, node.properties.get(field, node.others), below)
    elif type(value) is list:
        yield from _repeated(value, node, path)
        for index, item in enumerate(value):
            yield from duplicates(item, node.items, f"{path}[{index}]")


def _repeated(value: list[Any], node: Structural, path: str) -> Iterator[Cause]:
    if node.list_type not in ("set", "map"):
        return
    seen: dict[str, int] = {}
    for index, item in enumerate(value):
        place = f"{path}[{index}]"
        key = item
        if node.list_type == "map":
            if item is not None and type(item) is not dict:
                yield causes.invalid(place, item, "must be an object for an array of list-type map")
                return
            key = {name: item[name] for name in node.list_keys if name in item} if item else {}
        text = causes.shown(key)
        seen[text] = seen.get(text, 0) + 1
        # The third of a kind goes unmentioned.
        if seen[text] == 2:
            yield causes.duplicate(place, key)


# Resources inside of resources


def coerced(value: Any, node: Structural | None) -> Any:
    """With only such metadata, in resources that are part of this one, as there can be."""
    if node is None or not (node.resources or node.is_resource):
        return value
    if type(value) is list:
        return _changed_list(value, lambda item: coerced(item, node.items))
    if type(value) is not dict:
        return value
    if node.resources:
        value = _changed_map(
            value, lambda field, item: coerced(item, node.properties.get(field, node.others))
        )
    if node.is_resource and "metadata" in value:
        meta = known_metadata(value["metadata"])
        if meta is not value["metadata"]:
            value = {**value, "metadata": meta}
    return value


def known_metadata(meta: Any) -> Any:
    if type(meta) is not dict:
        return meta
    known = facts().types[META].fields or {}
    if meta.keys() <= known.keys():
        return meta
    return _changed_map(meta, lambda field, item: item if field in known else _GONE)


def incomplete(value: Any, node: Structural | None, path: str = "") -> Iterator[Cause]:
    """Resources that are part of this one, but do not say of what kind they are."""
    if node is None or not node.resources:
        return
    if type(value) is list:
        for index, item in enumerate(value):
            yield from incomplete(item, node.items, f"{path}[{index}]")
    elif type(value) is dict:
        if node.is_resource and path:
            for field in ("apiVersion", "kind"):
                if not value.get(field):
                    yield causes.required(f"{path}.{field}")
        for field, item in value.items():
            yield from incomplete(
                item, node.properties.get(field, node.others), f"{path}.{field}" if path else field
            )


# Merging


def merging(node: Structural, *, open_ended: bool = False) -> Schema:
    """What server-side apply sees. Below what keeps unknown fields, it expects them too."""
    open_ended = open_ended or node.preserves
    if node.type == "array":
        items = merging(node.items, open_ended=open_ended) if node.items is not None else ANY
        return Schema(list=items, kind=node.list_type, keys=node.list_keys)
    if node.type in _SCALARS:
        return Schema(type=node.type, default=node.default)
    if node.type != "object":
        return ANY
    fields = {
        name: merging(below, open_ended=open_ended) for name, below in node.properties.items()
    }
    if node.is_resource:
        fields |= {"apiVersion": Schema(type="string"), "kind": Schema(type="string"),
                   "metadata": Schema(ref=META)}  # fmt: skip
    others = merging(node.others, open_ended=open_ended) if node.others is not None else None
    if others is None and (open_ended or not fields):
        others = ANY
    return Schema(fields=fields or None, map=others, atomic=node.atomic)
