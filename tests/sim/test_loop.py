"""Virtual time: jumps, order, and the deadlock that a real loop would hang in."""

import asyncio
import logging

import pytest

from backstay.sim import loop
from backstay.sim.loop import Deadlock, VirtualLoop
from tests.support.virtual import virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


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
