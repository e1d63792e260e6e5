"""Taints and tolerations: who may be where, and for how long. Pure.

A taint is a key, a value and an effect. ``NoSchedule`` keeps new pods away, ``NoExecute`` those
that are there too. A toleration may say for how many seconds it puts up with a ``NoExecute``
taint.
"""

from collections.abc import Iterable, Mapping
from typing import Any

Json = Mapping[str, Any]

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"

FOR_EVER = float("inf")


def tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def untolerated(
    tolerations: Iterable[Json], taints: Iterable[Json], *, effects: tuple[str, ...]
) -> list[Json]:
    known = list(tolerations)
    return [
        taint
        for taint in taints
        if taint["effect"] in effects and not any(tolerates(each, taint) for each in known)
    ]


def seconds_tolerated(tolerations: Iterable[Json], taints: Iterable[Json]) -> float:
    """How long a pod with these tolerations may stay where these ``NoExecute`` taints are."""
    known, shortest = list(tolerations), FOR_EVER
    for taint in taints:
        matching = [each for each in known if tolerates(each, taint)]
        if not matching:
            return 0.0
        limits = [each["tolerationSeconds"] for each in matching if "tolerationSeconds" in each]
        if limits:
            shortest = min(shortest, *(max(0.0, float(limit)) for limit in limits))
    return shortest


def of_effect(taints: Iterable[Json], effect: str) -> list[Json]:
    return [taint for taint in taints if taint["effect"] == effect]


def has(taints: Iterable[Json], key: str, effect: str | None = None) -> bool:
    return any(taint["key"] == key and effect in (None, taint["effect"]) for taint in taints)
