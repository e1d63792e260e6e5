"""``waiting.by``: as ``asyncio.timeout_at``, without a timer for what is there already."""

import asyncio

import pytest

from backstay.seam import waiting
from tests.support.virtual import virtual_time


async def _after(seconds: float, result: str) -> str:
    await asyncio.sleep(seconds)
    return result


@virtual_time
async def test_what_comes_in_time_is_returned() -> None:
    loop = asyncio.get_running_loop()
    assert await waiting.by(loop.time() + 5, _after(3, "it")) == "it"
    assert loop.time() == 3


@virtual_time
async def test_what_does_not_come_in_time_is_given_up_at_the_deadline() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError):
        await waiting.by(loop.time() + 5, _after(6, "it"))
    assert loop.time() == 5


@virtual_time
async def test_what_needs_no_wait_is_returned_even_after_the_deadline() -> None:
    async def at_hand() -> str:
        return "it"

    assert await waiting.by(asyncio.get_running_loop().time() - 1, at_hand()) == "it"


@virtual_time
async def test_a_failure_before_the_first_wait_is_the_callers() -> None:
    async def broken() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await waiting.by(5, broken())


@virtual_time
async def test_a_failure_after_several_waits_is_the_callers() -> None:
    async def broken() -> None:
        await asyncio.sleep(1)
        await asyncio.sleep(1)
        raise LookupError

    with pytest.raises(LookupError):
        await waiting.by(5, broken())


@virtual_time
async def test_what_is_given_up_can_clean_up() -> None:
    cleaned = []

    async def careful() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(1)
            cleaned.append(asyncio.get_running_loop().time())

    with pytest.raises(TimeoutError):
        await waiting.by(5, careful())
    assert cleaned == [6]


@virtual_time
async def test_a_cancellation_of_the_caller_is_no_timeout() -> None:
    task = asyncio.ensure_future(waiting.by(5, _after(3, "it")))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
