"""What the ports of a real machine show of it: whether it is there, and whether it is reached."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.errors import ConnectFailed, MaybeSent, Refused, TransportError
from backstay.seam.transport import Request
from tests.seam.hostile import Wire, hostile


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTransport]:
    made = AiohttpTransport()
    yield made
    await made.close()


@pytest.fixture
def port() -> Iterator[socket.socket]:
    """Bound, so that nobody else takes it; nobody listens yet."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


async def _asked(transport: AiohttpTransport, url: str) -> type[TransportError]:
    request = Request(method="GET", url=url, timeout=0.3, headers={"Connection": "close"})
    with pytest.raises(TransportError) as caught:
        await transport.request(request)
    return caught.type


def _url(port: socket.socket) -> str:
    return f"http://127.0.0.1:{port.getsockname()[1]}/healthz"


async def test_a_closed_port_refuses(transport: AiohttpTransport, port: socket.socket) -> None:
    assert await _asked(transport, _url(port)) is Refused


async def test_a_program_that_stands_still_has_been_sent_something(
    transport: AiohttpTransport, port: socket.socket
) -> None:
    """Its kernel takes the connection, whatever the program does."""
    port.listen()
    assert issubclass(await _asked(transport, _url(port)), MaybeSent)


async def test_a_black_hole_gives_no_connection_and_refuses_none(
    transport: AiohttpTransport, port: socket.socket
) -> None:
    """A port whose backlog is full drops what comes in, as a machine without power does."""
    port.listen(0)
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(port.getsockname())
        await asyncio.sleep(0.05)
        assert await _asked(transport, _url(port)) is ConnectFailed


async def test_a_request_that_asks_for_the_end_leaves_no_connection_behind(
    transport: AiohttpTransport,
) -> None:
    """A request on a connection from before would tell nothing about the machine of now."""
    connections = 0

    async def script(wire: Wire) -> None:
        nonlocal connections
        connections += 1
        await wire.request()
        await wire.send(
            b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        )
        await wire.until_closed()

    async with hostile(script) as server:
        for _ in range(2):
            await transport.request(
                Request(method="GET", url=server.url, timeout=5, headers={"Connection": "close"})
            )
    assert connections == 2
