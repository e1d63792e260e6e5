"""Drbd: replicated block devices as the kernels of all nodes run them. The ground truth.

Nothing here knows of LINSTOR or of Kubernetes. Everything happens by an explicit step: somebody
promotes or demotes, a node comes or goes, a link is cut or mended, or time passes (``advance``,
which says when it wants to be called again). ``can_write`` is true of a node at the moment at which
it is asked. ``follow`` tells of every resource that may have changed in the same instant; ``log``
and ``changed`` are for programs, which are told later, or never if they are dead by then.

* A connection lives as long as both ends believe in it. Each end finds out by itself, after pings
  have gone unanswered, that nothing comes any more; a node that shuts down says so. An interruption
  that is over before anybody noticed did no harm. An end whose peer has given up learns of it as
  soon as the two can talk again.
* A promotion asks everybody who can be reached, from peer to peer. It is refused without quorum,
  without newest data, while somebody reachable is Primary (unless two may be), and while a peer
  that is believed to be there does not answer.
* Two that meet again compare their data. Who is behind is brought up to date. A Primary that is
  behind is made Secondary, or stays apart. Two that have both gone on writing stand alone.
* A replica that a Primary cannot reach is outdated as soon as somebody in between tells it.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace

from backstay.sim.linstor.replicas import (
    Disk,
    End,
    History,
    Kind,
    Link,
    Options,
    PeerSight,
    Replica,
    Resource,
    Role,
    Sight,
)

_FIRST: History = (0,)


class Refused(Exception):
    """A device could not be made Primary, and why, in DRBD's words."""


@dataclass(frozen=True)
class Pace:
    """In seconds: between what and what it takes until silence is noticed and until two that can
    talk again have a connection, and how long it takes to bring a replica up to date."""

    shortest_silence: float = 7.0
    longest_silence: float = 13.0
    quickest_connect: float = 0.5
    slowest_connect: float = 5.0
    resync: float = 5.0

    def scaled(self, factor: float) -> "Pace":
        return replace(self, **{f.name: getattr(self, f.name) * factor for f in fields(self)})


