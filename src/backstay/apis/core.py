"""Pods and nodes: the core group, as far as we look at it."""

import ipaddress
from functools import lru_cache
from itertools import chain

import msgspec

from backstay.apis.managers import managers_of
from backstay.kube.projection import NOTHING, Meta, Projection, share, shared_part
from backstay.model.labels import (
    CONTROL_PLANE,
    EXEMPT,
    HEARTBEAT,
    MAINTENANCE,
    MANAGER,
    OUT_OF_SERVICE,
    OUT_OF_SERVICE_OURS,
)

NO_STRINGS: tuple[str, ...] = ()


class OwnerReference(msgspec.Struct, frozen=True, gc=False):
    """Who made an object. Only the controlling owner matters to us."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Claim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    claim_name: str = ""


class Ephemeral(msgspec.Struct, frozen=True, gc=False):
    """A volume whose claim is made with the pod and named after both."""


class Volume(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A pod's volume, if it is a claim. Other kinds decode to neither and are not kept."""

    name: str = ""
    persistent_volume_claim: Claim | None = None
    ephemeral: Ephemeral | None = None


class Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class PodMeta(Meta, frozen=True, gc=False, rename="camel"):
    labels: msgspec.Raw = NOTHING
    owner_references: msgspec.Raw = NOTHING
    deletion_timestamp: str | None = None


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str | None = None
    volumes: list[Volume] | None = None
    priority: int | None = None


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str | None = None
    conditions: list[Condition] | None = None


class Pod(msgspec.Struct, frozen=True, gc=False):
    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodRow(msgspec.Struct, frozen=True, gc=False):
    """A pod as a cache keeps it.

    ``labels`` alternates keys and values, sorted by key. ``claims`` are the names of its volume
    claims; that there are some does not mean that there is nothing else it could write to.
    """

    key: str
    uid: str
    version: str
    namespace: str
    node: str
    phase: str
    ready: bool
    deleting: bool
    priority: int
    owner_kind: str
    owner_name: str
    owner_uid: str
    claims: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]


def pod_row(pod: Pod) -> PodRow:
    meta, spec, status = pod.metadata, pod.spec, pod.status
    owner_kind, owner_name, owner_uid = _controller(meta.owner_references)
    return PodRow(
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        namespace=share(meta.namespace or ""),
        node=share(spec.node_name or ""),
        phase=share(status.phase or ""),
        ready=_is_true("Ready", status.conditions),
        deleting=meta.deletion_timestamp is not None,
        priority=spec.priority or 0,
        owner_kind=owner_kind,
        owner_name=owner_name,
        owner_uid=owner_uid,
        claims=_claims(meta.name, spec.volumes),
        labels=_labels(meta.labels),
    )


