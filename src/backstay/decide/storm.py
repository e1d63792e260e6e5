"""Storms: many nodes silent at once are more likely one fault than many deaths.

One node may always fail. How many more may do so before it counts as a storm depends on how many
there are:

    nodes            2   3   5   10   20   50   100
    down at most     1   1   1    1    2    5    10

In a storm nothing is done that rests on silence. What is observed, or a person's word, goes on,
only not all at once. ``backstay storm release`` lifts it for a time.
"""

from collections.abc import Mapping

import msgspec

from backstay.model.policy import Policy


class Fleet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All nodes, in as few words as a decision about one of them needs.

    ``down`` are those that fell silent together with it and are not yet recovered, itself among
    them; one that was broken long before is no part of the same storm. ``released`` is how many
    workloads were taken from any node in the last minute. ``control_plane`` are the nodes that
    bear the cluster itself, and ``control_plane_alive`` those of them that were seen to live.
    """

    nodes: int = 0
    down: tuple[str, ...] = ()
    released: int = 0
    control_plane: tuple[str, ...] = ()
    control_plane_alive: tuple[str, ...] = ()


def silent_together(
    since: Mapping[str, float], moment: float | None, *, within: float
) -> tuple[str, ...]:
    """The nodes that fell silent within so many seconds of a moment."""
    if moment is None:
        return ()
    return tuple(sorted(name for name, each in since.items() if abs(each - moment) <= within))


def most_down(nodes: int, policy: Policy) -> int:
    """How many nodes may be down at once."""
    return max(1, nodes // 10 if policy.storm_most is None else policy.storm_most)


def is_storm(fleet: Fleet, policy: Policy) -> bool:
    return not policy.storm_released and len(fleet.down) > most_down(fleet.nodes, policy)
