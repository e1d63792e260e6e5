"""Clocks and dice, real and simulated."""

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from backstay.seam import Seams
from backstay.seam.clock import WallClock
from backstay.seam.real import open_seams
from backstay.seam.system import SuspendAwareLoop, SystemClock, SystemRng, boot_time
from backstay.sim.clock import LoopClock
from tests.support.virtual import virtual_time


@pytest.mark.parametrize("clock", [SystemClock, LoopClock])
async def test_a_wall_clock_tells_utc_and_goes_forward(clock: Callable[[], WallClock]) -> None:
    wall = clock()
    first, second = wall.now(), wall.now()
    assert first.tzinfo is UTC
    assert first <= second


@virtual_time
async def test_the_simulated_clock_goes_with_the_loop() -> None:
    wall = LoopClock(datetime(2030, 1, 1, tzinfo=UTC))
    await asyncio.sleep(90.0)
    assert wall.now() == datetime(2030, 1, 1, 0, 1, 30, tzinfo=UTC)


@virtual_time
async def test_the_simulated_clock_can_be_set() -> None:
    wall = LoopClock(datetime(2030, 1, 1, tzinfo=UTC))
    wall.start -= timedelta(days=1)
    assert wall.now() == datetime(2029, 12, 31, tzinfo=UTC)


def test_dice_fall_between_zero_and_one_and_not_twice_the_same() -> None:
    rng = SystemRng()
    rolls = [rng.random() for _ in range(1000)]
    assert all(0.0 <= roll < 1.0 for roll in rolls)
    assert len(set(rolls)) > 990


def test_the_same_seed_is_the_same_chance() -> None:
    one, two, other = SystemRng(seed=1), SystemRng(seed=1), SystemRng(seed=2)
    story = [(rng.random(), rng.token(8)) for rng in (one, two, other)]
    assert story[0] == story[1] != story[2]


def test_a_token_is_valid_in_a_kubernetes_name() -> None:
    rng = SystemRng()
    tokens = {rng.token(10) for _ in range(100)}
    assert len(tokens) == 100
    assert all(re.fullmatch("[a-z0-9]{10}", token) for token in tokens)


def test_the_suspend_aware_loop_tells_the_time_since_boot() -> None:
    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        await asyncio.sleep(0.01)
        return started, loop.time()

    before = boot_time()
    with asyncio.Runner(loop_factory=SuspendAwareLoop) as runner:
        started, ended = runner.run(main())
    assert before <= started < ended <= boot_time()
    assert ended - started >= 0.01


async def test_the_real_seams_open_and_close() -> None:
    async with open_seams() as seams:
        assert isinstance(seams, Seams)
        assert seams.wall.now().year >= 2024
    with pytest.raises(RuntimeError):
        await seams.files.read("/dev/null")
