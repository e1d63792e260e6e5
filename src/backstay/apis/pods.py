"""The pods of one node, in the detail that a failover needs.

A cache of all pods keeps ``core.PodRow``. What is here is read for one node at a time, live, and
knows more: every volume that is not a claim but can be written to, and what binds the pod to its
node.
"""

import msgspec

from backstay.apis.calico import PREFIX
from backstay.apis.core import PodStatus
from backstay.apis.placement import HOSTNAME, Binding, NodeSelector, bound_to
from backstay.kube.projection import Meta, Projection, share
from backstay.model.labels import IGNORE_FAIL_OVER

_MIRROR = "kubernetes.io/config.mirror"

# Volumes that live and die with the pod, or that nobody can write to. Any other kind, known to us
# or not, is taken for one that can be written to.
_HARMLESS = frozenset({
    "configMap", "downwardAPI", "emptyDir", "image", "projected", "secret", "serviceAccountToken",
})  # fmt: skip


class Owner(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``group`` tells KubeVirt's kinds from others of the same name."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]


class OwnedMeta(Meta, frozen=True, gc=False, rename="camel"):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    deletion_timestamp: str | None = None


class _Claim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    claim_name: str = ""


class _HostPath(msgspec.Struct, frozen=True, gc=False):
    path: str = ""


class _Mount(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    read_only: bool | None = None


class _Container(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    volume_mounts: list[_Mount] | None = None


class _NodeAffinity(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class _Affinity(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    volumes: list[dict[str, msgspec.Raw]] | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    priority: int | None = None
    termination_grace_period_seconds: int | None = None


class PodWire(msgspec.Struct, frozen=True, gc=False):
    metadata: OwnedMeta
    spec: _Spec = _Spec()
    status: PodStatus = PodStatus()


class HeldPod(msgspec.Struct, frozen=True):
    """One pod of a node, at one version.

    ``claims`` are the names of its volume claims; ``others`` its other volumes that can be written
    to (``hostPath /data``, ``nfs``); ``bindings`` what binds it to its node; ``mirror`` marks a
    static pod's image in the API, which only the kubelet's own files can take away. ``network``
    are the annotations by which Calico gives it addresses. ``spared`` says that somebody has
    asked for it to be left alone, by an annotation that is not ours.
    """

    key: str
    uid: str
    version: str
    namespace: str
    name: str
    node: str
    phase: str
    deleting: bool
    priority: int
    labels: dict[str, str]
    owner: Owner | None
    mirror: bool
    claims: tuple[str, ...]
    others: tuple[str, ...]
    bindings: tuple[Binding, ...]
    graceless: bool = False
    network: dict[str, str] = {}
    spared: bool = False


def held_pod(pod: PodWire) -> HeldPod:
    meta, spec = pod.metadata, pod.spec
    claims, others = _volumes(meta.name, spec)
    return HeldPod(
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        namespace=share(meta.namespace or ""),
        name=meta.name,
        node=share(spec.node_name or ""),
        phase=share(pod.status.phase or ""),
        deleting=meta.deletion_timestamp is not None,
        priority=spec.priority or 0,
        labels=meta.labels or {},
        owner=controller_of(meta.owner_references),
        mirror=_MIRROR in (meta.annotations or {}),
        claims=claims,
        others=others,
        bindings=_bindings(spec),
        graceless=spec.termination_grace_period_seconds == 0,
        network={k: v for k, v in (meta.annotations or {}).items() if k.startswith(PREFIX)},
        spared=IGNORE_FAIL_OVER in (meta.annotations or {}),
    )


HELD_POD_PROJECTION: Projection[PodWire, HeldPod] = Projection(PodWire, held_pod)


def controller_of(owners: list[Owner] | None) -> Owner | None:
    return next((owner for owner in owners or () if owner.controller), None)


def _volumes(pod: str, spec: _Spec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The claims, and what else can be written to."""
    claims: list[str] = []
    others: list[str] = []
    writable = _written(spec)
    for volume in spec.volumes or ():
        name = msgspec.json.decode(volume["name"], type=str)
        for kind, source in volume.items():
            if kind == "name" or bytes(source) == b"null":
                continue
            if kind == "persistentVolumeClaim":
                claims.append(msgspec.json.decode(source, type=_Claim).claim_name)
            elif kind == "ephemeral":
                claims.append(f"{pod}-{name}")
            elif kind not in _HARMLESS and name in writable:
                others.append(_described(kind, source))
    return tuple(claims), tuple(others)


def _written(spec: _Spec) -> set[str]:
    """The volumes that some container has mounted for writing."""
    containers = [*(spec.containers or ()), *(spec.init_containers or ())]
    return {
        mount.name
        for container in containers
        for mount in container.volume_mounts or ()
        if not mount.read_only
    }


def _described(kind: str, source: msgspec.Raw) -> str:
    if kind == "hostPath":
        return f"hostPath {msgspec.json.decode(source, type=_HostPath).path}"
    return kind


def _bindings(spec: _Spec) -> tuple[Binding, ...]:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    chosen = (spec.node_selector or {}).get(HOSTNAME)
    selected = (Binding(HOSTNAME, chosen),) if chosen else ()
    return selected + bound_to(required)
