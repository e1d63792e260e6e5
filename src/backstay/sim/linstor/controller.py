"""Controller: what LINSTOR's controller knows, which is what its satellites have told it.

It has a connection to the satellite of every node. What DRBD does there, the satellite tells as it
happens. While it is not heard, what it told last goes on being told: only when the connection is
given up (some seconds later, or never, as it has happened) is the satellite OFFLINE, and then
nothing at all is known of its replicas. That a satellite *ended* is known at once. One that comes
back is ONLINE first, and tells everything anew a little later. A controller that begins knows
nothing of any replica until the satellites have told it.

Nothing of this is kept: the database is, see there.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from backstay.sim.linstor.database import Database
from backstay.sim.linstor.promotions import Promotions
from backstay.sim.linstor.replicas import Sight

_FIRST_CONNECT = (0.2, 1.0)
_CONNECT = (1.0, 5.0)
_NOTICE = (5.0, 15.0)
_TELLS = (0.1, 1.0)


@dataclass
class Hearing:
    """What is wrong with what the controller hears; it outlives the controller.

    ``sticky``: satellites that stay ONLINE, and as they were, whatever becomes of them.
    ``stopped``: satellites that do not run, while their nodes, and DRBD there, go on.
    ``stale``: it hears nothing new of anybody, and does not notice.
    """

    sticky: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    stale: bool = False


@dataclass
class _Satellite:
    """``boot`` is that of its node when it connected; None while it is OFFLINE. ``tells_at`` is
    when it will tell how things stand, once it is ONLINE."""

    boot: str | None = None
    connects_at: float | None = None
    tells_at: float | None = None
    gives_up_at: float | None = None

    @property
    def is_heard(self) -> bool:
        return self.boot is not None and self.tells_at is None and self.gives_up_at is None

    @property
    def dues(self) -> list[float]:
        # What it has to tell waits while it cannot be heard.
        tells_at = self.tells_at if self.gives_up_at is None else None
        return [due for due in (self.connects_at, tells_at, self.gives_up_at) if due]


class Controller:
    """See the module. ``hears`` gives the boot of the node whose satellite can be talked to now,
    and None for one that cannot."""

    def __init__(
        self,
        database: Database,
        *,
        hears: Callable[[str], str | None],
        between: Callable[[float, float], float],
        hearing: Hearing | None = None,
    ) -> None:
        self.database = database
        self.promotions = Promotions(self._snapshot)
        self._drbd = database.drbd
        self._hears = hears
        self._between = between
        self._hearing = hearing or Hearing()
        self._satellites: dict[str, _Satellite] = {}
        self._known: dict[str, dict[str, Sight]] = {}
        self._read = 0
        self._is_new = True

    # What it knows

    def is_online(self, node: str) -> bool:
        satellite = self._satellites.get(node)
        return satellite is not None and satellite.boot is not None

    def sight(self, resource: str, node: str) -> Sight | None:
        """None if nothing is known of it."""
        return self._known.get(resource, {}).get(node)

    # Learning it

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = self.look(loop.time())
            try:
                async with asyncio.timeout_at(due):
                    await self._drbd.changed()
            except TimeoutError:
                continue

    def look(self, now: float) -> float | None:
        """Takes in what there is to hear; returns when to look again though nothing happens."""
        if self._hearing.stale:
            return None
        looked_at = []
        for node in self.database.nodes:
            if node not in self._hearing.sticky:
                looked_at.append(self._satellites.setdefault(node, _Satellite()))
                self._look_at(node, looked_at[-1], now)
        self._is_new = False
        self._read_log()
        return min((due for each in looked_at for due in each.dues), default=None)

    def _look_at(self, node: str, satellite: _Satellite, now: float) -> None:
        boot = None if node in self.database.evicted else self._hears(node)
        if boot is not None and node in self._hearing.stopped:
            # Its node says for it that nobody listens there any more.
            self._disconnect(node, satellite)
        elif satellite.boot is None:
            self._try_to_connect(satellite, boot, now)
        elif boot == satellite.boot:
            satellite.gives_up_at = None
            self._hear_out(node, satellite, now)
        elif boot is not None:
            self._disconnect(node, satellite)
            self._try_to_connect(satellite, boot, now)
        elif satellite.gives_up_at is None:
            satellite.gives_up_at = now + self._between(*_NOTICE)
        elif satellite.gives_up_at <= now:
            self._disconnect(node, satellite)

    def _try_to_connect(self, satellite: _Satellite, boot: str | None, now: float) -> None:
        if boot is None:
            satellite.connects_at = None
        elif satellite.connects_at is None:
            takes = _FIRST_CONNECT if self._is_new else _CONNECT
            satellite.connects_at = now + self._between(*takes)
        elif satellite.connects_at <= now:
            satellite.boot, satellite.connects_at = boot, None
            satellite.tells_at = now + self._between(*_TELLS)

    def _hear_out(self, node: str, satellite: _Satellite, now: float) -> None:
        if satellite.tells_at is None or satellite.tells_at > now:
            return
        satellite.tells_at = None
        for name, resource in self._drbd.resources.items():
            if node in resource.replicas:
                self._take_in(name, node)

    def _disconnect(self, node: str, satellite: _Satellite) -> None:
        satellite.boot = satellite.connects_at = None
        satellite.tells_at = satellite.gives_up_at = None
        for resource in [name for name, sights in self._known.items() if node in sights]:
            self._learn(resource, node, None)

    def _read_log(self) -> None:
        log, self._read = self._drbd.log[self._read :], len(self._drbd.log)
        for name in dict.fromkeys(log):
            resource = self._drbd.resources.get(name)
            there = [] if resource is None else list(resource.replicas)
            for node in [each for each in self._known.get(name, {}) if each not in there]:
                self._learn(name, node, None)
            for node in there:
                self._take_in(name, node)

    def _take_in(self, resource: str, node: str) -> None:
        satellite = self._satellites.get(node)
        heard = satellite is not None and satellite.is_heard
        if heard and node not in self._hearing.sticky and self.database.definitions.get(resource):
            self._learn(resource, node, self._drbd.sight(resource, node))

    def _learn(self, resource: str, node: str, sight: Sight | None) -> None:
        known = self._known.setdefault(resource, {})
        before = known.pop(node, None)
        if sight is not None:
            known[node] = sight
        may_promote = sight.may_promote if sight else None
        if may_promote is not (before.may_promote if before else None):
            self.promotions.publish(*self._shown(resource, node), may_promote)

    def _snapshot(self) -> list[tuple[str, str, bool | None]]:
        """Of every replica, what may be promoted as far as it knows."""
        return [
            (*self._shown(name, node), sight.may_promote if sight else None)
            for name, definition in self.database.definitions.items()
            if definition.has_drbd
            for node in self._drbd.resources[name].replicas
            for sight in (self.sight(name, node),)
        ]

    def _shown(self, resource: str, node: str) -> tuple[str, str]:
        definition = self.database.definitions.get(resource)
        return definition.name if definition else resource, self.database.shown(node)
