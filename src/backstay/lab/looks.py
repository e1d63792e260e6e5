"""Looks: what our controllers have looked at with their own eyes, and what they saw there.

Only the read of a single object is a look. A list from a cache, or one that names no object, is
nothing to act on.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from backstay.kube.resource import LEASES, NODES
from backstay.model.labels import LEASE_NAMESPACE
from backstay.sim.api.store import Key, Stored


class Look(msgspec.Struct, frozen=True):
    """What one of ours saw of an object; ``version`` is that of all there was at that moment."""

    at: float
    version: int
    stored: Stored | None


@dataclass(frozen=True)
class Looks:
    """See the module. ``user`` is one of ours; ``sent`` is when a request of that one left, which
    can rest on nothing that was looked at later."""

    _known: dict[tuple[str, str, Key], list[Look]] = field(default_factory=dict)

    def note(self, user: str, storage: str, key: Key, look: Look) -> None:
        self._known.setdefault((user, storage, key), []).append(look)

    def last(self, user: str, storage: str, key: Key, *, sent: float) -> Look | None:
        """At this object, and at nothing else."""
        looks = reversed(self._known.get((user, storage, key), ()))
        return next((look for look in looks if look.at <= sent), None)

    def last_of_kind(self, user: str, storage: str, *, sent: float) -> Iterator[Look]:
        """At each object of that kind."""
        for reader, kind, key in self._known:
            if (reader, kind) == (user, storage):
                look = self.last(user, storage, key, sent=sent)
                if look is not None:
                    yield look

    def at_node(self, user: str, node: str, *, sent: float) -> Look | None:
        return self.last(user, NODES.label, ("", node), sent=sent)

    def at_lease(self, user: str, node: str, *, sent: float) -> Look | None:
        """The lease of that node."""
        return self.last(user, LEASES.label, (LEASE_NAMESPACE, node), sent=sent)
