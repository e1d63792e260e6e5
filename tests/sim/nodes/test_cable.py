"""A cable that can be pulled: what becomes of requests and streams."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from backstay.seam.errors import ConnectFailed, ConnectionLost
from backstay.seam.serve import Answer, Inbound
from backstay.seam.tasks import Tasks
from backstay.seam.transport import Request, Response, Stream
from backstay.sim.network import Network
from backstay.sim.nodes.cable import Cable
from tests.support.virtual import virtual_time

URL = "http://server:80"


def get(path: str = "/", *, timeout: float = 30.0, connect: float | None = None) -> Request:
    return Request(method="GET", url=URL + path, timeout=timeout, connect_timeout=connect)


class Server:
    """Answers at once, late, or bit by bit, and counts what it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.network = Network()
        self.cable = Cable(self.network.transport)

    async def listen(self) -> None:
        await self.network.serve.listen(self.handle, host="server", port=80)

    async def handle(self, inbound: Inbound) -> Answer:
        self.asked += 1
        if inbound.path == "/late":
            await asyncio.sleep(10)
        return Answer(body=self._drip() if inbound.path == "/drip" else b"done")

    async def _drip(self) -> AsyncIterator[bytes]:
        while True:
            yield b"drop"
            await asyncio.sleep(1)


@virtual_time
async def test_a_cable_that_is_in_carries_everything() -> None:
    server = Server()
    await server.listen()
    assert (await server.cable.request(get())).body == b"done"


@virtual_time
async def test_a_request_under_way_is_lost_when_the_cable_is_pulled() -> None:
    server = Server()
    await server.listen()
    async with Tasks("test") as tasks:
        asked = tasks.spawn(_outcome(server.cable, get("/late")), name="late")
        await asyncio.sleep(1)
        server.cable.pull()
        assert await asked == "lost"
    assert asyncio.get_running_loop().time() == 1
    assert server.asked == 1


class Slow:
    """A transport whose answer comes when it is told to."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    async def request(self, request: Request) -> Response:
        return await self.answer

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        raise NotImplementedError


@virtual_time
async def test_an_answer_that_arrives_in_the_instant_of_the_pull_is_lost() -> None:
    slow = Slow()
    cable = Cable(slow)
    async with Tasks("test") as tasks:
        asked = tasks.spawn(_outcome(cable, get()), name="slow")
        await asyncio.sleep(1)
        slow.answer.set_result(Response(200, {}, b"done"))
        cable.pull()
        assert await asked == "lost"


async def _outcome(cable: Cable, request: Request) -> str:
    try:
        await cable.request(request)
    except ConnectionLost:
        return "lost"
    return "answered"


@virtual_time
async def test_a_stream_ends_with_the_pull_and_not_only_at_its_next_byte() -> None:
    server = Server()
    await server.listen()
    async with server.cable.stream(get("/drip")) as stream:
        assert await stream.read(5) == b"drop"
        asyncio.get_running_loop().call_later(0.5, server.cable.pull)
        with pytest.raises(ConnectionLost):
            await stream.read(5)
        assert asyncio.get_running_loop().time() == 0.5


@virtual_time
async def test_a_stream_from_before_a_pull_stays_lost_when_the_cable_is_in_again() -> None:
    server = Server()
    await server.listen()
    async with server.cable.stream(get("/drip")) as stream:
        await stream.read(5)
        server.cable.pull()
        server.cable.plug_in()
        with pytest.raises(ConnectionLost):
            await stream.read(5)


@virtual_time
async def test_without_a_cable_there_is_no_connection() -> None:
    server = Server()
    await server.listen()
    server.cable.pull()
    with pytest.raises(ConnectFailed):
        await server.cable.request(get(connect=2))
    assert asyncio.get_running_loop().time() == 2
    assert server.asked == 0


@virtual_time
async def test_whoever_waits_for_a_connection_gets_one_when_the_cable_is_in_again() -> None:
    server = Server()
    await server.listen()
    server.cable.pull()
    asyncio.get_running_loop().call_later(3, server.cable.plug_in)
    assert (await server.cable.request(get())).body == b"done"
    assert asyncio.get_running_loop().time() == 3
