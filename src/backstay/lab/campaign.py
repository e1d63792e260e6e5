"""Campaign: plays the cases of many seeds, and keeps what went wrong in its smallest form.

A case goes wrong when an invariant breaks, and also when it cannot be played to its end: a
controller that fails on an error that nobody foresaw, or a world that stands still, is no smaller
a finding than a breach. Such an end goes by the name of its exception.

A campaign ends early once it has ``most`` findings: a few at once are mostly of one cause. What is
set up for a case serves for those that begin alike and come next: its siblings, and itself with
steps taken away.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Self

import msgspec

from backstay.lab.fuzz import draw
from backstay.lab.scenario import Scenario, dump
from backstay.lab.settled import CutShort, Settled
from backstay.lab.shrink import shrink

MOST = 3
"""So many findings are enough to begin with."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one scenario. ``broken`` is empty when all went well."""

    broken: tuple[str, ...]
    sentences: tuple[str, ...] = ()
    recovered: int = 0
    checked: int = 0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What broke with this seed; ``scenario`` is the smallest that breaks alike, as YAML."""

    seed: int
    broken: tuple[str, ...]
    sentences: tuple[str, ...]
    scenario: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Of so many ``seeds``. ``recovered`` are workloads that came up elsewhere, ``checked``
    happenings about which every invariant was asked."""

    seeds: int = 0
    recovered: int = 0
    checked: int = 0
    findings: tuple[Finding, ...] = ()

    def __add__(self, other: Self) -> Self:
        return type(self)(
            seeds=self.seeds + other.seeds,
            recovered=self.recovered + other.recovered,
            checked=self.checked + other.checked,
            findings=self.findings + other.findings,
        )


def campaign(
    seeds: Iterable[int],
    *,
    bug: str = "",
    most: int = MOST,
    told: Callable[[Report], None] = lambda _: None,
    patience: Callable[[], Callable[[], bool]] = lambda: lambda: False,
) -> Report:
    """Plays seed after seed, and tells after each how things stand. ``patience`` is asked at the
    beginning of each shrinking, and what it returns says when that has taken long enough."""
    report = Report()
    with Troupe() as troupe:
        for seed in seeds:
            report += _one(troupe, draw(seed, bug=bug), patience)
            told(report)
            if len(report.findings) >= most:
                break
    return report


class Troupe:
    """Plays scenario after scenario, and keeps what it has set up for as long as the next one
    begins with it."""

    def __init__(self) -> None:
        self._settled: Settled | None = None

    def outcome(self, scenario: Scenario, *, enough: Collection[str] | None = None) -> Outcome:
        """Plays it once, to its end or until ``enough`` is broken (see ``play``)."""
        if self._settled is None or not self._settled.fits(scenario):
            self._clear()
            self._settled = Settled(scenario)
        try:
            played = self._settled.play(scenario, enough=enough)
        except CutShort as error:
            return Outcome(broken=(error.kind,), sentences=(str(error),))
        return Outcome(
            broken=played.broken,
            sentences=tuple(f"{each.invariant}: {each.sentence}" for each in played.breaches),
            recovered=len(played.recovered),
            checked=played.checked,
        )

    def _clear(self) -> None:
        # Forgotten first: whoever is interrupted in the midst of it comes here again.
        settled, self._settled = self._settled, None
        if settled is not None:
            settled.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()


def _one(troupe: Troupe, case: Scenario, patience: Callable[[], Callable[[], bool]]) -> Report:
    found = troupe.outcome(case)
    report = Report(seeds=1, recovered=found.recovered, checked=found.checked)
    if not found.broken:
        return report
    smallest = shrink(
        case,
        lambda smaller: not set(found.broken).isdisjoint(troupe.outcome(smaller).broken),
        enough=patience(),
    )
    finding = Finding(
        seed=case.seed, broken=found.broken, sentences=found.sentences, scenario=dump(smallest)
    )
    return report + Report(findings=(finding,))
