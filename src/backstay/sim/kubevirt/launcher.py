"""Launcher pods: what KubeVirt makes of a VMI so that Kubernetes runs it.

Of the many fields of a real one these are here: those that tell whose it is, where it may run,
which claims it needs, and how long it may take to end. A guest's memory is asked for without the
overhead of its emulator.
"""

from collections.abc import Callable

from backstay.sim.api.kinds import Object
from backstay.sim.kubevirt.names import (
    APP,
    COMPUTE,
    CREATED_BY,
    DOMAIN,
    LAUNCHER,
    MIGRATION_JOB,
    MIGRATION_NAME,
    SCHEDULABLE,
    VM_NAME,
    VMI_ID,
    VMIS,
    Json,
)
from backstay.sim.kubevirt.objects import DEFAULT_GRACE, claim_of, is_hotplugged, owned_by

_PADDING = 30
"""What a pod is given on top of the guest's own time to shut down."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_COPIED = ("tolerations", "affinity", "priorityClassName", "topologySpreadConstraints")

FindClaim = Callable[[str], Object | None]


class ClaimNotFound(Exception):
    """A VMI cannot be run because a claim that it needs is not there."""


def launcher_pod(vmi: Object, find_claim: FindClaim) -> Json:
    """Raises ``ClaimNotFound``."""
    meta, spec = vmi["metadata"], vmi["spec"]
    name = meta["name"]
    grace = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE)
    volumes, places = _volumes(spec, find_claim)
    container = {
        "name": COMPUTE,
        "image": "registry.invalid/kubevirt/virt-launcher:v1.9.0",
        "resources": {"requests": _requests(spec["domain"])},
        **places,
    }
    return {
        "metadata": {
            "generateName": f"{LAUNCHER}-{name}-",
            "labels": {
                **(meta.get("labels") or {}),
                APP: LAUNCHER,
                CREATED_BY: meta["uid"],
                VM_NAME: name,
                VMI_ID: name,
            },
            "annotations": {
                **_passed_on(meta.get("annotations") or {}),
                DOMAIN: name,
                "kubectl.kubernetes.io/default-container": COMPUTE,
            },
            "ownerReferences": owned_by(VMIS.kind, vmi),
        },
        "spec": {
            "hostname": name,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": grace + _PADDING,
            "enableServiceLinks": False,
            "nodeSelector": _node_selector(spec),
            "containers": [container],
            "volumes": volumes,
            **{field: spec[field] for field in _COPIED if field in spec},
        },
    }


def target_pod(vmi: Object, migration: Object, find_claim: FindClaim) -> Json:
    """The launcher that a migration moves the guest to. It keeps away from all nodes on which the
    VMI has a pod already. Raises ``ClaimNotFound``."""
    pod = launcher_pod(vmi, find_claim)
    meta, job = pod["metadata"], migration["metadata"]
    affinity = dict(pod["spec"].get("affinity") or {})
    apart = dict(affinity.get("podAntiAffinity") or {})
    rules = [*(apart.get(_REQUIRED) or ()), {
        "labelSelector": {"matchLabels": {CREATED_BY: vmi["metadata"]["uid"]}},
        "topologyKey": "kubernetes.io/hostname",
    }]  # fmt: skip
    affinity["podAntiAffinity"] = {**apart, _REQUIRED: rules}
    return {
        "metadata": {
            **meta,
            "labels": {**meta["labels"], MIGRATION_JOB: job["uid"]},
            "annotations": {**meta["annotations"], MIGRATION_NAME: job["name"]},
        },
        "spec": {**pod["spec"], "affinity": affinity},
    }


def _passed_on(annotations: Json) -> Json:
    """All but those in which KubeVirt and kubectl keep account of the VMI itself."""
    own = (f"{APP}/", "kubectl.kubernetes.io/")
    return {key: value for key, value in annotations.items() if not key.startswith(own)}


def _node_selector(spec: Json) -> Json:
    selector = {**(spec.get("nodeSelector") or {}), SCHEDULABLE: "true"}
    if "architecture" in spec:
        selector["kubernetes.io/arch"] = spec["architecture"]
    return selector


def _volumes(spec: Json, find_claim: FindClaim) -> tuple[list[Json], Json]:
    """The pod's volumes, and where its container sees them."""
    volumes: list[Json] = []
    devices: list[Json] = []
    mounts: list[Json] = []
    for volume in spec.get("volumes") or ():
        name, claim_name = volume["name"], claim_of(volume)
        if not claim_name or is_hotplugged(volume):
            continue
        claim = find_claim(claim_name)
        if claim is None:
            raise ClaimNotFound(f"PersistentVolumeClaim {claim_name} does not exist")
        volumes.append({"name": name, "persistentVolumeClaim": {"claimName": claim_name}})
        if claim["spec"].get("volumeMode") == "Block":
            devices.append({"name": name, "devicePath": f"/dev/{name}"})
        else:
            mounts.append(
                {"name": name, "mountPath": f"/var/run/kubevirt-private/vmi-disks/{name}"}
            )
    places = {"volumeDevices": devices, "volumeMounts": mounts}
    return volumes, {field: value for field, value in places.items() if value}


def _requests(domain: Json) -> Json:
    cpu = domain.get("cpu") or {}
    processors = cpu.get("cores", 1) * cpu.get("sockets", 1) * cpu.get("threads", 1)
    asked = dict((domain.get("resources") or {}).get("requests") or {})
    asked.setdefault("cpu", f"{100 * processors}m")
    guest = (domain.get("memory") or {}).get("guest")
    if guest:
        asked.setdefault("memory", guest)
    return asked
