"""Pods, and its own node, as a kubelet reads them: the fields that decide what it does."""

from typing import Any

import msgspec

from backstay.kube.projection import Meta, Projection

Json = dict[str, Any]


class PodMeta(Meta, frozen=True, rename="camel"):
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    image: str = ""
    restart_policy: str | None = None


class ClaimSource(msgspec.Struct, frozen=True, rename="camel"):
    claim_name: str
    read_only: bool = False


class Volume(msgspec.Struct, frozen=True, rename="camel"):
    """Only those that a PersistentVolume stands behind matter; the others are always there."""

    name: str
    persistent_volume_claim: ClaimSource | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    host_network: bool = False
    volumes: tuple[Volume, ...] = ()


class Pod(msgspec.Struct, frozen=True):
    """``status`` stays as it came: it is compared with what the kubelet would write."""

    metadata: PodMeta
    spec: PodSpec
    status: Json = {}

    @property
    def key(self) -> str:
        return self.metadata.key

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def version(self) -> str:
        return self.metadata.resource_version

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or ""

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def claims(self) -> tuple[ClaimSource, ...]:
        sources = (volume.persistent_volume_claim for volume in self.spec.volumes)
        return tuple(source for source in sources if source is not None)

    @property
    def phase(self) -> str:
        return str(self.status.get("phase", "Pending"))

    @property
    def over(self) -> bool:
        """It is in a phase that no pod ever leaves."""
        return self.phase in ("Succeeded", "Failed")


class OwnNode(msgspec.Struct, frozen=True):
    """``status`` stays as it came, as a pod's."""

    metadata: Meta
    status: Json = {}

    @property
    def key(self) -> str:
        return self.metadata.key

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def version(self) -> str:
        return self.metadata.resource_version


NODE_PROJECTION: Projection[OwnNode, OwnNode] = Projection(OwnNode, lambda node: node)
POD_PROJECTION: Projection[Pod, Pod] = Projection(Pod, lambda pod: pod)
