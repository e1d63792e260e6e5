"""Maintenance: what is told of one, and what of a node's marks is ours.

The status has every field of the Node Maintenance Operator, with its names and its meaning, and
some of our own beside them.
"""

import re
from enum import StrEnum

import msgspec


class Phase(StrEnum):
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class PodName(msgspec.Struct, frozen=True):
    namespace: str
    name: str


class BlockerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """``pod`` is ``namespace/name``, and empty for what concerns the whole node."""

    pod: str = ""
    uid: str = ""
    code: str = ""
    sentence: str = ""
    next: str = ""
    since: str = ""


class MaintenanceStatus(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={
        "drain_progress": "drainProgress",
        "last_update": "lastUpdate",
        "last_error": "lastError",
        "pending_pods": "pendingPods",
        "pending_refs": "pendingPodsRefs",
        "total_pods": "totalpods",
        "eviction_pods": "evictionPods",
        "lease_errors": "errorOnLeaseCount",
        "observed_generation": "observedGeneration",
    },
):
    """``evacuated`` are the guests that were asked to leave on its account."""

    phase: str = ""
    drain_progress: int = 0
    last_update: str = ""
    last_error: str = ""
    pending_pods: tuple[str, ...] = ()
    pending_refs: tuple[PodName, ...] = ()
    total_pods: int = 0
    eviction_pods: int = 0
    lease_errors: int = 0
    code: str = ""
    sentence: str = ""
    next: str = ""
    blockers: tuple[BlockerRecord, ...] = ()
    evacuated: tuple[str, ...] = ()
    observed_generation: int = 0


class Marks(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a node's cordon, taint and label was put there for a maintenance by us. It stands on
    the node itself, and was written together with them."""

    maintenance: str
    """The uid of the NodeMaintenance."""
    name: str
    cordon: bool = False
    taint: bool = False
    label: bool = False


_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def marks_of(text: str) -> Marks | None:
    """None for what is not there, or cannot be ours: a kubelet, too, may write to its node."""
    if not text:
        return None
    try:
        marks = msgspec.json.decode(text, type=Marks)
    except msgspec.MsgspecError:
        return None
    return marks if _NAME.fullmatch(marks.name) else None


def is_key(text: str) -> bool:
    """Whether it can be ``namespace/name`` of anything."""
    namespace, _, name = text.partition("/")
    return bool(_NAME.fullmatch(namespace) and _NAME.fullmatch(name))
