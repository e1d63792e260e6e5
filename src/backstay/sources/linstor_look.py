"""One look at LINSTOR: several resources, with their replicas, options and satellites, as they were
asked for together.

Who watches what DRBD does (``linstor.py``) and who asks what it would do (``linstor_outlook.py``)
read it the same way. What cannot be read of one resource stands in no other's way; unless LINSTOR
itself is out of reach, in which case nobody else is asked for.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from backstay.drivers.linstor.client import Linstor
from backstay.drivers.linstor.errors import LinstorError, NotThere, Unreachable
from backstay.drivers.linstor.wire import Options, Replica, Satellite, weakest
from backstay.model.drbd import ReplicaSight, ResourceSight, resource_of
from backstay.model.workload import Workload

AliveAt = Callable[[str], float | None]


@dataclass
class Look:
    """What was found when. ``gone`` are the resources that LINSTOR does not know, ``troubles`` why
    others could not be read."""

    started: float
    satellites: tuple[Satellite, ...]
    replicas: dict[str, tuple[Replica, ...]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    troubles: dict[str, LinstorError] = field(default_factory=dict)

    @cached_property
    def online(self) -> frozenset[str]:
        return frozenset(each.node for each in self.satellites if each.online)

    @property
    def trouble(self) -> str:
        """Why something could not be read, in words; empty if all was."""
        return next(map(str, reversed(self.troubles.values())), "")

    @property
    def is_over(self) -> bool:
        """Whether nobody answers any more."""
        return any(isinstance(each, Unreachable) for each in self.troubles.values())

    async def read_replicas(self, linstor: Linstor, resource: str) -> None:
        if self.is_over:
            return
        try:
            self.replicas[resource] = await linstor.replicas(resource)
        except NotThere:
            self.gone.add(resource)
        except LinstorError as error:
            self.troubles[resource] = error

    async def read_options(
        self, linstor: Linstor, resources: Collection[str]
    ) -> Mapping[str, Options]:
        """What is in effect for each of them, as far as it can be read: of all that may count, what
        protects least."""
        read = await linstor.options_of(resources)
        found: dict[str, Options] = {}
        for name in resources:
            option = read.get(name)
            if isinstance(option, LinstorError):
                self.troubles[name] = option
            elif option is not None:
                found[name] = weakest(option, self.replicas[name], self.satellites)
        return found

    def sight(
        self,
        resource: str,
        node: str,
        options: Options,
        *,
        driver: str,
        alive_at: AliveAt = lambda _: None,
    ) -> ResourceSight:
        """What the replicas of a resource say of that node."""
        return ResourceSight(
            resource=resource,
            node=node,
            driver=driver,
            observed_at=self.started,
            replicas=tuple(
                ReplicaSight(
                    node=each.node,
                    diskful=each.diskful,
                    online=each.node in self.online,
                    alive_at=alive_at(each.node),
                    in_use=each.in_use,
                    may_promote=each.may_promote,
                    up_to_date=each.up_to_date,
                    sees=_sees(each.connections, node),
                )
                for each in self.replicas[resource]
            ),
            quorum=options.quorum,
            two_primaries=options.two_primaries,
        )


async def look_at(
    linstor: Linstor, resources: Collection[str], *, turns: asyncio.Semaphore
) -> Look:
    """Satellites and replicas, as many questions at a time as there are ``turns``. Raises
    ``LinstorError`` if not even the satellites can be had."""
    started = asyncio.get_running_loop().time()
    look = Look(started, await linstor.satellites())

    async def read(resource: str) -> None:
        async with turns:
            await look.read_replicas(linstor, resource)

    async with asyncio.TaskGroup() as group:
        for resource in sorted(resources):
            group.create_task(read(resource))
    return look


def resources_of(workloads: Iterable[Workload], driver: str) -> set[str]:
    """The resources behind all of their volumes that are that driver's, or anybody's."""
    return {
        resource_of(volume.handle, volume.pv)
        for workload in workloads
        for volume in workload.volumes
        if volume.pv and not volume.exported and driver in ("", volume.driver)
    }


def _sees(connections: Mapping[str, bool] | None, node: str) -> bool | None:
    return None if connections is None else connections.get(node)
