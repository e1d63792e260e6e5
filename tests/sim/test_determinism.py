"""One seed, one history: byte for byte, run after run, process after process."""

import asyncio
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backstay.seam import Seams
from backstay.sim.world import World
from tests.sim.history import history

ROOT = Path(__file__).parents[2]


def test_thirty_runs_of_one_seed_are_one_history() -> None:
    first = history(1)
    assert len(first.splitlines()) > 300
    ballast: list[object] = []
    for number in range(29):
        # Other addresses in memory, and other moments at which Python would collect garbage.
        ballast.append([bytes(300 + number) for _ in range(number * 37)])
        if number % 3 == 0:
            gc.collect()
        assert history(1) == first


def test_every_seed_is_a_history_of_its_own() -> None:
    assert len({history(seed) for seed in range(6)}) == 6


def test_the_seed_orders_processes_that_act_at_the_same_moment() -> None:
    def order(seed: int) -> bytes:
        async def act(_: Seams) -> None:
            await asyncio.sleep(1.0)
            world.log.note("acts")

        async def scenario() -> None:
            for name in "abcdef":
                world.start(name, act)
            await asyncio.sleep(2.0)

        with World(seed) as world:
            world.run(scenario())
            return world.log.text

    orders = [order(seed) for seed in range(20)]
    assert orders == [order(seed) for seed in range(20)]
    assert len(set(orders)) > 15


def in_a_process(
    seed: int, *options: str, hash_seed: str | None
) -> subprocess.CompletedProcess[bytes]:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    if hash_seed is not None:
        environ["PYTHONHASHSEED"] = hash_seed
    return subprocess.run(
        [sys.executable, *options, "-m", "tests.sim.history", str(seed)],
        cwd=ROOT, env=environ, capture_output=True, check=False,
    )  # fmt: skip


def test_processes_with_other_hash_seeds_tell_the_same_history() -> None:
    """The command starts itself over with a hash seed that is always the same."""
    told = [in_a_process(1, hash_seed=hash_seed) for hash_seed in ("1", "2", None)]
    assert [each.returncode for each in told] == [0, 0, 0]
    assert len({each.stdout for each in told}) == 1
    assert len(told[0].stdout.splitlines()) > 300


@pytest.mark.parametrize("option", ["-E", "-I"])
def test_a_python_that_cannot_be_told_its_hash_seed_is_an_error(option: str) -> None:
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from backstay.sim.hash_seed import reexec_with_fixed_hash_seed\n"
        "reexec_with_fixed_hash_seed()"
    )
    done = subprocess.run([sys.executable, option, "-c", code], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"ignores PYTHONHASHSEED=0: start it without" in done.stderr


def test_python_looks_for_garbage_again_only_when_the_world_is_over() -> None:
    with World(seed=1) as world:
        world.run(asyncio.sleep(1.0))
        assert not gc.isenabled()
    assert gc.isenabled()
