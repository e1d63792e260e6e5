"""Placement: on which nodes a pod may run, and why not on the others. Pure.

The checks and their words are the scheduler's, in its order; the first that a node fails is the
one that is told. Of resources only the number of pods is looked at.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from backstay.sim.api.label_selectors import selects
from backstay.sim.cluster import taints
from backstay.sim.cluster.desk import taints_of

Json = Mapping[str, Any]

_EFFECTS = (taints.NO_SCHEDULE, taints.NO_EXECUTE)


@dataclass(frozen=True)
class Place:
    """A node, and the pods that are there and not over."""

    node: Json
    pods: Sequence[Json] = ()

    @property
    def name(self) -> str:
        return str(self.node["metadata"]["name"])

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node["metadata"].get("labels") or {}


@dataclass(frozen=True)
class Question:
    """A pod, the volumes that it is to have, and all nodes that there are."""

    pod: Json
    places: Sequence[Place]
    volumes: Sequence[Json] = field(default=())

    @cached_property
    def keepers_apart(self) -> list[tuple[Place, Json, Json]]:
        """The rules by which pods that are there keep others away: where, whose, and which."""
        return [
            (place, other, term)
            for place in self.places
            for other in place.pods
            if "affinity" in other["spec"]
            for term in _affinity(other, "podAntiAffinity") or ()
        ]


Check = Callable[[Question, Place], str]


def fitting(question: Question) -> list[Place]:
    return [place for place in question.places if not _objection(question, place)]


def choose(places: Iterable[Place]) -> Place | None:
    """The one with the fewest pods; of several, the first by name."""
    return min(places, key=lambda place: (len(place.pods), place.name), default=None)


def objections(question: Question) -> str:
    """What is wrong with how many nodes."""
    counts = Counter(_objection(question, place) for place in question.places)
    return ", ".join(sorted(f"{count} {why}" for why, count in counts.items()))


def _objection(question: Question, place: Place) -> str:
    for check in _CHECKS:
        if why := check(question, place):
            return why
    return ""


def _is_schedulable(question: Question, place: Place) -> str:
    closed = (place.node.get("spec") or {}).get("unschedulable")
    taint = {"key": taints.UNSCHEDULABLE, "effect": taints.NO_SCHEDULE}
    tolerations = question.pod["spec"].get("tolerations") or ()
    if closed and not any(taints.tolerates(each, taint) for each in tolerations):
        return "node(s) were unschedulable"
    return ""


def _is_tolerated(question: Question, place: Place) -> str:
    tolerations = question.pod["spec"].get("tolerations") or ()
    bad = taints.untolerated(tolerations, taints_of(place.node), effects=_EFFECTS)
    return "node(s) had untolerated taint(s)" if bad else ""


def _is_selected(question: Question, place: Place) -> str:
    spec = question.pod["spec"]
    wanted = spec.get("nodeSelector") or {}
    missing = any(place.labels.get(key) != value for key, value in wanted.items())
    required = _affinity(question.pod, "nodeAffinity")
    if missing or (required and not matches_node(required, place.node)):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


def matches_node(selector: Json, node: Json) -> bool:
    """Whether a node selector, with its terms, selects a node."""
    return any(_matches_term(term, node) for term in selector.get("nodeSelectorTerms") or ())


def _matches_term(term: Json, node: Json) -> bool:
    labels, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not labels and not fields:
        return False
    meta = node["metadata"]
    return selects({"matchExpressions": labels}, meta.get("labels") or {}) and selects(
        {"matchExpressions": fields}, {"metadata.name": meta["name"]}
    )


def _volumes_reach(question: Question, place: Place) -> str:
    for volume in question.volumes:
        required = ((volume["spec"].get("nodeAffinity")) or {}).get("required")
        if required and not matches_node(required, place.node):
            return "node(s) didn't match PersistentVolume's node affinity"
    return ""


def _keeps_apart(question: Question, place: Place) -> str:
    """The pod's own rules, and those of the pods that are there."""
    pod = question.pod
    for term in _affinity(pod, "podAntiAffinity") or ():
        if any(_term_selects(term, pod, other) for other in _near(question, place, term)):
            return "node(s) didn't match pod anti-affinity rules"
    for there, other, term in question.keepers_apart:
        if _same_topology(term, place, there) and _term_selects(term, other, pod):
            return "node(s) didn't satisfy existing pods anti-affinity rules"
    return ""


def _keeps_together(question: Question, place: Place) -> str:
    for term in _affinity(question.pod, "podAffinity") or ():
        near = _near(question, place, term)
        if not any(_term_selects(term, question.pod, other) for other in near):
            return "node(s) didn't match pod affinity rules"
    return ""


def _near(question: Question, place: Place, term: Json) -> Iterable[Json]:
    """The pods on nodes that are the same place as far as this term is concerned."""
    return (
        pod for other in question.places if _same_topology(term, place, other) for pod in other.pods
    )


def _same_topology(term: Json, one: Place, other: Place) -> bool:
    key = term.get("topologyKey", "")
    return key in one.labels and one.labels[key] == other.labels.get(key)


def _term_selects(term: Json, owner: Json, pod: Json) -> bool:
    namespaces = term.get("namespaces") or (owner["metadata"]["namespace"],)
    labels = pod["metadata"].get("labels") or {}
    return pod["metadata"]["namespace"] in namespaces and selects(term.get("labelSelector"), labels)


def _has_room(question: Question, place: Place) -> str:
    allocatable = (place.node.get("status") or {}).get("allocatable") or {}
    return "Too many pods" if len(place.pods) >= int(allocatable.get("pods", 110)) else ""


def _affinity(pod: Json, kind: str) -> Any:
    affinity = pod["spec"].get("affinity")
    rules = affinity.get(kind) if affinity else None
    return rules.get("requiredDuringSchedulingIgnoredDuringExecution") if rules else None


_CHECKS: tuple[Check, ...] = (
    _is_schedulable,
    _is_tolerated,
    _is_selected,
    _has_room,
    _volumes_reach,
    _keeps_apart,
    _keeps_together,
)
