"""Power devices of the nodes of an embedded cluster, which do what they are told, or do not."""

import asyncio
from collections.abc import Awaitable, Callable

from backstay.drivers.power import PowerFailed, PowerReading
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.nodes.nodestatus import system_uuid


class Bmcs:
    """``PowerDevices``. ``asked`` is what was asked of them and when, ``until`` up to when that
    might have been sent; what is named in ``silent``
    does not answer, what is in ``stuck`` says yes and does nothing, what
    is in ``refusing`` is seen and takes no request."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.asked: list[tuple[str, str, float]] = []
        self.until: list[float] = []
        self.silent: set[str] = set()
        self.stuck: set[str] = set()
        self.refusing: set[str] = set()
        self.uuids: dict[str, str] = {}
        self.known: frozenset[str] | None = None
        self.wrong: tuple[str, ...] = ()
        self.after_off: Callable[[], Awaitable[None]] | None = None
        self.sights = 0
        self._cluster = cluster

    def nodes(self) -> frozenset[str]:
        return frozenset(self._cluster.nodes) if self.known is None else self.known

    async def refresh(self) -> tuple[str, ...]:
        return self.wrong

    async def sight(self, node: str) -> PowerReading:
        self.sights += 1
        await asyncio.sleep(0.05)
        if node in self.silent:
            raise PowerFailed("it cannot be reached (TimedOut)")
        on = self._cluster.nodes[node].boot_id is not None
        uuid = self.uuids.get(node, system_uuid(node))
        return PowerReading(on=on, uuid=uuid, detail=f"its power is {'On' if on else 'Off'}")

    async def switch_off(self, node: str, *, not_after: float) -> None:
        self._note("off", node, not_after)
        if node not in self.stuck:
            self._cluster.nodes[node].kill()
        if self.after_off is not None:
            await self.after_off()

    async def switch_on(self, node: str, *, not_after: float) -> None:
        self._note("on", node, not_after)
        if node not in self.stuck:
            self._cluster.nodes[node].heal()
            self._cluster.nodes[node].reboot()

    def _note(self, what: str, node: str, not_after: float) -> None:
        now = asyncio.get_running_loop().time()
        self.until.append(not_after)
        if now > not_after:
            raise PowerFailed("it cannot be reached (TooLate)")
        self.asked.append((what, node, now))
        if node in self.silent | self.refusing:
            raise PowerFailed("it cannot be reached (TimedOut)")

    @property
    def verbs(self) -> list[str]:
        return [what for what, _, _ in self.asked]
