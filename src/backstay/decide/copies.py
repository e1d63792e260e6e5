"""Copies: which data would be out of everybody's reach if a node went down.

A replica counts as a copy if its satellite is heard, every volume of it is up to date, and it has a
connection to the replica on the node: one without goes on to call itself up to date, and nobody
tells it what was written since. What is not known of another is no copy, and what is not known of
this one may be the only one: where there is no other, only a replica that is known to lack the data
is not needed.
"""

from collections.abc import Collection, Iterable

from backstay.model.drbd import DiskSight

_UP_TO_DATE = "UpToDate"


def last_copies(node: str, disks: Iterable[DiskSight], online: Collection[str]) -> tuple[str, ...]:
    """The resources of which this node has the only copy. ``online`` are the nodes whose satellites
    are heard; all names are in lower case."""
    by_resource: dict[str, list[DiskSight]] = {}
    for disk in disks:
        by_resource.setdefault(disk.resource, []).append(disk)
    return tuple(
        resource
        for resource, replicas in sorted(by_resource.items())
        if any(
            each.node == node and _may_have_data(each) and not _is_copied(each, replicas, online)
            for each in replicas
        )
    )


def _is_copied(mine: DiskSight, replicas: Iterable[DiskSight], online: Collection[str]) -> bool:
    """Whether somebody else has all that this one has."""
    return any(
        each.node != mine.node
        and each.node in online
        and _has_data(each)
        and mine.node in (each.connected or ())
        and (mine.connected is None or each.node in mine.connected)
        for each in replicas
    )


def _has_data(disk: DiskSight) -> bool:
    return bool(disk.states) and all(state == _UP_TO_DATE for state in disk.states)


def _may_have_data(disk: DiskSight) -> bool:
    return not disk.states or any(state in (_UP_TO_DATE, None) for state in disk.states)
