"""Virtual time: jumps, order, and the deadlock that a real loop would hang in."""

import asyncio
import gc
import itertools
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import pytest

from backstay.sim import loop
from backstay.sim.loop import Deadlock, Livelock, Unfinished, VirtualLoop
from tests.support.virtual import virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


async def counting(closed: list[float]) -> AsyncGenerator[int, None]:
    """Counts until it is closed, and writes down when that was."""
    try:
        for number in itertools.count():
            yield number
    finally:
        closed.append(now())


@virtual_time
async def test_time_starts_at_zero_and_jumps_exactly_to_the_timer() -> None:
    assert now() == 0.0
    await asyncio.sleep(0.1)
    await asyncio.sleep(0.2)
    assert now() == 0.1 + 0.2
    await asyncio.sleep(10 * 365 * 24 * 3600.0)
    assert now() == 0.1 + 0.2 + 10 * 365 * 24 * 3600.0


@virtual_time
async def test_time_stands_still_while_anything_is_ready() -> None:
    for _ in range(1000):
        await asyncio.sleep(0)
    assert now() == 0.0


@virtual_time
async def test_timers_of_the_same_moment_fire_in_the_order_they_were_set() -> None:
    fired: list[int] = []
    running = asyncio.get_running_loop()
    for number in range(50):
        running.call_at(5.0, fired.append, number)
    await asyncio.sleep(5.0)
    assert fired == list(range(50))


@virtual_time
async def test_a_timer_in_the_past_fires_now_and_does_not_turn_time_back() -> None:
    await asyncio.sleep(7.0)
    fired: list[float] = []
    asyncio.get_running_loop().call_at(3.0, lambda: fired.append(now()))
    await asyncio.sleep(1.0)
    assert fired == [7.0]


@virtual_time
async def test_a_cancelled_timer_does_not_move_time() -> None:
    asyncio.get_running_loop().call_later(100.0, print).cancel()
    await asyncio.sleep(1.0)
    assert now() == 1.0


@virtual_time
async def test_cancelled_timers_do_not_pile_up() -> None:
    running = asyncio.get_running_loop()
    assert isinstance(running, VirtualLoop)
    # One that is due before them, so that they do not leave by the front of the queue.
    running.call_later(1.0, print)
    for _ in range(10_000):
        async with asyncio.timeout(3600.0):
            await asyncio.sleep(0)
    assert len(running._timers) < 500


@virtual_time
async def test_a_group_of_tasks_is_cancelled_in_the_order_in_which_it_was_made() -> None:
    cancelled: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.sleep(3600.0)
        finally:
            cancelled.append(number)

    async def group_that_fails() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(work(number))
            await asyncio.sleep(1.0)
            raise LookupError("enough")

    with pytest.raises(ExceptionGroup):
        await group_that_fails()
    assert cancelled == list(range(50))


@virtual_time
async def test_a_timeout_ends_what_waits_for_ever() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(30.0):
            await asyncio.Event().wait()
    assert now() == 30.0


def test_a_deadlock_names_the_tasks_that_wait_and_where() -> None:
    async def wait_for_nobody() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(wait_for_nobody(), name="the-forgotten-one")

    with pytest.raises(Deadlock, match=r"the-forgotten-one at \S+test_loop\.py:\d+ \("):
        loop.run(main())


def test_the_result_comes_back_and_leftovers_are_cancelled() -> None:
    ended: list[str] = []

    async def leftover() -> None:
        try:
            await asyncio.sleep(3600.0)
        finally:
            ended.append("leftover")

    async def main() -> tuple[str, asyncio.Task[None]]:
        task = asyncio.get_running_loop().create_task(leftover())
        await asyncio.sleep(0)
        return "done", task

    result, task = loop.run(main())
    assert (result, ended, task.cancelled()) == ("done", ["leftover"], True)


def test_an_exception_comes_back_as_it_is() -> None:
    async def main() -> None:
        await asyncio.sleep(1.0)
        raise LookupError("this one")

    with pytest.raises(LookupError, match="this one"):
        loop.run(main())


@virtual_time
async def test_threads_have_no_place_under_virtual_time() -> None:
    with pytest.raises(RuntimeError, match="virtual time"):
        await asyncio.to_thread(print)


@virtual_time
async def test_a_virtual_test_may_ask_for_fixtures(caplog: pytest.LogCaptureFixture) -> None:
    await asyncio.sleep(1.0)
    logging.getLogger("backstay.test").warning("seen at %g", now())
    assert caplog.messages == ["seen at 1"]


# Nothing hangs on addresses in memory


def scattered() -> list[bytes]:
    """Moves what is allocated next to other addresses than the last time."""
    return [bytes(500 + number % 97) for number in range(len(gc.get_objects()) % 1000)]


async def in_the_order_of_sets(number: int) -> list[str]:
    """What asyncio does with sets of tasks and futures, told by the tasks."""
    told: list[str] = []
    running = asyncio.get_running_loop()
    ballast = scattered()

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(3600.0)
        finally:
            told.append(name)

    tasks = [running.create_task(work(f"task {n}"), name=f"t{n}") for n in range(number)]
    # Tasks that ended leave holes in the tables that sets are made of.
    for task in tasks[::3]:
        task.cancel()
    done, pending = await asyncio.wait(tasks, timeout=1.0)
    told += [task.get_name() for task in done] + [task.get_name() for task in pending]
    futures = {running.create_future(): n for n in range(number)}
    for future in set(futures):
        told.append(f"future {futures[future]}")
    try:
        async with asyncio.TaskGroup() as group:
            for task in pending:
                group.create_task(work(f"child of {task.get_name()}"))
            await asyncio.sleep(1.0)
            raise LookupError("enough")
    except ExceptionGroup:
        told.append("failed")
    del ballast
    return told


