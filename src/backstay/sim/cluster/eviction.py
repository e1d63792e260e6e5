"""TaintEviction: pods leave a node that has a ``NoExecute`` taint, when their tolerations end.

The time runs from when the taint was first seen, and ends with the taint. A pod that must go is
first marked as disrupted and then deleted gracefully: its kubelet has to end it, so where that is
dead the pod stays, marked, for ever.

Between the decision and its execution is a moment, and what is executed goes by name: a pod of the
same name that was made meanwhile, wherever it is, goes instead. The real one was seen to do that.
"""

import asyncio
from dataclasses import dataclass

import msgspec

from backstay.sim.api.controller import Controller
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations
from backstay.sim.api.store import Commit, Key
from backstay.sim.cluster import taints
from backstay.sim.cluster.desk import (
    NODES,
    PODS,
    Desk,
    Json,
    PodsByNode,
    taints_of,
    with_condition,
)
from backstay.sim.cluster.timers import Timers

_DISRUPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByTaintManager",
    "message": "Taint manager: deleting due to NoExecute taint",
}


_MOMENT = 0.01


@dataclass(frozen=True)
class _Stay:
    """A pod on a tainted node, and since when; ``evicted`` is said once."""

    uid: str
    since: float
    evicted: bool = False


class _Doomed(msgspec.Struct, frozen=True):
    """Whoever has this name when its moment comes."""

    key: Key


class TaintEviction(Controller[Key | _Doomed]):
    """Works on the keys of pods."""

    hears = frozenset({NODES, PODS})

    def __init__(self, operations: Operations, *, timers: Timers, pods: PodsByNode) -> None:
        super().__init__(operations.store)
        self._desk = Desk(operations)
        self._timers = timers
        self._pods = pods
        self._stays: dict[Key, _Stay] = {}

    def begin(self) -> None:
        self._stays.clear()
        for node in self._desk.all(NODES):
            self._add_pods_of(node)

    def hear(self, commit: Commit) -> None:
        after = commit.after.object
        if commit.storage == NODES:
            before = commit.before.object if commit.before else {}
            if commit.deleted or _no_execute(before) != _no_execute(after):
                self._add_pods_of(after)
        elif commit.storage == PODS:
            before = commit.before.object if commit.before else {"spec": {}}
            moved = commit.deleted or _place(before) != _place(after)
            # On a node without taints there is nothing to judge.
            if moved and (commit.after.key in self._stays or self._taints(after)):
                self.add(commit.after.key)

    def _add_pods_of(self, node: Object) -> None:
        for pod in self._pods(node["metadata"]["name"]):
            self.add(pod.key)

    def work(self, key: Key | _Doomed) -> None:
        if isinstance(key, _Doomed):
            self._evict(key.key)
        else:
            self._judge(key)

    def _taints(self, pod: Object) -> list[Json]:
        """Those of its node that it may have to go for."""
        node = self._desk.get(NODES, pod["spec"].get("nodeName", ""))
        return _no_execute(node) if node else []

    def _judge(self, key: Key) -> None:
        pod = self._desk.get(PODS, key[1], key[0])
        found = self._taints(pod) if pod else []
        if pod is None or not found:
            self._stays.pop(key, None)
            return
        now = asyncio.get_running_loop().time()
        stay = self._stays.get(key)
        if stay is None or stay.uid != pod["metadata"]["uid"]:
            stay = self._stays[key] = _Stay(pod["metadata"]["uid"], now)
        limit = taints.seconds_tolerated(pod["spec"].get("tolerations") or (), found)
        if stay.evicted or limit == taints.FOR_EVER:
            return
        left = stay.since + limit * self._timers.second - now
        if left > 0:
            self.add_after(key, left)
            return
        self.add_after(_Doomed(key), _MOMENT)
        self._stays[key] = _Stay(stay.uid, stay.since, evicted=True)

    def _evict(self, key: Key) -> None:
        now = self._desk.now()
        self._desk.change(
            PODS, key, lambda obj: with_condition(obj, _DISRUPTED, now=now), status=True
        )
        self._desk.delete(PODS, key)


def _no_execute(node: Json) -> list[Json]:
    return taints.of_effect(taints_of(node), taints.NO_EXECUTE)


def _place(pod: Json) -> tuple[object, object]:
    return pod["spec"].get("nodeName"), pod["spec"].get("tolerations")
