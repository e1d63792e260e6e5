"""Custom resources to define, and objects of them."""

from typing import Any

Json = dict[str, Any]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FOOS = "/apis/example.com/v1/namespaces/default/foos"


def definition(
    group: str = "example.com",
    *,
    plural: str = "foos",
    schema: Json | None = None,
    versions: list[Json] | None = None,
    names: Json | None = None,
    version: Json | None = None,
    **spec: Any,
) -> Json:
    """With one version ``v1``, unless told otherwise."""
    properties = {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    one = {
        "name": "v1", "served": True, "storage": True,
        "schema": {"openAPIV3Schema": schema or {"type": "object", "properties": properties}},
        **(version or {}),
    }  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural[:-1].capitalize(), **(names or {})},
            "versions": [one] if versions is None else versions, **spec,
        },
    }  # fmt: skip


def with_spec(**properties: Json) -> Json:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}


def foo(name: str = "f", *, version: str = "v1", group: str = "example.com", **more: Any) -> Json:
    return {"apiVersion": f"{group}/{version}", "kind": "Foo", "metadata": {"name": name}, **more}
