"""DRBD: what the replicas of one resource say of a node that may be shut out of it.

A sight is always about one resource *and* one node, because every replica speaks for its own end
of each connection. What nobody has said is None: it is neither yes nor no.
"""

import msgspec


class ReplicaSight(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One replica, as the LINSTOR controller knows it.

    ``online`` is the controller's word about the satellite there; ``alive_at`` is when we last saw
    that node live by other means, on the event loop's clock. ``sees`` says whether it is connected
    to the node that the sight is about.
    """

    node: str
    diskful: bool
    online: bool
    alive_at: float | None = None
    in_use: bool | None = None
    may_promote: bool | None = None
    up_to_date: bool | None = None
    sees: bool | None = None


class ResourceSight(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One resource, as it concerns ``node``.

    ``quorum`` and ``two_primaries`` are what holds after definition, group and controller have been
    asked; an option that nobody has set is empty, or None. ``observed_at`` is when the oldest of
    the questions was asked. ``since`` is from when on every look has shown the node shut out (None
    if the last did not), and ``grace`` for how long that has to last. ``view`` says why nothing
    that LINSTOR tells is to be relied on at present.
    """

    resource: str
    node: str
    driver: str
    observed_at: float
    replicas: tuple[ReplicaSight, ...] = ()
    quorum: str = ""
    two_primaries: bool | None = None
    since: float | None = None
    grace: float = 45.0
    view: str = ""


class DiskSight(msgspec.Struct, frozen=True, kw_only=True):
    """A replica that has a disk: the state of each of its volumes, in DRBD's words, as far as it is
    known, and the peers that it has a connection to, as it sees that itself. Names are in lower
    case."""

    resource: str
    node: str
    states: tuple[str | None, ...] = ()
    connected: frozenset[str] | None = None


class Unheard(msgspec.Struct, frozen=True):
    """Why LINSTOR has nothing to say at present of the volumes of a driver; empty means of any."""

    driver: str
    because: str


def resource_of(handle: str, pv: str) -> str:
    """The resource behind a volume. A handle may name one volume of several (``resource/0``); where
    there is none, LINSTOR's driver has named the resource like the persistent volume."""
    return (handle.partition("/")[0] or pv).lower()
