"""Deliberate bugs: each takes away one thing that keeps us safe, and an invariant notices.

A rule that nothing can break proves nothing. Every bug here replaces one part of a built
controller: a check of the chain, a step of the guarded write, of the loop, of observing or of
leading. It names what it replaces, the case in which it shows (``cases.py``) and the invariants
that must catch it there; tests/lab holds them to it, and the shipped controller to going through
the same case unharmed. The shipped rooms contain no switch for any of this.

Each family has a file of its own (``*_bugs.py``); here they are one table.
"""

from backstay.lab.bug import Bug
from backstay.lab.drain_bugs import DRAIN_BUGS
from backstay.lab.guard_bugs import GUARD_BUGS
from backstay.lab.guest_bugs import GUEST_BUGS
from backstay.lab.leader_bugs import LEADER_BUGS
from backstay.lab.linstor_bugs import LINSTOR_BUGS
from backstay.lab.policy_bugs import POLICY_BUGS
from backstay.lab.power_bugs import POWER_BUGS
from backstay.lab.silence_bugs import SILENCE_BUGS
from backstay.lab.storage_bugs import STORAGE_BUGS
from backstay.lab.word_bugs import WORD_BUGS

BUGS: tuple[Bug, ...] = (
    *WORD_BUGS,
    *SILENCE_BUGS,
    *POLICY_BUGS,
    *GUARD_BUGS,
    *STORAGE_BUGS,
    *GUEST_BUGS,
    *LEADER_BUGS,
    *LINSTOR_BUGS,
    *DRAIN_BUGS,
    *POWER_BUGS,
)


def bug_named(name: str) -> Bug:
    """Raises ``KeyError`` for one that there is not."""
    return {bug.name: bug for bug in BUGS}[name]
