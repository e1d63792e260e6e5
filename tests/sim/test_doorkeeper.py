"""Handlers that never wait are served without a task, and suffer what all others do."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from backstay.seam.errors import ConnectionLost, TimedOut
from backstay.seam.serve import Answer, Handler, Inbound
from backstay.seam.transport import Request
from backstay.sim.doorkeeper import prompt
from backstay.sim.fate import Fate, Loss, current_fate
from backstay.sim.network import Network
from tests.support.virtual import virtual_time

URL = "http://api:6443"


def get(*, timeout: float = 10.0) -> Request:
    return Request(method="GET", url=URL, timeout=timeout)


async def with_handler(handler: Handler) -> Network:
    network = Network()
    await network.serve.listen(handler, host="api", port=6443)
    return network


@prompt
async def done(_: Inbound) -> Answer:
    return Answer(body=b"done")


@virtual_time
async def test_a_prompt_handler_needs_no_task() -> None:
    tasks: list[asyncio.Task[object] | None] = []

    @prompt
    async def handler(_: Inbound) -> Answer:
        tasks.append(asyncio.current_task())
        return Answer(body=b"done")

    network = await with_handler(handler)
    assert (await network.transport.request(get())).body == b"done"
    assert tasks == [None]


@virtual_time
async def test_a_prompt_handler_can_answer_bit_by_bit() -> None:
    async def ticking() -> AsyncIterator[bytes]:
        for _ in range(3):
            await asyncio.sleep(1.0)
            yield b"tick"

    @prompt
    async def handler(_: Inbound) -> Answer:
        return Answer(body=ticking())

    network = await with_handler(handler)
    assert (await network.transport.request(get())).body == b"tick" * 3
    assert asyncio.get_running_loop().time() == 3.0


@virtual_time
@pytest.mark.parametrize(("loss", "error"), [("reset", ConnectionLost), ("silence", TimedOut)])
async def test_the_answer_of_a_prompt_handler_can_be_lost(
    loss: Loss, error: type[Exception]
) -> None:
    seen: list[Fate] = []

    @prompt
    async def handler(_: Inbound) -> Answer:
        seen.append(current_fate())
        return Answer(body=b"done")

    network = await with_handler(handler)
    fate = Fate(lose_answer=loss)
    network.fate = lambda _: fate
    with pytest.raises(error):
        await network.transport.request(get())
    assert seen == [fate]


@virtual_time
async def test_the_failure_of_a_prompt_handler_is_a_bare_500(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @prompt
    async def handler(_: Inbound) -> Answer:
        raise RuntimeError("secret")

    network = await with_handler(handler)
    with caplog.at_level(logging.ERROR, "backstay.serve"):
        answer = await network.transport.request(get())
    assert (answer.status, answer.body) == (500, b"")
    assert "failed" in caplog.text


@virtual_time
async def test_a_caller_that_has_left_is_no_trouble_to_a_prompt_handler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = await with_handler(done)
    network.link(URL).delay = 2.0
    with pytest.raises(TimedOut):
        await network.transport.request(get(timeout=1.0))
    await asyncio.sleep(10.0)
    assert caplog.text == ""


@virtual_time
async def test_many_reads_of_a_stream_are_timed_each_by_itself() -> None:
    async def slower_and_slower() -> AsyncIterator[bytes]:
        for seconds in (1.0, 2.0, 4.0, 30.0):
            await asyncio.sleep(seconds)
            yield b"tick"

    @prompt
    async def handler(_: Inbound) -> Answer:
        return Answer(body=slower_and_slower())

    network = await with_handler(handler)
    loop = asyncio.get_running_loop()
    async with network.transport.stream(get()) as stream:
        for timeout in (5.0, 3.0, 5.0):
            assert await stream.read(timeout) == b"tick"
        with pytest.raises(TimedOut):
            await stream.read(10.0)
        assert loop.time() == 17.0
        assert await stream.read(60.0) == b"tick"
    assert loop.time() == 37.0
