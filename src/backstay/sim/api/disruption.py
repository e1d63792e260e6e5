"""DisruptionController: keeps the status of PodDisruptionBudgets, as its model in Kubernetes does.

A budget says how many pods must stay (``minAvailable``) or may be missing (``maxUnavailable``),
as a number or as a share of what the pods' controllers want. A pod counts when it is ready, not
going, and not promised to an eviction that has not come to pass yet; such a promise is forgotten
after two minutes. When the controllers cannot be found, nothing may be disrupted.
"""

import math
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from backstay.sim.api.controller import Controller
from backstay.sim.api.custom import CustomResources, at
from backstay.sim.api.kinds import Object
from backstay.sim.api.label_selectors import selects
from backstay.sim.api.operations import Operations, Write, parse_stamp
from backstay.sim.api.requests import Target
from backstay.sim.api.store import Commit, Key, Stored

BUDGETS = "poddisruptionbudgets.policy"
PODS = "pods"

_PROMISE = timedelta(minutes=2)
_CONTROLLER_KINDS = {
    ("apps", "ReplicaSet"): "replicasets.apps",
    ("apps", "StatefulSet"): "statefulsets.apps",
    ("", "ReplicationController"): "replicationcontrollers",
}

Json = Mapping[str, Any]


class _Unknown(Exception):
    """How many pods there should be cannot be told."""


def is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def with_verdict(status: Object, now: str) -> Object:
    """With the condition that says whether pods may be disrupted."""
    allowed = status["disruptionsAllowed"] > 0
    reason = "SufficientPods" if allowed else "InsufficientPods"
    return _with_condition(status, "True" if allowed else "False", reason, "", now)


def _with_condition(status: Object, value: str, reason: str, message: str, now: str) -> Object:
    others = []
    since = now
    for condition in status.get("conditions") or ():
        if condition["type"] != "DisruptionAllowed":
            others.append(condition)
        elif condition["status"] == value:
            since = condition["lastTransitionTime"]
    made = {
        "type": "DisruptionAllowed", "status": value,
        "observedGeneration": status.get("observedGeneration"),
        "lastTransitionTime": since, "reason": reason, "message": message,
    }  # fmt: skip
    if not made["observedGeneration"]:
        del made["observedGeneration"]
    return {**status, "conditions": [*others, made]}


