"""Every implementation of ``Serve``, held to the contract, and what only a real one can do."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from backstay.seam.aiohttp_serve import AiohttpServe
from backstay.seam.serve import Answer, Inbound, ServerTls
from backstay.seam.tls import UnusablePem
from tests.seam.serve_contract import ServeContract, hello
from tests.seam.worlds import WORLDS, World, over_http


@pytest.fixture(params=WORLDS)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with WORLDS[request.param]() as made:
        yield made


class TestServe(ServeContract):
    """The contract."""


async def test_the_peer_is_known_by_its_address() -> None:
    peers: list[str] = []

    async def handler(inbound: Inbound) -> Answer:
        peers.append(inbound.peer)
        return Answer()

    async with over_http() as world:
        server = await world.listen(handler)
        await world.transport.request(world.request(server.url))
    assert peers == ["127.0.0.1"]


async def test_what_is_not_http_is_refused_and_does_not_reach_the_handler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Inbound] = []

    async def handler(inbound: Inbound) -> Answer:
        seen.append(inbound)
        return Answer()

    async with over_http() as world:
        server = await world.listen(handler)
        reader, writer = await asyncio.open_connection(*_address(server.url))
        writer.write(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.0 400")
    assert seen == []


async def test_a_body_without_length_is_measured_as_it_arrives() -> None:
    async with over_http() as world:
        server = await world.listen(hello, max_body=1000)
        reader, writer = await asyncio.open_connection(*_address(server.url))
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"3e9\r\n" + bytes(1001) + b"\r\n")
        answer = await reader.readline()
        writer.close()
        await writer.wait_closed()
    # What stands behind the number is Python's own, and is not the same in all versions.
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_the_answer_does_not_tell_what_it_was_made_with() -> None:
    async with over_http() as world:
        server = await world.listen(hello)
        response = await world.transport.request(world.request(server.url))
    assert response.headers["server"] == "backstay"


async def test_a_server_certificate_that_is_not_one_is_said_so() -> None:
    tls = ServerTls(cert=b"not a certificate", key=b"not a key")
    with pytest.raises(UnusablePem, match="the server certificate or its key is not usable PEM"):
        await AiohttpServe().listen(hello, tls=tls)


def _address(url: str) -> tuple[str, int]:
    host, _, port = url.rpartition("/")[2].partition(":")
    return host, int(port)
