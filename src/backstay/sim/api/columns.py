"""Columns: what ``kubectl get`` shows of each kind, one table per kind, with how a cell is made.

To show a kind as the real server does, add its columns here. Kinds without columns of their own
show their name and when they were created.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from backstay.sim.api.label_selectors import as_text
from backstay.sim.api.pod_columns import pod_cells

Json = Mapping[str, Any]
Cell = Callable[[Json, datetime], Any]

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_YEAR = 365 * _DAY


class Column(msgspec.Struct, frozen=True):
    """``priority`` 1 is for ``-o wide`` only."""

    name: str
    cell: Cell
    type: str = "string"
    format: str = ""
    priority: int = 0


# Time


def human(seconds: float) -> str:
    """A duration in two or three figures: ``5m``, ``3h12m``, ``2d4h``."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    for limit, big, small, names in (
        (10 * _MINUTE, _MINUTE, 1, "ms"),
        (3 * _HOUR, _MINUTE, 0, "m"),
        (8 * _HOUR, _HOUR, _MINUTE, "hm"),
        (48 * _HOUR, _HOUR, 0, "h"),
        (8 * _DAY, _DAY, _HOUR, "dh"),
        (2 * _YEAR, _DAY, 0, "d"),
        (8 * _YEAR, _YEAR, _DAY, "yd"),
    ):
        if whole < limit:
            rest = whole % big // small if small else 0
            return f"{whole // big}{names[0]}" + (f"{rest}{names[1]}" if rest else "")
    return f"{whole // _YEAR}y"


def since(stamp: str | None, now: datetime) -> str:
    if not stamp:
        return UNKNOWN
    return human((now - datetime.fromisoformat(stamp)).total_seconds())


# Cells


def at(obj: Json, *path: str) -> Any:
    """A field, None if any part of the way to it is missing."""
    node: Any = obj
    for step in path:
        node = node.get(step) if isinstance(node, Mapping) else None
    return node


def field(*path: str, otherwise: Any = "") -> Cell:
    def cell(obj: Json, now: datetime) -> Any:
        found = at(obj, *path)
        return otherwise if found in (None, "") else found

    return cell


def number(*path: str) -> Cell:
    return field(*path, otherwise=0)


def size(*path: str) -> Cell:
    return lambda obj, now: len(at(obj, *path) or ())


def _name(obj: Json, now: datetime) -> Any:
    return at(obj, "metadata", "name") or ""


def _age(obj: Json, now: datetime) -> str:
    return since(at(obj, "metadata", "creationTimestamp"), now)


def _joined(*path: str, key: str) -> Cell:
    return lambda obj, now: ",".join(item.get(key, "") for item in at(obj, *path) or ())


def _selector(*path: str) -> Cell:
    def cell(obj: Json, now: datetime) -> str:
        selector = at(obj, *path)
        return NONE if selector is None else as_text(selector) or NONE

    return cell


def _labels(*path: str) -> Cell:
    def cell(obj: Json, now: datetime) -> str:
        labels = at(obj, *path) or {}
        return ",".join(f"{name}={labels[name]}" for name in sorted(labels)) or NONE

    return cell


NAME = Column("Name", _name, format="name")
AGE = Column("Age", _age)
DEFAULT = (NAME, Column("Created At", field("metadata", "creationTimestamp"), type="date"))

_TEMPLATE = ("spec", "template", "spec", "containers")
_CONTAINERS = Column("Containers", _joined(*_TEMPLATE, key="name"), priority=1)
_IMAGES = Column("Images", _joined(*_TEMPLATE, key="image"), priority=1)
_SELECTOR = Column("Selector", _selector("spec", "selector"), priority=1)


def _out_of(ready: Cell, wanted: Cell) -> Cell:
    return lambda obj, now: f"{ready(obj, now)}/{wanted(obj, now)}"


def _pod(index: int) -> Cell:
    return lambda obj, now: pod_cells(obj, lambda stamp: since(stamp, now))[index]


def _gates(obj: Json, now: datetime) -> str:
    gates = at(obj, "spec", "readinessGates")
    if not gates:
        return NONE
    conditions = {c["type"]: c["status"] for c in at(obj, "status", "conditions") or ()}
    fine = sum(conditions.get(gate["conditionType"]) == "True" for gate in gates)
    return f"{fine}/{len(gates)}"


def _pod_ip(obj: Json, now: datetime) -> str:
    ips = at(obj, "status", "podIPs")
    return (ips[0].get("ip") if ips else "") or NONE


