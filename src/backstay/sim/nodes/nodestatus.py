"""The objects by which a node is known to the API: its Node and its Lease."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from backstay.sim.nodes.podstatus import stamp
from backstay.sim.nodes.wire import Json

LEASE_NAMESPACE = "kube-node-lease"

CAPACITY = {"cpu": "8", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"}

_CONDITIONS = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID"),
    "Ready": ("True", "KubeletReady"),
}


# Without it the attach-detach controller leaves a node alone.
_ATTACHED_BY_CONTROLLER = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}


@dataclass(frozen=True)
class NodeIdentity:
    """What stays the same over reboots. A kubelet without a ``port`` listens nowhere."""

    name: str
    ip: str
    pod_subnet: str
    labels: Mapping[str, str] = field(default_factory=dict)
    port: int = 0

    @classmethod
    def numbered(cls, name: str, number: int, labels: Mapping[str, str]) -> "NodeIdentity":
        """Addresses that no other number has; there is room for some 16,000."""
        high, low = divmod(number, 250)
        return cls(name, f"10.64.{high}.{low}", f"10.{128 + high}.{low}", labels)

    @property
    def system_uuid(self) -> str:
        return system_uuid(self.name)


def system_uuid(name: str) -> str:
    """What the firmware of this node's machine calls it."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def node_object(identity: NodeIdentity, *, boot: str, now: datetime) -> Json:
    labels = {
        "kubernetes.io/hostname": identity.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": identity.name,
            "labels": {**labels, **identity.labels},
            "annotations": _ATTACHED_BY_CONTROLLER,
        },
        "status": node_status(identity, {}, boot=boot, now=now),
    }


def node_status(
    identity: NodeIdentity,
    current: Json,
    *,
    boot: str,
    now: datetime,
    in_use: Sequence[str] = (),
) -> Json:
    """What the kubelet says of its node; ``current`` is the status that the API has."""
    status: Json = {
        "capacity": CAPACITY,
        "allocatable": CAPACITY,
        "addresses": [
            {"type": "InternalIP", "address": identity.ip},
            {"type": "Hostname", "address": identity.name},
        ],
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": boot,
            "containerRuntimeVersion": "hollow://1.0",
            "kernelVersion": "6.1.0",
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.36.3",
            "machineID": identity.name,
            "operatingSystem": "linux",
            "osImage": "Hollow",
            "systemUUID": identity.system_uuid,
        },
        "conditions": _conditions(current, now=now),
    }
    if identity.port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": identity.port}}
    if in_use or current.get("volumesInUse"):
        status["volumesInUse"] = list(in_use) or None
    return status


def node_differs(current: Json, *, boot: str, in_use: Sequence[str]) -> bool:
    """Whether there is more to say than that the node still lives; its Lease says that."""
    said = {each["type"]: each["status"] for each in current.get("conditions") or ()}
    return (
        any(said.get(kind) != status for kind, (status, _) in _CONDITIONS.items())
        or boot != current.get("nodeInfo", {}).get("bootID")
        or list(in_use) != (current.get("volumesInUse") or [])
    )


def _conditions(current: Json, *, now: datetime) -> list[Json]:
    had = {each["type"]: each for each in current.get("conditions") or ()}
    moment = stamp(now)
    conditions = []
    for kind, (status, reason) in _CONDITIONS.items():
        before = had.get(kind, {})
        since = before.get("lastTransitionTime") if before.get("status") == status else None
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": "",
                "lastHeartbeatTime": moment,
                "lastTransitionTime": since or moment,
            }
        )
    return conditions


def lease_spec(name: str, *, duration: int, now: datetime) -> Json:
    return {
        "holderIdentity": name,
        "leaseDurationSeconds": duration,
        "renewTime": now.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z",
    }


def lease_object(identity: NodeIdentity, node_uid: str | None, spec: Json) -> Json:
    metadata: Json = {"name": identity.name, "namespace": LEASE_NAMESPACE}
    if node_uid is not None:
        # It goes when the node goes.
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Node", "name": identity.name, "uid": node_uid}
        ]
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": spec,
    }
