"""LINSTOR, asked ahead: how the volumes of nodes that are well are replicated, for the question
what DRBD would prove if one of them died (``decide/readiness.py``).

Each resource is asked for once, whatever uses it. What cannot be read is told, and nothing is
assumed of it.
"""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from backstay.drivers.linstor.client import Linstor
from backstay.drivers.linstor.errors import LinstorError
from backstay.model.drbd import ResourceSight
from backstay.model.workload import Workload
from backstay.sources.linstor import LinstorTerms
from backstay.sources.linstor_look import look_at, resources_of

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
    names = set().union(*wanted.values())
    if not names:
        return Replication()
    try:
        look = await look_at(linstor, names, turns=asyncio.Semaphore(_AT_ONCE))
    except LinstorError as error:
        return Replication(problems=(str(error),))
    drbd = [name for name, found in look.replicas.items() if all(each.drbd for each in found)]
    options = await look.read_options(linstor, drbd)
    sights = {
        node: tuple(
            msgspec.structs.replace(
                look.sight(name, node, options[name], driver=terms.driver), grace=terms.known_grace
            )
            for name in sorted(resources & options.keys())
        )
        for node, resources in wanted.items()
    }
    unknown = [f"LINSTOR knows no resource {name}" for name in sorted(look.gone)]
    problems = dict.fromkeys([*unknown, *map(str, look.troubles.values())])
    return Replication({node: seen for node, seen in sights.items() if seen}, tuple(problems))
