"""KubeVirt's kinds, as far as we look at them: what a guest is, where it runs, who starts it."""

import msgspec

from backstay.apis.calico import ASKED
from backstay.apis.pods import OwnedMeta, Owner, controller_of
from backstay.kube.projection import Projection
from backstay.kube.resource import Resource

GROUP = "kubevirt.io"

VIRTUAL_MACHINES = Resource(GROUP, "v1", "virtualmachines", "VirtualMachine")
INSTANCES = Resource(GROUP, "v1", "virtualmachineinstances", "VirtualMachineInstance")


class _Name(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Whatever has a name: a device, a data volume, a claim."""

    name: str = ""
    claim_name: str = ""
    device_name: str = ""


class _HostDisk(msgspec.Struct, frozen=True, gc=False):
    path: str = ""


class _Volume(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Of the many kinds, those that outlive the guest."""

    persistent_volume_claim: _Name | None = None
    data_volume: _Name | None = None
    memory_dump: _Name | None = None
    host_disk: _HostDisk | None = None


class _Devices(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    gpus: list[_Name] | None = None
    host_devices: list[_Name] | None = None


class _Domain(msgspec.Struct, frozen=True, gc=False):
    devices: _Devices | None = None


class _InstanceSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    volumes: list[_Volume] | None = None
    domain: _Domain | None = None
    start_strategy: str | None = None


class Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _InstanceStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str | None = None
    node_name: str | None = None
    conditions: list[Condition] | None = None
    active_pods: dict[str, str] | None = None


class Instance(msgspec.Struct, frozen=True, gc=False):
    metadata: OwnedMeta
    spec: _InstanceSpec = _InstanceSpec()
    status: _InstanceStatus = _InstanceStatus()


class InstanceRow(msgspec.Struct, frozen=True):
    """A VirtualMachineInstance. ``devices`` are those of its host; ``host_disks`` are paths.
    ``addresses`` is what it says of those that it is to have, as it says it.

    ``migratable`` is None while nobody has said so, and ``immovable`` is why it is not. ``pods``
    are the nodes of all its launchers, by their uids.
    """

    key: str
    uid: str
    version: str
    labels: dict[str, str]
    owner: Owner | None
    phase: str
    node: str
    claims: tuple[str, ...]
    devices: tuple[str, ...]
    host_disks: tuple[str, ...]
    addresses: str = ""
    deleting: bool = False
    starts_paused: bool = False
    paused: bool = False
    migratable: bool | None = None
    immovable: str = ""
    pods: dict[str, str] = {}


def instance_row(instance: Instance) -> InstanceRow:
    meta, status = instance.metadata, instance.status
    volumes, domain = instance.spec.volumes or (), instance.spec.domain or _Domain()
    devices = domain.devices or _Devices()
    lent = [*(devices.gpus or ()), *(devices.host_devices or ())]
    migratable = _condition(status.conditions, "LiveMigratable")
    return InstanceRow(
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        labels=meta.labels or {},
        owner=controller_of(meta.owner_references),
        phase=status.phase or "",
        node=status.node_name or "",
        claims=tuple(filter(None, map(_claim, volumes))),
        devices=tuple(device.device_name or device.name for device in lent),
        host_disks=tuple(volume.host_disk.path for volume in volumes if volume.host_disk),
        addresses=(meta.annotations or {}).get(ASKED, ""),
        deleting=meta.deletion_timestamp is not None,
        starts_paused=instance.spec.start_strategy == "Paused",
        paused=_is_true(status.conditions, "Paused"),
        migratable=None if migratable is None else migratable.status == "True",
        immovable="" if migratable is None else migratable.message or migratable.reason,
        pods=status.active_pods or {},
    )


def _condition(conditions: list[Condition] | None, kind: str) -> Condition | None:
    return next((each for each in conditions or () if each.type == kind), None)


def _is_true(conditions: list[Condition] | None, kind: str) -> bool:
    found = _condition(conditions, kind)
    return found is not None and found.status == "True"


def _claim(volume: _Volume) -> str:
    """A data volume is filled into a claim of its own name."""
    claimed = volume.persistent_volume_claim or volume.memory_dump
    if claimed:
        return claimed.claim_name
    return volume.data_volume.name if volume.data_volume else ""


class _TemplateMeta(msgspec.Struct, frozen=True, gc=False):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Template(msgspec.Struct, frozen=True, gc=False):
    metadata: _TemplateMeta | None = None


class _VirtualMachineSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    running: bool | None = None
    run_strategy: str | None = None
    template: _Template | None = None


class _Request(msgspec.Struct, frozen=True, gc=False):
    action: str = ""
    uid: str = ""


class _StartFailure(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    consecutive_fail_count: int = 0
    retry_after_timestamp: str | None = None


class _VirtualMachineStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    printable_status: str | None = None
    conditions: list[Condition] | None = None
    state_change_requests: list[_Request] | None = None
    start_failure: _StartFailure | None = None


class VirtualMachine(msgspec.Struct, frozen=True, gc=False):
    metadata: OwnedMeta
    spec: _VirtualMachineSpec = _VirtualMachineSpec()
    status: _VirtualMachineStatus = _VirtualMachineStatus()


class VirtualMachineRow(msgspec.Struct, frozen=True):
    """``addresses`` is what its template says of those that it is to have, and ``own_addresses``
    what it says itself, which KubeVirt passes on to nobody.

    ``asked`` are the requests to stop or start that are still open; ``word`` is what KubeVirt
    tells people of its state. ``failures`` starts in a row have failed, and KubeVirt does not try
    again before ``retry_after``, a time for people. ``owner`` is what made it: a pool.
    """

    key: str
    uid: str
    version: str
    labels: dict[str, str]
    deleting: bool
    run_strategy: str
    addresses: str = ""
    own_addresses: str = ""
    owner: Owner | None = None
    template_labels: dict[str, str] = {}
    asked: tuple[str, ...] = ()
    word: str = ""
    failures: int = 0
    retry_after: str = ""
    needs_recovery: bool = False


def virtual_machine_row(machine: VirtualMachine) -> VirtualMachineRow:
    meta, template = machine.metadata, machine.spec.template or _Template()
    said, status = template.metadata or _TemplateMeta(), machine.status
    passed_on, failure = said.annotations or {}, status.start_failure or _StartFailure()
    return VirtualMachineRow(
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        labels=meta.labels or {},
        deleting=meta.deletion_timestamp is not None,
        run_strategy=_run_strategy(machine.spec),
        addresses=passed_on.get(ASKED, ""),
        own_addresses=(meta.annotations or {}).get(ASKED, ""),
        owner=controller_of(meta.owner_references),
        template_labels=said.labels or {},
        asked=tuple(request.action for request in status.state_change_requests or ()),
        word=status.printable_status or "",
        failures=failure.consecutive_fail_count,
        retry_after=failure.retry_after_timestamp or "",
        needs_recovery=_is_true(status.conditions, "ManualRecoveryRequired"),
    )


def _run_strategy(spec: _VirtualMachineSpec) -> str:
    """``running`` is the old way to say it; a VM that says neither is not started."""
    if spec.running is not None:
        return "Always" if spec.running else "Halted"
    return spec.run_strategy or "Halted"


INSTANCE_PROJECTION: Projection[Instance, InstanceRow] = Projection(Instance, instance_row)
VIRTUAL_MACHINE_PROJECTION: Projection[VirtualMachine, VirtualMachineRow] = Projection(
    VirtualMachine, virtual_machine_row
)
