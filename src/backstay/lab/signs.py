"""Signs: what of a node's life was shown to whom, at which version and at which moment.

A kubelet shows it by renewing its lease, a virt-handler by its heartbeat at the node, and whoever
listens at a port of the node by answering (``knocks.py``). What the API was told has the version
that came of it, and one of ours can know of it from when it looked at that object of that version
or a later one (``looks.py``): so "since" is told by versions, and "how long ago" by the world's own
clock, and never by what somebody wrote as a time.

What is shown late, when whoever asks had long begun to suspect the node, must not be overlooked;
but everybody is given some slack to notice it.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from backstay.lab.knocks import Knocks
from backstay.lab.looks import Looks
from backstay.lab.restores import KEPT
from backstay.lab.terms import Terms
from backstay.model.labels import HEARTBEAT
from backstay.model.policy import Times
from backstay.sim.api.store import Commit, Stored

_SLACK = 10.0
"""Seconds by which one of ours may be behind with what it has seen."""


class _Sign(msgspec.Struct, frozen=True):
    version: int
    at: float


_NEVER = _Sign(0, -math.inf)


@dataclass(frozen=True)
class Signs:
    """See the module. ``user`` is one of ours who asks for something, in a request that left at
    ``sent``. Signs come in the order of their versions and of their moments alike."""

    looks: Looks
    terms: Terms
    knocks: Knocks
    times: Times
    _renewals: dict[str, list[_Sign]] = field(default_factory=lambda: defaultdict(list))
    _beats: dict[str, list[_Sign]] = field(default_factory=lambda: defaultdict(list))

    # Taking note

    def note_lease(self, commit: Commit, *, version: int, at: float) -> None:
        """Something was done to a node's lease."""
        before, after = commit.before, commit.after
        if before is None or _renewal(before) != _renewal(after):
            self._renewals[after.key[1]].append(_Sign(version, at))

    def note_node(self, commit: Commit, *, version: int, at: float) -> None:
        """Something was done to a node."""
        if commit.before is not None and _beat(commit.before) != _beat(commit.after):
            self._beats[commit.after.key[1]].append(_Sign(version, at))

    def forget(self, since: float) -> None:
        """What was shown after that moment is in no history that anybody can look at."""
        for known in (self._renewals, self._beats):
            for signs in known.values():
                signs[:] = [sign for sign in signs if sign.at <= since]

    # What was shown

    def renewed_at(self, node: str, *, until: float = math.inf) -> float:
        """When its lease was last renewed, up to that version; -inf if never."""
        return _last(self._renewals.get(node, ()), until).at

    def shown(self, node: str, *, until: float = math.inf) -> int:
        """The version at which its kubelet or its virt-handler was last heard of, up to then."""
        renewal = _last(self._renewals.get(node, ()), until)
        return max(renewal.version, _last(self._beats.get(node, ()), until).version)

    # What whoever asks could know of it

    def seen_renewed_at(self, user: str, node: str, *, sent: float) -> float:
        """When its lease was last renewed, as far as that one could see, if it has looked just
        now."""
        look = self.looks.at_lease(user, node, sent=sent)
        if look is None or sent - look.at > self.times.fresh:
            return self.renewed_at(node)
        return self.renewed_at(node, until=look.version)

    def heard_at(self, user: str, node: str, *, sent: float) -> float:
        """When the API had last heard of it, as far as that one could see; inf if it has not
        looked."""
        seen = self.looks.at_node(user, node, sent=sent)
        lease = self.looks.at_lease(user, node, sent=sent)
        if seen is None or lease is None:
            return math.inf
        beat = _last(self._beats.get(node, ()), seen.version)
        return max(self.renewed_at(node, until=lease.version), beat.at)

    def late(self, user: str, node: str, *, sent: float, slack: float = _SLACK) -> str:
        """What that one had heard of the node when its lease had been silent for long; empty if
        nothing. ``slack`` is by how many seconds it may have been behind with that."""
        seen = self.looks.at_node(user, node, sent=sent)
        beat = _last(self._beats.get(node, ()), seen.version).at if seen else -math.inf
        if self._is_late(user, node, beat, sent=sent, within=self.times.heartbeat, slack=slack):
            return f"virt-handler of {node} had been heard of {sent - beat:.0f} s before"
        return self.late_answer(user, node, sent=sent, slack=slack)

    def late_answer(self, user: str, node: str, *, sent: float, slack: float = _SLACK) -> str:
        """The same of what had answered that one at a port of the node."""
        met = self.knocks.answered_at(user, node, by=sent)
        if not self._is_late(user, node, met, sent=sent, within=self.times.answer, slack=slack):
            return ""
        return f"{node} had answered at its port {sent - met:.0f} s before"

    def had_to_be_told(self, node: str, *, since: float) -> bool:
        """Whether it has answered whoever led, after that moment, who then had the time to write it
        down."""
        factor = self.knocks.factor
        return any(
            self.terms.went_on(user, at) > KEPT * factor
            for user, at in self.knocks.meetings(node, after=since + _SLACK * factor)
        )

    def _is_late(
        self, user: str, node: str, at: float, *, sent: float, within: float, slack: float
    ) -> bool:
        """Whether a sign still counts, and was given when that one had long begun to suspect the
        node."""
        silent = max(self.renewed_at(node), self.terms.began(user, sent))
        slack *= self.knocks.factor
        return at > silent + self.times.suspect + slack and sent - at < within - slack


def _last(signs: Sequence[_Sign], until: float) -> _Sign:
    return next((sign for sign in reversed(signs) if sign.version <= until), _NEVER)


def _renewal(lease: Stored) -> object:
    return lease.object["spec"].get("renewTime")


def _beat(node: Stored) -> object:
    return (node.object["metadata"].get("annotations") or {}).get(HEARTBEAT)
