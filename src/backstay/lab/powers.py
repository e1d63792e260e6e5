"""Powers: what our controllers have read at BMCs, and what they have asked of them.

A reading counts for whoever has it, as of the version that the API had at that moment: like a look
at an object (``looks.py``). It is a reading of *Off* only if the BMC is that of the node which is
meant; that it lies, nobody can see. A request to switch is kept with the boot for whose incident
it was announced when it left: it is that incident whose ``on`` no ``off`` must follow.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

POWER = "power"
"""What requests to BMCs are about, beside the kinds of the API."""


class Reading(msgspec.Struct, frozen=True):
    """``off``: of the right machine."""

    at: float
    version: int
    off: bool


class Switched(msgspec.Struct, frozen=True):
    """A request of ours that has landed, and was accepted."""

    user: str
    node: str
    on: bool
    sent: float
    at: float
    boot: str


def nobody(_: str) -> bool:
    return False


@dataclass
class Powers:
    """See the module. ``is_readable`` says of a node whether its BMC is there, is its own and
    tells the truth."""

    switched: list[Switched] = field(default_factory=list)
    is_readable: Callable[[str], bool] = nobody
    awaited: dict[str, dict[str, float]] = field(default_factory=dict)
    """By node: what we have taken from it, when, and that has not run anywhere since."""
    _readings: dict[tuple[str, str], list[Reading]] = field(default_factory=dict)

    def note_reading(self, user: str, node: str, reading: Reading) -> None:
        self._readings.setdefault((user, node), []).append(reading)

    def taken(self, workload: str, node: str, *, at: float) -> None:
        self.awaited.setdefault(node, {})[workload] = at

    def started(self, workload: str) -> None:
        for waiting in self.awaited.values():
            waiting.pop(workload, None)

    def last(self, user: str, node: str, *, sent: float) -> Reading | None:
        """The last one that ``user`` had when a request of it left."""
        readings = reversed(self._readings.get((user, node), ()))
        return next((each for each in readings if each.at <= sent), None)

    def read_off(
        self, user: str, node: str, *, sent: float, since: float = 0, before: float = math.inf
    ) -> list[int]:
        """The version at which that one last read that the node is off, if that was not before
        ``since``, and was before the other; nothing if what it read last is something else."""
        last = self.last(user, node, sent=sent)
        if last is None or not last.off or not since <= last.version < before:
            return []
        return [last.version]

    def before(self, node: str, boot: str, *, on: bool) -> Iterator[Switched]:
        """What of that kind has landed so far, for the incident of this boot."""
        for each in self.switched:
            if (each.node, each.boot, each.on) == (node, boot, on):
                yield each
