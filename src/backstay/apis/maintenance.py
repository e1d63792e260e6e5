"""NodeMaintenance: the kind of the Node Maintenance Operator, which we serve in its place.

Its spec is exactly that operator's, and its status has all of that operator's fields and some of
our own, so that whatever reads or writes one need not know who serves it.
"""

import msgspec

from backstay.kube.projection import Meta, Projection
from backstay.kube.resource import Resource
from backstay.model.labels import MAINTENANCE_FINALIZER
from backstay.model.maintenance import MaintenanceStatus

NODE_MAINTENANCES = Resource(
    "nodemaintenance.medik8s.io",
    "v1beta1",
    "nodemaintenances",
    "NodeMaintenance",
    namespaced=False,
)


class _Meta(Meta, frozen=True, gc=False, rename="camel"):
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    generation: int = 0
    finalizers: list[str] | None = None


class MaintenanceSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    reason: str = ""


class NodeMaintenance(msgspec.Struct, frozen=True):
    metadata: _Meta
    spec: MaintenanceSpec = MaintenanceSpec()
    status: MaintenanceStatus = MaintenanceStatus()


class MaintenanceRow(msgspec.Struct, frozen=True):
    """There are few, so nothing of it is left out."""

    key: str
    uid: str
    version: str
    node: str
    reason: str
    created: str
    deleting: bool
    generation: int
    finalizers: tuple[str, ...]
    status: MaintenanceStatus

    @property
    def begun(self) -> bool:
        """Whether somebody has taken it on: we, or the Node Maintenance Operator."""
        return MAINTENANCE_FINALIZER in self.finalizers

    @property
    def age(self) -> tuple[str, str]:
        """The older one comes first."""
        return self.created, self.uid


def maintenance_row(maintenance: NodeMaintenance) -> MaintenanceRow:
    meta, spec = maintenance.metadata, maintenance.spec
    return MaintenanceRow(
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        node=spec.node_name,
        reason=spec.reason,
        created=meta.creation_timestamp or "",
        deleting=meta.deletion_timestamp is not None,
        generation=meta.generation,
        finalizers=tuple(meta.finalizers or ()),
        status=maintenance.status,
    )


MAINTENANCE_PROJECTION: Projection[NodeMaintenance, MaintenanceRow] = Projection(
    NodeMaintenance, maintenance_row
)
