"""Maintenances: who asked for which node to be drained, when, and who has cordoned it.

Whoever drains hears of it with a delay, be it that somebody ends it: ``SLACK`` is how long that may
take. What a restored API had forgotten, nobody can be held to.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from backstay.model.labels import DRAIN_TAINT, EXCLUDE, MAINTENANCE
from backstay.sim.api.store import Commit

Json = Mapping[str, Any]

SLACK = 5.0
"""Seconds in which whoever watches has heard of something, and has heeded it."""


class Part(StrEnum):
    """What a maintenance puts on a node, and takes off again."""

    CORDON = "cordon"
    TAINT = "taint"
    LABEL = "label"


_NONE: frozenset[Part] = frozenset()


def parts_on(node: Json) -> frozenset[Part]:
    spec, meta = node.get("spec") or {}, node.get("metadata") or {}
    taints, cordoned = spec.get("taints"), spec.get("unschedulable")
    labelled = EXCLUDE in (meta.get("labels") or {})
    if not (cordoned or taints or labelled):
        # As almost always, and this is asked of every change of a node.
        return _NONE
    found = {
        Part.CORDON: bool(cordoned),
        Part.TAINT: any(each["key"] == DRAIN_TAINT for each in taints or ()),
        Part.LABEL: labelled,
    }
    return frozenset(part for part, there in found.items() if there)


@dataclass
class _Asking:
    """One NodeMaintenance, from when it was there until somebody ended it."""

    node: str
    since: float
    until: float = math.inf


@dataclass
class Maintenances:
    """See the module."""

    _asking: dict[str, _Asking] = field(default_factory=dict)
    """By uid."""
    _ours: dict[tuple[str, Part], bool | None] = field(default_factory=dict)
    """Whether it is for ours to take it off that node again; None since a restore of the API, by
    which what is said about it on the node may have changed."""
    _open_since: dict[str, float] = field(default_factory=dict)
    """By node: since when anything could be put there."""
    _away_since: dict[str, float] = field(default_factory=dict)
    """By node: since when it says that it is in maintenance on our account."""

    @property
    def any_asked(self) -> bool:
        """Whether anybody ever did."""
        return bool(self._asking)

    def note(self, commit: Commit, now: float) -> None:
        meta = commit.after.object["metadata"]
        asking = self._asking.setdefault(
            meta["uid"], _Asking(commit.after.object["spec"]["nodeName"], now)
        )
        if commit.deleted or meta.get("deletionTimestamp"):
            asking.until = min(asking.until, now)

    def note_node(self, commit: Commit, *, by_us: bool, now: float) -> None:
        name = commit.after.key[1]
        before = frozenset[Part]() if commit.before is None else parts_on(commit.before.object)
        after = parts_on(commit.after.object)
        said = commit.after.object["metadata"].get("annotations") or {}
        for part in after - before:
            # Who takes off what we have put on, and puts it back, has changed nothing. What was on
            # before we came is for others to take off, be it that a maintenance is asked for.
            known = MAINTENANCE in said and self._ours.get((name, part), False)
            self._ours[name, part] = by_us or known
        if MAINTENANCE not in said:
            self._away_since.pop(name, None)
        elif by_us:
            self._away_since.setdefault(name, now)
        if Part.CORDON in after:
            self._open_since.pop(name, None)
        else:
            self._open_since.setdefault(name, now)

    def restored(self, kept: Iterable[Json], now: float) -> None:
        """The API was restored from a backup in which these are."""
        uids = {each["metadata"]["uid"]: each["metadata"] for each in kept}
        for uid, asking in self._asking.items():
            if uid not in uids:
                asking.until = min(asking.until, now)
            elif not uids[uid].get("deletionTimestamp"):
                asking.until = math.inf
        self._ours = dict.fromkeys(self._ours)
        self._open_since.clear()
        self._away_since.clear()

    def is_asked_for(self, node: str, when: float, *, slack: float = 0.0) -> bool:
        """Whether somebody wanted the node drained at that moment, or a moment before."""
        return any(
            each.node == node and each.since <= when < each.until + slack
            for each in self._asking.values()
        )

    def is_asked_for_all_along(self, node: str, since: float, until: float) -> bool:
        """Whether one and the same wish lasted from the one moment to the other."""
        return any(
            each.node == node and each.since <= since and until < each.until
            for each in self._asking.values()
        )

    def was_asked_for(self, node: str) -> bool:
        """Whether somebody ever did."""
        return any(each.node == node for each in self._asking.values())

    def was_put_by_us(self, node: str, part: Part) -> bool | None:
        """None where nobody can say."""
        return self._ours.get((node, part))

    def is_away(self, node: str, when: float) -> bool:
        """Whether it was in maintenance on our account at that moment, and is so still."""
        return self._away_since.get(node, math.inf) <= when

    def open_for(self, node: str, when: float) -> float:
        """For how long something new could have been put on the node by then."""
        return when - self._open_since.get(node, when)
