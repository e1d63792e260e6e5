"""Copies: what LINSTOR says of the data that is on one node alone.

Every resource that has a replica on the node is looked at, with all of its replicas. What cannot be
asked is told as such: that nobody answers does not mean that there are other copies.
"""

from backstay.decide.copies import last_copies
from backstay.drivers.linstor.client import Linstor
from backstay.drivers.linstor.errors import LinstorError
from backstay.model.drain_reasons import DrainReason
from backstay.model.drbd import DiskSight
from backstay.model.reasons import Why

# So that the request line stays below what servers commonly accept.
_AT_ONCE = 64


class LinstorCopies:
    """See the module; what ``control.drain.Copies`` asks for."""

    def __init__(self, linstor: Linstor) -> None:
        self._linstor = linstor

    async def last_on(self, node: str) -> tuple[Why, ...]:
        name = node.lower()
        try:
            satellites = await self._linstor.satellites()
            disks = await self._disks(name)
        except LinstorError as error:
            because = str(error).rstrip(".")
            return (DrainReason.CopiesUnknown.because(node=node, because=because),)
        online = {each.node.lower() for each in satellites if each.online and not each.evicted}
        return tuple(
            DrainReason.LastCopy.because(node=node, resource=resource)
            for resource in last_copies(name, disks, online)
        )

    async def _disks(self, node: str) -> list[DiskSight]:
        here = sorted({each.resource for each in await self._linstor.disks(nodes=[node])})
        found: list[DiskSight] = []
        for start in range(0, len(here), _AT_ONCE):
            found += await self._linstor.disks(resources=here[start : start + _AT_ONCE])
        return found
