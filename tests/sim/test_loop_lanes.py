"""Lanes: order within and between them, clocks of their own, and the ways in which one stops."""

import asyncio
import gc
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from backstay.sim import loop
from backstay.sim.chance import Chance
from backstay.sim.clock import Oscillator
from backstay.sim.lane import Lane, current_lane
from backstay.sim.loop import Deadlock, VirtualLoop
from tests.support.virtual import virtual_time

Main = Callable[[], Coroutine[Any, Any, None]]


def running() -> VirtualLoop:
    here = asyncio.get_running_loop()
    assert isinstance(here, VirtualLoop)
    return here


def begin(lane: Lane, main: Main) -> asyncio.Task[None]:
    return running().create_task(main(), context=lane.context())


# Order


def interleaving(seed: int) -> list[tuple[str, int]]:
    """Four lanes that have fifty steps each to take, all at one moment."""
    steps: list[tuple[str, int]] = []

    async def main() -> None:
        async def take_steps() -> None:
            for number in range(50):
                lane = current_lane()
                assert lane is not None
                steps.append((lane.name, number))
                await asyncio.sleep(0)

        await asyncio.wait([begin(Lane(name), take_steps) for name in "abcd"])

    made = VirtualLoop(Chance(seed, "order"))
    try:
        made.run_until_complete(main())
    finally:
        made.wind_up()
    return steps


def test_one_seed_is_one_order_between_lanes_and_another_is_another() -> None:
    orders = [interleaving(seed) for seed in range(20)]
    assert orders == [interleaving(seed) for seed in range(20)]
    assert len({tuple(order) for order in orders}) == 20


async def brought_to(lane: Lane) -> list[str]:
    """What happens, in order, when the mechanics bring something to a lane and then go on."""
    seen: list[str] = []
    here = running()

    def hear() -> None:
        seen.append(f"{lane.name} at {here.time():g}")

    def bring() -> None:
        here.call_soon(hear, context=lane.context())
        seen.append("brought")

    here.set_in_motion(1.0, bring)
    await asyncio.sleep(2.0)
    return seen


@virtual_time
async def test_what_would_be_alone_in_line_runs_next_by_the_clock_of_its_lane() -> None:
    lane = Lane("rested", Oscillator(ahead=40.0))
    assert await brought_to(lane) == ["brought", "rested at 41"]
    assert running().time() == 2.0


@virtual_time
async def test_who_need_not_line_up_is_ahead_of_what_comes_behind_in_its_lane() -> None:
    seen: list[str] = []
    here, context = running(), Lane("busy").context()

    def bring() -> None:
        for order in ("first", "second"):
            here.call_soon(seen.append, order, context=context)

    here.set_in_motion(1.0, bring)
    await asyncio.sleep(2.0)
    assert seen == ["first", "second"]


@virtual_time
async def test_what_is_brought_to_a_paused_lane_waits_until_it_goes_on() -> None:
    lane = Lane("paused")
    running().pause(lane)
    seen = await brought_to(lane)
    assert seen == ["brought"]
    running().resume(lane)
    await asyncio.sleep(1.0)
    assert seen == ["brought", "paused at 2"]


@pytest.mark.parametrize("how", ["brought", "slept", "called"])
def test_chance_decides_where_somebody_else_is_due_at_the_same_moment(how: str) -> None:
    def first(seed: int) -> str:
        here, seen = VirtualLoop(Chance(seed, "order")), list[str]()

        async def sleeper(name: str) -> None:
            await asyncio.sleep(1.0 - here.time())
            seen.append(name)

        async def main() -> None:
            for name in "ab":
                context = Lane(name).context()
                if how == "brought":
                    bring = partial(here.call_soon, seen.append, name, context=context)
                    here.set_in_motion(1.0, bring)
                elif how == "slept":
                    here.create_task(sleeper(name), context=context)
                else:
                    here.call_at(1.0, seen.append, name, context=context)
                await asyncio.sleep(0.25)
            await asyncio.sleep(2.0)

        try:
            here.run_until_complete(main())
        finally:
            here.wind_up()
        return seen[0]

    assert {first(seed) for seed in range(20)} == {"a", "b"}


@virtual_time
async def test_the_failure_of_what_did_not_line_up_is_told_and_harms_nobody() -> None:
    failures: list[object] = []
    here = running()
    here.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    failure = ValueError("by the handler")

    def fail() -> None:
        raise failure

    here.set_in_motion(1.0, lambda: here.call_soon(fail, context=Lane("rested").context()))
    await asyncio.sleep(2.0)
    assert failures == [failure]


