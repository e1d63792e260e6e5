"""The CustomResourceDefinitions of our own kinds, as they are installed.

What the API server can refuse, nobody has to find out at night: bounds, choices and rules (CEL)
stand here. What it cannot know is bounded again where it is used (``decide/policy.py``).
"""

from typing import Any

from backstay.apis.backstay import (
    AVAILABILITY_POLICIES,
    CONFIG_NAME,
    CONFIGS,
    CONFIRMATIONS,
    INCIDENTS,
    VERSION,
)
from backstay.kube.resource import Resource
from backstay.model.evidence import Strength
from backstay.model.labels import COMPONENT, GROUP
from backstay.model.policy import Detach, Job, OnKubeletLoss, Ownership

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "maxLength": 1024}
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 253}
_ID: Schema = {"type": "string", "minLength": 1, "maxLength": 128}
_ID_OR_NOTHING: Schema = {"type": "string", "maxLength": 128}
_SECONDS: Schema = {"type": "number"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_FLAG: Schema = {"type": "boolean", "default": True}
_FOREVER: Schema = {"rule": "self == oldSelf", "message": "it cannot be changed: delete it instead"}


def _object(properties: Schema, *required: str, **more: Any) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return schema | more


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items, "maxItems": 2000}


def _choice(*values: str, default: str = "") -> Schema:
    """Members of an enum become plain strings, which is what YAML knows."""
    choice: Schema = {"type": "string", "enum": list(map(str, values))}
    return choice | ({"default": str(default)} if default else {})


def _number(least: int, most: int, default: int | None = None) -> Schema:
    bounds: Schema = {"type": "integer", "minimum": least, "maximum": most}
    return bounds | ({} if default is None else {"default": default})


_NO: Schema = {"type": "boolean", "default": False}
_YES_OR_NO: Schema = {"type": "boolean"}
_STRENGTHS = tuple(Strength)
_LEAST_PATIENCE = 150


def _config_schema() -> Schema:
    for_a_time = _object({"until": _TIME, "reason": _TEXT, "by": _TEXT}, "until", "reason")
    # Without a default: arming tells what was decided from what was never asked.
    owner = _choice(*Ownership)
    proof = {
        "weakest": _choice(*_STRENGTHS, default=Strength.PRESUMED),
        "presumeBlock": _NO,
        "presumeAfterSeconds": _number(_LEAST_PATIENCE, 86_400, _LEAST_PATIENCE),
    }
    defaults = {
        "onKubeletLoss": _choice(*OnKubeletLoss, default=OnKubeletLoss.LEAVE),
        "detach": _choice(*Detach, default=Detach.ATTACHMENTS),
        "start": _NO,
    }
    secrets: Schema = {
        "type": "object",
        "additionalProperties": _object({"name": _NAME, "namespace": _NAME}, "name", "namespace"),
        "maxProperties": 50,
    }
    fencing = {
        "networkFence": _object({"enabled": _NO, "secrets": secrets}),
        "power": _object({"enabled": _NO, "powerOn": _FLAG}),
    }
    limits = {
        "attempts": _number(1, 100, 3),
        "coolDownMinutes": _number(1, 10_080, 60),
        "nodesDown": _number(1, 10_000),
        "releasesPerMinute": _number(1, 10_000, 60),
        "highestPriority": _number(0, 1_000_000, 100),
    }
    return _object(
        {
            "mode": _choice("Observe", "Armed", default="Observe"),
            "disarmed": for_a_time,
            "protect": _object({"virtualMachines": _FLAG, "statefulSets": _FLAG}),
            "proof": _object(proof),
            "defaults": _object(defaults),
            "limits": _object(limits),
            "stormRelease": for_a_time,
            "fencing": _object(fencing),
            "owners": _object({job.value: owner for job in Job}),
        }
    )


def _availability_schema() -> Schema:
    values = {
        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
        "message": "In and NotIn need values, Exists and DoesNotExist have none",
    }
    expression = _object(
        {
            "key": _NAME,
            "operator": _choice("In", "NotIn", "Exists", "DoesNotExist"),
            "values": _list(_TEXT) | {"maxItems": 50},
        },
        "key",
        "operator",
        **{"x-kubernetes-validations": [values]},
    )
    expressions = _list(expression) | {"maxItems": 20}
    labels: Schema = {"type": "object", "additionalProperties": _TEXT, "maxProperties": 50}
    consent = {
        "rule": "!has(self.protect) || self.protect || !has(self.minimumProof) || "
        "self.minimumProof != 'Presumed'",
        "message": "what is not protected cannot be failed over on a presumption",
    }
    return _object(
        {
            "selector": _object({"matchLabels": labels, "matchExpressions": expressions}),
            "protect": _YES_OR_NO,
            "minimumProof": _choice(*_STRENGTHS),
            "onKubeletLoss": _choice(*OnKubeletLoss),
            # The taint would concern the whole node: that is the cluster's to choose.
            "detach": _choice(Detach.ATTACHMENTS, Detach.LEAVE),
            "start": _YES_OR_NO,
            "singleton": _YES_OR_NO,
            "priority": _number(0, 1_000_000),
        },
        **{"x-kubernetes-validations": [consent]},
    )


