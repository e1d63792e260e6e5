"""Hotplug: volumes that a guest gets while it runs, and the pods that bring them to its node.

The pod of a running guest cannot be given another volume. So KubeVirt makes a second pod on the
same node that has the volume and does nothing (``hp-volume-…``), and virt-handler passes on what is
mounted there. It belongs to the launcher, not to the VMI, and goes when the launcher is gone.

* One such pod has all plugged volumes of a launcher. When those change there is a new one, and the
  old one is deleted.
* It has no grace period: whoever deletes it, however gently, has it gone from the API at once.
* In a migration each of the two launchers has one.
"""

from collections.abc import Mapping, Sequence

from backstay.sim.api.kinds import Object
from backstay.sim.kubevirt.names import APP, HOTPLUG, Json
from backstay.sim.kubevirt.objects import claim_of, condition_of, is_going, is_hotplugged

PREFIX = "hp-volume-"

ATTACHED = "AttachedToNode"
READY = "Ready"


def plugged(vmi: Object) -> list[Json]:
    """The volumes of a VMI that are plugged in."""
    return [each for each in vmi["spec"].get("volumes") or () if is_hotplugged(each)]


def attachment_pod(vmi: Object, launcher: Object, block: Mapping[str, bool]) -> Json:
    """``block`` says by the names of the claims which of them are devices."""
    meta, spec = launcher["metadata"], launcher["spec"]
    volumes = plugged(vmi)
    devices = [
        {"name": each["name"], "devicePath": f"/path/{each['name']}/disk"}
        for each in volumes
        if block.get(claim_of(each))
    ]
    mounts = [
        {"name": each["name"], "mountPath": f"/{each['name']}"}
        for each in volumes
        if not block.get(claim_of(each))
    ]
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [spec["nodeName"]]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [here]}]}
    return {
        "metadata": {
            "generateName": PREFIX,
            "labels": {APP: HOTPLUG},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"],
                "controller": True, "blockOwnerDeletion": True,
            }],
        },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "tolerations": list(spec.get("tolerations") or ()),
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
            },
            "containers": [{
                "name": HOTPLUG,
                "image": "registry.invalid/kubevirt/virt-launcher:v1.9.0",
                "resources": {"requests": {"cpu": "10m", "memory": "2M"}},
                **({"volumeDevices": devices} if devices else {}),
                **({"volumeMounts": mounts} if mounts else {}),
            }],
            "volumes": [
                {"name": each["name"], "persistentVolumeClaim": {"claimName": claim_of(each)}}
                for each in volumes
            ],
        },
    }  # fmt: skip


def plugged_in(vm: Object, claim: str) -> Json:
    """A merge patch that gives the VM one more disk, as virt-api writes it; its VMI gets the same
    in its spec."""
    spec = vm["spec"]["template"]["spec"]
    disks = spec["domain"]["devices"]["disks"]
    source = {"claimName": claim, "hotpluggable": True}
    wanted: Json = {
        "domain": {"devices": {"disks": [*disks, {"name": claim, "disk": {"bus": "scsi"}}]}},
        "volumes": [*spec["volumes"], {"name": claim, "persistentVolumeClaim": source}],
    }
    return {"spec": {"template": {"spec": wanted}}}


def fitting(vmi: Object, attachments: Sequence[Object]) -> Object | None:
    """The pod that has exactly the volumes that are wanted."""
    wanted = sorted(each["name"] for each in plugged(vmi)) if attachments else ()
    for pod in attachments:
        names = sorted(
            each["name"]
            for each in pod["spec"].get("volumes") or ()
            if "persistentVolumeClaim" in each
        )
        if names == wanted and not is_going(pod):
            return pod
    return None


def is_ready(pod: Object | None) -> bool:
    found = condition_of(pod, "Ready")
    return found is not None and found["status"] == "True"


def with_attachments(statuses: Sequence[Json], vmi: Object, pod: Object | None) -> list[Json]:
    """What a VMI says of its volumes; virt-handler says of each when the guest has it."""
    names = {each["name"] for each in plugged(vmi)}
    found = []
    for status in statuses:
        if status["name"] in names and pod is not None and is_ready(pod):
            meta = pod["metadata"]
            brought = {"attachPodName": meta["name"], "attachPodUID": meta["uid"]}
            if status.get("hotplugVolume") != brought:
                found.append({**status, "hotplugVolume": brought, "phase": ATTACHED})
                continue
        found.append(status)
    return found
