"""The simulated dice, beside the real ones where they promise the same."""

import re
from collections import Counter
from collections.abc import Callable

import pytest

from backstay.seam.clock import Rng
from backstay.seam.system import SystemRng
from backstay.sim.chance import Chance
from backstay.sim.world import World


def simulated() -> Rng:
    return Chance(1, "dice")


@pytest.mark.parametrize("dice", [SystemRng, simulated])
def test_dice_fall_between_zero_and_one_and_not_twice_the_same(dice: Callable[[], Rng]) -> None:
    rng = dice()
    rolls = [rng.random() for _ in range(1000)]
    assert all(0.0 <= roll < 1.0 for roll in rolls)
    assert len(set(rolls)) > 990


@pytest.mark.parametrize("dice", [SystemRng, simulated])
def test_a_token_is_valid_in_a_kubernetes_name(dice: Callable[[], Rng]) -> None:
    rng = dice()
    tokens = {rng.token(10) for _ in range(100)}
    assert len(tokens) == 100
    assert all(re.fullmatch("[a-z0-9]{10}", token) for token in tokens)


def story(chance: Chance) -> list[object]:
    return [(chance.random(), chance.below(100), chance.token(8)) for _ in range(20)]


def test_the_same_seed_and_matter_are_the_same_chance() -> None:
    assert story(Chance(7, "faults")) == story(Chance(7, "faults"))


def test_another_seed_or_another_matter_is_another_chance() -> None:
    stories = [story(Chance(seed, name)) for seed in (0, 1, 2, -1) for name in ("world", "faults")]
    assert all(stories.count(each) == 1 for each in stories)


def test_a_draw_from_one_stream_of_a_world_shifts_no_other() -> None:
    with World(seed=7) as one, World(seed=7) as two:
        for _ in range(5):
            one.faults.random()
        assert story(one.chance) == story(two.chance)
        latencies = [[world.wires.latency() for _ in range(20)] for world in (one, two)]
        assert latencies[0] == latencies[1]
        assert story(one.faults) != story(two.faults)


def test_what_is_drawn_is_spread_as_it_says() -> None:
    chance = Chance(3, "spread")
    picked = Counter(chance.pick("abcd") for _ in range(4000))
    assert all(900 < picked[letter] < 1100 for letter in "abcd")
    assert 900 < sum(chance.happens(0.25) for _ in range(4000)) < 1100
    waits = [chance.exponential(2.0) for _ in range(4000)]
    assert min(waits) >= 0.0
    assert 1.9 < sum(waits) / len(waits) < 2.1
    assert all(3.0 <= chance.between(3.0, 5.0) < 5.0 for _ in range(1000))


def test_dice_that_turn_to_a_seed_fall_by_it_whatever_they_fell_before() -> None:
    first, second = Chance(1, "network"), Chance(2, "network")
    first.random()
    first.turn_to(7)
    second.turn_to(7)
    assert rolled(first) == rolled(second)


def test_dice_that_turn_to_a_seed_never_repeat_what_it_gave_at_the_beginning() -> None:
    dice = Chance(7, "network")
    before = rolled(dice)
    dice.turn_to(7)
    assert rolled(dice) != before


def rolled(dice: Chance) -> list[float]:
    return [dice.random() for _ in range(5)]
