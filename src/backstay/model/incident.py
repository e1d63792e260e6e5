"""Incident: how one death of one node is told, from the first suspicion to the last workload.

It is kept in the API (``apis/backstay.py``), so that people, other tools and the next leader can
read it. It is history and intention, never proof: whoever takes over looks at the world again.
"""

from enum import StrEnum

import msgspec

from backstay.model.power import PowerRecord


class Progress(StrEnum):
    """How far a workload has come."""

    LEFT = "Left"
    HELD = "Held"
    DUE = "Due"
    """Nothing holds it, and its turn has not come yet."""
    MARKED = "Marked"
    RELEASED = "Released"
    RECOVERED = "Recovered"
    STAYS_DOWN = "StaysDown"


class Moment(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the timeline; ``at`` is for people."""

    at: str
    code: str
    sentence: str


class PhaseTime(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a guest came into a phase, as KubeVirt told it: by a clock of its own, for people."""

    phase: str
    at: str


class VolumeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A claim and the persistent volume behind it, and where that is."""

    claim: str
    volume: str
    driver: str = ""
    cluster: str = ""
    shared: bool = False
    handle: str = ""
    exported: bool = False


class WorkloadRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """``workload`` is ``Kind/namespace/name``; ``uids`` are those of the pods on the dead node.

    The moments that end in ``after`` are seconds since the node's last sign of life, by the clock
    of the controller that saw both; None where none has.
    """

    workload: str
    progress: Progress
    code: str
    sentence: str
    next: str = ""
    uids: tuple[str, ...] = ()
    replaced_by: str = ""
    """The set that makes another in its place, as ``Kind/namespace/name``."""
    volumes: tuple[VolumeRecord, ...] = ()
    """What is to be freed for it on the dead node, once it is released."""
    ready: bool = False
    released_after: float | None = None
    running_after: float | None = None
    ready_after: float | None = None
    phases: tuple[PhaseTime, ...] = ()


class StageTime(msgspec.Struct, frozen=True):
    """How long one part of the first release took. They follow each other, and the first begins
    with the last sign of life: together they are the time until then."""

    stage: str
    seconds: float


class EvidenceRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: str
    source: str
    detail: str
    at: str


class Step(StrEnum):
    BARRIER = "Barrier"
    DETACH = "Detach"
    FENCE = "Fence"
    POWER_OFF = "PowerOff"
    POWER_ON = "PowerOn"
    REMOVAL = "Removal"
    SUCCESSION = "Succession"


class Intent(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A batch of writes that is about to be made. One without an outcome was cut off by a crash:
    what became of it is settled by looking."""

    step: Step
    epoch: int
    pods: tuple[str, ...]
    """``namespace/name/uid`` of each; of what is no pod, its kind stands in place of the
    namespace."""
    at: str
    outcome: str = ""


class IncidentStatus(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What is written down. ``closed_at`` is empty while it lasts."""

    state: str = ""
    code: str = ""
    sentence: str = ""
    next: str = ""
    mode: str = ""
    epoch: int = 0
    opened_at: str = ""
    closed_at: str = ""
    evidence: tuple[EvidenceRecord, ...] = ()
    stages: tuple[StageTime, ...] = ()
    workloads: tuple[WorkloadRecord, ...] = ()
    timeline: tuple[Moment, ...] = ()
    intent: Intent | None = None
    power: PowerRecord | None = None
    held: int = 0
    recovered: int = 0
