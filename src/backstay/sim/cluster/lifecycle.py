"""NodeLifecycle: notices that a node has fallen silent, says so, and gives it taints.

As the node lifecycle controller does it:

* It looks at all nodes every few seconds. A node is alive when its status or its lease has
  changed since the last look; nobody's clock is compared with anybody's.
* After the grace period without a change the conditions of the node become Unknown, its pods are
  no longer ready, and it gets ``unreachable:NoSchedule``. That taint follows the conditions at
  once, in both directions.
* ``unreachable:NoExecute`` is put on in turns, one node every ten seconds, and taken off at the
  next look at a node that is back.
* When most nodes of a small cluster are silent no more of them are given that taint, and when all
  are, all are freed of it: then it is more likely that the network to here is broken. All nodes
  are taken for one zone.
"""

import asyncio
import enum
import math
from dataclasses import dataclass
from typing import Any

from backstay.kube.limits import TokenBucket
from backstay.sim.api.controller import Controller
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations
from backstay.sim.api.store import Commit
from backstay.sim.cluster import taints
from backstay.sim.cluster.desk import (
    LEASES,
    NODES,
    PODS,
    Desk,
    Json,
    PodsByNode,
    condition,
    is_ready,
    key_of,
    taints_of,
    with_condition,
)
from backstay.sim.cluster.timers import Timers

_LEASE_NAMESPACE = "kube-node-lease"
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_LARGE = 50
_MANY = 0.55
_BOTH = (taints.UNREACHABLE, taints.NOT_READY)


class Look(enum.Enum):
    """At all nodes; or, as keys by name, at the conditions of one; or to give out taints."""

    ALL = "all"
    TAINTS = "taints"


class Disruption(enum.Enum):
    NONE = "none"
    PARTIAL = "partial"
    FULL = "full"


@dataclass
class _Health:
    """What was last seen to change, and when. ``sound`` is the node as it was when nothing had to
    be done about it: as long as it is that very object, nothing but its lease tells of its life."""

    uid: str
    signs: tuple[Any, ...]
    at: float
    sound: Object | None = None


