"""Scene: the world that stories are told about, and the dice that they roll."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from backstay.lab.scenario import After, Do, Scenario, Step
from backstay.lab.verbs import OF_FAILOVERS, OF_POWER
from backstay.sim.chance import Chance

T = TypeVar("T")

LONGEST = 190.0
"""Seconds of virtual time, enough for a death to be presumed: up to 10 s pass until a renewal is
missed, 22 s until somebody knocks, and 150 s of silence after that."""

_LAST_BEGINNING = 10.0
_MOST_WRITES = 20

Weighted = Sequence[tuple[int, T]]


@dataclass(frozen=True)
class Scene:
    """``opening`` is what there is at zero."""

    dice: Chance
    opening: Scenario

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.opening.nodes

    @property
    def ours(self) -> tuple[str, ...]:
        return self.opening.controller_names

    @property
    def vms(self) -> tuple[str, ...]:
        return tuple(vm.name for vm in self.opening.workloads.vms)

    def node(self) -> str:
        """Often the same one, which has the most to lose: stories are to meet."""
        first, second, *_ = self.nodes
        return weighted(self.dice, [(3, first), (1, second), (1, self.dice.pick(self.nodes))])

    def controller(self) -> str:
        return self.dice.pick(self.ours)

    def beginning(self) -> float:
        return self.dice.between(0.0, _LAST_BEGINNING)

    def all_of_us(self, at: float, do: Do, **about: Any) -> Iterator[Step]:
        for name in self.ours:
            yield step(at, do, controller=name, **about)

    @property
    def _moments(self) -> tuple[After, ...]:
        """What can be waited for here."""
        return (*OF_FAILOVERS, *OF_POWER) if self.opening.bmcs else OF_FAILOVERS

    def in_our_midst(self, planned: Step) -> Step:
        """More often than not it waits for a write of ours, of some kind or of some number."""
        dice = self.dice
        if dice.happens(0.4):
            return planned
        if dice.happens(0.5):
            return msgspec.structs.replace(planned, after=dice.pick(self._moments))
        return msgspec.structs.replace(planned, after_writes=1 + dice.below(_MOST_WRITES))


Story = Callable[[Scene], Iterator[Step]]


def step(at: float, do: Do, **about: Any) -> Step:
    return Step(at=rounded(max(0.0, at)), do=do, **about)


def weighted(dice: Chance, choices: Weighted[T]) -> T:
    left = dice.below(sum(weight for weight, _ in choices))
    for weight, choice in choices:
        left -= weight
        if left < 0:
            return choice
    raise AssertionError("a weighted choice has weights")


def rounded(seconds: float) -> float:
    """People read them, too."""
    return round(seconds, 1)