class DisruptionController(Controller[Key]):
    """Works on the keys of budgets."""

    hears = frozenset({BUDGETS, PODS})

    def __init__(self, operations: Operations) -> None:
        super().__init__(operations.store)
        self._operations = operations
        budgets = operations.kinds.find("policy", "v1", "poddisruptionbudgets")
        assert budgets is not None
        self._budgets = budgets

    def begin(self) -> None:
        for budget in self.store.all(BUDGETS):
            self.add(budget.key)

    def hear(self, commit: Commit) -> None:
        if commit.storage == BUDGETS:
            self.add(commit.after.key)
        elif commit.storage == PODS:
            for pod in (commit.before, commit.after):
                if pod is not None:
                    self._add_budgets_of(pod)

    def _add_budgets_of(self, pod: Stored) -> None:
        labels = pod.object["metadata"].get("labels") or {}
        for budget in self.store.all(BUDGETS):
            same_place = budget.key[0] == pod.key[0]
            if same_place and selects(budget.object["spec"].get("selector"), labels):
                self.add(budget.key)

    def work(self, key: Key) -> None:
        stored = self.store.get(BUDGETS, key)
        if stored is None:
            return
        budget, before = stored.object, stored.object.get("status") or {}
        pods = self._pods_of(stored)
        now = self._operations.now()
        try:
            expected, desired = self._wanted(budget["spec"], pods)
        except _Unknown as unknown:
            status = {**before, "disruptionsAllowed": 0}
            status = _with_condition(status, "False", "SyncFailed", str(unknown), now)
        else:
            promised = self._promised(key, before, pods)
            healthy = sum(_counts(pod, promised) for pod in pods)
            status = {k: v for k, v in before.items() if k != "disruptedPods"}
            status |= {
                "observedGeneration": budget["metadata"].get("generation", 0),
                "disruptionsAllowed": max(healthy - desired, 0) if expected > 0 else 0,
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "expectedPods": expected,
            }
            if promised:
                status["disruptedPods"] = promised
            status = with_verdict(status, now)
        if status != before:
            target = Target(self._budgets, *key, "status")
            write = Write("kube-controller-manager")
            self._operations.patch(target, lambda obj: {**obj, "status": status}, write)

    def _pods_of(self, budget: Stored) -> list[Stored]:
        selector = budget.object["spec"].get("selector")
        return [
            pod
            for pod in self.store.all(PODS)
            if pod.key[0] == budget.key[0]
            and selects(selector, pod.object["metadata"].get("labels") or {})
        ]

    def _wanted(self, spec: Json, pods: list[Stored]) -> tuple[int, int]:
        """How many pods there should be, and how many of them must be healthy."""
        most_missing, least = spec.get("maxUnavailable"), spec.get("minAvailable")
        if most_missing is not None:
            expected = self._scale(pods)
            return expected, max(expected - _share(most_missing, expected), 0)
        if isinstance(least, str):
            expected = self._scale(pods)
            return expected, _share(least, expected)
        return len(pods), least or 0

    def _scale(self, pods: Iterable[Stored]) -> int:
        """The sum of what the controllers of the pods want; a pod without one does not count."""
        wanted: dict[str, int] = {}
        for pod in pods:
            owner = _controller_of(pod.object)
            if owner is not None and owner["uid"] not in wanted:
                uid, replicas = self._controller(pod, owner)
                wanted[uid] = replicas
        return sum(wanted.values())

    def _controller(self, pod: Stored, owner: Json) -> tuple[str, int]:
        group, kind = owner["apiVersion"].rpartition("/")[0], owner["kind"]
        storage = _CONTROLLER_KINDS.get((group, kind))
        if storage is None:
            return self._scalable(pod, owner, group)
        found = self._owner(storage, pod, owner)
        above = _controller_of(found.object)
        if kind == "ReplicaSet" and above is not None and above["kind"] == "Deployment":
            found = self._owner("deployments.apps", pod, above)
        return found.object["metadata"]["uid"], found.object["spec"].get("replicas", 1)

    def _owner(self, storage: str, pod: Stored, owner: Json) -> Stored:
        found = self.store.get(storage, (pod.key[0], owner["name"]))
        if found is None or found.object["metadata"]["uid"] != owner["uid"]:
            raise _Unknown(f'found no controllers for pod "{pod.key[1]}"')
        return found

    def _scalable(self, pod: Stored, owner: Json, group: str) -> tuple[str, int]:
        """A controller of another kind, which has to say somewhere how many pods it wants."""
        for info in self._operations.kinds.of_kind(group, owner["kind"]):
            rules = self._operations.rules(info)
            scale = rules.scale if isinstance(rules, CustomResources) else None
            if scale is None:
                raise _Unknown(f"{info.storage} does not implement the scale subresource")
            found = self._owner(info.storage, pod, owner)
            return owner["uid"], at(found.object, scale.spec_replicas_path) or 0
        raise _Unknown(f'no matches for kind "{owner["kind"]}" in version "{owner["apiVersion"]}"')

    def _promised(self, key: Key, status: Json, pods: list[Stored]) -> Object:
        """The pods that an eviction was allowed for and that are still there. They are looked at
        again when the promise has had its time."""
        said: Json = status.get("disruptedPods") or {}
        now = parse_stamp(self._operations.now())
        kept = {}
        for pod in pods:
            name = pod.key[1]
            if name in said and not pod.object["metadata"].get("deletionTimestamp"):
                ends = parse_stamp(said[name]) + _PROMISE
                if ends >= now:
                    kept[name] = said[name]
                    self.add_after(key, (ends - now).total_seconds() + 1)
        return kept


def _counts(pod: Stored, promised: Object) -> bool:
    going = pod.object["metadata"].get("deletionTimestamp") or pod.key[1] in promised
    return not going and is_ready(pod.object)


def _controller_of(obj: Object) -> Json | None:
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _share(value: int | str, total: int) -> int:
    """A number, or a percentage of the total (rounded up)."""
    if isinstance(value, int):
        return value
    return math.ceil(int(value.removesuffix("%")) * total / 100)
