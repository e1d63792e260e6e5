"""Inspector: asks every invariant, and every promise, about all that happens in a lab.

The rules themselves are in ``invariants.py``, and what must happen sooner or later in
``liveness.py``. What was broken is kept with its moment and a sentence, in the order in which it
came to light.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from backstay.lab.drbd_rules import DrbdsWord
from backstay.lab.happenings import About, what_about
from backstay.lab.invariants import INVARIANTS, Invariant, accepted_risk
from backstay.lab.liveness import Patience, Promise, Repetition
from backstay.lab.pace import Pace
from backstay.lab.witness import Happening, Witness
from backstay.sim.linstor.storage import Linstor

ANYTHING: frozenset[str] = frozenset()
"""Enough for whoever looks for a fault and does not know what it breaks: the first breach."""


@dataclass(frozen=True)
class Breach:
    """``at`` is true time."""

    at: float
    invariant: str
    sentence: str


class Inspector:
    """Asks every invariant, and every promise, about all that happens. ``checked`` counts what
    happened; ``accepted`` are the risks that somebody else has taken (``invariants.py``)."""

    def __init__(
        self, witness: Witness, *, linstor: Linstor | None = None, factor: float = 1.0
    ) -> None:
        self.checked = 0
        self.broken: list[Breach] = []
        self.accepted: list[Breach] = []
        self._enough: Collection[str] | None = None
        self._has_enough = asyncio.Event()
        self._witness = witness
        self._rules = {each: _rules_about(each) for each in About}
        self._promises: tuple[Promise, ...] = (
            Patience(witness, factor=factor),
            Repetition(factor=factor),
            Pace(witness),
            *([] if linstor is None else [DrbdsWord(witness, linstor, factor=factor)]),
        )
        witness.watch(self._look_at)

    async def breaks(self, names: Collection[str]) -> None:
        """Returns once all of these are broken, or ``ANYTHING`` is."""
        self._enough = names
        await self._has_enough.wait()

    def report(self, invariant: str, sentences: Iterable[str]) -> None:
        """What was found by looking back at the end."""
        now = asyncio.get_running_loop().time()
        self.broken += [Breach(now, invariant, sentence) for sentence in sentences]

    def _look_at(self, happening: Happening) -> None:
        self.checked += 1
        about = what_about(happening)
        for invariant in () if about is None else self._rules[about]:
            sentence = invariant.check(happening, self._witness)
            if sentence is not None:
                self.broken.append(Breach(happening.at, invariant.name, sentence))
        for promise in self._promises:
            for each in promise.look(happening):
                self.broken.append(Breach(happening.at, *each))
        if self._enough is not None and self.broken:
            self._tell_if_enough(self._enough)
        if about is About.TRUTH and (risk := accepted_risk(happening, self._witness)) is not None:
            self.accepted.append(Breach(happening.at, "AcceptedRisk", risk))

    def _tell_if_enough(self, wanted: Collection[str]) -> None:
        if {breach.invariant for breach in self.broken}.issuperset(wanted):
            self._has_enough.set()


def _rules_about(about: About) -> tuple[Invariant, ...]:
    return tuple(each for each in INVARIANTS if about in each.about)
