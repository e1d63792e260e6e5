"""What the API says about itself: version, health, discovery and OpenAPI.

Discovery is answered in both forms: all at once for those who can read that, group by group for
the rest. OpenAPI is what kubectl asks for before it sends anything: which kinds there are, that
the server checks fields itself, and what a kind's fields are called (for ``kubectl explain``).
"""

import hashlib
from typing import Any

import msgspec

from backstay.seam.serve import Answer, Inbound
from backstay.sim.api.kinds import KindInfo, Kinds, Schema, facts, version_priority
from backstay.sim.api.status import no_such_resource, nothing_there

_JSON = {"content-type": "application/json"}
_AGGREGATED = "as=APIGroupDiscoveryList"
_encode = msgspec.json.Encoder().encode

_HEALTH = frozenset({"/healthz", "/readyz", "/livez"})


class Documents:
    """Answers for every path that is not a resource's."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds

    def answer(self, inbound: Inbound) -> Answer | None:
        """None when the path is a resource's."""
        parts = inbound.path.strip("/").split("/")
        if inbound.path in _HEALTH:
            return Answer(headers={"content-type": "text/plain; charset=utf-8"}, body=b"ok")
        if inbound.path == "/version":
            return _json(_version())
        if parts[0] == "openapi":
            return self._openapi(parts)
        if (parts[0] == "api" and len(parts) <= 2) or (parts[0] == "apis" and len(parts) <= 3):
            return self._discovery(inbound, parts)
        return None

    # Discovery

    def _discovery(self, inbound: Inbound, parts: list[str]) -> Answer:
        root, *rest = parts
        if not rest:
            if _AGGREGATED in inbound.headers.get("accept", ""):
                return self._everything(core=root == "api")
            return _json(_core_versions() if root == "api" else self._groups())
        group = "" if root == "api" else rest[0]
        if root == "apis" and len(rest) == 1:
            return self._group(group)
        version = rest[-1]
        found = [k for k in self._kinds if (k.group, k.version) == (group, version)]
        if not found:
            raise nothing_there(group)
        resources = [entry for kind in found for entry in _legacy(kind)]
        name = f"{group}/{version}" if group else version
        return _json({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name,
                      "resources": resources})  # fmt: skip

    def _versions(self) -> dict[str, list[str]]:
        """Every group with its versions, the preferred one first."""
        versions: dict[str, list[str]] = {}
        for kind in self._kinds:
            known = versions.setdefault(kind.group, [])
            if kind.version not in known:
                known.append(kind.version)
        return {group: sorted(known, key=version_priority) for group, known in versions.items()}

    def _groups(self) -> dict[str, Any]:
        groups = [_group(n, v) for n, v in self._versions().items() if n]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def _group(self, name: str) -> Answer:
        versions = self._versions().get(name)
        if not versions:
            raise nothing_there(name)
        return _json({"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)})

    def _everything(self, *, core: bool) -> Answer:
        items = []
        for group, versions in self._versions().items():
            if (group == "") != core:
                continue
            entries = [
                {
                    "version": version,
                    "resources": [
                        _aggregated(kind)
                        for kind in self._kinds
                        if (kind.group, kind.version) == (group, version)
                    ],
                    "freshness": "Current",
                }
                for version in versions
            ]
            items.append({"metadata": {"name": group} if group else {}, "versions": entries})
        body = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
                "metadata": {}, "items": items}  # fmt: skip
        media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        return Answer(headers={"content-type": media}, body=_encode(body))

    # OpenAPI

    def _openapi(self, parts: list[str]) -> Answer:
        if parts[1:] == ["v3"]:
            paths = {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={_hash(path)}"}
                     for path in self._openapi_paths()}  # fmt: skip
            return _json({"paths": paths})
        path = "/".join(parts[2:])
        if parts[1:2] != ["v3"] or path not in self._openapi_paths():
            raise no_such_resource()
        return _json(self._openapi_document(path))

    def _openapi_paths(self) -> list[str]:
        return [
            f"apis/{group}/{version}" if group else f"api/{version}"
            for group, versions in self._versions().items()
            for version in versions
        ]

    def _openapi_document(self, path: str) -> dict[str, Any]:
        kinds = [k for k in self._kinds if _openapi_path(k) == path]
        schemas: dict[str, Any] = {}
        paths: dict[str, Any] = {}
        for kind in kinds:
            paths |= _openapi_operations(kind)
            root = self._schema(kind.type, schemas) if kind.type else {"type": "object"}
            gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
            schemas[kind.type or kind.kind] = {**root, "x-kubernetes-group-version-kind": [gvk]}
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": facts().kubernetes},
            "paths": paths,
            "components": {"schemas": schemas},
        }

    def _schema(self, name: str, schemas: dict[str, Any]) -> dict[str, Any]:
        if name not in schemas:
            schemas[name] = {}
            schemas[name] = self._node(self._kinds.types.get(name, Schema()), schemas)
        described: dict[str, Any] = schemas[name]
        return described

    def _node(self, schema: Schema, schemas: dict[str, Any]) -> dict[str, Any]:
        if schema.ref is not None:
            self._schema(schema.ref, schemas)
            return {"allOf": [{"$ref": f"#/components/schemas/{schema.ref}"}]}
        if schema.fields is not None:
            fields = {name: self._node(field, schemas) for name, field in schema.fields.items()}
            return {"type": "object", "properties": fields}
        if schema.map is not None:
            return {"type": "object", "additionalProperties": self._node(schema.map, schemas)}
        if schema.list is not None:
            return {"type": "array", "items": self._node(schema.list, schemas)}
        return {"type": schema.type} if schema.type not in (None, "any") else {}


