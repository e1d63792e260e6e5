"""Deliberate bugs in what becomes of guests whose kubelet has died; see ``bugs.py``."""

from backstay.lab import guest_cases
from backstay.lab.broken_guests import (
    AskedIsDone,
    MovingAgain,
    OfItsOwnMind,
    WithBothEnds,
    WithoutMoves,
    WithoutNextHeartbeat,
)
from backstay.lab.bug import CAUGHT_IN_LIFE, Bug

GUEST_BUGS: tuple[Bug, ...] = (
    Bug(
        "stops-without-leave",
        "A guest whose kubelet has died is moved or stopped although nobody has asked for it.",
        "decide/rescue.py: rescue",
        frozenset({"AsPolicySays"}),
        {"observer": OfItsOwnMind},
        guest_cases.LEFT_ALONE,
    ),
    Bug(
        "starts-without-leave",
        "A VM that its run strategy leaves down is started although nobody has asked for it.",
        "control/machines.py: start",
        frozenset({"AsPolicySays"}),
        {"observer": OfItsOwnMind},
        guest_cases.STAYS_DOWN,
    ),
    Bug(
        "believes-any-phase",
        "That a VMI is said to have failed counts as the word of its virt-handler.",
        "sources/guests.py: _stops",
        CAUGHT_IN_LIFE | {"OneWriter"},
        {"guests": WithoutNextHeartbeat},
        guest_cases.SAID_TO_HAVE_FAILED,
    ),
    Bug(
        "removes-before-the-stop",
        "A guest that was asked to stop counts as one that has stopped.",
        "sources/guests.py: _stops",
        CAUGHT_IN_LIFE | {"OneWriter"},
        {"guests": AskedIsDone},
        guest_cases.DEAF_WHEN_ASKED,
    ),
    Bug(
        "migrates-twice",
        "A migration that was asked for is asked for again.",
        "act/machines.py: migrate",
        frozenset({"AsPolicySays"}),
        {"guests": WithoutMoves, "machines": MovingAgain},
        guest_cases.NO_ROOM,
    ),
    Bug(
        "removes-the-target",
        "The launcher that a guest was being moved to is removed as well.",
        "control/guard.py: _remove_what_is_proven",
        frozenset({"NoBystander"}),
        {"guard": WithBothEnds},
        guest_cases.ON_ITS_WAY,
    ),
)
