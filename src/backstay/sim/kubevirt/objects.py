"""VMs, VMIs and their conditions, read and changed; and ``virtual_machine``, which makes one.

Stored objects are never changed in place: whatever changes one here returns a new one.
"""

from collections.abc import Sequence
from typing import Any

from backstay.sim.api.kinds import Object
from backstay.sim.kubevirt.names import (
    ALWAYS,
    FINAL,
    GROUP,
    HALTED,
    KEPT_FOR_PODS,
    Json,
)

DEFAULT_GRACE = 30


def virtual_machine(
    name: str,
    *,
    namespace: str = "default",
    run_strategy: str = ALWAYS,
    claims: Sequence[str] = (),
    hotplug: Sequence[str] = (),
    grace: int = 10,
    memory: str = "128Mi",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    node_selector: dict[str, str] | None = None,
    eviction_strategy: str | None = None,
    start_strategy: str | None = None,
) -> Json:
    """A VM whose disks are the given claims; those of ``hotplug`` are plugged in while it runs.

    It says all that virt-api would otherwise fill in, so that a real virt-controller can do with
    it without a virt-api.
    """
    spec: Json = {
        "architecture": "amd64",
        "terminationGracePeriodSeconds": grace,
        "domain": {
            "machine": {"type": "q35"},
            "cpu": {"cores": 1, "sockets": 1, "threads": 1},
            "memory": {"guest": memory},
            "resources": {"requests": {"memory": memory}},
            "devices": {
                "disks": [
                    *({"name": claim, "disk": {"bus": "virtio"}} for claim in claims),
                    *({"name": claim, "disk": {"bus": "scsi"}} for claim in hotplug),
                ],
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [
            *({"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims),
            *(
                {"name": claim, "persistentVolumeClaim": {"claimName": claim, "hotpluggable": True}}
                for claim in hotplug
            ),
        ],
    }
    if node_selector:
        spec["nodeSelector"] = dict(node_selector)
    if eviction_strategy:
        spec["evictionStrategy"] = eviction_strategy
    if start_strategy:
        spec["startStrategy"] = start_strategy
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "runStrategy": run_strategy,
            "template": {
                "metadata": {
                    "labels": dict(labels or {}),
                    **({"annotations": dict(annotations)} if annotations else {}),
                    "finalizers": [KEPT_FOR_PODS],
                },
                "spec": spec,
            },
        },
    }


def run_strategy_of(vm: Object) -> str:
    """What the VM asks for; ``running`` is the old way to say it."""
    spec = vm["spec"]
    if "running" in spec:
        return ALWAYS if spec["running"] else HALTED
    return str(spec.get("runStrategy") or HALTED)


def claims_of(spec: Json) -> list[str]:
    """The claims behind the volumes of a VMI; a data volume has a claim of its name."""
    found = []
    for volume in spec.get("volumes") or ():
        claim = claim_of(volume)
        if claim:
            found.append(claim)
    return found


def claim_of(volume: Json) -> str:
    if "persistentVolumeClaim" in volume:
        return str(volume["persistentVolumeClaim"]["claimName"])
    return str((volume.get("dataVolume") or {}).get("name") or "")


def is_hotplugged(volume: Json) -> bool:
    source = volume.get("persistentVolumeClaim") or volume.get("dataVolume") or {}
    return bool(source.get("hotpluggable"))


def migration_of(vmi: Object) -> Json:
    """Its latest migration; empty if there was none."""
    return dict((vmi.get("status") or {}).get("migrationState") or {})


def phase_of(vmi: Object) -> str:
    return str((vmi.get("status") or {}).get("phase") or "")


def is_final(vmi: Object) -> bool:
    return phase_of(vmi) in FINAL


def is_going(obj: Object) -> bool:
    """It has been asked to go, and may be here still."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def finalizers_of(obj: Object) -> list[str]:
    return list(obj["metadata"].get("finalizers") or ())


def controller_of(obj: Object) -> Json | None:
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: Json = owner
            return found
    return None


def is_controlled_by(obj: Object, uid: str) -> bool:
    owner = controller_of(obj)
    return owner is not None and owner["uid"] == uid


def owned_by(kind: str, owner: Object) -> list[Json]:
    """The reference that makes ``owner`` the controller of something."""
    meta = owner["metadata"]
    return [{
        "apiVersion": f"{GROUP}/v1", "kind": kind, "name": meta["name"], "uid": meta["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }]  # fmt: skip


def with_metadata(obj: Object, **fields: Any) -> Object:
    return {**obj, "metadata": {**obj["metadata"], **fields}}


# Conditions


def condition_of(obj: Object | None, kind: str) -> Json | None:
    for each in ((obj or {}).get("status") or {}).get("conditions") or ():
        if each["type"] == kind:
            found: Json = each
            return found
    return None


def has_condition(obj: Object | None, kind: str, status: str, reason: str | None = None) -> bool:
    found = condition_of(obj, kind)
    if found is None or found["status"] != status:
        return False
    return reason is None or (found.get("reason") or "") == reason


def condition(kind: str, status: str, reason: str, message: str, now: str) -> Json:
    made = {"type": kind, "status": status, "lastProbeTime": now, "lastTransitionTime": now}
    return made | {k: v for k, v in (("reason", reason), ("message", message)) if v}


def with_condition(conditions: Sequence[Json], new: Json) -> list[Json]:
    """In its place. One that says the same as before stays as it is, with its old times."""
    for number, old in enumerate(conditions):
        if old["type"] == new["type"]:
            same = (old["status"], old.get("reason")) == (new["status"], new.get("reason"))
            return list(conditions) if same else [
                *conditions[:number], new, *conditions[number + 1 :]
            ]  # fmt: skip
    return [*conditions, new]


def without_condition(conditions: Sequence[Json], kind: str) -> list[Json]:
    return [each for each in conditions if each["type"] != kind]


def with_transition(before: Json, after: Json, now: str) -> Json:
    """A VMI's status with the moment at which it came into its phase for the first time."""
    phase = after.get("phase") or ""
    known = after.get("phaseTransitionTimestamps") or []
    if phase == (before.get("phase") or "") or any(each["phase"] == phase for each in known):
        return after
    entered = {"phase": phase, "phaseTransitionTimestamp": now}
    return {**after, "phaseTransitionTimestamps": [*known, entered]}