def test_chance_lets_every_lane_overtake_every_other() -> None:
    overtakings = set()
    for seed in range(10):
        for (one, _), (other, _) in itertools.pairwise(interleaving(seed)):
            overtakings.add((one, other))
    assert overtakings == set(itertools.product("abcd", repeat=2))


@pytest.mark.parametrize("seed", range(10))
def test_within_a_lane_nothing_is_ever_reordered(seed: int) -> None:
    order = interleaving(seed)
    for name in "abcd":
        assert [number for lane, number in order if lane == name] == list(range(50))


def test_callbacks_and_timers_of_a_lane_keep_their_order_whatever_the_seed() -> None:
    def told_by(seed: int) -> list[str]:
        told: list[str] = []

        async def main() -> None:
            here = running()
            one, other = Lane("one"), Lane("other")
            for number in range(20):
                here.call_soon(told.append, f"soon {number}", context=one.context())
                here.call_later(1.0, told.append, f"later {number}", context=one.context())
                here.call_soon(told.append, "noise", context=other.context())
            await asyncio.sleep(2.0)

        made = VirtualLoop(Chance(seed, "order"))
        try:
            made.run_until_complete(main())
        finally:
            made.wind_up()
        return [line for line in told if line != "noise"]

    soon = [f"soon {number}" for number in range(20)]
    later = [f"later {number}" for number in range(20)]
    assert all(told_by(seed) == soon + later for seed in range(10))


@virtual_time
async def test_what_a_lane_starts_stays_in_it() -> None:
    seen: list[Lane | None] = []

    async def child() -> None:
        seen.append(current_lane())

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
        running().call_later(1.0, lambda: seen.append(current_lane()))
        await asyncio.sleep(2.0)

    lane = Lane("a")
    await begin(lane, main)
    assert seen == [lane, lane]
    assert current_lane() is None


# Clocks


@virtual_time
async def test_each_lane_has_its_own_time_and_sleeps_by_it() -> None:
    read: dict[str, tuple[float, float, float]] = {}

    async def main() -> None:
        here, lane = running(), current_lane()
        assert lane is not None
        started = here.time()
        await asyncio.sleep(10.0)
        read[lane.name] = (started, here.time(), here.true_time)

    clocks = {
        "fast": Oscillator(rate=2.0),
        "slow": Oscillator(rate=0.5),
        "ahead": Oscillator(ahead=1000.0),
    }
    await asyncio.wait([begin(Lane(name, clock), main) for name, clock in clocks.items()])
    assert read == {
        "fast": (0.0, 10.0, 5.0),
        "slow": (0.0, 10.0, 20.0),
        "ahead": (1000.0, 1010.0, 10.0),
    }
    assert running().time() == running().true_time == 20.0


@virtual_time
async def test_a_timeout_goes_by_the_clock_of_its_lane() -> None:
    ended_at: list[float] = []

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(9.0):
                await asyncio.Event().wait()
        ended_at.append(running().true_time)

    await begin(Lane("a", Oscillator(ahead=-77.0, rate=3.0)), main)
    assert ended_at == [3.0]


@virtual_time
async def test_a_clock_that_drifts_takes_the_timers_along_that_are_already_set() -> None:
    fired: list[tuple[str, float]] = []
    here = running()
    clock = Oscillator()
    drifting, steady = Lane("drifting", clock), Lane("steady", Oscillator())
    for lane in (drifting, steady):

        def fire(name: str = lane.name) -> None:
            fired.append((name, here.true_time))

        here.call_later(10.0, fire, context=lane.context())
    await asyncio.sleep(4.0)
    here.drift(clock, 3.0)
    await asyncio.sleep(20.0)
    assert fired == [("drifting", 6.0), ("steady", 10.0)]


@pytest.mark.parametrize("rate", [1.0, 0.1, 1.0000001, 1.1, 3.0])
@pytest.mark.parametrize("ahead", [0.0, 0.1, -5.0, 1e3, 1.234567e6, 1e12])
@virtual_time
async def test_whoever_sleeps_until_a_moment_finds_that_it_has_come(
    ahead: float, rate: float
) -> None:
    async def main() -> None:
        here, dice = running(), Chance(1, "waits")
        for _ in range(200):
            until = here.time() + dice.exponential(0.01)
            woken = here.create_future()
            here.call_at(until, woken.set_result, None)
            await woken
            assert until <= here.time() < until + 0.001

    await begin(Lane("a", Oscillator(ahead=ahead, rate=rate)), main)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_clock_goes_forward(rate: float) -> None:
    with pytest.raises(ValueError, match="a clock cannot go at"):
        Oscillator(rate=rate)


