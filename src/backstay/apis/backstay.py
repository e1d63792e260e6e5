"""Our own kinds: the configuration, what owners ask for, a person's word that a node is dead, and
incidents.

All but one are the cluster's, not a namespace's: a node is nobody's tenant. AvailabilityPolicies
are the tenants' own. ``definitions.py`` has the schemas that the API server holds them to.
"""

from typing import Literal

import msgspec

from backstay.kube.projection import Meta, Projection
from backstay.kube.resource import Resource
from backstay.model.evidence import Strength
from backstay.model.incident import IncidentStatus
from backstay.model.labels import GROUP
from backstay.model.policy import (
    AvailabilityRule,
    Detach,
    Job,
    OnKubeletLoss,
    Ownership,
    Requirement,
)

VERSION = "v1alpha1"

CONFIGS = Resource(GROUP, VERSION, "backstayconfigs", "BackstayConfig", namespaced=False)
CONFIRMATIONS = Resource(
    GROUP, VERSION, "deathconfirmations", "DeathConfirmation", namespaced=False
)
AVAILABILITY_POLICIES = Resource(GROUP, VERSION, "availabilitypolicies", "AvailabilityPolicy")
INCIDENTS = Resource(GROUP, VERSION, "incidents", "Incident", namespaced=False)

CONFIG_NAME = "cluster"
"""There is one configuration; an object of another name is refused by the schema."""


class Disarmed(msgspec.Struct, frozen=True, omit_defaults=True):
    until: str = ""
    reason: str = ""
    by: str = ""


class Protect(msgspec.Struct, frozen=True, rename="camel"):
    virtual_machines: bool = True
    stateful_sets: bool = True


class ProofSpec(msgspec.Struct, frozen=True, rename="camel"):
    weakest: Strength = Strength.PRESUMED
    presume_block: bool = False
    presume_after_seconds: int = 150


class DefaultsSpec(msgspec.Struct, frozen=True, rename="camel"):
    on_kubelet_loss: OnKubeletLoss = OnKubeletLoss.LEAVE
    detach: Detach = Detach.ATTACHMENTS
    start: bool = False


class LimitsSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``nodes_down`` of None leaves it to their number (``decide/storm.py``)."""

    attempts: int = 3
    cool_down_minutes: int = 60
    nodes_down: int | None = None
    releases_per_minute: int = 60
    highest_priority: int = 100


class StormRelease(msgspec.Struct, frozen=True, omit_defaults=True):
    until: str = ""
    reason: str = ""
    by: str = ""


class SecretName(msgspec.Struct, frozen=True):
    name: str
    namespace: str


class NetworkFenceSpec(msgspec.Struct, frozen=True):
    """``secrets`` are by driver, where its volumes do not tell which one to use."""

    enabled: bool = False
    secrets: dict[str, SecretName] = {}


class PowerSpec(msgspec.Struct, frozen=True, rename="camel"):
    enabled: bool = False
    power_on: bool = True


class FencingSpec(msgspec.Struct, frozen=True, rename="camel"):
    network_fence: NetworkFenceSpec = NetworkFenceSpec()
    power: PowerSpec = PowerSpec()


class ConfigSpec(msgspec.Struct, frozen=True, rename="camel"):
    mode: str = "Observe"
    disarmed: Disarmed | None = None
    protect: Protect | None = None
    proof: ProofSpec = ProofSpec()
    defaults: DefaultsSpec = DefaultsSpec()
    limits: LimitsSpec = LimitsSpec()
    storm_release: StormRelease | None = None
    fencing: FencingSpec = FencingSpec()
    owners: dict[Job, Ownership] = {}


class Config(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: ConfigSpec = ConfigSpec()


class ConfigRow(msgspec.Struct, frozen=True):
    """There is one, so nothing of it is left out."""

    key: str
    uid: str
    version: str
    spec: ConfigSpec

    @property
    def mode(self) -> str:
        return self.spec.mode


def config_row(config: Config) -> ConfigRow:
    meta = config.metadata
    return ConfigRow(meta.key, meta.uid, meta.resource_version, config.spec)


class _Expression(msgspec.Struct, frozen=True):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[_Expression, ...] = ()


class AvailabilitySpec(msgspec.Struct, frozen=True, rename="camel"):
    """What is not said is left to the cluster. An empty selector selects all of the namespace."""

    selector: _Selector = _Selector()
    protect: bool | None = None
    minimum_proof: Strength | None = None
    on_kubelet_loss: OnKubeletLoss | None = None
    detach: Detach | None = None
    start: bool | None = None
    singleton: bool | None = None
    priority: int | None = None


class Availability(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: AvailabilitySpec = AvailabilitySpec()


class AvailabilityRow(msgspec.Struct, frozen=True):
    key: str
    uid: str
    version: str
    namespace: str
    rule: AvailabilityRule


def availability_row(wire: Availability) -> AvailabilityRow:
    meta, spec = wire.metadata, wire.spec
    labels = sorted(spec.selector.match_labels.items())
    equal = [Requirement(key, "In", (value,)) for key, value in labels]
    more = [Requirement(e.key, e.operator, e.values) for e in spec.selector.match_expressions]
    namespace, name = meta.namespace or "", meta.name
    rule = AvailabilityRule(
        namespace=namespace,
        name=name,
        requirements=(*equal, *more),
        protect=spec.protect,
        minimum=spec.minimum_proof,
        on_kubelet_loss=spec.on_kubelet_loss,
        detach=spec.detach,
        start=spec.start,
        singleton=spec.singleton,
        priority=spec.priority,
    )
    return AvailabilityRow(meta.key, meta.uid, meta.resource_version, namespace, rule)


class ConfirmationSpec(
    msgspec.Struct,
    frozen=True,
    rename={
        "node_uid": "nodeUID",
        "boot_id": "bootID",
        "last_renewal": "lastRenewal",
        "last_heartbeat": "lastHeartbeat",
        "last_status": "lastStatus",
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
    last_status: str = ""


class ConfirmationStatus(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Which sign of life contradicted it, for good, and when that was written down; or when it was
    found that the API had been restored from a backup after it was given."""

    refuted: str = ""
    refuted_at: str = ""
    lapsed_at: str = ""


class ConfirmationWire(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: ConfirmationSpec
    status: ConfirmationStatus = ConfirmationStatus()


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
    last_status: str = ""
    refuted: str = ""
    lapsed: bool = False


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
        last_status=spec.last_status,
        refuted=wire.status.refuted,
        lapsed=bool(wire.status.lapsed_at),
    )


def confirmation_patch(uid: str, status: ConfirmationStatus) -> dict[str, object]:
    """Of the confirmation with this uid, and of none that took its name since."""
    return {"metadata": {"uid": uid}, "status": msgspec.to_builtins(status)}


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
AVAILABILITY_PROJECTION: Projection[Availability, AvailabilityRow] = Projection(
    Availability, availability_row
)
CONFIRMATION_PROJECTION: Projection[ConfirmationWire, ConfirmationRow] = Projection(
    ConfirmationWire, confirmation_row
)
INCIDENT_PROJECTION: Projection[Incident, IncidentRow] = Projection(Incident, incident_row)
