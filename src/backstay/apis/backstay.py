"""Our own kinds: the configuration, a person's word that a node is dead, and incidents.

``definitions`` are the CustomResourceDefinitions as they are installed. All three kinds are the
cluster's, not a namespace's: a node is nobody's tenant.
"""

from typing import Any

import msgspec

from backstay.kube.projection import Meta, Projection
from backstay.kube.resource import Resource
from backstay.model.incident import IncidentStatus
from backstay.model.labels import COMPONENT, GROUP

VERSION = "v1alpha1"

CONFIGS = Resource(GROUP, VERSION, "backstayconfigs", "BackstayConfig", namespaced=False)
CONFIRMATIONS = Resource(
    GROUP, VERSION, "deathconfirmations", "DeathConfirmation", namespaced=False
)
INCIDENTS = Resource(GROUP, VERSION, "incidents", "Incident", namespaced=False)

CONFIG_NAME = "cluster"
"""There is one configuration; an object of another name is refused by the schema."""

Schema = dict[str, Any]


class Disarmed(msgspec.Struct, frozen=True, omit_defaults=True):
    until: str = ""
    reason: str = ""
    by: str = ""


class Protect(msgspec.Struct, frozen=True, rename="camel"):
    virtual_machines: bool = True
    stateful_sets: bool = True


class ConfigSpec(msgspec.Struct, frozen=True):
    mode: str = "Observe"
    disarmed: Disarmed | None = None
    protect: Protect | None = None


class Config(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: ConfigSpec = ConfigSpec()


class ConfigRow(msgspec.Struct, frozen=True, gc=False):
    key: str
    uid: str
    version: str
    mode: str
    disarmed_until: str
    disarmed_because: str
    virtual_machines: bool
    stateful_sets: bool


def config_row(config: Config) -> ConfigRow:
    disarmed, protect = config.spec.disarmed or Disarmed(), config.spec.protect or Protect()
    return ConfigRow(
        key=config.metadata.key,
        uid=config.metadata.uid,
        version=config.metadata.resource_version,
        mode=config.spec.mode,
        disarmed_until=disarmed.until,
        disarmed_because=disarmed.reason,
        virtual_machines=protect.virtual_machines,
        stateful_sets=protect.stateful_sets,
    )


class ConfirmationSpec(
    msgspec.Struct,
    frozen=True,
    rename={
        "node_uid": "nodeUID",
        "boot_id": "bootID",
        "last_renewal": "lastRenewal",
        "last_heartbeat": "lastHeartbeat",
    },
):
    """Which boot of which node, and up to which sign of life: one that came after it was given
    contradicts it for good, also for a controller that has not seen it come."""

    node: str
    node_uid: str
    boot_id: str
    by: str = ""
    reason: str = ""
    last_renewal: str = ""
    last_heartbeat: str = ""


class ConfirmationWire(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: ConfirmationSpec


class ConfirmationRow(msgspec.Struct, frozen=True, gc=False):
    key: str
    uid: str
    version: str
    node: str
    node_uid: str
    boot_id: str
    by: str
    reason: str
    last_renewal: str
    last_heartbeat: str


def confirmation_row(wire: ConfirmationWire) -> ConfirmationRow:
    spec = wire.spec
    return ConfirmationRow(
        key=wire.metadata.key,
        uid=wire.metadata.uid,
        version=wire.metadata.resource_version,
        node=spec.node,
        node_uid=spec.node_uid,
        boot_id=spec.boot_id,
        by=spec.by,
        reason=spec.reason,
        last_renewal=spec.last_renewal,
        last_heartbeat=spec.last_heartbeat,
    )


class IncidentSpec(
    msgspec.Struct, frozen=True, rename={"node_uid": "nodeUID", "boot_id": "bootID"}
):
    """Which boot of which node; it never changes."""

    node: str
    node_uid: str
    boot_id: str


class Incident(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: IncidentSpec
    status: IncidentStatus = IncidentStatus()


class IncidentRow(msgspec.Struct, frozen=True):
    """An incident as it is kept: there are few, so nothing of it is left out."""

    key: str
    uid: str
    version: str
    spec: IncidentSpec
    status: IncidentStatus

    @property
    def open(self) -> bool:
        return not self.status.closed_at


def incident_row(incident: Incident) -> IncidentRow:
    meta = incident.metadata
    return IncidentRow(meta.key, meta.uid, meta.resource_version, incident.spec, incident.status)


CONFIG_PROJECTION: Projection[Config, ConfigRow] = Projection(Config, config_row)
CONFIRMATION_PROJECTION: Projection[ConfirmationWire, ConfirmationRow] = Projection(
    ConfirmationWire, confirmation_row
)
INCIDENT_PROJECTION: Projection[Incident, IncidentRow] = Projection(Incident, incident_row)


# What the API server checks

_TEXT: Schema = {"type": "string", "maxLength": 1024}
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 253}
_ID: Schema = {"type": "string", "minLength": 1, "maxLength": 128}
_ID_OR_NOTHING: Schema = {"type": "string", "maxLength": 128}
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


def _config_schema() -> Schema:
    disarmed = _object({"until": _TIME, "reason": _TEXT, "by": _TEXT}, "until", "reason")
    protect = _object({"virtualMachines": _FLAG, "statefulSets": _FLAG})
    mode: Schema = {"type": "string", "enum": ["Observe", "Armed"], "default": "Observe"}
    return _object({"mode": mode, "disarmed": disarmed, "protect": protect})


def _which_boot(*required: str, **more: Schema) -> Schema:
    names = {"node": _NAME, "nodeUID": _ID, "bootID": _ID}
    rules = {"x-kubernetes-validations": [_FOREVER]}
    return _object(names | more, *names, *required, **rules)


def _incident_status() -> Schema:
    workload = {
        "workload": _TEXT, "progress": _TEXT, "code": _TEXT, "sentence": _TEXT, "next": _TEXT,
        "uids": _list(_ID),
    }  # fmt: skip
    intent = {
        "step": _TEXT, "epoch": {"type": "integer", "format": "int64"}, "pods": _list(_TEXT),
        "at": _TEXT, "outcome": _TEXT,
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
            "workloads": _list(_object(workload)),
            "timeline": _list(_object(moment)),
            "intent": _object(intent),
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
            "scope": "Cluster",
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
            CONFIRMATIONS,
            _which_boot(
                "lastRenewal",
                by=_TEXT,
                reason=_TEXT,
                lastRenewal=_ID_OR_NOTHING,
                lastHeartbeat=_ID_OR_NOTHING,
            ),
            [
                _column("Node", ".spec.node"),
                _column("By", ".spec.by"),
                _column("Reason", ".spec.reason"),
                _AGE,
            ],
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
