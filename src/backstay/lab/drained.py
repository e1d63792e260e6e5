"""Drained: how far maintenances have come, and which guests have moved, as it stands in the API."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from backstay.apis.kubevirt import INSTANCES
from backstay.apis.maintenance import NODE_MAINTENANCES
from backstay.sim.api.store import Store

Home: TypeAlias = tuple[str, str]
"""The uid of a guest, which it keeps while it is moved, and its node."""


def phases(store: Store) -> dict[str, str]:
    """By node. Of one that nothing was said of yet it is empty; of several, the worst is told."""
    found: dict[str, str] = {}
    for node, status in _statuses(store):
        found[node] = min(str(status.get("phase", "")), found.get(node, "~"))
    return found


def blockers(store: Store) -> dict[str, tuple[str, ...]]:
    """By node, the codes of what is in the way."""
    found: dict[str, tuple[str, ...]] = {}
    for node, status in _statuses(store):
        codes = {str(each.get("code", "")) for each in status.get("blockers") or ()}
        found[node] = tuple(sorted(codes.union(found.get(node, ()))))
    return found


def homes(store: Store) -> dict[str, Home]:
    """Where each guest is, by name."""
    return {
        each.key[1]: (each.object["metadata"]["uid"], str(status.get("nodeName", "")))
        for each in store.all(INSTANCES.label)
        if (status := each.object.get("status") or {})
    }


def moved(before: Mapping[str, Home], after: Mapping[str, Home]) -> tuple[str, ...]:
    """Who is elsewhere by now, and is the same as before."""
    return tuple(
        name
        for name, (uid, node) in before.items()
        if name in after and after[name][0] == uid and after[name][1] != node
    )


def _statuses(store: Store) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for each in store.all(NODE_MAINTENANCES.label):
        yield each.object["spec"]["nodeName"], each.object.get("status") or {}