def _which_boot(*required: str, **more: Schema) -> Schema:
    names = {"node": _NAME, "nodeUID": _ID, "bootID": _ID}
    rules = {"x-kubernetes-validations": [_FOREVER]}
    return _object(names | more, *names, *required, **rules)


def _incident_status() -> Schema:
    volume = {
        "claim": _NAME, "volume": _NAME, "driver": _TEXT, "cluster": _TEXT, "shared": _YES_OR_NO,
        "handle": _TEXT, "exported": _YES_OR_NO,
    }  # fmt: skip
    workload = {
        "workload": _TEXT, "progress": _TEXT, "code": _TEXT, "sentence": _TEXT, "next": _TEXT,
        "volumes": _list(_object(volume)),
        "uids": _list(_ID), "ready": {"type": "boolean"}, "releasedAfter": _SECONDS,
        "runningAfter": _SECONDS, "readyAfter": _SECONDS, "replacedBy": _TEXT,
        "phases": _list(_object({"phase": _TEXT, "at": _TEXT})),
    }  # fmt: skip
    stage = {"stage": _TEXT, "seconds": _SECONDS}
    intent = {
        "step": _TEXT, "epoch": {"type": "integer", "format": "int64"}, "pods": _list(_TEXT),
        "at": _TEXT, "outcome": _TEXT,
    }  # fmt: skip
    power = {
        "offs": {"type": "integer"}, "ons": {"type": "integer"},
        "epoch": {"type": "integer", "format": "int64"}, "seconds": _SECONDS, "at": _TEXT,
    }  # fmt: skip
    moment = {"at": _TEXT, "code": _TEXT, "sentence": _TEXT}
    evidence = {"kind": _TEXT, "source": _TEXT, "detail": _TEXT, "at": _TEXT}
    words = ("state", "code", "sentence", "next", "mode", "openedAt", "closedAt")
    return _object(
        {
            **dict.fromkeys(words, _TEXT),
            "epoch": {"type": "integer", "format": "int64"},
            "held": {"type": "integer"},
            "recovered": {"type": "integer"},
            "evidence": _list(_object(evidence)),
            "stages": _list(_object(stage)),
            "workloads": _list(_object(workload)),
            "timeline": _list(_object(moment)),
            "intent": _object(intent),
            "power": _object(power),
        }
    )


def _column(name: str, path: str, kind: str = "string") -> Schema:
    return {"name": name, "type": kind, "jsonPath": path}


_AGE = _column("Age", ".metadata.creationTimestamp", "date")


def _definition(
    resource: Resource,
    spec: Schema,
    columns: list[Schema],
    *,
    status: Schema | None = None,
    short: tuple[str, ...] = (),
    rules: list[Schema] | None = None,
) -> Schema:
    schema = _object({"spec": spec} | ({"status": status} if status else {}), "spec")
    if rules:
        schema["x-kubernetes-validations"] = rules
    version: Schema = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": columns,
    }
    if status:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.label, "labels": {COMPONENT: "backstay"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "categories": ["backstay"],
                **({"shortNames": list(short)} if short else {}),
            },
            "versions": [version],
        },
    }


def definitions() -> list[Schema]:
    """The CustomResourceDefinitions, as ``backstay crds`` prints them."""
    only = {
        "rule": f"self.metadata.name == '{CONFIG_NAME}'",
        "message": f"there is one configuration, and its name is {CONFIG_NAME}",
    }
    return [
        _definition(
            CONFIGS,
            _config_schema(),
            [
                _column("Mode", ".spec.mode"),
                _column("Disarmed until", ".spec.disarmed.until"),
                _AGE,
            ],
            short=("bsc",),
            rules=[only],
        ),
        _definition(
            AVAILABILITY_POLICIES,
            _availability_schema(),
            [
                _column("Protect", ".spec.protect", "boolean"),
                _column("Minimum proof", ".spec.minimumProof"),
                _column("On kubelet loss", ".spec.onKubeletLoss"),
                _AGE,
            ],
            short=("avp",),
        ),
        _definition(
            CONFIRMATIONS,
            _which_boot(
                "lastRenewal",
                by=_TEXT,
                reason=_TEXT,
                lastRenewal=_ID_OR_NOTHING,
                lastHeartbeat=_ID_OR_NOTHING,
                lastStatus=_ID_OR_NOTHING,
            ),
            [
                _column("Node", ".spec.node"),
                _column("By", ".spec.by"),
                _column("Reason", ".spec.reason"),
                _column("Refuted", ".status.refuted"),
                _column("Lapsed", ".status.lapsedAt"),
                _AGE,
            ],
            status=_object({"refuted": _TEXT, "refutedAt": _TEXT, "lapsedAt": _TEXT}),
        ),
        _definition(
            INCIDENTS,
            _which_boot(),
            [
                _column("Node", ".spec.node"),
                _column("State", ".status.state"),
                _column("Reason", ".status.code"),
                _column("Held", ".status.held", "integer"),
                _column("Recovered", ".status.recovered", "integer"),
                _AGE,
            ],
            status=_incident_status(),
        ),
    ]
