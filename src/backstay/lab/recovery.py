"""Recovery: how long each step took from a node's death to the last workload that runs again.

Nothing here is the controller's own account. The moments are those at which the API committed
what was done, and at which the ground truth saw a workload start.
"""

import asyncio
from collections.abc import Callable

import msgspec

from backstay.apis.backstay import CONFIRMATIONS, INCIDENTS
from backstay.kube.resource import PODS
from backstay.lab.cluster import LabCluster
from backstay.lab.witness import Asked, Committed, Happening, workload_of
from backstay.sim.nodes.truth import Entry, What

DETECT, HELD, BARRIER, PROOF, REMOVAL, FIRST_UP, LAST_UP = STAGES = (
    "detect", "held", "barrier", "proof", "removal", "first up", "last up",
)  # fmt: skip


class StageTime(msgspec.Struct, frozen=True):
    """``seconds`` is what it took by itself, ``total`` what had passed since the death."""

    stage: str
    seconds: float
    total: float


class Recovery:
    """Of what runs on ``node``; made right before it dies."""

    def __init__(self, cluster: LabCluster, node: str) -> None:
        self.node = node
        self.hit = frozenset(cluster.running(node))
        self.back: dict[str, str] = {}
        self._cluster = cluster
        self._began = asyncio.get_running_loop().time()
        self._at: dict[str, float] = {}
        self.stop: Callable[[], None] = cluster.witness.watch(self._hear)

    @property
    def over(self) -> bool:
        return self.hit <= self.back.keys()

    @property
    def stages(self) -> tuple[StageTime, ...]:
        """Those that have been reached, in their order."""
        found, before = [], self._began
        for stage in STAGES:
            if stage not in self._at or (stage == LAST_UP and not self.over):
                continue
            at = max(self._at[stage], before)
            found.append(StageTime(stage, round(at - before, 3), round(at - self._began, 3)))
            before = at
        return tuple(found)

    def _hear(self, happening: Happening) -> None:
        if isinstance(happening, Entry):
            self._hear_truth(happening)
        elif isinstance(happening, Committed):
            self._hear_commit(happening)

    def _hear_truth(self, entry: Entry) -> None:
        workload = workload_of(entry)
        if entry.what is What.STARTED and workload in self.hit and entry.node != self.node:
            self.back[workload] = entry.node
            self._at.setdefault(FIRST_UP, entry.at)
            self._at[LAST_UP] = entry.at

    def _hear_commit(self, happening: Committed) -> None:
        commit, at = happening.commit, happening.at
        new = commit.before is None
        if commit.storage == INCIDENTS.label and new:
            self._at.setdefault(DETECT, at)
        elif commit.storage == CONFIRMATIONS.label and new:
            self._at.setdefault(HELD, at)
        elif commit.storage == PODS.label and happening.by is not None and not new:
            self._hear_deed(happening.by, removed=commit.deleted, at=at)

    def _hear_deed(self, by: Asked, *, removed: bool, at: float) -> None:
        if not removed:
            self._at[BARRIER] = at
            return
        look = self._cluster.witness.lease_look(by, self.node)
        if look is not None:
            self._at.setdefault(PROOF, look.at)
        self._at[REMOVAL] = at
