"""Hunt: how many cases of chance it takes to catch each deliberate bug.

A rule that holds in a case which was written for it proves little about cases that nobody wrote.
Here each bug meets the cases of ``fuzz`` one after the other, until something goes wrong: any
invariant counts, because whoever looks for a fault does not know what it breaks. A bug that is at
large for long says that the stories which are told do not lead where it would show.
"""

import msgspec

from backstay.lab.bugs import bug_named
from backstay.lab.campaign import Troupe
from backstay.lab.fuzz import draw
from backstay.lab.inspector import ANYTHING


class Hunted(msgspec.Struct, frozen=True, kw_only=True):
    """After how many ``seeds`` from the ``first`` on it was caught, by ``broken``, which is empty
    if it was not."""

    bug: str
    first: int
    seeds: int
    broken: tuple[str, ...] = ()


def hunt(bug: str, seeds: range) -> Hunted:
    """Plays one after the other until it is caught.

    Raises ``KeyError`` if there is no such bug.
    """
    # Asked for first, so that nothing is played for a bug that there is not.
    name = bug_named(bug).name
    with Troupe() as troupe:
        for played, seed in enumerate(seeds, start=1):
            broken = troupe.outcome(draw(seed, bug=name), enough=ANYTHING).broken
            if broken:
                return Hunted(bug=bug, first=seeds.start, seeds=played, broken=broken)
    return Hunted(bug=bug, first=seeds.start, seeds=len(seeds))
