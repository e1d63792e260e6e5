"""Scheduler: gives each pod a node, or says why it has none.

It goes by the rules in ``placement``, puts a pod where there are fewest, and of several such nodes
takes the first by name, so that nothing depends on chance. A scenario can prefer a node for what
it starts, as a scoring plugin would. A pod that fits nowhere is looked at again whenever something
has changed that might help.

A claim that waits for its first consumer is told for which node it should be provided, and its pod
gets that node once it is bound.
"""

from collections.abc import Callable, Iterable

from backstay.sim.api.controller import Controller
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations, Write
from backstay.sim.api.requests import Target
from backstay.sim.api.store import Commit, Key
from backstay.sim.api.subresources import Subresources
from backstay.sim.cluster import placement
from backstay.sim.cluster.claims import SELECTED_NODE, claims_of, waits_for_consumer
from backstay.sim.cluster.desk import (
    CLAIMS,
    NODES,
    PODS,
    SCHEDULER,
    VOLUMES,
    Desk,
    Json,
    PodsByNode,
    condition,
    is_deleting,
    is_over,
    with_condition,
)
from backstay.sim.cluster.placement import Place, Question

_NAME = "default-scheduler"


class _Unplaceable(Exception):
    """Why, in the scheduler's words."""


class Scheduler(Controller[Key]):
    """Works on the keys of pods. ``prefers`` names a pod's node, to be taken where it fits."""

    hears = frozenset({PODS, NODES, CLAIMS, VOLUMES})

    def __init__(
        self, operations: Operations, *, pods: PodsByNode, prefers: Callable[[Json], str]
    ) -> None:
        super().__init__(operations.store)
        self._desk = Desk(operations, SCHEDULER)
        self._subresources = Subresources(operations)
        self._pods = pods
        self._prefers = prefers
        self._unplaced: dict[Key, None] = {}

    def begin(self) -> None:
        self._unplaced.clear()
        for pod in self.store.all(PODS):
            if _is_mine(pod.object):
                self.add(pod.key)

    def hear(self, commit: Commit) -> None:
        if commit.storage == PODS:
            self._hear_pod(commit)
        elif commit.storage == NODES:
            before = commit.before.object if commit.before else {}
            if commit.deleted or _matters(before) != _matters(commit.after.object):
                self._look_again()
        elif commit.storage in (CLAIMS, VOLUMES):
            self._look_again()

    def _hear_pod(self, commit: Commit) -> None:
        key, pod = commit.after.key, commit.after.object
        if commit.deleted:
            self._unplaced.pop(key, None)
        if commit.before is None and _is_mine(pod):
            self.add(key)
        if commit.deleted or is_over(pod):
            self._look_again()

    def _look_again(self) -> None:
        for key in self._unplaced:
            self.add(key)

    def work(self, key: Key) -> None:
        pod = self._desk.get(PODS, key[1], key[0])
        if pod is None or not _is_mine(pod):
            self._unplaced.pop(key, None)
            return
        try:
            node = self._place(pod)
        except _Unplaceable as why:
            self._unplaced[key] = None
            count = len(self.store.all(NODES))
            sentence = f"0/{count} nodes are available: {why}."
            self._say(key, pod, sentence if count else "no nodes available to schedule pods")
            return
        if node is None:
            self._unplaced[key] = None
            return
        self._bind(key, pod, node)
        self._unplaced.pop(key, None)

    def _place(self, pod: Object) -> str | None:
        """The node for it; None while it has to wait for a claim that now knows its node."""
        claims = self._claims(pod)
        waiting = [claim for claim in claims if not _is_bound(claim)]
        if any(not waits_for_consumer(self._desk, claim) for claim in waiting):
            raise _Unplaceable("pod has unbound immediate PersistentVolumeClaims")
        names = (claim["spec"].get("volumeName", "") for claim in claims)
        volumes = [volume for name in names if (volume := self._desk.get(VOLUMES, name))]
        question = Question(pod, list(self._places()), volumes)
        fitting = _preferring(placement.fitting(question), {self._prefers(pod)})
        chosen = placement.choose(_preferring(fitting, _selected(waiting)))
        if chosen is None:
            raise _Unplaceable(placement.objections(question))
        for claim in waiting:
            self._select_node(claim, chosen.name)
        return None if waiting else chosen.name

    def _claims(self, pod: Object) -> list[Object]:
        namespace = pod["metadata"]["namespace"]
        found = []
        for name in claims_of(pod):
            claim = self._desk.get(CLAIMS, name, namespace)
            if claim is None or is_deleting(claim):
                raise _Unplaceable(f'persistentvolumeclaim "{name}" not found')
            found.append(claim)
        return found

    def _places(self) -> Iterable[Place]:
        for node in self._desk.all(NODES):
            there = [stored.object for stored in self._pods(node["metadata"]["name"])]
            yield Place(node, [pod for pod in there if not is_over(pod)])

    def _select_node(self, claim: Object, node: str) -> None:
        key = (claim["metadata"]["namespace"], claim["metadata"]["name"])
        self._desk.change(CLAIMS, key, lambda obj: _annotated(obj, SELECTED_NODE, node))

    def _bind(self, key: Key, pod: Object, node: str) -> None:
        info = self._desk.operations.kinds.find("", "v1", PODS)
        assert info is not None
        sent = {
            "metadata": {"name": key[1], "uid": pod["metadata"]["uid"]},
            "target": {"kind": "Node", "name": node},
        }
        self._subresources.bind(Target(info, *key, "binding"), sent, Write(SCHEDULER))

    def _say(self, key: Key, pod: Object, why: str) -> None:
        said = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": why,
        }
        before = condition(pod, "PodScheduled")
        if {**before, **said} != before:
            now = self._desk.now()
            self._desk.change(
                PODS, key, lambda obj: with_condition(obj, said, now=now), status=True
            )


def _is_mine(pod: Json) -> bool:
    spec = pod["spec"]
    return (
        not spec.get("nodeName")
        and spec.get("schedulerName", _NAME) == _NAME
        and not spec.get("schedulingGates")
        and not is_deleting(pod)
        and not is_over(pod)
    )


def _matters(node: Json) -> tuple[object, ...]:
    """What of a node a pod may have waited for."""
    meta, spec, status = (node.get(part) or {} for part in ("metadata", "spec", "status"))
    return (
        meta.get("labels"),
        spec.get("taints"),
        spec.get("unschedulable"),
        status.get("allocatable"),
    )


def _is_bound(claim: Json) -> bool:
    return bool(claim.get("status", {}).get("phase") == "Bound")


def _preferring(places: list[Place], names: set[str]) -> list[Place]:
    return [place for place in places if place.name in names] or places


def _selected(waiting: list[Object]) -> set[str]:
    """For which nodes claims are already being provided: that is not changed without need."""
    annotations = (claim["metadata"].get("annotations") or {} for claim in waiting)
    return {each[SELECTED_NODE] for each in annotations if SELECTED_NODE in each}


def _annotated(obj: Object, key: str, value: str) -> Object:
    meta = obj["metadata"]
    annotations = {**(meta.get("annotations") or {}), key: value}
    return {**obj, "metadata": {**meta, "annotations": annotations}}
