"""The facts of the Kubernetes API, read off a real server for the embedded one.

``python -m harness.facts`` boots the control plane and writes ``src/backstay/sim/api/facts.json``:
which resources there are, their scope, short names, verbs and subresources (from discovery), how
their fields merge (from OpenAPI), and by which fields they can be selected (by asking, field by
field). Nothing in that file is typed by hand, so a new version of Kubernetes is a new run.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from harness.build import ensure_binaries
from harness.cluster import CallFailed, ControlPlane

Json = dict[str, Any]

TARGET = Path(__file__).parent.parent / "src/backstay/sim/api/facts.json"

_REF = "#/components/schemas/"
_SELECTABLE_DEPTH = 3
_SCALARS = ("string", "integer", "boolean")
_FORMATS = ("int64", "byte")


class Types:
    """Every type that the server's OpenAPI documents name, reduced to how its fields merge."""

    def __init__(self) -> None:
        self.reduced: dict[str, Json] = {}
        self.of_kind: dict[tuple[str, str, str], str] = {}

    def read(self, document: Json) -> None:
        for name, schema in document.get("components", {}).get("schemas", {}).items():
            self.reduced.setdefault(_short(name), _reduce(schema))
            for kind in schema.get("x-kubernetes-group-version-kind", ()):
                self.of_kind.setdefault(
                    (kind["group"], kind["version"], kind["kind"]), _short(name)
                )

    def scalar_paths(self, name: str, depth: int = _SELECTABLE_DEPTH) -> Iterator[str]:
        for field, node in self.reduced.get(name, {}).get("fields", {}).items():
            if node.get("type") in _SCALARS:
                yield field
            elif "ref" in node and depth > 1:
                for rest in self.scalar_paths(node["ref"], depth - 1):
                    yield f"{field}.{rest}"


def _short(name: str) -> str:
    """``io.k8s.api.core.v1.Pod`` as ``core.v1.Pod``."""
    for prefix in ("io.k8s.api.", "io.k8s.apimachinery.pkg.", "io.k8s."):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def _reduce(schema: Json) -> Json:
    """A node of a schema without prose and validation."""
    if "allOf" in schema:
        return {"ref": _short(schema["allOf"][0]["$ref"].removeprefix(_REF))}
    if "$ref" in schema:
        return {"ref": _short(schema["$ref"].removeprefix(_REF))}
    if schema.get("type") == "array":
        return _list(schema)
    if "properties" in schema:
        return {"fields": _fields(schema), **_atomic(schema)}
    if isinstance(schema.get("additionalProperties"), dict):
        return {"map": _reduce(schema["additionalProperties"]), **_atomic(schema)}
    kind = schema.get("type")
    node = {"type": kind} if kind and kind != "object" else {"type": "any"}
    # What else the decoder of a type tells from its format decodes itself.
    return {**node, "format": schema["format"]} if schema.get("format") in _FORMATS else node


def _atomic(schema: Json) -> Json:
    return {"atomic": True} if schema.get("x-kubernetes-map-type") == "atomic" else {}


def _fields(schema: Json) -> Json:
    fields: Json = {}
    required = schema.get("required", ())
    for name, below in sorted(schema["properties"].items()):
        node = fields[name] = _reduce(below)
        default = below.get("default")
        # Nothing else that is zero is written down; what is, every object of the type has.
        if name in required or (default is not None and not default):
            node["always"] = True
        if default or default == {}:
            node["default"] = default
    return fields


def _list(schema: Json) -> Json:
    node: Json = {"list": _reduce(schema["items"])}
    for key, name in (
        ("x-kubernetes-list-type", "kind"),
        ("x-kubernetes-list-map-keys", "keys"),
        ("x-kubernetes-patch-strategy", "patch"),
        ("x-kubernetes-patch-merge-key", "mergeKey"),
    ):
        if key in schema:
            node[name] = schema[key]
    return node


async def read_facts(plane: ControlPlane) -> Json:
    """Everything, from a running server."""
    types = Types()
    index = await plane.call("GET", "/openapi/v3")
    for path in sorted(index["paths"]):
        types.read(await plane.call("GET", f"/openapi/v3/{path}"))
    resources = [entry async for entry in _resources(plane, types)]
    version = await plane.call("GET", "/version")
    return {
        "kubernetes": version["gitVersion"],
        "resources": resources,
        "types": dict(sorted(_reachable(types, resources).items())),
    }


async def _resources(plane: ControlPlane, types: Types) -> AsyncIterator[Json]:
    groups = await plane.call("GET", "/apis")
    versions = [("", "v1")] + [
        (group["name"], version["version"])
        for group in groups["groups"]
        for version in group["versions"]
    ]
    for group, version in versions:
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        found = (await plane.call("GET", root))["resources"]
        subresources: dict[str, Json] = {}
        for item in found:
            parent, slash, name = item["name"].partition("/")
            if slash:
                subresources.setdefault(parent, {})[name] = {
                    "kind": item["kind"], "verbs": item["verbs"],
                }  # fmt: skip
        for item in found:
            if "/" not in item["name"]:
                yield await _resource(
                    plane, types, root, group, version, item, subresources.get(item["name"], {})
                )


async def _resource(
    plane: ControlPlane,
    types: Types,
    root: str,
    group: str,
    version: str,
    item: Json,
    subresources: Json,
) -> Json:
    type_name = types.of_kind.get((group, version, item["kind"]), "")
    fields: list[str] = []
    if "list" in item["verbs"]:
        print(f"asking {item['name']}.{group or 'core'} for its selectors", file=sys.stderr)
        fields = [
            path
            for path in sorted(types.scalar_paths(type_name))
            if await _selectable(plane, f"{root}/{item['name']}", path)
        ]
    return {
        "group": group,
        "version": version,
        "plural": item["name"],
        "singular": item["singularName"],
        "kind": item["kind"],
        "namespaced": item["namespaced"],
        "verbs": item["verbs"],
        "shortNames": item.get("shortNames", []),
        "categories": item.get("categories", []),
        "subresources": subresources,
        "selectable": fields,
        "type": type_name,
    }


async def _selectable(plane: ControlPlane, path: str, field: str) -> bool:
    try:
        await plane.call("GET", f"{path}?limit=1&fieldSelector={quote(field)}%3Dx")
    except CallFailed as refusal:
        # Any other refusal means that the field is known, but "x" is no value for it.
        return "not supported" not in str(refusal)
    return True


def _reachable(types: Types, resources: list[Json]) -> dict[str, Json]:
    kept: dict[str, Json] = {}
    waiting = [entry["type"] for entry in resources if entry["type"]]
    while waiting:
        name = waiting.pop()
        if name not in kept and name in types.reduced:
            kept[name] = types.reduced[name]
            waiting.extend(_refs(kept[name]))
    return kept


def _refs(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("ref"), str):
            yield node["ref"]
        for value in node.values():
            yield from _refs(value)


async def main() -> None:
    async with ControlPlane(ensure_binaries()) as plane:
        facts = await read_facts(plane)
    TARGET.write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=0) + b"\n")
    print(f"{TARGET.name}: {len(facts['resources'])} resources, {len(facts['types'])} types")


if __name__ == "__main__":
    asyncio.run(main())
