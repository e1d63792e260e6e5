"""Hunt: how many cases of chance it takes to catch each deliberate bug.

A rule that holds in a case which was written for it proves little about cases that nobody wrote.
Here each bug meets the cases of ``fuzz`` one after the other, until something goes wrong: any
invariant counts, because whoever looks for a fault does not know what it breaks. A bug that is at
large for long says that the stories which are told do not lead where it would show.
"""

from collections.abc import Iterable

import msgspec

from backstay.lab.bugs import bug_named
from backstay.lab.campaign import Troupe
from backstay.lab.fuzz import draw
from backstay.lab.inspector import ANYTHING


class Hunted(msgspec.Struct, frozen=True, kw_only=True):
    """After how many ``seeds`` it was caught, by ``broken``, which is empty if it was not."""

    bug: str
    seeds: int
    broken: tuple[str, ...] = ()


def hunt(bug: str, seeds: Iterable[int]) -> Hunted:
    """Plays one after the other until it is caught.

    Raises ``KeyError`` if there is no such bug.
    """
    # Asked for first, so that nothing is played for a bug that there is not.
    name, played = bug_named(bug).name, 0
    with Troupe() as troupe:
        for seed in seeds:
            played += 1
            broken = troupe.outcome(draw(seed, bug=name), enough=ANYTHING).broken
            if broken:
                return Hunted(bug=bug, seeds=played, broken=broken)
    return Hunted(bug=bug, seeds=played)
