"""What became of what the guard was asked to do."""

from dataclasses import dataclass

from backstay.model.evidence import Evidence, EvidenceKind, Scope
from backstay.model.reasons import Why
from backstay.model.storage import Attachment, Owed
from backstay.model.workload import PodRef, Workload


@dataclass(frozen=True)
class Proof:
    """What was observed after the barrier, for each of the workloads. Only ``Guard`` makes one."""

    grounds: tuple[tuple[Workload, Evidence], ...]

    @property
    def targets(self) -> tuple[Workload, ...]:
        return tuple(workload for workload, _ in self.grounds)

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """All that is used, each once, as the decision ordered it."""
        return tuple(dict.fromkeys(evidence for _, evidence in self.grounds))


@dataclass(frozen=True)
class Outcome:
    """What became of a batch. ``proof`` is None where it did not come to a removal, and ``why``
    says why not; where both are None there was nothing to do."""

    released: tuple[Workload, ...] = ()
    proof: Proof | None = None
    why: Why | None = None
    removed: tuple[PodRef, ...] = ()
    """By our own request: somebody else may have been quicker."""

    @property
    def outvoted(self) -> tuple[PodRef, ...]:
        """What was removed because DRBD has shut the node out of its volumes."""
        grounds = () if self.proof is None else self.proof.grounds
        uids = {
            pod.uid
            for workload, evidence in grounds
            if evidence.kind is EvidenceKind.STORAGE_QUORUM
            for pod in workload.pods
        }
        return tuple(pod for pod in self.removed if pod.uid in uids)

    @property
    def is_death(self) -> bool:
        """Whether what was proven is more than that some guests have stopped."""
        proof = self.proof
        return proof is not None and any(e.kind.scope is not Scope.GUEST for e in proof.evidence)

    def __str__(self) -> str:
        return f"released {len(self.released)}" if self.why is None else self.why.sentence


@dataclass(frozen=True)
class Freed:
    """What became of volumes: those of which nothing is left to do, what is told of it, and the
    outcome of what was announced, in words. ``outvoted`` are the attachments that we have deleted
    because DRBD has shut the node out of those volumes."""

    settled: frozenset[Owed] = frozenset()
    said: tuple[Why, ...] = ()
    outcome: str = ""
    outvoted: tuple[Attachment, ...] = ()


@dataclass(frozen=True)
class Switched:
    """What became of a request to switch a node. Where it was not ``asked`` for, ``why`` may say
    why; ``failed`` is what the device, or the way to it, had against it, and ``on`` that it was
    seen to be on."""

    asked: bool = False
    why: Why | None = None
    failed: str = ""
    on: bool = False
