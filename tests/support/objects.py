"""Kubernetes objects as an API server would hold them, small but whole, for tests to vary."""

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

NAMESPACE = "shop"


def meta(name: str, *, namespace: str = NAMESPACE, uid: str = "", **more: Any) -> Json:
    return {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "resourceVersion": "7",
        **more,
    }


def owned_by(
    kind: str, name: str, *, api: str = "apps/v1", uid: str = "", **more: Any
) -> list[Json]:
    return [
        {
            "apiVersion": api,
            "kind": kind,
            "name": name,
            "uid": uid or f"uid-{name}",
            "controller": True,
            **more,
        }
    ]


def pod(
    name: str,
    *,
    node: str = "n1",
    owners: Sequence[Json] = (),
    labels: Mapping[str, str] | None = None,
    claims: Sequence[str] = (),
    phase: str = "Running",
    metadata: Json | None = None,
    **spec: Any,
) -> Json:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta(
            name, labels=dict(labels or {}), ownerReferences=list(owners), **(metadata or {})
        ),
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": "none"}],
            "volumes": volumes,
            **spec,
        },
        "status": {"phase": phase},
    }


def launcher(vm: str, *, uid: str = "", **more: Any) -> Json:
    """The pod that runs a guest; ``uid`` is the instance's."""
    labels = {"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": vm, **more.pop("labels", {})}
    owner = owned_by("VirtualMachineInstance", vm, api="kubevirt.io/v1", uid=uid or f"uid-vmi-{vm}")
    return pod(f"virt-launcher-{vm}-x7k2p", owners=owner, labels=labels, **more)


def plug(vm: str, *, claim: str, name: str = "hp-volume-abcde") -> Json:
    """The pod that holds a volume which was plugged into a running guest. It is made for the
    guest's node, and has no grace period."""
    owner = owned_by("Pod", f"virt-launcher-{vm}-x7k2p", api="v1")
    here = {"nodeSelectorTerms": [term("kubernetes.io/hostname", "n1")]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": here}
    return pod(
        name,
        owners=owner,
        labels={"kubevirt.io": "hotplug-disk"},
        claims=[claim],
        affinity={"nodeAffinity": required},
        terminationGracePeriodSeconds=0,
    )


def instance(
    name: str,
    *,
    node: str = "n1",
    owners: Sequence[Json] | None = None,
    labels: Mapping[str, str] | None = None,
    volumes: Sequence[Json] = (),
    devices: Json | None = None,
) -> Json:
    """A VirtualMachineInstance, by default that of the virtual machine of the same name."""
    vm = owned_by("VirtualMachine", name, api="kubevirt.io/v1", uid=f"uid-vm-{name}")
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": meta(
            name,
            uid=f"uid-vmi-{name}",
            labels=dict(labels or {}),
            ownerReferences=vm if owners is None else list(owners),
        ),
        "spec": {"domain": {"devices": devices or {}}, "volumes": list(volumes)},
        "status": {"phase": "Running", "nodeName": node},
    }


def machine(name: str, *, strategy: str = "Always", metadata: Json | None = None) -> Json:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": meta(name, uid=f"uid-vm-{name}", **(metadata or {})),
        "spec": {"runStrategy": strategy, "template": {"spec": {"domain": {}}}},
    }


def stateful_set(name: str, *, replicas: int | None = 3, **spec: Any) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": meta(name),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "none"}]},
            },
            **spec,
        },
    }


def claim(
    name: str, *, volume: str = "", modes: Sequence[str] = ("ReadWriteOnce",), mode: str = ""
) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta(name),
        "spec": {
            "accessModes": list(modes),
            "volumeMode": mode or "Filesystem",
            "volumeName": volume or f"pv-{name}",
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def volume(
    name: str,
    *,
    source: Json | None = None,
    modes: Sequence[str] = ("ReadWriteOnce",),
    affinity: Sequence[Json] = (),
) -> Json:
    """``affinity`` are the terms of its node affinity."""
    identity = meta(name)
    del identity["namespace"]
    spec: Json = {
        "accessModes": list(modes),
        "capacity": {"storage": "1Gi"},
        "storageClassName": "fast",
        **(source or {"csi": {"driver": "rbd.csi.ceph.com", "volumeHandle": name}}),
    }
    if affinity:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": list(affinity)}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": identity,
        "spec": spec,
    }


def term(key: str, *values: str, operator: str = "In") -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
