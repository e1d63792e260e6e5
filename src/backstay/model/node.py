"""Nodes: what has been seen of one, and where it stands in its life.

All moments are the event loop's time, and "changed" means that *we* saw it change: no timestamp
that another machine wrote is ever compared with ours.
"""

from enum import StrEnum

import msgspec

from backstay.model.reasons import Why


class Life(StrEnum):
    """``decide/life.py`` says how one leads to another."""

    HEALTHY = "Healthy"
    SUSPECT = "Suspect"
    LOST = "Lost"
    PROVEN = "Proven"
    RECOVERED = "Recovered"
    RETURNING = "Returning"


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a node now.

    ``looked_at`` is when we last looked; silence is counted up to there and no further.
    ``lease_seen_at`` is since when we count (None: it has no lease). ``lease_changed_at`` and
    ``heartbeat_changed_at`` (of virt-handler) are None until we saw them change: to see a value
    for the first time says nothing about when it was written.
    """

    name: str
    uid: str
    boot_id: str
    ready: str = "Unknown"
    looked_at: float = 0.0
    renewal: str = ""
    """What its lease says about its last renewal; compared with itself only."""
    heartbeat: str = ""
    status: str = ""
    """What its kubelet last said in its status about the time; compared with itself only."""
    lease_seen_at: float | None = None
    lease_changed_at: float | None = None
    heartbeat_changed_at: float | None = None
    status_changed_at: float | None = None
    exempt: bool = False
    tainted: bool = False
    """A taint of ours is on it."""
    runtime: str = ""
    """What runs its containers, with its version."""
    system_uuid: str = ""
    """Which machine it is, as its firmware names it."""
    in_maintenance: bool = False
    """Somebody works on it, and has said so by a taint."""
    control_plane: bool = False


class NodeLife(msgspec.Struct, frozen=True, kw_only=True):
    """One boot of one node. ``suspected_at`` is None while it is healthy."""

    node_uid: str
    boot_id: str
    state: Life
    since: float
    suspected_at: float | None = None
    why: Why
