"""LINSTOR, asked ahead: how the volumes of nodes that are well are replicated, for the question
what DRBD would prove if one of them died (``decide/readiness.py``).

Each resource is asked for once, whatever uses it. What cannot be read is told, and nothing is
assumed of it.
"""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from backstay.drivers.linstor.client import Linstor
from backstay.drivers.linstor.errors import LinstorError, NotThere
from backstay.drivers.linstor.wire import Replica, weakest
from backstay.model.drbd import ResourceSight
from backstay.model.workload import Workload
from backstay.sources.linstor import LinstorTerms, resource_sight, resources_of

_AT_ONCE = 16


class Replication(msgspec.Struct, frozen=True):
    """By node, the resources that are used there; ``problems`` are what could not be read."""

    sights: Mapping[str, tuple[ResourceSight, ...]] = {}
    problems: tuple[str, ...] = ()


async def replication(
    linstor: Linstor, used: Mapping[str, Sequence[Workload]], terms: LinstorTerms
) -> Replication:
    """See the module. ``used`` is what runs, by node."""
    wanted = {node: resources_of(workloads, terms.driver) for node, workloads in used.items()}
    names = sorted(set().union(*wanted.values()))
    if not names:
        return Replication()
    try:
        satellites = await linstor.satellites()
    except LinstorError as error:
        return Replication(problems=(str(error),))
    online = {each.node for each in satellites if each.online}
    problems: list[str] = []
    replicas = await _replicas(linstor, names, problems)
    options = await linstor.options_of(replicas)
    now = asyncio.get_running_loop().time()
    sights: dict[str, tuple[ResourceSight, ...]] = {}
    for node, resources in wanted.items():
        for name in sorted(resources & replicas.keys()):
            option = options[name]
            if isinstance(option, LinstorError):
                problems.append(str(option))
                continue
            sight = resource_sight(
                name,
                node,
                replicas[name],
                weakest(option, replicas[name], satellites),
                driver=terms.driver,
                observed_at=now,
                online=online,
            )
            sight = msgspec.structs.replace(sight, grace=terms.known_grace)
            sights[node] = (*sights.get(node, ()), sight)
    return Replication(sights, tuple(dict.fromkeys(problems)))


async def _replicas(
    linstor: Linstor, names: Sequence[str], problems: list[str]
) -> dict[str, tuple[Replica, ...]]:
    turns = asyncio.Semaphore(_AT_ONCE)
    found: dict[str, tuple[Replica, ...]] = {}

    async def one(name: str) -> None:
        async with turns:
            try:
                replicas = await linstor.replicas(name)
            except NotThere:
                problems.append(f"LINSTOR knows no resource {name}")
            except LinstorError as error:
                problems.append(str(error))
            else:
                if all(each.drbd for each in replicas):
                    found[name] = replicas

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(one(name))
    return found
