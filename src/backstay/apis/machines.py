"""KubeVirt around its guests: migrations, sets of guests, and which version of it there is.

``SUBRESOURCES`` is what virt-api serves beside the objects: what is PUT there asks KubeVirt to do
something.
"""

import re

import msgspec

from backstay.apis.kubevirt import GROUP
from backstay.apis.pods import OwnedMeta
from backstay.kube.projection import Meta, Projection
from backstay.kube.resource import Resource

SUBRESOURCES = Resource("subresources.kubevirt.io", "v1", "virtualmachines", "VirtualMachine")
MIGRATIONS = Resource(
    GROUP, "v1", "virtualmachineinstancemigrations", "VirtualMachineInstanceMigration"
)
INSTANCE_SETS = Resource(
    GROUP, "v1", "virtualmachineinstancereplicasets", "VirtualMachineInstanceReplicaSet"
)
POOLS = Resource("pool.kubevirt.io", "v1beta1", "virtualmachinepools", "VirtualMachinePool")
KUBEVIRTS = Resource(GROUP, "v1", "kubevirts", "KubeVirt")

_NUMBERS = re.compile(r"v?(\d+)\.(\d+)")


# Migrations


class _MigrationSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    vmi_name: str = ""


class _Course(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    target_node: str | None = None
    failure_reason: str | None = None


class _MigrationStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str | None = None
    migration_state: _Course | None = None


class Migration(msgspec.Struct, frozen=True, gc=False):
    metadata: OwnedMeta
    spec: _MigrationSpec = _MigrationSpec()
    status: _MigrationStatus = _MigrationStatus()


class MigrationRow(msgspec.Struct, frozen=True, gc=False):
    """``guest`` is the name of the VMI that is moved."""

    key: str
    uid: str
    version: str
    labels: dict[str, str]
    guest: str
    phase: str
    target: str
    failure: str


def migration_row(migration: Migration) -> MigrationRow:
    meta, status = migration.metadata, migration.status
    course = status.migration_state or _Course()
    return MigrationRow(
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        labels=meta.labels or {},
        guest=migration.spec.vmi_name,
        phase=status.phase or "",
        target=course.target_node or "",
        failure=course.failure_reason or "",
    )


MIGRATION_PROJECTION: Projection[Migration, MigrationRow] = Projection(Migration, migration_row)


# Sets of guests, and pools of machines


class _SetSpec(msgspec.Struct, frozen=True, gc=False):
    replicas: int | None = None


class _SetStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    replicas: int | None = None
    ready_replicas: int | None = None


class GuestSet(msgspec.Struct, frozen=True, gc=False):
    """What replaces its guests or machines by others."""

    metadata: Meta
    spec: _SetSpec = _SetSpec()
    status: _SetStatus = _SetStatus()

    @property
    def wanted(self) -> int:
        return 1 if self.spec.replicas is None else self.spec.replicas

    @property
    def is_complete(self) -> bool:
        return (self.status.ready_replicas or 0) >= self.wanted


# The installation


class _KubeVirtStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    observed_kube_virt_version: str | None = None
    operator_version: str | None = None


class KubeVirt(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta
    status: _KubeVirtStatus = _KubeVirtStatus()


class KubeVirtRow(msgspec.Struct, frozen=True, gc=False):
    """``release`` is empty where nobody has said which one it is."""

    key: str
    uid: str
    version: str
    release: str


def kubevirt_row(kubevirt: KubeVirt) -> KubeVirtRow:
    meta, status = kubevirt.metadata, kubevirt.status
    release = status.observed_kube_virt_version or status.operator_version or ""
    return KubeVirtRow(meta.key, meta.uid, meta.resource_version, release)


def waits_for_heartbeats(release: str) -> bool:
    """Whether this KubeVirt takes no notice of a launcher that is gone until the heartbeat of the
    node has been silent for five minutes, as all did before 1.2. One that does not say which it is
    is taken for a newer one."""
    found = _NUMBERS.match(release)
    return found is not None and (int(found[1]), int(found[2])) < (1, 2)


KUBEVIRT_PROJECTION: Projection[KubeVirt, KubeVirtRow] = Projection(KubeVirt, kubevirt_row)
