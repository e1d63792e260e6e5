"""Quorum: whether DRBD has shut a node out of a resource, so that nothing there can write to it.

A primary that cannot reach a majority of the replicas must not write: DRBD itself stops it, in the
kernel, if quorum is on. So if a majority says that it has lost the node, the node cannot write,
whether it is dead or merely cut off. ``shut_out`` says whether that is so, or why not:

* Quorum is ``majority`` or ``all``, by what holds for the resource at this moment. Without it both
  sides of a cut may write.
* There is one primary at most: where two are allowed, as during a live migration, the replicas'
  word about one says nothing about the other.
* *Every* replica whose satellite is live, a diskless one or a tie-breaker too, has lost the node
  and does not use the resource. One that is still connected to it may lend it its vote.
* They are a majority by DRBD's own count: of the replicas with a disk, or half of them and most of
  those without.
* One of them could be promoted now. That is DRBD's own word that it sees a quorum, good data and
  no primary.
* None of that is old hearsay: each of them has shown life since it began, and is not itself
  suspect by now; it has lasted for the whole grace, and somebody has looked just now.

What is unknown counts against it.
"""

from collections.abc import Callable, Sequence

import msgspec

from backstay.model.drbd import ReplicaSight, ResourceSight
from backstay.model.policy import Times

_QUORATE = ("majority", "all")


Rule = Callable[[ResourceSight], str | None]
"""What speaks against it, in words."""


def shut_out(sight: ResourceSight, rules: Sequence[Rule] = ()) -> str | None:
    """Why this look does not show the node shut out, in words; None if it does. The rules are
    ``RULES``; a test can leave one out and see what goes wrong without it."""
    said = (rule(sight) for rule in rules or RULES)
    return next((because for because in said if because is not None), None)


def settled(sight: ResourceSight, now: float, *, times: Times) -> str | None:
    """Why nothing may rest on it yet, in words; None if it is proven, and has been for long
    enough."""
    if sight.view:
        return sight.view
    because = shut_out(sight)
    if because is not None:
        return because
    if now - sight.observed_at > times.fresh:
        return f"it was last looked at {round(now - sight.observed_at)} s ago"
    if sight.since is None or now - sight.since < sight.grace:
        lasted = 0 if sight.since is None else int(now - sight.since)
        return f"{sight.node} is shut out, but has been for only {lasted} of {sight.grace:g} s"
    return _not_shown_alive(sight, max(sight.since, now - times.suspect))


def is_cut_off(sight: ResourceSight) -> bool:
    """Whether all others have shut the node out, whatever its own satellite says of it. One that is
    alive then is still primary, and can complete no write. Nothing is taken from it for that."""
    replace = msgspec.structs.replace
    replicas = tuple(
        replace(each, in_use=None) if each.node == sight.node else each for each in sight.replicas
    )
    return shut_out(replace(sight, replicas=replicas)) is None


def as_if_lost(sight: ResourceSight, now: float) -> ResourceSight:
    """What would be seen now if the node had died a while ago, and nothing else had gone wrong.
    Where the quorum is ``all``, nobody could take over from one that has a disk."""
    own = next((each for each in sight.replicas if each.node == sight.node), None)
    quorate = sight.quorum != "all" or own is None or not own.diskful
    return msgspec.structs.replace(
        sight,
        observed_at=now,
        since=now - sight.grace,
        replicas=tuple(
            msgspec.structs.replace(
                each,
                online=each.online and each is not own,
                alive_at=now,
                in_use=None if each is own else False,
                may_promote=None if each is own else each.diskful and quorate,
                sees=None if each is own else False,
            )
            for each in sight.replicas
        ),
    )


def survivors(sight: ResourceSight) -> tuple[str, ...]:
    """Whose word it is."""
    return tuple(each.node for each in _reporters(sight))


def _reporters(sight: ResourceSight) -> list[ReplicaSight]:
    return [each for each in sight.replicas if each.online and each.node != sight.node]


def is_unprotected(sight: ResourceSight) -> str | None:
    if sight.quorum not in _QUORATE:
        word = sight.quorum or "not set"
        return f"its DRBD quorum is {word}, so that either side of a cut may write"
    if sight.two_primaries is None:
        return "it is not known whether it allows two primaries"
    return "it allows two primaries at a time" if sight.two_primaries else None


def is_still_there(sight: ResourceSight) -> str | None:
    if all(each.node != sight.node for each in sight.replicas):
        return f"LINSTOR knows of no replica on {sight.node}"
    for each in sight.replicas:
        if each.in_use:
            return f"{each.node} is still its primary, by its own satellite's word"
    for each in _reporters(sight):
        if each.sees:
            return f"{each.node} is still connected to {sight.node}"
        if each.sees is None or each.in_use is None:
            return f"{each.node} does not say how things stand there"
    return None


def is_not_outvoted(sight: ResourceSight) -> str | None:
    reporters = _reporters(sight)
    with_disk, without = _counts(sight.replicas)
    mine, helpers = _counts(reporters)
    if 2 * mine > with_disk or (2 * mine == with_disk and 2 * helpers > without):
        return None
    return f"only {mine} of its {with_disk} replicas with a disk can be asked"


def _counts(replicas: Sequence[ReplicaSight]) -> tuple[int, int]:
    with_disk = sum(each.diskful for each in replicas)
    return with_disk, len(replicas) - with_disk


def has_no_successor(sight: ResourceSight) -> str | None:
    if any(each.may_promote for each in _reporters(sight)):
        return None
    return "none of its other replicas could take over"


RULES: tuple[Rule, ...] = (is_unprotected, is_still_there, is_not_outvoted, has_no_successor)


def _not_shown_alive(sight: ResourceSight, since: float) -> str | None:
    """A satellite that died is told of as it last was, and its replica may long be back with the
    old primary."""
    for each in _reporters(sight):
        if each.alive_at is None or each.alive_at < since:
            return f"{each.node}, whose word it is, has not been heard of lately"
    return None