class NodeLifecycle(Controller[Look | str]):
    """See the module."""

    hears = frozenset({NODES})

    def __init__(self, operations: Operations, *, timers: Timers, pods: PodsByNode) -> None:
        super().__init__(operations.store)
        self._desk = Desk(operations)
        self._timers = timers
        self._pods = pods
        self._health: dict[str, _Health] = {}
        self._disruption = Disruption.NONE
        self._to_taint: dict[str, None] = {}
        self._tainted: set[str] = set()
        self._bucket: TokenBucket | None = None

    def begin(self) -> None:
        self._health.clear()
        self._to_taint.clear()
        self._tainted.clear()
        self._bucket = TokenBucket(1 / self._timers.taint_interval, 1)
        for node in self._desk.all(NODES):
            self.add(node["metadata"]["name"])
        self.add(Look.ALL)

    def hear(self, commit: Commit) -> None:
        if not commit.deleted and _no_schedule_had_and_wanted(commit.after.object) is not None:
            self.add(commit.after.key[1])

    def work(self, key: Look | str) -> None:
        if key is Look.ALL:
            self.add_after(Look.ALL, self._timers.monitor)
            self._look_at_all()
        elif key is Look.TAINTS:
            self._give_out_taints()
        elif isinstance(key, str):
            self._follow_conditions(key)

    # Health

    def _look_at_all(self) -> None:
        now = asyncio.get_running_loop().time()
        nodes = {stored.key[1]: stored.object for stored in self.store.all(NODES)}
        for name in self._health.keys() - nodes.keys():
            del self._health[name]
            self._free(name)
        silent = 0
        for name, node in nodes.items():
            renewal = self._renewal(name)
            if not self._is_sound_still(name, node, renewal, now):
                silent += not self._looks_ready(node, renewal, now)
        self._judge_disruption(list(nodes), silent)
        if self._to_taint:
            self.add_after(Look.TAINTS, self._timers.taint_pass)

    def _renewal(self, name: str) -> Any:
        lease = self.store.get(LEASES, (_LEASE_NAMESPACE, name))
        return None if lease is None else (lease.object.get("spec") or {}).get("renewTime")

    def _is_sound_still(self, name: str, node: Object, renewal: Any, now: float) -> bool:
        known = self._health.get(name)
        if known is None or known.sound is not node:
            return False
        if known.signs[2] != renewal:
            known.signs, known.at = (*known.signs[:2], renewal), now
        return now - known.at <= self._timers.monitor_grace

    def _looks_ready(self, node: Object, renewal: Any, now: float) -> bool:
        """After all has been done about it that is due."""
        name, was_ready = node["metadata"]["name"], is_ready(node)
        node = self._checked(node, renewal, now)
        ready = is_ready(node)
        if was_ready and not ready:
            self._mark_pods_not_ready(name)
        self._queue_taint(node)
        self._health[name].sound = node if ready else None
        return ready

    def _checked(self, node: Object, renewal: Any, now: float) -> Object:
        """The node as it is after it was looked at."""
        name = node["metadata"]["name"]
        ready = condition(node, "Ready")
        signs = (ready.get("lastHeartbeatTime"), ready.get("status"), renewal)
        known = self._health.get(name)
        uid = node["metadata"]["uid"]
        if known is None or (known.uid, known.signs) != (uid, signs):
            known = self._health[name] = _Health(uid, signs, now)
        grace = self._timers.monitor_grace if ready else self._timers.startup_grace
        if now - known.at <= grace or ready.get("status") == "Unknown":
            return node
        changed = self._desk.change(NODES, ("", name), self._unknown, status=True)
        # That we said it is no sign of life.
        signs = (condition(changed, "Ready").get("lastHeartbeatTime"), "Unknown", signs[2])
        self._health[name] = _Health(uid, signs, known.at)
        return changed

    def _unknown(self, node: Object) -> Object:
        now = self._desk.now()
        for kind in _REPORTED:
            before = condition(node, kind)
            never = {
                "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
                "lastHeartbeatTime": node["metadata"]["creationTimestamp"],
            }
            stopped = {
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastHeartbeatTime": before.get("lastHeartbeatTime"),
            }
            said = {"type": kind, "status": "Unknown"} | (stopped if before else never)
            node = with_condition(node, said, now=now)
        return node

    def _mark_pods_not_ready(self, node: str) -> None:
        for pod in self._pods(node):
            if is_ready(pod.object):
                said = {**condition(pod.object, "Ready"), "status": "False"}
                self._set_condition(pod.object, said)

    def _set_condition(self, pod: Object, said: Json) -> None:
        now = self._desk.now()
        self._desk.change(
            PODS, key_of(pod), lambda obj: with_condition(obj, said, now=now), status=True
        )

    # NoSchedule

    def _follow_conditions(self, name: str) -> None:
        node = self._desk.get(NODES, name)
        if node is None:
            return
        if (differing := _no_schedule_had_and_wanted(node)) is not None:
            had, wanted = differing
            self._swap(name, taints.NO_SCHEDULE, add=wanted, remove=had)

    def _swap(self, name: str, effect: str, *, add: list[str], remove: list[str]) -> None:
        """Takes taints of this effect off and puts others on; those on both lists stay."""
        now = self._desk.now()

        def swapped(node: Object) -> Object:
            kept = [
                taint
                for taint in taints_of(node)
                if taint["effect"] != effect or taint["key"] not in remove or taint["key"] in add
            ]
            new = [
                {"key": key, "effect": effect, "timeAdded": now}
                for key in add
                if not taints.has(kept, key, effect)
            ]
            spec = {key: value for key, value in node["spec"].items() if key != "taints"}
            if kept or new:
                spec["taints"] = [*kept, *new]
            return {**node, "spec": spec}

        self._desk.change(NODES, ("", name), swapped)

    # NoExecute

    def _queue_taint(self, node: Object) -> None:
        """A node is queued once for as long as it is not ready."""
        name = node["metadata"]["name"]
        if is_ready(node):
            if any(taints.has(taints_of(node), key, taints.NO_EXECUTE) for key in _BOTH):
                self._swap(name, taints.NO_EXECUTE, add=[], remove=list(_BOTH))
            self._free(name)
        elif name not in self._tainted:
            self._to_taint[name] = None

    def _free(self, name: str) -> None:
        self._to_taint.pop(name, None)
        self._tainted.discard(name)

    def _give_out_taints(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._to_taint and self._bucket is not None and self._bucket.take(now):
            name = next(iter(self._to_taint))
            del self._to_taint[name]
            node = self._desk.get(NODES, name)
            if node is None or is_ready(node):
                continue
            self._tainted.add(name)
            key = _reason_of(node)
            others = [other for other in _BOTH if other != key]
            self._swap(name, taints.NO_EXECUTE, add=[key], remove=others)
        if self._to_taint and self._bucket is not None:
            self.add_after(Look.TAINTS, self._timers.taint_pass)

    # When many are silent at once

    def _judge_disruption(self, nodes: list[str], silent: int) -> None:
        verdict = _verdict(silent, len(nodes))
        before, self._disruption = self._disruption, verdict
        if verdict is before:
            return
        if verdict is Disruption.FULL:
            for name in nodes:
                self._swap(name, taints.NO_EXECUTE, add=[], remove=list(_BOTH))
                self._free(name)
        elif before is Disruption.FULL:
            # Nothing was heard of them, but perhaps only because we could not hear.
            now = asyncio.get_running_loop().time()
            for health in self._health.values():
                health.at = now
        interval = self._interval(verdict, len(nodes))
        self._bucket = TokenBucket(1 / interval, 1) if math.isfinite(interval) else None

    def _interval(self, disruption: Disruption, count: int) -> float:
        if disruption is Disruption.NONE:
            return self._timers.taint_interval
        if disruption is Disruption.PARTIAL and count > _LARGE:
            return self._timers.disrupted_taint_interval
        return math.inf


_PRESSURES = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
}


def _reason_of(node: Object) -> str:
    unknown = condition(node, "Ready").get("status", "Unknown") == "Unknown"
    return taints.UNREACHABLE if unknown else taints.NOT_READY


_MINE = frozenset({*_BOTH, *_PRESSURES.values(), taints.UNSCHEDULABLE})


def _no_schedule_had_and_wanted(node: Object) -> tuple[list[str], list[str]] | None:
    """Our NoSchedule taints that a node has, and those that it should have; None if they are the
    same."""
    spec = node.get("spec") or {}
    wanted = list[str]()
    for each in (node.get("status") or {}).get("conditions") or ():
        kind, status = each["type"], each["status"]
        if kind == "Ready" and status != "True":
            wanted.append(_reason_of(node))
        elif kind in _PRESSURES and status == "True":
            wanted.append(_PRESSURES[kind])
    if spec.get("unschedulable"):
        wanted.append(taints.UNSCHEDULABLE)
    had = [
        taint["key"]
        for taint in spec.get("taints") or ()
        if taint["effect"] == taints.NO_SCHEDULE and taint["key"] in _MINE
    ]
    return None if set(had) == set(wanted) else (had, wanted)


def _verdict(silent: int, count: int) -> Disruption:
    if count and silent == count:
        return Disruption.FULL
    if silent > 2 and silent / count >= _MANY:
        return Disruption.PARTIAL
    return Disruption.NONE
