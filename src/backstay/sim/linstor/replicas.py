"""Replicas of one DRBD resource, their connections, and what follows from both.

Two things are kept apart here, because all that goes wrong with replicated storage is in between:

* what is so: whether a connection still carries anything (``answers``), who can complete a write;
* what a replica believes: a connection is up until a ping goes unanswered for too long, and a peer
  is as it was when it was last heard of. Quorum and ``may_promote`` go by that.

A write is complete when every peer that is believed to be connected and has a disk has it as well.
So a Primary whose peers are silent cannot write even before it notices that they are gone.

``history`` names the generations of data that a replica has had. A Primary that goes on writing
while somebody who has the same data is away begins a new one: whoever lacks it is behind, and two
that have begun different ones have a split brain.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from backstay.sim.linstor.quorum import Ballot, has_quorum

History = tuple[int, ...]


class Kind(StrEnum):
    DISKFUL = "diskful"
    DISKLESS = "diskless"
    TIE_BREAKER = "tie-breaker"


class Role(StrEnum):
    PRIMARY = "Primary"
    SECONDARY = "Secondary"


class Disk(StrEnum):
    UP_TO_DATE = "UpToDate"
    OUTDATED = "Outdated"
    INCONSISTENT = "Inconsistent"
    DISKLESS = "Diskless"


class Link(StrEnum):
    """One end of a connection, in DRBD's words."""

    CONNECTED = "Connected"
    CONNECTING = "Connecting"
    STAND_ALONE = "StandAlone"


@dataclass(frozen=True)
class Options:
    """Of a resource. ``outdated_primary`` is what becomes of a Primary that lost its quorum and
    comes back to newer data: it stays apart, or it is made Secondary and what has it open is given
    errors."""

    quorum: str = "majority"
    on_no_quorum: Literal["suspend-io", "io-error"] = "suspend-io"
    allow_two_primaries: bool = False
    outdated_primary: Literal["disconnect", "force-secondary"] = "force-secondary"


@dataclass(frozen=True)
class PeerSight:
    """A peer as it was when it was last heard of."""

    role: Role
    disk: Disk


@dataclass
class End:
    """What one replica has of a connection. ``notices_at`` is when it will find out that nothing
    comes any more."""

    link: Link = Link.CONNECTING
    peer: PeerSight = PeerSight(Role.SECONDARY, Disk.OUTDATED)
    left_outdated: bool = False
    notices_at: float | None = None


@dataclass
class Replica:
    """``up``: its node runs and has it configured. ``held_back``: somebody there has asked DRBD to
    complete no write for the time being, as for a snapshot; LINSTOR does not tell. ``disowned``:
    the others were told to go on as if it were not there; it was not."""

    node: str
    kind: Kind
    disk: Disk
    history: History = ()
    role: Role = Role.SECONDARY
    up: bool = True
    held_back: bool = False
    disowned: bool = False
    ends: dict[str, End] = field(default_factory=dict)
    synced_at: float | None = None

    @property
    def votes(self) -> bool:
        return self.kind is Kind.DISKFUL

    @property
    def is_primary(self) -> bool:
        return self.role is Role.PRIMARY

    @property
    def has_data(self) -> bool:
        return self.disk is Disk.UP_TO_DATE

    def believes_connected(self, peer: str) -> bool:
        return self.ends[peer].link is Link.CONNECTED


@dataclass(frozen=True)
class Sight:
    """A replica as its own node sees it, and as its satellite reports it."""

    role: Role
    disk: Disk
    kind: Kind
    connections: dict[str, Link]
    quorum: bool
    suspended: bool
    may_promote: bool
    promotion_score: int