class Taint(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    effect: str = ""


class NodeSpec(msgspec.Struct, frozen=True, gc=False):
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeInfo(msgspec.Struct, frozen=True, gc=False):
    boot_id: str = msgspec.field(default="", name="bootID")
    kubelet_version: str = msgspec.field(default="", name="kubeletVersion")
    runtime: str = msgspec.field(default="", name="containerRuntimeVersion")
    system_uuid: str = msgspec.field(default="", name="systemUUID")


class NodeAddress(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    address: str = ""


class DaemonEndpoint(msgspec.Struct, frozen=True, gc=False):
    port: int = msgspec.field(default=0, name="Port")


class DaemonEndpoints(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    kubelet_endpoint: DaemonEndpoint | None = None


class NodeCondition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    last_heartbeat_time: str | None = None


class NodeStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    conditions: list[NodeCondition] | None = None
    node_info: NodeInfo | None = None
    addresses: list[NodeAddress] | None = None
    daemon_endpoints: DaemonEndpoints | None = None


class NodeMeta(Meta, frozen=True, gc=False, rename="camel"):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    managed_fields: msgspec.Raw = msgspec.Raw()


class Node(msgspec.Struct, frozen=True, gc=False):
    metadata: NodeMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NodeRow(msgspec.Struct, frozen=True, gc=False):
    """A node as a cache keeps it.

    ``ready`` is the condition's status: True, False or Unknown; ``posted`` is what the kubelet last
    wrote there about the time, which nobody else changes. ``taints`` are ``key:effect``.
    ``heartbeat`` is what KubeVirt's virt-handler last wrote, if there is one. ``ports`` are where
    its kubelet listens, as ``address:port``, in each family that the node has an address of.
    """

    key: str
    uid: str
    version: str
    boot_id: str
    ready: str
    unschedulable: bool
    taints: tuple[str, ...]
    kubelet_version: str
    heartbeat: str
    exempt: bool
    out_of_service: str = ""
    """Who has put the taint of that name on it, if it is there: our own name, or ``somebody``."""
    ports: tuple[str, ...] = NO_STRINGS
    posted: str = ""
    runtime: str = ""
    """What runs its containers: ``containerd://2.1.4``."""
    maintenance: str = ""
    """What our annotation of that name says, if it is there."""
    system_uuid: str = ""
    control_plane: bool = False


def node_row(node: Node) -> NodeRow:
    meta, info = node.metadata, node.status.node_info or NodeInfo()
    conditions = node.status.conditions or ()
    ready = next((each for each in conditions if each.type == "Ready"), NodeCondition())
    return NodeRow(
        key=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        boot_id=info.boot_id,
        ready=share(ready.status or "Unknown"),
        posted=ready.last_heartbeat_time or "",
        unschedulable=bool(node.spec.unschedulable),
        taints=tuple(share(f"{t.key}:{t.effect}") for t in node.spec.taints or ()),
        kubelet_version=share(info.kubelet_version),
        runtime=share(info.runtime),
        system_uuid=info.system_uuid,
        control_plane=any(each in (meta.labels or {}) for each in CONTROL_PLANE),
        heartbeat=(meta.annotations or {}).get(HEARTBEAT, ""),
        exempt=(meta.labels or {}).get(EXEMPT) == "true",
        out_of_service=_out_of_service(node),
        ports=_ports(node.status),
        maintenance=(meta.annotations or {}).get(MAINTENANCE, ""),
    )


POD_PROJECTION: Projection[Pod, PodRow] = Projection(Pod, pod_row)
NODE_PROJECTION: Projection[Node, NodeRow] = Projection(Node, node_row)


def taints_by(node: Node) -> tuple[str, ...]:
    """The programs that have written the taints. They are one field: whoever wrote it last owns
    them all. What a watch tells does not say it."""
    return managers_of(node.metadata.managed_fields, ("spec", "taints"))


def _out_of_service(node: Node) -> str:
    if all(taint.key != OUT_OF_SERVICE for taint in node.spec.taints or ()):
        return ""
    return MANAGER if OUT_OF_SERVICE_OURS in (node.metadata.annotations or {}) else "somebody"


def _ports(status: NodeStatus) -> tuple[str, ...]:
    """Addresses that are none, such as names, are left out: nobody is asked to resolve them."""
    endpoint = (status.daemon_endpoints or DaemonEndpoints()).kubelet_endpoint
    if endpoint is None or not 0 < endpoint.port < 65536:
        return NO_STRINGS
    found = (each.address for each in status.addresses or () if each.type == "InternalIP")
    return tuple(f"{host}:{endpoint.port}" for each in found if (host := _host(each)))


# The longest text of an address without a zone.
_LONGEST_ADDRESS = 45


def _host(address: str) -> str:
    """As a URL has it; empty for what is no address."""
    # What a node says is kept only where it cannot fill our memory.
    return _known_host(address) if len(address) <= _LONGEST_ADDRESS else _parsed_host(address)


def _parsed_host(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ""
    return f"[{parsed}]" if parsed.version == 6 else str(parsed)


# A node says the same in every status.
_known_host = lru_cache(maxsize=4096)(_parsed_host)


def _is_true(kind: str, conditions: list[Condition] | None) -> bool:
    for condition in conditions or ():
        if condition.type == kind:
            return condition.status == "True"
    return False


def _claims(pod: str, volumes: list[Volume] | None) -> tuple[str, ...]:
    found = [
        volume.persistent_volume_claim.claim_name
        if volume.persistent_volume_claim
        else f"{pod}-{volume.name}"
        for volume in volumes or ()
        if volume.persistent_volume_claim or volume.ephemeral
    ]
    return tuple(found) if found else NO_STRINGS


def _flat(labels: dict[str, str] | None) -> tuple[str, ...]:
    return tuple(map(share, chain.from_iterable(sorted((labels or {}).items()))))


def _identity(owners: list[OwnerReference] | None) -> tuple[str, str, str]:
    """Kind, name and uid of the owner that controls, or three times nothing."""
    for owner in owners or ():
        if owner.controller:
            return share(owner.kind), share(owner.name), share(owner.uid)
    return "", "", ""


_labels = shared_part(dict[str, str] | None, _flat)
_controller = shared_part(list[OwnerReference] | None, _identity)