# Stopping


@virtual_time
async def test_a_lane_that_is_paused_does_nothing_while_time_goes_on() -> None:
    here, lane = running(), Lane("a")
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1.0)
            ticks.append(here.time())

    begin(lane, tick)
    await asyncio.sleep(2.5)
    here.pause(lane)
    await asyncio.sleep(4.0)
    assert ticks == [1.0, 2.0]
    here.resume(lane)
    await asyncio.sleep(1.2)
    assert ticks == [1.0, 2.0, 6.5, 7.5]


@virtual_time
async def test_a_lane_that_goes_on_sees_what_came_in_before_its_timers() -> None:
    """As a process after SIGCONT: its sockets are looked at before the clock."""
    here, lane = running(), Lane("a")
    news: asyncio.Queue[str] = asyncio.Queue()
    outcome: list[str] = []

    async def wait_for_news() -> None:
        try:
            async with asyncio.timeout(1.0):
                outcome.append(await news.get())
        except TimeoutError:
            outcome.append("timed out")

    begin(lane, wait_for_news)
    await asyncio.sleep(0.5)
    here.pause(lane)
    await asyncio.sleep(5.0)
    news.put_nowait("late news")
    here.resume(lane)
    await asyncio.sleep(1.0)
    assert outcome == ["late news"]


@virtual_time
async def test_a_lane_that_ends_never_runs_again_not_even_to_clean_up() -> None:
    here, lane = running(), Lane("a")
    told: list[str] = []
    door = asyncio.Event()

    async def main() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(wait())
                await asyncio.sleep(10.0)
        finally:
            told.append("finally")

    async def wait() -> None:
        try:
            await door.wait()
        except BaseException:
            told.append("except")
            raise
        told.append("through the door")

    task = begin(lane, main)
    here.call_later(3.0, told.append, "timer", context=lane.context())
    await asyncio.sleep(1.0)
    here.end(lane)
    door.set()
    task.cancel()
    here.call_soon(told.append, "soon", context=lane.context())
    del task
    gc.collect()
    await asyncio.sleep(20.0)
    assert told == []


def test_what_an_ended_lane_left_behind_goes_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(10.0)
            finally:
                logging.getLogger("backstay").error("last words")
                # Waits on its way out, which a coroutine that is torn down cannot.
                await asyncio.sleep(1.0)

    async def generate() -> AsyncIterator[int]:
        yield 1
        await stubborn()

    async def iterate() -> None:
        generators.append(generate())
        async for _ in generators[0]:
            pass

    async def fail() -> None:
        raise LookupError("nobody asked")

    async def main() -> None:
        lane = Lane("a")
        kept = [begin(lane, each) for each in (stubborn, iterate, fail)]
        await asyncio.sleep(1.0)
        not_even_begun = begin(lane, stubborn)
        running().end(lane)
        del kept, not_even_begun

    generators: list[AsyncIterator[int]] = []
    loop.run(main())
    generators.clear()
    gc.collect()
    assert caplog.text == ""


@virtual_time
async def test_the_tasks_of_an_ended_lane_are_not_among_all_tasks() -> None:
    lane = Lane("a")

    async def main() -> None:
        await asyncio.sleep(10.0)

    task = begin(lane, main)
    await asyncio.sleep(1.0)
    assert running().tasks_in(lane) == [task]
    running().end(lane)
    assert running().tasks_in(lane) == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_time_does_not_go_on_for_what_the_dead_had_planned() -> None:
    async def main() -> None:
        lane = Lane("a")
        running().call_later(100.0, print, context=lane.context())
        await asyncio.sleep(1.0)
        running().end(lane)
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="at 1 s nothing is left"):
        loop.run(main())


def test_a_deadlock_tells_who_is_paused() -> None:
    async def main() -> None:
        lane = Lane("a")

        async def sleep() -> None:
            await asyncio.sleep(1.0)

        task = running().create_task(sleep(), name="sleeper", context=lane.context())
        await asyncio.sleep(0.5)
        running().pause(lane)
        await task

    with pytest.raises(Deadlock, match=r"sleeper \(paused\) at"):
        loop.run(main())
