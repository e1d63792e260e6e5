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
        # Through a digest, because neighbouring seeds must not give similar worlds.
        digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
        self._dice = Random(int.from_bytes(digest, "big"))  # noqa: S311 - no secrets here
        self.random = self._dice.random

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
