"""The CustomResourceDefinition of NodeMaintenance, for clusters that have none yet.

It stands apart from our own kinds, because the Node Maintenance Operator may have installed the one
that it brings along. That one will do: what it does not know of our status is left out by the API.
"""

from typing import Any

from backstay.apis.maintenance import NODE_MAINTENANCES
from backstay.model.labels import COMPONENT

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "maxLength": 1024}
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 253}
_NUMBER: Schema = {"type": "integer"}
_COLUMNS = (
    ("Node", ".spec.nodeName", "string"),
    ("Phase", ".status.phase", "string"),
    ("Progress", ".status.drainProgress", "integer"),
    ("Reason", ".status.code", "string"),
    ("Says", ".status.sentence", "string"),
    ("Age", ".metadata.creationTimestamp", "date"),
)


def _object(properties: Schema, *required: str) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    return schema | ({"required": list(required)} if required else {})


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items, "maxItems": 2000}


def _spec() -> Schema:
    spec = _object({"nodeName": _NAME, "reason": {"type": "string", "maxLength": 4096}}, "nodeName")
    spec["x-kubernetes-validations"] = [
        {
            "rule": "self.nodeName == oldSelf.nodeName",
            "message": "updating spec.NodeName isn't allowed",
        }
    ]
    return spec


def _status() -> Schema:
    pod = _object({"namespace": _TEXT, "name": _TEXT})
    words = ("pod", "uid", "code", "sentence", "next", "since")
    return _object(
        {
            **dict.fromkeys(("phase", "lastError", "code", "sentence", "next"), _TEXT),
            **dict.fromkeys(
                (
                    "drainProgress",
                    "totalpods",
                    "evictionPods",
                    "errorOnLeaseCount",
                    "observedGeneration",
                ),
                _NUMBER,
            ),
            "lastUpdate": {"type": "string", "format": "date-time"},
            "pendingPods": _list(_TEXT),
            "pendingPodsRefs": _list(pod),
            "blockers": _list(_object(dict.fromkeys(words, _TEXT))),
            "evacuated": _list(_TEXT),
        }
    )


def maintenance_definition() -> Schema:
    """As it is installed."""
    resource = NODE_MAINTENANCES
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.label, "labels": {COMPONENT: "backstay"}},
        "spec": {
            "group": resource.group,
            "scope": "Cluster",
            "names": {
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "shortNames": ["nm"],
            },
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": _object({"spec": _spec(), "status": _status()}, "spec")
                    },
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path}
                        for name, path, kind in _COLUMNS
                    ],
                }
            ],
        },
    }
