"""Claims, volumes and attachments: where a workload keeps its data, and on which nodes that can be
had."""

from typing import TypeVar

import msgspec

from backstay.apis.csiaddons import CLUSTER_ID
from backstay.apis.placement import Binding, NodeSelector, bound_to
from backstay.kube.projection import Meta, Projection, share
from backstay.kube.resource import Resource

CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
ATTACHMENTS = Resource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False
)

_NOTED = "volume.kubernetes.io/provisioner-deletion-secret"
_NAMES = ("name", "namespace")
_NFS_EXPORT = "linstor.csi.linbit.com/nfs-export"

T = TypeVar("T")

_ON_THE_NODE = frozenset({"local", "hostPath"})

# Fields of a volume's spec that are not its source.
_NOT_A_SOURCE = frozenset({
    "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity",
    "persistentVolumeReclaimPolicy", "storageClassName", "volumeAttributesClassName", "volumeMode",
})  # fmt: skip


class _ClaimSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    volume_name: str | None = None
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None


class _ClaimStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    access_modes: list[str] | None = None


class ClaimWire(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta
    spec: _ClaimSpec = _ClaimSpec()
    status: _ClaimStatus = _ClaimStatus()


class ClaimRow(msgspec.Struct, frozen=True, gc=False):
    """``volume`` is empty while the claim is bound to none."""

    key: str
    uid: str
    version: str
    volume: str
    storage_class: str
    access_modes: tuple[str, ...]
    block: bool


def claim_row(claim: ClaimWire) -> ClaimRow:
    spec = claim.spec
    return ClaimRow(
        key=claim.metadata.key,
        uid=claim.metadata.uid,
        version=claim.metadata.resource_version,
        volume=spec.volume_name or "",
        storage_class=share(spec.storage_class_name or ""),
        access_modes=_shared(spec.access_modes or claim.status.access_modes),
        block=spec.volume_mode == "Block",
    )


class _Csi(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    driver: str = ""
    volume_handle: str = ""
    volume_attributes: dict[str, str] | None = None


class _VolumeAffinity(msgspec.Struct, frozen=True, gc=False):
    required: NodeSelector | None = None


class _VolumeMeta(Meta, frozen=True, gc=False, rename="camel"):
    annotations: dict[str, str] | None = None


class VolumeWire(msgspec.Struct, frozen=True, gc=False):
    """The spec's fields are taken as they come: the one that is no other names the source."""

    metadata: _VolumeMeta
    spec: dict[str, msgspec.Raw] = {}


class VolumeRow(msgspec.Struct, frozen=True, gc=False):
    """``driver`` is that of CSI, or the kind of source (``local``, ``nfs``). ``bindings`` is what
    binds it to one node; ``local`` says that its data are on a disk of the node itself.
    ``cluster`` and ``secret`` are what the driver needs to be told to refuse somebody. ``handle``
    is what the driver calls it; ``exported`` says that LINSTOR serves it over NFS."""

    key: str
    uid: str
    version: str
    driver: str
    local: bool
    access_modes: tuple[str, ...]
    block: bool
    bindings: tuple[Binding, ...]
    cluster: str = ""
    secret: str = ""
    handle: str = ""
    exported: bool = False


def volume_row(volume: VolumeWire) -> VolumeRow:
    spec, meta = volume.spec, volume.metadata
    source = next((field for field in sorted(spec) if field not in _NOT_A_SOURCE), "")
    csi = _field(spec, "csi", _Csi)
    attributes = (csi.volume_attributes if csi else None) or {}
    affinity = _field(spec, "nodeAffinity", _VolumeAffinity)
    return VolumeRow(
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        driver=share(csi.driver if csi else source),
        local=source in _ON_THE_NODE,
        access_modes=_shared(_field(spec, "accessModes", list[str])),
        block=_field(spec, "volumeMode", str) == "Block",
        bindings=bound_to(affinity.required if affinity else None),
        cluster=share(attributes.get(CLUSTER_ID, "")),
        secret=share(_secret(meta.annotations or {})),
        handle=csi.volume_handle if csi else "",
        exported=attributes.get(_NFS_EXPORT, "false").lower() != "false",
    )


class _AttachmentSource(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    persistent_volume_name: str | None = None


class _AttachmentSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""
    source: _AttachmentSource = _AttachmentSource()


class _AttachmentMeta(Meta, frozen=True, gc=False, rename="camel"):
    deletion_timestamp: str | None = None


class AttachmentWire(msgspec.Struct, frozen=True, gc=False):
    metadata: _AttachmentMeta
    spec: _AttachmentSpec = _AttachmentSpec()


class AttachmentRow(msgspec.Struct, frozen=True, gc=False):
    """``volume`` is the persistent volume; empty for one that a pod brought along inline."""

    key: str
    uid: str
    version: str
    node: str
    volume: str
    deleting: bool


def attachment_row(attachment: AttachmentWire) -> AttachmentRow:
    meta, spec = attachment.metadata, attachment.spec
    return AttachmentRow(
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        node=share(spec.node_name),
        volume=spec.source.persistent_volume_name or "",
        deleting=meta.deletion_timestamp is not None,
    )


ATTACHMENT_PROJECTION: Projection[AttachmentWire, AttachmentRow] = Projection(
    AttachmentWire, attachment_row
)
CLAIM_PROJECTION: Projection[ClaimWire, ClaimRow] = Projection(ClaimWire, claim_row)
VOLUME_PROJECTION: Projection[VolumeWire, VolumeRow] = Projection(VolumeWire, volume_row)


def _secret(annotations: dict[str, str]) -> str:
    """As the provisioner notes it, for the day on which the volume is to be deleted."""
    name, namespace = (annotations.get(f"{_NOTED}-{each}") for each in _NAMES)
    return f"{namespace}/{name}" if name and namespace else ""


def _shared(modes: list[str] | None) -> tuple[str, ...]:
    return tuple(map(share, modes or ()))


def _field(spec: dict[str, msgspec.Raw], name: str, kind: type[T]) -> T | None:
    raw = spec.get(name)
    return msgspec.json.decode(raw, type=kind | None) if raw is not None else None
