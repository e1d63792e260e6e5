"""Frames: one decision and all that it rested on, as it is kept.

A frame is made whenever the decision about a node changes (``Frames``): the snapshot, the decision,
the names of the checks that were asked and the times that held. ``recorder`` keeps them on disk and
``blackbox`` in the cluster; ``replay`` decides them once more.
"""

import math
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from backstay.decide.failover import Action, Check, Decision, Snapshot
from backstay.model.evidence import Evidence
from backstay.model.moments import time_text
from backstay.model.policy import Times
from backstay.model.reasons import Reason, Why
from backstay.record.telling import same_why
from backstay.seam.clock import WallClock

FORMAT: Final = "backstay-flight"
VERSION = 1


class Header(msgspec.Struct, frozen=True):
    """The first line of a recording."""

    format: Literal["backstay-flight"]
    version: int
    program: str
    at: str


class Judged(msgspec.Struct, frozen=True):
    """A verdict, without the workload that stands in the snapshot already."""

    workload: str
    action: Action
    why: Why


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision, as it is kept."""

    why: Why
    verdicts: tuple[Judged, ...] = ()
    evidence: tuple[Evidence, ...] = ()

    def says_the_same(self, other: "Outcome") -> bool:
        """Whether only numbers of seconds differ, or when evidence was looked at."""
        mine, others = _subjects(self), _subjects(other)
        return mine.keys() == others.keys() and all(
            mine[key][0] == others[key][0] and same_why(mine[key][1], others[key][1])
            for key in mine
        )


class Frame(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decision and what it rested on. ``now`` is the event loop's time at which it was made;
    ``blind`` stands for a view without any age, which JSON cannot say."""

    at: str
    now: float
    node: str
    snapshot: Snapshot
    outcome: Outcome
    chain: tuple[str, ...]
    times: Times
    blind: bool = False

    @property
    def question(self) -> Snapshot:
        """The snapshot as it was decided on."""
        if not self.blind:
            return self.snapshot
        return msgspec.structs.replace(self.snapshot, view_age=math.inf)


def outcome_of(decision: Decision) -> Outcome:
    verdicts = tuple(Judged(v.workload.key, v.action, v.why) for v in decision.verdicts)
    return Outcome(decision.why, verdicts, decision.evidence)


def chain_names(chain: Sequence[Check]) -> tuple[str, ...]:
    return tuple(str(getattr(check, "__name__", check)) for check in chain)


class Frames:
    """Makes a frame of every decision that is another one than the last of the same node."""

    def __init__(self, wall: WallClock, *, times: Times, chain: Sequence[Check]) -> None:
        self._wall = wall
        self._times = times
        self._chain = chain
        self._last: dict[str, Outcome] = {}

    def of(self, snapshot: Snapshot, decision: Decision, now: float) -> Frame | None:
        """None if it is no news."""
        outcome = outcome_of(decision)
        before = self._last.get(decision.node)
        self._last[decision.node] = outcome
        if not _is_news(outcome, before):
            return None
        blind = math.isinf(snapshot.view_age)
        return Frame(
            at=time_text(self._wall.now()),
            now=now,
            node=decision.node,
            snapshot=msgspec.structs.replace(snapshot, view_age=0.0) if blind else snapshot,
            outcome=outcome,
            chain=chain_names(self._chain),
            times=self._times,
            blind=blind,
        )

    def forget(self, node: str) -> None:
        """What is decided of this node next has nothing to do with what was decided before."""
        self._last.pop(node, None)

    def forget_all(self) -> None:
        self._last.clear()


def _is_news(outcome: Outcome, before: Outcome | None) -> bool:
    if before is None:
        # As every node begins: thousands of them are no news when a controller starts.
        return outcome.why.code != Reason.NodeHealthy.name
    return not before.says_the_same(outcome)


def _subjects(outcome: Outcome) -> dict[str, tuple[object, Why]]:
    proof = tuple((each.kind, each.source) for each in outcome.evidence)
    each: dict[str, tuple[object, Why]] = {"": (proof, outcome.why)}
    return each | {v.workload: (v.action, v.why) for v in outcome.verdicts}