# Subresources that are of a kind from another group.
_FOREIGN = {
    "Eviction": {"group": "policy", "version": "v1"},
    "Scale": {"group": "autoscaling", "version": "v1"},
    "TokenRequest": {"group": "authentication.k8s.io", "version": "v1"},
}


def _json(body: object) -> Answer:
    return Answer(headers=_JSON, body=_encode(body))


def _version() -> dict[str, str]:
    version = facts().kubernetes
    major, minor = version.removeprefix("v").split(".")[:2]
    return {"major": major, "minor": minor, "gitVersion": version, "gitCommit": "",
            "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "",
            "platform": "linux/amd64"}  # fmt: skip


def _core_versions() -> dict[str, Any]:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _legacy(kind: KindInfo) -> list[dict[str, Any]]:
    entry: dict[str, Any] = {
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
        "kind": kind.kind, "verbs": kind.verbs,
    }  # fmt: skip
    if kind.short_names:
        entry["shortNames"] = kind.short_names
    if kind.categories:
        entry["categories"] = kind.categories
    return [entry] + [
        {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced,
         **_FOREIGN.get(sub.kind, {}), "kind": sub.kind, "verbs": sub.verbs}
        for name, sub in kind.subresources.items()
    ]  # fmt: skip


def _aggregated(kind: KindInfo) -> dict[str, Any]:
    def of(name: str) -> dict[str, str]:
        return {"group": "", "version": "", **_FOREIGN.get(name, {}), "kind": name}

    entry: dict[str, Any] = {
        "resource": kind.plural, "responseKind": of(kind.kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular, "verbs": kind.verbs,
    }  # fmt: skip
    if kind.short_names:
        entry["shortNames"] = kind.short_names
    if kind.categories:
        entry["categories"] = kind.categories
    if kind.subresources:
        entry["subresources"] = [
            {"subresource": name, "responseKind": of(sub.kind), "verbs": sub.verbs}
            for name, sub in kind.subresources.items()
        ]
    return entry


def _openapi_path(kind: KindInfo) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _openapi_operations(kind: KindInfo) -> dict[str, Any]:
    """The operations whose parameters kubectl looks at: it wants to know ``fieldValidation``."""
    place = "namespaces/{namespace}/" if kind.namespaced else ""
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    operation = {"parameters": parameters, "x-kubernetes-group-version-kind": gvk}
    collection = f"/{_openapi_path(kind)}/{place}{kind.plural}"
    return {
        collection: {"post": {**operation, "x-kubernetes-action": "post"}},
        f"{collection}/{{name}}": {
            "patch": {**operation, "x-kubernetes-action": "patch"},
            "put": {**operation, "x-kubernetes-action": "put"},
        },
    }


def _hash(path: str) -> str:
    return hashlib.sha256(f"{facts().kubernetes}/{path}".encode()).hexdigest().upper()
