"""Inspector: asks every invariant, and every promise, about all that happens in a lab.

The rules themselves are in ``invariants.py``, and what must happen sooner or later in
``liveness.py``. Each says what it is ``About`` (``happenings.py``) and is asked about that alone;
``thorough`` asks all of them about everything, and finds the same. What was broken is kept with
its moment and a sentence, in the order in which it came to light.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from backstay.lab.copies import SECOND_COPIES, accepted_risk
from backstay.lab.drain_promises import DrainsEnd, LastCopies
from backstay.lab.drbd_rules import DrbdsWord
from backstay.lab.happenings import Subject, subject_of
from backstay.lab.invariants import INVARIANTS, Invariant
from backstay.lab.liveness import Patience, Promise, Repetition, Watchful
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


@dataclass(frozen=True)
class _Concerned:
    """Who is asked about something."""

    rules: tuple[Invariant, ...]
    promises: tuple[Promise, ...]


class Inspector:
    """See the module. ``checked`` counts what happened; ``accepted`` are the risks that somebody
    else has taken (``invariants.py``)."""

    def __init__(
        self,
        witness: Witness,
        *,
        linstor: Linstor | None = None,
        factor: float = 1.0,
        thorough: bool = False,
    ) -> None:
        self.checked = 0
        self.broken: list[Breach] = []
        self.accepted: list[Breach] = []
        self._enough: Collection[str] | None = None
        self._has_enough = asyncio.Event()
        self._witness = witness
        self._thorough = thorough
        self._watchful: tuple[Watchful, ...] = (
            Patience(witness, factor=factor),
            DrainsEnd(witness, linstor=linstor, factor=factor),
            *([] if linstor is None else _of_drbd(witness, linstor, factor)),
        )
        self._promises: tuple[Promise, ...] = (
            *self._watchful,
            Repetition(factor=factor),
            Pace(witness),
        )
        self._concerned: dict[Subject, _Concerned] = {}
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
        subject, at = subject_of(happening), happening.at
        concerned = self._concerned.get(subject) or self._who_is_concerned(subject)
        for rule in concerned.rules:
            found = rule.check(happening, self._witness)
            if found is not None:
                self.broken.append(Breach(at, rule.name, found))
        for promise in concerned.promises:
            for name, sentence in promise.look(happening):
                self.broken.append(Breach(at, name, sentence))
        for watchful in self._watchful:
            if at >= watchful.due:
                for name, sentence in watchful.look_around(at):
                    self.broken.append(Breach(at, name, sentence))
        if self._enough is not None and self.broken:
            self._tell_if_enough(self._enough)
        if subject in SECOND_COPIES and (risk := accepted_risk(happening, self._witness)):
            self.accepted.append(Breach(at, "AcceptedRisk", risk))

    def _who_is_concerned(self, subject: Subject) -> _Concerned:
        """The same whenever it is asked."""
        found = _Concerned(
            tuple(each for each in INVARIANTS if self._thorough or each.about.includes(subject)),
            tuple(
                each for each in self._promises if self._thorough or each.about.includes(subject)
            ),
        )
        self._concerned[subject] = found
        return found

    def _tell_if_enough(self, wanted: Collection[str]) -> None:
        if {breach.invariant for breach in self.broken}.issuperset(wanted):
            self._has_enough.set()


def _of_drbd(witness: Witness, linstor: Linstor, factor: float) -> list[Watchful]:
    return [
        DrbdsWord(witness, linstor, factor=factor), LastCopies(witness, linstor, factor=factor)
    ]  # fmt: skip
