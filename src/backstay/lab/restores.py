"""Restores: when the API was restored from a backup, and which of ours could know of it.

What gives a restored API away is its version: it is lower than one that somebody has seen. So it
counts who has asked for it with a quorum read, when, and what it was; and of whoever was killed
since, what it had the time to write down. Where versions count on from a higher one, it is the
lease of whoever leads, which is older than it was written. Who has seen it go back tells the
others; and once a person arms anew, the API is accepted as it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from backstay.sim.api.store import Snapshot
from backstay.sources.past import leaps

_LONG = 30.0
"""Seconds in which each of ours asks for the API's version, whatever else it does."""
_UNDER_WAY = 10.0
"""Seconds for which a look may be under way."""
KEPT = 15.0
"""Seconds in which one of ours has written down what it has just learned."""


@dataclass(frozen=True)
class Backup:
    """All that there was at one moment."""

    at: float
    snapshot: Snapshot

    @property
    def version(self) -> int:
        return self.snapshot.version


@dataclass
class Restores:
    """See the module. ``factor`` is by what all times are shorter than usual; ``last_at`` is when
    the last one was, whether or not it has been accepted."""

    factor: float
    last_at: float | None = None
    _open_since: float | None = None
    _stamp: str = ""
    _looks: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    _renewals: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether the API was restored, and nobody has armed us since."""
        return self._open_since is not None

    def happened(self, now: float, *, stamp: str) -> None:
        """``stamp`` is what the last arming has left, as the backup has it."""
        # Whoever noticed the one before has forgotten the lease of before that.
        since = self.last_at or 0.0
        self._renewals = {
            user: [each for each in renewals if each[0] > since]
            for user, renewals in self._renewals.items()
        }
        self._open_since = self.last_at = now
        self._stamp = stamp

    def shows(self, backup: Backup, *, raised: int) -> bool:
        """Whether anything of ours can tell that it was: somebody has seen more than the backup
        has, or the versions leap, or whoever leads has written the lease since."""
        if leaps("1", str(1 + raised), seconds=0.0):
            return True
        if any(at > backup.at for renewals in self._renewals.values() for at, _ in renewals):
            return True
        later = (
            version for looks in self._looks.values() for at, version in looks if at > backup.at
        )
        return not raised and any(version > backup.version for version in later)

    def armed(self, stamp: str) -> None:
        """That stands in the configuration now; it may be the one from the backup."""
        if stamp not in ("", self._stamp):
            self._open_since = None

    def started(self, user: str) -> None:
        """One of ours begins, perhaps in the place of one that was killed. What that one saw in its
        last moments is lost, but for a version that went back: this is written down at once."""
        if self._open_since and self._seen_at(user, self._open_since) < math.inf:
            return
        self._renewals.pop(user, None)
        if looks := self._looks.get(user):
            kept = looks[-1][0] - KEPT * self.factor
            self._looks[user] = [each for each in looks if each[0] <= kept]

    def looked(self, user: str, now: float, version: int) -> None:
        """One of ours was told the version by a quorum read."""
        self._looks.setdefault(user, []).append((now, version))

    def renewed(self, user: str, now: float, version: int) -> None:
        """One of ours wrote the lease, of which it must have seen this version for that."""
        self._renewals.setdefault(user, []).append((now, version))

    def was_known_to(self, user: str, sent: float) -> bool:
        """Whether ``user`` had seen, when something left it, that the version is lower than it was,
        or was told so by another of ours, or had not looked for far too long. A store that has
        grown past it by then does not show it."""
        then = self._open_since
        if then is None or sent < then:
            return False
        looks = self._looks.get(user, ())
        last = max((at for at, _ in looks if at <= sent), default=-math.inf)
        if last < then:
            return last > -math.inf and sent > then + _LONG
        if self._seen_at(user, then) <= sent:
            return True
        told = min((self._told_at(each, then) for each in self._looks), default=math.inf)
        return told + _LONG * self.factor < last

    def _told_at(self, user: str, then: float) -> float:
        """When ``user`` had seen it and had the time to tell the others; inf if never."""
        return self._looked_after(user, self._seen_at(user, then) + KEPT * self.factor)

    def _seen_at(self, user: str, then: float) -> float:
        """When ``user`` first saw it, inf if never. What the lease showed counts from the next look
        on, without which nothing is done; one may have begun before that."""
        shown = _lower_at(self._renewals.get(user, ()), then) + _UNDER_WAY * self.factor
        return min(_lower_at(self._looks.get(user, ()), then), self._looked_after(user, shown))

    def _looked_after(self, user: str, then: float) -> float:
        return min((at for at, _ in self._looks.get(user, ()) if at > then), default=math.inf)


def _lower_at(looks: Sequence[tuple[float, int]], then: float) -> float:
    """When whoever saw these first saw a lower version than before; inf if never."""
    highest = max((version for at, version in looks if at < then), default=0)
    lower = (at for at, version in looks if at > then and version < highest)
    return min(lower, default=math.inf)