def _node_status(obj: Json, now: datetime) -> str:
    conditions = at(obj, "status", "conditions") or ()
    ready = [c["status"] for c in conditions if c["type"] == "Ready"]
    said = ("Ready" if ready[-1] == "True" else "NotReady") if ready else "Unknown"
    return f"{said},SchedulingDisabled" if at(obj, "spec", "unschedulable") else said


def _node_roles(obj: Json, now: datetime) -> str:
    labels = at(obj, "metadata", "labels") or {}
    prefix = "node-role.kubernetes.io/"
    roles = {label.removeprefix(prefix) for label in labels if label.startswith(prefix)}
    roles.add(labels.get("kubernetes.io/role", ""))
    return ",".join(sorted(roles - {""})) or NONE


def _node_address(kind: str) -> Cell:
    def cell(obj: Json, now: datetime) -> str:
        addresses = at(obj, "status", "addresses") or ()
        return next((a["address"] for a in addresses if a["type"] == kind), NONE)

    return cell


def _kernel(obj: Json, now: datetime) -> str:
    info = at(obj, "status", "nodeInfo") or {}
    architecture = info.get("architecture")
    return (info.get("kernelVersion") or UNKNOWN) + (f" ({architecture})" if architecture else "")


def _has_condition(obj: Json, kind: str) -> bool:
    conditions = at(obj, "status", "conditions") or ()
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


def _job_status(obj: Json, now: datetime) -> str:
    for condition, shown in (("Complete", "Complete"), ("Failed", "Failed")):
        if _has_condition(obj, condition):
            return shown
    if at(obj, "metadata", "deletionTimestamp"):
        return "Terminating"
    for condition in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if _has_condition(obj, condition):
            return condition
    return "Running"


def _job_completions(obj: Json, now: datetime) -> str:
    done, wanted = at(obj, "status", "succeeded") or 0, at(obj, "spec", "completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    at_once = at(obj, "spec", "parallelism") or 0
    return f"{done}/1 of {at_once}" if at_once > 1 else f"{done}/1"


def _job_duration(obj: Json, now: datetime) -> str:
    began, ended = at(obj, "status", "startTime"), at(obj, "status", "completionTime")
    if not began:
        return ""
    return since(began, datetime.fromisoformat(ended) if ended else now)


def _cluster_ip(obj: Json, now: datetime) -> str:
    ips = at(obj, "spec", "clusterIPs")
    return ips[0] if ips else NONE


def _external_ip(obj: Json, now: datetime) -> str:
    spec = obj.get("spec") or {}
    given = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(given) or NONE
        case "LoadBalancer":
            points = at(obj, "status", "loadBalancer", "ingress") or ()
            found = {point.get("ip") or point.get("hostname") or "" for point in points} - {""}
            return ",".join([*sorted(found), *given]) or "<pending>"
        case "ExternalName":
            return spec.get("externalName") or ""
    return UNKNOWN


def _ports(obj: Json, now: datetime) -> str:
    return ",".join(map(_port, at(obj, "spec", "ports") or ())) or NONE


def _port(port: Json) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node}/{port.get('protocol', 'TCP')}"


def _event_first(obj: Json, now: datetime) -> str:
    return since(obj.get("firstTimestamp") or obj.get("eventTime"), now)


def _event_last(obj: Json, now: datetime) -> str:
    series = obj.get("series")
    if series:
        return since(series.get("lastObservedTime"), now)
    last = obj.get("lastTimestamp")
    return since(last, now) if last else _event_first(obj, now)


def _event_object(obj: Json, now: datetime) -> str:
    about = obj.get("involvedObject") or {}
    kind = (about.get("kind") or "").lower()
    return f"{kind}/{about['name']}" if about.get("name") else kind


def _event_source(obj: Json, now: datetime) -> str:
    source = obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component


def _event_count(obj: Json, now: datetime) -> int:
    series = obj.get("series") or {}
    return series.get("count") or obj.get("count") or 1


_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX",
          "ReadWriteOncePod": "RWOP"}  # fmt: skip


def _modes(modes: Sequence[str] | None) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in (modes or ()))


def _storage_phase(obj: Json, now: datetime) -> str:
    if at(obj, "metadata", "deletionTimestamp"):
        return "Terminating"
    return at(obj, "status", "phase") or ""


def _storage_class(obj: Json, now: datetime) -> str:
    old = at(obj, "metadata", "annotations", "volume.beta.kubernetes.io/storage-class")
    return old or at(obj, "spec", "storageClassName") or ""