class Resource:
    """All replicas of one volume. ``carries`` says whether two nodes can talk to each other."""

    def __init__(self, name: str, options: Options, carries: Callable[[str, str], bool]) -> None:
        self.name = name
        self.options = options
        self.own_options: dict[str, Options] = {}
        """Of the nodes on which others hold than for the rest."""
        self.replicas: dict[str, Replica] = {}
        self.holders: dict[History, set[str]] = {}
        """Who has ever had these data as its newest, with a disk."""
        self._carries = carries

    def __getitem__(self, node: str) -> Replica:
        return self.replicas[node]

    def give(self, replica: Replica, history: History) -> None:
        """Its disk has these data from now on."""
        replica.history = history
        self.holders.setdefault(history, set()).add(replica.node)

    # What is so

    def is_open(self, one: str, other: str) -> bool:
        """Whether the two could have a connection now."""
        mine, its = self.replicas[one], self.replicas[other]
        there = mine.up and its.up and not mine.disowned and not its.disowned
        return there and self._carries(one, other)

    def answers(self, one: str, other: str) -> bool:
        """Whether a connection is there and carries something."""
        return (
            self.replicas[one].ends[other].link is Link.CONNECTED
            and self.replicas[other].ends[one].link is Link.CONNECTED
            and self.is_open(one, other)
        )

    def answering(self, node: str) -> Iterator[Replica]:
        for peer in self[node].ends:
            if self.answers(node, peer):
                yield self[peer]

    def all_answer(self, node: str) -> bool:
        """Whether everybody does whom it believes to be connected."""
        mine = self[node]
        return all(self.answers(node, peer) for peer in mine.ends if mine.believes_connected(peer))

    def reachable(self, node: str) -> set[str]:
        """Whom a question of this node gets to, from peer to peer; itself included."""
        found, left = {node}, [node]
        while left:
            for peer in self.answering(left.pop()):
                if peer.node not in found:
                    found.add(peer.node)
                    left.append(peer.node)
        return found

    def has_data(self, node: str) -> bool:
        """Whether the newest data can be read there."""
        return self[node].has_data or any(peer.has_data for peer in self.answering(node))

    def can_write(self, node: str) -> bool:
        """Whether a write that is begun there now would be completed."""
        mine = self.replicas.get(node)
        return (
            mine is not None
            and mine.up
            and mine.is_primary
            and not mine.held_back
            and self.has_quorum(node)
            and self.all_answer(node)
            and self.has_data(node)
        )

    # What a replica believes

    def has_quorum(self, node: str) -> bool:
        return has_quorum(self.options_of(node).quorum, self._ballot(self[node]))

    def options_of(self, node: str) -> Options:
        return self.own_options.get(node, self.options)

    def _ballot(self, mine: Replica) -> Ballot:
        voters = present = diskless = diskless_present = 0
        for peer in self.replicas.values():
            if peer.disowned and peer is not mine:
                continue
            there = peer is mine or mine.ends[peer.node].link is Link.CONNECTED
            if peer.kind is not Kind.DISKFUL:
                diskless += 1
                diskless_present += there
            elif there or not mine.ends[peer.node].left_outdated:
                voters += 1
                present += there
        return Ballot(voters, present, diskless, diskless_present)

    def may_promote(self, node: str) -> bool:
        """As ``drbdsetup events2`` says it, which asks nobody else."""
        mine = self[node]
        peers = [end.peer for end in mine.ends.values() if end.link is Link.CONNECTED]
        return (
            mine.up
            and self.has_quorum(node)
            and (mine.has_data or any(peer.disk is Disk.UP_TO_DATE for peer in peers))
            and not mine.is_primary
            and not any(peer.role is Role.PRIMARY for peer in peers)
        )

    def sight(self, node: str) -> Sight:
        mine = self[node]
        peers = [end.peer for end in mine.ends.values() if end.link is Link.CONNECTED]
        with_data = sum(peer.disk is Disk.UP_TO_DATE for peer in peers) + mine.has_data
        quorum = self.has_quorum(node)
        suspends = self.options_of(node).on_no_quorum == "suspend-io"
        return Sight(
            role=mine.role,
            disk=mine.disk,
            kind=mine.kind,
            connections={
                peer: end.link for peer, end in mine.ends.items() if not self[peer].disowned
            },
            quorum=quorum,
            suspended=mine.is_primary and not quorum and suspends,
            may_promote=self.may_promote(node),
            promotion_score=10_000 * mine.votes + 100 * mine.has_data + min(with_data, 99),
        )
