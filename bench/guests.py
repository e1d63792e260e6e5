"""The guests of a fleet: VMs as KubeVirt leaves them once they run, and what they are made of.

They are put there as they are. Nobody runs them: what is measured is whoever looks at them.
"""

from collections.abc import Iterator
from typing import Any

NAMESPACE = "guests"
_KUBEVIRT = f"/apis/kubevirt.io/v1/namespaces/{NAMESPACE}"
_CORE = f"/api/v1/namespaces/{NAMESPACE}"

Json = dict[str, Any]


def guest(number: int, node: str) -> Iterator[tuple[str, Json]]:
    """Where to create each of its objects; a uid that was given must be filled into the next."""
    name = f"vm-{number:05}"
    labels = {"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": name}
    disks = [{"name": "root", "persistentVolumeClaim": {"claimName": name}}]
    template = {"metadata": {"labels": labels}, "spec": {"volumes": disks, "domain": {}}}
    yield "/api/v1/persistentvolumes", {"metadata": {"name": f"pv-{name}"}, "spec": _volume(name)}
    yield f"{_CORE}/persistentvolumeclaims", {"metadata": {"name": name}, "spec": _claim(name)}
    yield (
        f"{_KUBEVIRT}/virtualmachines",
        {"metadata": {"name": name}, "spec": {"runStrategy": "Always", "template": template}},
    )
    yield (
        f"{_KUBEVIRT}/virtualmachineinstances",
        {
            "metadata": {"name": name, "labels": labels, **_owned("kubevirt.io/v1", name)},
            "spec": template["spec"],
            "status": {"phase": "Running", "nodeName": node},
        },
    )
    yield f"{_CORE}/pods", _launcher(name, node, labels)


def _launcher(name: str, node: str, labels: dict[str, str]) -> Json:
    owner = _owned("kubevirt.io/v1", name, kind="VirtualMachineInstance")
    claim = {"name": "root", "persistentVolumeClaim": {"claimName": name}}
    mount = {"name": "root", "mountPath": "/disk"}
    container = {"name": "compute", "image": "launcher", "volumeMounts": [mount]}
    return {
        "metadata": {"name": f"virt-launcher-{name}-x", "labels": labels, **owner},
        "spec": {"nodeName": node, "containers": [container], "volumes": [claim]},
    }


def _owned(version: str, name: str, *, kind: str = "VirtualMachine") -> Json:
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": "", "controller": True}
    return {"ownerReferences": [owner]}


def _volume(name: str) -> Json:
    return {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteMany"],
        "csi": {"driver": "csi.example", "volumeHandle": name},
        "claimRef": {"namespace": NAMESPACE, "name": name},
    }


def _claim(name: str) -> Json:
    return {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "10Gi"}},
        "volumeName": f"pv-{name}",
    }
