"""Chance for tests: an Rng that always rolls the same, so that waits are exact."""

import math


class Dice:
    def __init__(self, roll: float) -> None:
        self._roll = roll

    def random(self) -> float:
        return self._roll

    def token(self, length: int) -> str:
        return "x" * length


LOWEST = Dice(0.0)
HIGHEST = Dice(math.nextafter(1, 0))
