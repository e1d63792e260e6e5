"""Workloads: what runs on a node, what it could write to, and whether it can run elsewhere."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from backstay.model.addresses import AddressClaim
from backstay.model.guest import Guest
from backstay.model.reasons import Why


class WorkloadKind(StrEnum):
    VIRTUAL_MACHINE = "VirtualMachine"
    INSTANCE = "VirtualMachineInstance"
    """A virtual machine instance without a virtual machine behind it."""
    STATEFUL_SET = "StatefulSet"
    OTHER = "Pod"


class PodRef(msgspec.Struct, frozen=True):
    """One pod at one version: enough to delete exactly it and nothing else."""

    namespace: str
    name: str
    uid: str
    version: str
    marked: bool = False
    """It carries a deletion timestamp: no kubelet will start it any more."""
    graceless: bool = False
    """Its own grace period is 0: a deletion that grants no other would remove it at once."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that a workload has mounted. What could not be looked up is empty, never guessed."""

    claim: str
    pv: str = ""
    driver: str = ""
    access_modes: tuple[str, ...] = ()
    block: bool = False
    only_on: str = ""
    """The node to which the volume is bound; empty if it can go anywhere."""
    cluster: str = ""
    """Which of the clusters of its driver it is in, if the driver tells them apart."""
    secret: str = ""
    """The secret (``namespace/name``) with which its driver is told what to do with it."""
    handle: str = ""
    """What its driver calls it."""
    exported: bool = False
    """Its driver serves it over NFS: whoever writes to the disk is not the node that mounts it."""
    plugged: bool = False
    """The guest was started without it. Whether it has been given it since is not known."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What a person would call one thing: a virtual machine, one replica of a StatefulSet.

    ``pods`` are all pods on the node that belong to it, the launcher before its helpers.
    ``label`` is what its labels say about protection: True, False, or None where they are silent.
    ``uid`` is that of the object which its owner would look at, if it is known.
    ``run_strategy`` is a virtual machine's; ``restarts`` says whether somebody creates it anew
    once its pods are gone.
    """

    kind: WorkloadKind
    namespace: str
    name: str
    node: str
    pods: tuple[PodRef, ...]
    uid: str = ""
    volumes: tuple[Volume, ...] = ()
    label: bool | None = None
    labelled_by: str = ""
    """Which label or annotation that is, as a part of a sentence: ``its label ...``."""
    run_strategy: str = ""
    restarts: bool = True
    leaving: bool = False
    """Its owner has deleted it, which cannot end before its pods are gone."""
    pinned_by: str = ""
    ended: bool = False
    priority: int = 0
    remains: tuple[PodRef, ...] = ()
    """Launchers of it here that have ended, beside pods that have not: what a migration left that
    failed, or led away before the guest came back. Nothing starts them again, and KubeVirt takes
    the newest that is left on the node for the guest."""
    also_writes: tuple[str, ...] = ()
    """What it can write to that is no claim: ``hostPath /data``, ``nfs``."""
    runs_on: str = ""
    """The node that a virtual machine runs on, if it is another one: what is here is the other
    end of a migration."""
    set_name: str = ""
    set_uid: str = ""
    """The StatefulSet that it is a replica of."""
    replaced_by: str = ""
    """What makes another pod in its place, of another name: ``ReplicaSet/namespace/name``."""
    unread: str = ""
    """Why it is not known who would start it again; empty if it is known."""
    addresses: tuple[AddressClaim, ...] = ()
    """Those that its pods here hold, where somebody has asked for some by name."""
    notes: tuple[Why, ...] = ()
    """What is wrong with how it asks for addresses."""
    guest: Guest | None = None
    """What is known of a virtual machine beyond that; None if its instance could not be read."""
    labels: Mapping[str, str] = {}
    """Those of the pod, the instance and the machine, the latter's first."""

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def everything(self) -> tuple[PodRef, ...]:
        """All that is to be gone before somebody creates it anew."""
        return (*self.pods, *self.remains)

    @property
    def marked(self) -> bool:
        return all(pod.marked for pod in self.pods)

    @property
    def began_with_volumes(self) -> bool:
        return any(not volume.plugged for volume in self.volumes)

    def __str__(self) -> str:
        return spoken(self.key)


_WORDS = {
    WorkloadKind.VIRTUAL_MACHINE: "VM",
    WorkloadKind.INSTANCE: "VMI",
    WorkloadKind.STATEFUL_SET: "StatefulSet pod",
    WorkloadKind.OTHER: "pod",
}


def spoken(key: str) -> str:
    """A workload's key, as a sentence speaks of it: ``VM shop/till``."""
    kind, _, name = key.partition("/")
    return f"{_WORDS[WorkloadKind(kind)]} {name}"
