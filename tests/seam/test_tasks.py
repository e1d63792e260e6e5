"""Background tasks: kept alive, reported when they fail, gone when their owner is."""

import asyncio
import gc
import logging
import weakref

import pytest

from backstay.seam.tasks import Tasks, side_by_side
from tests.support.virtual import virtual_time


@virtual_time
async def test_the_end_of_the_block_cancels_and_joins_every_task() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(3600.0)
        finally:
            await asyncio.sleep(1.0)
            ended.append(name)

    async with Tasks("owner") as tasks:
        first = tasks.spawn(work("first"), name="first")
        tasks.spawn(work("second"), name="second")
        await asyncio.sleep(0)
    assert ended == ["first", "second"]
    assert first.cancelled()
    assert first.get_name() == "owner/first"


@virtual_time
async def test_a_failure_is_logged_once_with_the_name_of_the_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise LookupError("no such thing")

    async with Tasks("owner") as tasks:
        task = tasks.spawn(fail(), name="search")
        with pytest.raises(LookupError):
            await task
        assert caplog.messages == ["task owner/search failed"]
    del task
    gc.collect()
    assert [(r.name, r.levelname, r.message) for r in caplog.records] == [
        ("backstay.tasks", "ERROR", "task owner/search failed")
    ]
    assert "no such thing" in caplog.text


@virtual_time
async def test_a_failure_does_not_end_the_siblings() -> None:
    async def fail() -> None:
        raise LookupError("no such thing")

    async with Tasks("owner", logger=_silent()) as tasks:
        sibling = tasks.spawn(asyncio.sleep(5.0, "done"), name="sibling")
        tasks.spawn(fail(), name="failing")
        assert await sibling == "done"


@virtual_time
async def test_a_task_that_fails_while_it_is_cancelled_is_logged_and_not_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def clumsy() -> None:
        try:
            await asyncio.sleep(3600.0)
        finally:
            raise LookupError("in the cleanup")

    async with Tasks("owner") as tasks:
        tasks.spawn(clumsy(), name="clumsy")
        await asyncio.sleep(0)
    assert caplog.messages == ["task owner/clumsy failed"]


@virtual_time
async def test_what_a_cleanup_starts_is_ended_too() -> None:
    last: list[asyncio.Task[None]] = []

    async def work(tasks: Tasks) -> None:
        try:
            await asyncio.sleep(3600.0)
        finally:
            last.append(tasks.spawn(asyncio.sleep(3600.0), name="last"))

    async with Tasks("owner") as tasks:
        tasks.spawn(work(tasks), name="work")
        await asyncio.sleep(0)
    assert last[0].cancelled()


@virtual_time
async def test_a_task_is_kept_alive_although_nobody_else_holds_it() -> None:
    async def wait_on_what_only_this_task_holds() -> None:
        await asyncio.get_running_loop().create_future()

    async with Tasks("owner") as tasks:
        seen = weakref.ref(tasks.spawn(wait_on_what_only_this_task_holds(), name="lonely"))
        await asyncio.sleep(0)
        gc.collect()
        assert seen() is not None


@virtual_time
async def test_nothing_can_be_started_after_the_end() -> None:
    async with Tasks("owner") as tasks:
        pass
    with pytest.raises(RuntimeError, match="owner has ended and cannot start 'late'"):
        tasks.spawn(asyncio.sleep(1.0), name="late")


@virtual_time
async def test_the_exception_of_the_block_is_the_one_that_is_seen() -> None:
    async def block() -> None:
        async with Tasks("owner") as tasks:
            tasks.spawn(asyncio.sleep(3600.0), name="long")
            raise KeyError("body")

    with pytest.raises(KeyError):
        await block()


def _silent() -> logging.Logger:
    logger = logging.Logger("silent")
    logger.addHandler(logging.NullHandler())
    return logger


# The same for many things


@virtual_time
async def test_so_many_are_under_way_at_once_and_each_answer_keeps_its_place() -> None:
    under_way, most = 0, 0

    async def halve(number: int) -> float:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(10 - number)
        under_way -= 1
        return number / 2

    assert await side_by_side(range(5), halve, at_once=2) == [0, 0.5, 1, 1.5, 2]
    assert most == 2


@virtual_time
async def test_the_first_failure_is_raised_as_it_is_and_ends_the_others() -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            if number == 1:
                raise LookupError("one")
            await asyncio.sleep(3600.0)
        finally:
            ended.append(number)

    with pytest.raises(LookupError, match="one"):
        await side_by_side(range(3), work, at_once=3)
    assert sorted(ended) == [0, 1, 2]


@virtual_time
async def test_whoever_is_cancelled_takes_what_is_under_way_along() -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.sleep(3600.0)
        finally:
            ended.append(number)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await side_by_side([1, 2], work, at_once=1)
    assert ended == [1]


@virtual_time
async def test_what_is_alone_needs_no_task_of_its_own() -> None:
    async def who(_: int) -> asyncio.Task[None] | None:
        return asyncio.current_task()

    assert await side_by_side([1], who, at_once=1) == [asyncio.current_task()]
    assert await side_by_side([], who, at_once=1) == []