def test_sets_of_tasks_and_futures_have_the_same_order_in_every_run() -> None:
    first = loop.run(in_the_order_of_sets(300))
    assert len(first) > 1000
    for _ in range(4):
        assert loop.run(in_the_order_of_sets(300)) == first


def test_tasks_without_a_name_are_called_the_same_in_every_run() -> None:
    async def name() -> str:
        task = asyncio.current_task()
        assert task is not None
        return task.get_name()

    assert loop.run(name()) == loop.run(name())


def test_what_is_left_over_is_cancelled_in_the_order_of_its_birth() -> None:
    ended: list[int] = []

    async def leftover(number: int) -> None:
        try:
            await asyncio.sleep(3600.0)
        finally:
            ended.append(number)

    async def main() -> None:
        running = asyncio.get_running_loop()
        kept.extend(running.create_task(leftover(number)) for number in range(200))
        # Every ninth stays, so that their numbers collide in a small set.
        for number, task in enumerate(kept):
            if number % 9:
                task.cancel()
        await asyncio.sleep(1.0)
        ended.clear()

    kept: list[asyncio.Task[None]] = []
    loop.run(main())
    assert ended == list(range(0, 200, 9))


def test_a_task_that_fails_while_it_is_cancelled_at_the_end_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def leftover() -> None:
        try:
            await asyncio.sleep(3600.0)
        finally:
            raise LookupError("on the way out")

    async def main() -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(leftover())
        await asyncio.sleep(0)
        return task

    loop.run(main())
    assert "a task failed while it was cancelled at the end" in caplog.text


# Garbage comes at moments that are counted


@virtual_time
async def test_garbage_is_not_collected_whenever_python_feels_like_it() -> None:
    assert not gc.isenabled()


def test_afterwards_garbage_is_collected_as_before() -> None:
    async def main() -> None:
        pass

    loop.run(main())
    assert gc.isenabled()
    assert all(getattr(each, "__self__", None) is None for each in gc.callbacks)


@virtual_time
async def test_garbage_in_circles_does_not_pile_up() -> None:
    class Circle:
        alive = 0

        def __init__(self) -> None:
            self.me = self
            Circle.alive += 1

        def __del__(self) -> None:
            Circle.alive -= 1

    most = 0
    for _ in range(30_000):
        Circle()
        most = max(most, Circle.alive)
        await asyncio.sleep(0)
    assert 10_000 < most < 25_000


@virtual_time
async def test_a_generator_that_its_last_owner_drops_is_closed_there_and_then() -> None:
    closed: list[float] = []
    async for number in counting(closed):
        if number == 3:
            break
    await asyncio.sleep(1.0)
    assert closed == [0.0]


def test_a_generator_that_is_left_to_the_garbage_collector_is_an_error() -> None:
    async def main() -> None:
        generator = counting([])
        await anext(generator)
        circle: list[object] = [generator]
        circle.append(circle)
        del generator, circle
        for _ in range(100_000):
            await asyncio.sleep(0)

    with pytest.raises(Unfinished, match=r"counting was begun, not finished, .*aclosing"):
        loop.run(main())


@virtual_time
async def test_a_generator_that_is_closed_by_its_owner_is_no_concern_of_the_loop() -> None:
    closed: list[float] = []
    async with aclosing(counting(closed)) as numbers:
        assert await anext(numbers) == 0
        await asyncio.sleep(2.0)
    assert closed == [2.0]


def test_generators_that_are_still_open_at_the_end_are_closed_in_the_order_of_their_birth() -> None:
    closed: list[int] = []

    async def number(mine: int) -> AsyncIterator[int]:
        try:
            yield mine
        finally:
            closed.append(mine)

    async def main() -> list[AsyncIterator[int]]:
        generators = [number(mine) for mine in range(50)]
        for generator in generators:
            await anext(generator)
        return generators

    loop.run(main())
    assert closed == list(range(50))


# When nothing goes on, or everything


def test_sleeps_that_are_too_short_to_let_time_go_on_are_noticed() -> None:
    async def main() -> None:
        running = asyncio.get_running_loop()
        assert isinstance(running, VirtualLoop)
        running.patience = 1000
        await asyncio.sleep(1.0)
        for _ in itertools.count():
            await asyncio.sleep(1e-20)

    with pytest.raises(Livelock, match=r"at 1 s time cannot go on"):
        loop.run(main())


def test_a_loop_that_never_lets_time_go_on_is_named() -> None:
    async def spin() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    async def main() -> None:
        running = asyncio.get_running_loop()
        assert isinstance(running, VirtualLoop)
        running.patience = 1000
        async with asyncio.TaskGroup() as group:
            group.create_task(spin(), name="the-busy-one")

    with pytest.raises(Livelock, match=r"the-busy-one at \S+test_loop\.py:\d+ \("):
        loop.run(main())
