"""Hands: which key has its turn when, and how often."""

import asyncio

import pytest

from backstay.sim.api.store import Key
from backstay.sim.kubevirt.hands import Hands
from tests.support.virtual import virtual_time

A, B, C = (("default", name) for name in "abc")


class Controller:
    """Needs a second for each key, and notes when it began with it."""

    def __init__(self, *, hands: int = 2) -> None:
        self.hands = Hands(hands, self._work)
        self.began: list[tuple[float, Key]] = []
        self.again: list[float] = []

    async def _work(self, key: Key) -> float | None:
        self.began.append((asyncio.get_running_loop().time(), key))
        await asyncio.sleep(1.0)
        return self.again.pop(0) if self.again else None

    async def run(self, *keys: Key, seconds: float, added: dict[float, Key] | None = None) -> None:
        """Begins with ``keys``, and is given the others after so many seconds."""

        def begin() -> None:
            for key in keys:
                self.hands.add(key)
            for delay, key in (added or {}).items():
                asyncio.get_running_loop().call_later(delay, self.hands.add, key)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.hands.run(begin)


@virtual_time
async def test_a_key_that_is_added_twice_has_one_turn() -> None:
    controller = Controller()
    await controller.run(A, A, seconds=5.0)
    assert controller.began == [(0.0, A)]


@virtual_time
async def test_no_more_keys_are_worked_on_than_there_are_hands() -> None:
    controller = Controller(hands=2)
    await controller.run(A, B, C, seconds=5.0)
    assert controller.began == [(0.0, A), (0.0, B), (1.0, C)]


@virtual_time
async def test_a_key_that_is_added_while_it_is_worked_on_has_its_turn_again_afterwards() -> None:
    controller = Controller(hands=2)
    await controller.run(A, seconds=5.0, added={0.5: A})
    assert controller.began == [(0.0, A), (1.0, A)]


@virtual_time
async def test_a_hand_that_had_nothing_left_to_do_works_on_what_comes_later() -> None:
    controller = Controller(hands=1)
    await controller.run(A, seconds=5.0, added={3.0: B})
    assert controller.began == [(0.0, A), (3.0, B)]


@virtual_time
async def test_a_key_is_looked_at_again_when_its_work_said_so() -> None:
    controller = Controller()
    controller.again = [2.0]
    await controller.run(A, seconds=9.0)
    assert controller.began == [(0.0, A), (3.0, A)]


@virtual_time
async def test_an_addition_overtakes_the_next_look() -> None:
    controller = Controller()
    controller.again = [3.0]
    await controller.run(A, seconds=9.0, added={2.0: A})
    assert controller.began == [(0.0, A), (2.0, A)]


@virtual_time
async def test_nothing_is_looked_at_after_the_end() -> None:
    controller = Controller()
    controller.again = [3.0]
    await controller.run(A, seconds=2.0)
    await asyncio.sleep(9.0)
    assert controller.began == [(0.0, A)]


@virtual_time
async def test_what_is_added_once_it_is_over_has_no_turn() -> None:
    controller = Controller()
    await controller.run(A, seconds=5.0)
    controller.hands.add(B)
    await asyncio.sleep(5.0)
    assert controller.began == [(0.0, A)]