class Drbd:
    """See the module. ``between`` draws from a range; ``reaches`` says whether what one node sends
    gets to the other."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        between: Callable[[float, float], float],
        reaches: Callable[[str, str], bool] = lambda one, other: True,
        pace: Pace | None = None,
    ) -> None:
        self.resources: dict[str, Resource] = {}
        self.log: list[str] = []
        """The names of the resources that may have changed, one after the other."""
        self._news = asyncio.Event()
        self._now = now
        self._between = between
        self._reaches = reaches
        self._pace = pace or Pace()
        self._cut: set[tuple[str, str]] = set()
        self._down: set[str] = set()
        self._due: list[tuple[float, int, Callable[[float], None]]] = []
        self._serial = 0
        self._generation = 0
        self._connects_at: dict[tuple[str, str, str], float] = {}
        self._followers: tuple[Callable[[str], None], ...] = ()

    # What is true

    def can_write(self, resource: str, node: str) -> bool:
        """Whether a write that is begun there now would be completed."""
        return self.resources[resource].can_write(node)

    def sight(self, resource: str, node: str) -> Sight | None:
        """What its own node sees of a replica; None while it is down."""
        replica = self.resources[resource].replicas.get(node)
        return None if replica is None or not replica.up else self.resources[resource].sight(node)

    def follow(self, follower: Callable[[str], None]) -> Callable[[], None]:
        """Calls it with the name of every resource of which something may have changed; returns
        how to end that."""
        self._followers = (*self._followers, follower)

        def release() -> None:
            self._followers = tuple(each for each in self._followers if each is not follower)

        return release

    async def changed(self) -> None:
        """Returns when something may have changed, be it only who reaches whom."""
        await self._news.wait()

    # What people and LINSTOR do

    def create(
        self, name: str, replicas: Mapping[str, Kind], options: Options | None = None
    ) -> None:
        """A new resource, whose replicas are connected and alike."""
        made = Resource(name, options or Options(), self._carries)
        self.resources[name] = made
        for node, kind in replicas.items():
            self._place(made, node, kind)
        for one, other in _pairs(made):
            if made.is_open(one, other):
                self._join(made, one, other)
        self._settle(made)

    def delete(self, name: str) -> None:
        del self.resources[name]
        self._tell(name)

    def configure(
        self, name: str, options: Options, own: Mapping[str, Options] | None = None
    ) -> None:
        """``own`` is for nodes on which others hold."""
        resource = self.resources[name]
        resource.options, resource.own_options = options, dict(own or {})
        self._settle(resource)

    def add_diskless(self, name: str, node: str) -> None:
        """One more replica, which has no disk; it is connected with whom it reaches at once."""
        resource = self.resources[name]
        self._place(resource, node, Kind.DISKLESS)
        for peer in list(resource[node].ends):
            if resource.is_open(node, peer):
                self._meet(resource, node, peer)
        self._examine(resource)

    def remove(self, name: str, node: str) -> None:
        """Takes a replica away, and all knowledge of it."""
        resource = self.resources[name]
        del resource.replicas[node]
        for holders in resource.holders.values():
            holders.discard(node)
        for replica in resource.replicas.values():
            replica.ends.pop(node, None)
        self._settle(resource)

    def disown(self, name: str, node: str) -> None:
        """All others go on as if this replica were not there; its own node has not heard of it."""
        resource = self.resources[name]
        resource[node].disowned = True
        for peer in resource[node].ends:
            self._drop(resource[peer].ends[node])
        self._examine(resource)

    def promote(self, name: str, node: str) -> None:
        """Raises ``Refused``."""
        resource = self.resources[name]
        mine = resource.replicas.get(node)
        if mine is None or not mine.up:
            raise Refused("no such resource")
        if mine.is_primary:
            return
        if not resource.has_quorum(node):
            raise Refused("No quorum")
        if not resource.all_answer(node):
            raise Refused("Timeout in operation")
        if not resource.has_data(node):
            raise Refused("Need access to UpToDate data")
        others = [each for each in self._primaries(resource, node) if each is not mine]
        if others and not resource.options_of(node).allow_two_primaries:
            raise Refused("Multiple primaries not allowed by config")
        mine.role = Role.PRIMARY
        self._settle(resource)

    def demote(self, name: str, node: str) -> None:
        """The last one has closed it."""
        replica = self.resources[name].replicas.get(node)
        if replica is not None and replica.is_primary:
            replica.role = Role.SECONDARY
            self._settle(self.resources[name])

    def hold_back(self, name: str, node: str, *, on: bool = True) -> None:
        """Somebody has its writes wait, as a snapshot does, or go on."""
        self.resources[name][node].held_back = on
        self._settle(self.resources[name])

    def reconnect(self, name: str, node: str, *, discard: bool = False) -> None:
        """Somebody ends a split brain: this replica tries again, with or without its own data."""
        resource = self.resources[name]
        if discard:
            resource[node].history, resource[node].disk = (), Disk.INCONSISTENT
        for peer, end in resource[node].ends.items():
            for each in (end, resource[peer].ends[node]):
                each.link = Link.CONNECTING if each.link is Link.STAND_ALONE else each.link
        self._examine(resource)

    # What happens to nodes and links

    def cut(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Nothing that DRBD sends gets from one to the other, nor back unless ``one_way``."""
        self._cut.add((one, other))
        if not one_way:
            self._cut.add((other, one))
        self.look_around()

    def mend(self, one: str, other: str) -> None:
        self._cut -= {(one, other), (other, one)}
        self.look_around()

    def lose_power(self, node: str) -> None:
        """Its peers hear nothing of it."""
        if node in self._down:
            return
        self._down.add(node)
        for resource in self._with(node):
            self._take_down(resource, node)
            self._examine(resource)

    def shut_down(self, node: str) -> None:
        """It says goodbye, and its disks know that others go on without it."""
        self._down.add(node)
        for resource in self._with(node):
            mine = resource[node]
            peers = list(resource.answering(node))
            if mine.has_data and any(peer.has_data for peer in peers):
                mine.disk = Disk.OUTDATED
            for peer in peers:
                self._drop(peer.ends[node])
                peer.ends[node].left_outdated = mine.disk is not Disk.UP_TO_DATE
            self._take_down(resource, node)
            self._examine(resource)

    def boot(self, node: str) -> None:
        self._down.discard(node)
        for resource in self._with(node):
            resource[node].up = True
            self._examine(resource)

    def look_around(self) -> None:
        """Who reaches whom has changed."""
        for resource in list(self.resources.values()):
            self._examine(resource)
        self._wake()

    def advance(self) -> float | None:
        """Does what is due; returns when there will be something to do again."""
        while self._due and self._due[0][0] <= self._now():
            at, _, step = heapq.heappop(self._due)
            step(at)
        return self.due

    @property
    def due(self) -> float | None:
        return self._due[0][0] if self._due else None

    # Connections

    def _carries(self, one: str, other: str) -> bool:
        return (
            (one, other) not in self._cut
            and (other, one) not in self._cut
            and self._reaches(one, other)
            and self._reaches(other, one)
        )

    def _examine(self, resource: Resource) -> None:
        """Lets each end notice, sooner or later, what has become of its connection."""
        for one, other in _pairs(resource):
            is_open = resource.is_open(one, other)
            mine, its = resource[one], resource[other]
            ends = ((mine, mine.ends[other]), (its, its.ends[one]))
            links = {end.link for _, end in ends}
            for replica, end in ends:
                if end.link is not Link.CONNECTED or not replica.up:
                    continue
                if not is_open:
                    self._will_notice(resource, replica.node, end)
                elif len(links) > 1:
                    self._drop(end)
                else:
                    end.notices_at = None
            # As they are by now: one may just have been dropped.
            if is_open and mine.ends[other].link is its.ends[one].link is Link.CONNECTING:
                self._will_connect(resource, one, other)
        self._settle(resource)

    def _will_notice(self, resource: Resource, node: str, end: End) -> None:
        if end.notices_at is not None:
            return
        pace = self._pace
        due = self._now() + self._between(pace.shortest_silence, pace.longest_silence)
        end.notices_at = due

        def notice(at: float) -> None:
            if end.notices_at == at and resource.replicas.get(node):
                self._drop(end)
                self._examine(resource)

        self._at(due, notice)

    def _will_connect(self, resource: Resource, one: str, other: str) -> None:
        key = (resource.name, one, other)
        if key in self._connects_at:
            return
        pace = self._pace
        due = self._now() + self._between(pace.quickest_connect, pace.slowest_connect)
        self._connects_at[key] = due

        def connect(_: float) -> None:
            self._connects_at.pop(key, None)
            if not {one, other} <= resource.replicas.keys() or not resource.is_open(one, other):
                return
            ends = resource[one].ends[other], resource[other].ends[one]
            if all(end.link is Link.CONNECTING for end in ends):
                self._meet(resource, one, other)
                self._examine(resource)

        self._at(due, connect)

    def _meet(self, resource: Resource, one: str, other: str) -> None:
        """Two that have no connection and can have one find out whether they may."""
        mine, theirs = self._data_of(resource, one), self._data_of(resource, other)
        primaries = [*self._primaries(resource, one), *self._primaries(resource, other)]
        if mine is None or theirs is None or mine == theirs:
            if len({each.node for each in primaries}) < 2 or resource.options.allow_two_primaries:
                self._join(resource, one, other)
            return
        if not (_is_behind(mine, theirs) or _is_behind(theirs, mine)):
            resource[one].ends[other].link = resource[other].ends[one].link = Link.STAND_ALONE
            return
        behind, newest = (one, theirs) if _is_behind(mine, theirs) else (other, mine)
        for primary in self._primaries(resource, behind):
            if self._data_of(resource, primary.node) == newest:
                # It can be reached from there by way of others.
                continue
            if resource.options_of(primary.node).outdated_primary == "disconnect":
                return
            if resource.has_quorum(primary.node):
                return
            primary.role = Role.SECONDARY
        self._join(resource, one, other)

    def _join(self, resource: Resource, one: str, other: str) -> None:
        for node, peer in ((one, other), (other, one)):
            end = resource[node].ends[peer]
            end.link, end.left_outdated, end.notices_at = Link.CONNECTED, False, None

    def _drop(self, end: End) -> None:
        end.link, end.notices_at = Link.CONNECTING, None

    def _take_down(self, resource: Resource, node: str) -> None:
        mine = resource[node]
        mine.up, mine.role, mine.synced_at = False, Role.SECONDARY, None
        mine.held_back = False
        for end in mine.ends.values():
            self._drop(end)
            end.left_outdated = False

    # Data

    def _settle(self, resource: Resource) -> None:
        """What follows at once from who is connected with whom."""
        for replica in resource.replicas.values():
            self._begin_generation(resource, replica)
        for replica in resource.replicas.values():
            if replica.up and replica.votes:
                self._judge(resource, replica)
        for replica in resource.replicas.values():
            for peer in resource.answering(replica.node):
                replica.ends[peer.node].peer = PeerSight(peer.role, peer.disk)
        self._tell(resource.name)

    def _begin_generation(self, resource: Resource, primary: Replica) -> None:
        if not resource.can_write(primary.node):
            return
        base = self._data_of(resource, primary.node) or ()
        answering = list(resource.answering(primary.node))
        here = {primary.node, *(peer.node for peer in answering)}
        if resource.holders.get(base, set()) - here:
            self._generation += 1
            base = (*base, self._generation)
            for each in (primary, *answering):
                if each.has_data:
                    resource.give(each, base)
        primary.history = base if primary.has_data or not primary.votes else primary.history

    def _judge(self, resource: Resource, mine: Replica) -> None:
        """Whether a disk has the newest data, as far as anybody tells it."""
        reachable = [resource[node] for node in resource.reachable(mine.node)]
        behind = any(_is_behind(mine.history, each.history) for each in reachable if each.votes)
        if behind and mine.has_data:
            mine.disk = Disk.OUTDATED
        if mine.has_data:
            return
        answering = list(resource.answering(mine.node))
        cut_off = any(each.is_primary and each not in (mine, *answering) for each in reachable)
        sources = [peer for peer in answering if peer.has_data]
        if cut_off or not sources:
            mine.synced_at = None
        elif any(mine.history == source.history for source in sources):
            mine.disk, mine.synced_at = Disk.UP_TO_DATE, None
        elif mine.synced_at is None:
            self._resync(resource, mine)

    def _resync(self, resource: Resource, mine: Replica) -> None:
        mine.disk = Disk.INCONSISTENT
        due = mine.synced_at = self._now() + self._pace.resync

        def done(at: float) -> None:
            if mine.synced_at != at:
                return
            mine.synced_at = None
            source = next(peer for peer in resource.answering(mine.node) if peer.has_data)
            mine.disk = Disk.UP_TO_DATE
            resource.give(mine, source.history)
            self._settle(resource)

        self._at(due, done)

    def _data_of(self, resource: Resource, node: str) -> History | None:
        """The newest data that is to be had there, or that its Primary has seen."""
        mine = resource[node]
        if mine.has_data:
            return mine.history
        for peer in resource.answering(node):
            if peer.has_data:
                return peer.history
        return mine.history if mine.votes or mine.is_primary else None

    def _primaries(self, resource: Resource, node: str) -> list[Replica]:
        found = (resource[each] for each in sorted(resource.reachable(node)))
        return [each for each in found if each.is_primary]

    # Inside

    def _place(self, resource: Resource, node: str, kind: Kind) -> None:
        has_disk = kind is Kind.DISKFUL
        made = Replica(
            node,
            kind,
            Disk.UP_TO_DATE if has_disk else Disk.DISKLESS,
            up=node not in self._down,
        )
        for peer in resource.replicas.values():
            peer.ends[node], made.ends[peer.node] = End(), End()
        resource.replicas[node] = made
        if has_disk:
            resource.give(made, _FIRST)

    def _with(self, node: str) -> list[Resource]:
        return [each for each in self.resources.values() if node in each.replicas]

    def _at(self, due: float, step: Callable[[float], None]) -> None:
        self._serial += 1
        heapq.heappush(self._due, (due, self._serial, step))

    def _tell(self, name: str) -> None:
        self.log.append(name)
        for follower in self._followers:
            follower(name)
        self._wake()

    def _wake(self) -> None:
        # Whoever begins to wait now, waits for the next change.
        news, self._news = self._news, asyncio.Event()
        news.set()


def _pairs(resource: Resource) -> Iterator[tuple[str, str]]:
    names = list(resource.replicas)
    for number, one in enumerate(names):
        for other in names[number + 1 :]:
            yield one, other


def _is_behind(one: History, other: History) -> bool:
    return len(one) < len(other) and other[: len(one)] == one
