"""Chance: an ``Rng`` that falls the same way again for the same seed.

A world rolls separate dice for separate matters, each named. What is rolled for one matter never
shifts another: a scenario that draws one fault more meets the same delays as before.
"""

import hashlib
import math
import string
from collections.abc import Sequence
from random import Random  # noqa: TID251 - this is where the simulated Rng seam gets its dice
from typing import TypeVar

T = TypeVar("T")

_NAME_CHARACTERS = string.ascii_lowercase + string.digits


class Chance:
    """The dice for one matter, ``name``, of the world that ``seed`` stands for."""

    def __init__(self, seed: int, name: str) -> None:
        self.name = name
        self._dice = Random(_digest(f"{seed} {name}"))  # noqa: S311 - no secrets here
        self.random = self._dice.random

    def turn_to(self, seed: int) -> None:
        """From now on these are the dice of that seed, which never fall as any did from the
        beginning of a world: what was named by chance before is not named so again."""
        self._dice.seed(_digest(f"{seed} {self.name} from now on"))

    def token(self, length: int) -> str:
        return "".join(self._dice.choices(_NAME_CHARACTERS, k=length))

    def happens(self, probability: float) -> bool:
        return self.random() < probability

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.random()

    def exponential(self, mean: float) -> float:
        """The time until something that happens every ``mean`` seconds on average."""
        return -mean * math.log(1.0 - self.random())

    def below(self, limit: int) -> int:
        """One of 0, 1, ..., ``limit`` - 1."""
        return int(self.random() * limit)

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]


def _digest(matter: str) -> int:
    """Neighbouring seeds must not give similar worlds."""
    return int.from_bytes(hashlib.sha256(matter.encode()).digest(), "big")
