"""PodGc: every 20 seconds, force-deletes pods that no kubelet will ever delete.

* on a node that is not ready and *out of service*: those that are marked for deletion. The taint
  is somebody's word that the node is off; nothing here checks it;
* on a node that has been gone for a while: all;
* on no node at all: those that are marked for deletion.

A pod that is not over is first given the phase Failed.
"""

import asyncio
import contextlib

from backstay.sim.api.controller import Controller
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations
from backstay.sim.api.status import Refusal
from backstay.sim.api.store import Commit
from backstay.sim.cluster import taints
from backstay.sim.cluster.desk import (
    NODES,
    PODS,
    Desk,
    Json,
    is_deleting,
    is_over,
    is_ready,
    key_of,
    taints_of,
    with_condition,
)
from backstay.sim.cluster.timers import Timers

_ORPHANED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByPodGC",
    "message": "PodGC: node no longer exists",
}


class PodGc(Controller[None]):
    """All its work is one round."""

    hears = frozenset[str]()

    def __init__(self, operations: Operations, *, timers: Timers) -> None:
        super().__init__(operations.store)
        self._desk = Desk(operations)
        self._timers = timers
        self._missed_since: dict[str, float] = {}

    def begin(self) -> None:
        self._missed_since.clear()
        self.add(None)

    def hear(self, commit: Commit) -> None:
        """Nothing makes it look sooner."""

    def work(self, key: None) -> None:
        self.add_after(None, self._timers.pod_gc)
        nodes = {node["metadata"]["name"]: node for node in self._desk.all(NODES)}
        self._missed_since = {
            name: since for name, since in self._missed_since.items() if name not in nodes
        }
        serving = {name for name, node in nodes.items() if not _is_abandoned(node)}
        doomed = [
            (pod, condition)
            for pod in self._desk.all(PODS)
            if pod["spec"].get("nodeName") not in serving
            for condition in self._verdict(pod, nodes)
        ]
        # All are marked before the first is deleted; one that is gone meanwhile is no loss.
        for pod, condition in doomed:
            with contextlib.suppress(Refusal):
                self._fail(pod, condition)
        for pod, _ in doomed:
            with contextlib.suppress(Refusal):
                self._desk.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"], grace=0)

    def _verdict(self, pod: Object, nodes: dict[str, Object]) -> list[Json | None]:
        """Of a pod whose node does not serve: empty if it stays; else the condition that tells why
        it goes, if any does."""
        name = pod["spec"].get("nodeName")
        if not name:
            return [None] if is_deleting(pod) else []
        if name not in nodes:
            return [_ORPHANED] if self._is_orphaned(name) else []
        return [None] if is_deleting(pod) else []

    def _is_orphaned(self, node: str) -> bool:
        now = asyncio.get_running_loop().time()
        since = self._missed_since.setdefault(node, now)
        return now - since >= self._timers.orphan_quarantine

    def _fail(self, pod: Object, condition: Json | None) -> None:
        if is_over(pod) or not pod["spec"].get("nodeName"):
            return
        now = self._desk.now()

        def failed(obj: Object) -> Object:
            obj = with_condition(obj, condition, now=now) if condition else obj
            return {**obj, "status": {**obj["status"], "phase": "Failed"}}

        self._desk.change(PODS, key_of(pod), failed, status=True)


def _is_abandoned(node: Json) -> bool:
    return not is_ready(node) and taints.has(taints_of(node), taints.OUT_OF_SERVICE)