def _claim(obj: Json, now: datetime) -> str:
    claim = at(obj, "spec", "claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _claim_capacity(obj: Json, now: datetime) -> str:
    bound = at(obj, "spec", "volumeName")
    return (at(obj, "status", "capacity", "storage") or "0") if bound else ""


def _claim_modes(obj: Json, now: datetime) -> str:
    return _modes(at(obj, "status", "accessModes")) if at(obj, "spec", "volumeName") else ""


def _class_name(obj: Json, now: datetime) -> str:
    annotations = at(obj, "metadata", "annotations") or {}
    marks = ("storageclass.kubernetes.io/is-default-class",
             "storageclass.beta.kubernetes.io/is-default-class")  # fmt: skip
    is_default = any(annotations.get(mark) == "true" for mark in marks)
    name: str = obj["metadata"].get("name", "")
    return f"{name} (default)" if is_default else name


def _budget(side: str) -> Cell:
    def cell(obj: Json, now: datetime) -> str:
        value = at(obj, "spec", side)
        return "N/A" if value is None else str(value)

    return cell


def _few(items: Sequence[str]) -> str:
    """The first three."""
    more = f" + {len(items) - 3} more..." if len(items) > 3 else ""
    return ",".join(items[:3]) + more or UNSET


def _slice_ports(obj: Json, now: datetime) -> str:
    ports = obj.get("ports") or ()
    return _few([str(port.get("port") or port.get("name") or "*") for port in ports])


def _slice_endpoints(obj: Json, now: datetime) -> str:
    return _few([address for e in obj.get("endpoints") or () for address in e["addresses"]])


def _role(obj: Json, now: datetime) -> str:
    reference = obj.get("roleRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def _subjects(kind: str) -> Cell:
    def cell(obj: Json, now: datetime) -> str:
        found = [s for s in obj.get("subjects") or () if s.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{s.get('namespace', '')}/{s['name']}" for s in found)
        return ", ".join(s["name"] for s in found)

    return cell


_BINDING = (
    NAME, Column("Role", _role), AGE,
    Column("Users", _subjects("User"), priority=1),
    Column("Groups", _subjects("Group"), priority=1),
    Column("ServiceAccounts", _subjects("ServiceAccount"), priority=1),
)  # fmt: skip

COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "pods": (
        NAME,
        Column("Ready", _pod(0)),
        Column("Status", _pod(1)),
        Column("Restarts", _pod(2)),
        AGE,
        Column("IP", _pod_ip, priority=1),
        Column("Node", field("spec", "nodeName", otherwise=NONE), priority=1),
        Column("Nominated Node", field("status", "nominatedNodeName", otherwise=NONE), priority=1),
        Column("Readiness Gates", _gates, priority=1),
    ),
    "nodes": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", field("status", "nodeInfo", "kubeletVersion")),
        Column("Internal-IP", _node_address("InternalIP"), priority=1),
        Column("External-IP", _node_address("ExternalIP"), priority=1),
        Column("OS-Image", field("status", "nodeInfo", "osImage", otherwise=UNKNOWN), priority=1),
        Column("Kernel-Version", _kernel, priority=1),
        Column(
            "Container-Runtime",
            field("status", "nodeInfo", "containerRuntimeVersion", otherwise=UNKNOWN),
            priority=1,
        ),
    ),
    "namespaces": (NAME, Column("Status", field("status", "phase")), AGE),
    "configmaps": (
        NAME,
        Column("Data", lambda o, n: size("data")(o, n) + size("binaryData")(o, n)),
        AGE,
    ),
    "secrets": (NAME, Column("Type", field("type")), Column("Data", size("data")), AGE),
    "serviceaccounts": (NAME, AGE),
    "services": (
        NAME,
        Column("Type", field("spec", "type")),
        Column("Cluster-IP", _cluster_ip),
        Column("External-IP", _external_ip),
        Column("Port(s)", _ports),
        AGE,
        Column("Selector", _labels("spec", "selector"), priority=1),
    ),
    "events": (
        Column("Last Seen", _event_last),
        Column("Type", field("type")),
        Column("Reason", field("reason")),
        Column("Object", _event_object),
        Column("Subobject", field("involvedObject", "fieldPath"), priority=1),
        Column("Source", _event_source, priority=1),
        Column("Message", lambda obj, now: (obj.get("message") or "").strip()),
        Column("First Seen", _event_first, priority=1),
        Column("Count", _event_count, priority=1),
        Column("Name", _name, format="name", priority=1),
    ),
    "persistentvolumes": (
        NAME,
        Column("Capacity", field("spec", "capacity", "storage", otherwise="0")),
        Column("Access Modes", lambda obj, now: _modes(at(obj, "spec", "accessModes"))),
        Column("Reclaim Policy", field("spec", "persistentVolumeReclaimPolicy")),
        Column("Status", _storage_phase),
        Column("Claim", _claim),
        Column("StorageClass", _storage_class),
        Column(
            "VolumeAttributesClass", field("spec", "volumeAttributesClassName", otherwise=UNSET)
        ),
        Column("Reason", field("status", "reason")),
        AGE,
        Column("VolumeMode", field("spec", "volumeMode", otherwise=UNSET), priority=1),
    ),
    "persistentvolumeclaims": (
        NAME,
        Column("Status", _storage_phase),
        Column("Volume", field("spec", "volumeName")),
        Column("Capacity", _claim_capacity),
        Column("Access Modes", _claim_modes),
        Column("StorageClass", _storage_class),
        Column(
            "VolumeAttributesClass", field("spec", "volumeAttributesClassName", otherwise=UNSET)
        ),
        AGE,
        Column("VolumeMode", field("spec", "volumeMode", otherwise=UNSET), priority=1),
    ),
    "deployments.apps": (
        NAME,
        Column("Ready", _out_of(number("status", "readyReplicas"), number("spec", "replicas"))),
        Column("Up-to-date", number("status", "updatedReplicas")),
        Column("Available", number("status", "availableReplicas")),
        AGE,
        _CONTAINERS,
        _IMAGES,
        Column("Selector", lambda obj, now: as_text(at(obj, "spec", "selector")), priority=1),
    ),
    "statefulsets.apps": (
        NAME,
        Column("Ready", _out_of(number("status", "readyReplicas"), number("spec", "replicas"))),
        AGE,
        _CONTAINERS,
        _IMAGES,
    ),
    "daemonsets.apps": (
        NAME,
        Column("Desired", number("status", "desiredNumberScheduled"), type="integer"),
        Column("Current", number("status", "currentNumberScheduled"), type="integer"),
        Column("Ready", number("status", "numberReady"), type="integer"),
        Column("Up-to-date", number("status", "updatedNumberScheduled"), type="integer"),
        Column("Available", number("status", "numberAvailable"), type="integer"),
        Column("Node Selector", _labels("spec", "template", "spec", "nodeSelector")),
        AGE,
        _CONTAINERS,
        _IMAGES,
        _SELECTOR,
    ),
    "replicasets.apps": (
        NAME,
        Column("Desired", number("spec", "replicas"), type="integer"),
        Column("Current", number("status", "replicas"), type="integer"),
        Column("Ready", number("status", "readyReplicas"), type="integer"),
        AGE,
        _CONTAINERS,
        _IMAGES,
        _SELECTOR,
    ),
    "jobs.batch": (
        NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        AGE,
        _CONTAINERS,
        _IMAGES,
        _SELECTOR,
    ),
    "leases.coordination.k8s.io": (NAME, Column("Holder", field("spec", "holderIdentity")), AGE),
    "poddisruptionbudgets.policy": (
        NAME,
        Column("Min Available", _budget("minAvailable")),
        Column("Max Unavailable", _budget("maxUnavailable")),
        Column("Allowed Disruptions", number("status", "disruptionsAllowed"), type="integer"),
        AGE,
    ),
    "storageclasses.storage.k8s.io": (
        Column("Name", _class_name, format="name"),
        Column("Provisioner", field("provisioner")),
        Column("ReclaimPolicy", field("reclaimPolicy", otherwise="Delete")),
        Column("VolumeBindingMode", field("volumeBindingMode", otherwise="Immediate")),
        Column("AllowVolumeExpansion", field("allowVolumeExpansion", otherwise=False)),
        AGE,
    ),
    "volumeattachments.storage.k8s.io": (
        NAME,
        Column("Attacher", field("spec", "attacher"), format="name"),
        Column("PV", field("spec", "source", "persistentVolumeName")),
        Column("Node", field("spec", "nodeName")),
        Column("Attached", field("status", "attached", otherwise=False), type="boolean"),
        AGE,
    ),
    "csinodes.storage.k8s.io": (
        NAME,
        Column("Drivers", size("spec", "drivers"), type="integer"),
        AGE,
    ),
    "endpointslices.discovery.k8s.io": (
        NAME,
        Column("AddressType", field("addressType")),
        Column("Ports", _slice_ports),
        Column("Endpoints", _slice_endpoints),
        AGE,
    ),
    "priorityclasses.scheduling.k8s.io": (
        NAME,
        Column("Value", number("value"), type="integer"),
        Column("Global-Default", field("globalDefault", otherwise=False), type="boolean"),
        AGE,
        Column("PreemptionPolicy", field("preemptionPolicy")),
    ),
    "networkpolicies.networking.k8s.io": (
        NAME,
        Column("Pod-Selector", _selector("spec", "podSelector")),
        AGE,
    ),
    "rolebindings.rbac.authorization.k8s.io": _BINDING,
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
}
