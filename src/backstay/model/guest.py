"""Guests: what is known of a virtual machine beyond what every workload has.

KubeVirt starts a guest again or leaves it down by rules of its own. What they turn on is kept
here; ``decide/guests.py`` says what follows.
"""

import msgspec


class Guest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``phase`` is that of its VMI, and ``going`` that the VMI is being deleted.

    ``asked`` are the requests to stop or start its VM that are still open. ``replaced_by`` is the
    set or pool that makes another in its place, as ``Kind/namespace/name``.
    """

    phase: str = ""
    going: bool = False
    gone: bool = False
    """There is no VMI at present."""
    migratable: bool | None = None
    """None while KubeVirt has not said so."""
    immovable: str = ""
    """Why it cannot be migrated, in KubeVirt's words."""
    starts_paused: bool = False
    asked: tuple[str, ...] = ()
    failures: int = 0
    retry_after: str = ""
    """KubeVirt tries no start before; a time of day, for people."""
    needs_recovery: bool = False
    replaced_by: str = ""
    slow: str = ""
    """The version of KubeVirt, if it is one that notices late that a launcher is gone."""
