"""Quorum: whether one side of a split may go on, by DRBD's own arithmetic.

* Voters are the replicas that have a disk. A voter that is away and known to be outdated has no
  say: it cannot become Primary by itself.
* ``majority`` wants more than half of the voters. Exactly half of them win if they see more than
  half of the replicas without a disk, which is what a tie-breaker is for.
* ``all`` wants every voter, a number that many of them, and ``off`` asks nobody.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Ballot:
    """Who is there, as one replica sees it; itself included."""

    voters: int
    present: int
    diskless: int
    diskless_present: int


def has_quorum(rule: str, ballot: Ballot) -> bool:
    """``rule`` is what stands in ``DrbdOptions/Resource/quorum``."""
    if rule == "off":
        return True
    if rule == "all":
        return ballot.present == ballot.voters
    if rule == "majority":
        if 2 * ballot.present == ballot.voters:
            return 2 * ballot.diskless_present > ballot.diskless
        return 2 * ballot.present > ballot.voters
    return ballot.present >= int(rule)
