"""Requests through a proxy that the request names."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.errors import ConnectFailed, TooLate
from backstay.seam.tls import server_context
from backstay.seam.transport import Request
from tests.seam.hostile import Script, Wire, answering, hostile
from tests.seam.worlds import server_tls, trust

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere"


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTransport]:
    made = AiohttpTransport()
    yield made
    await made.close()


def tunnel(*, after: float = 0.0) -> Script:
    """A proxy that says yes to CONNECT, and is then the server itself, with TLS."""
    context = server_context(server_tls("inside.example"))

    async def script(wire: Wire) -> None:
        await wire.request()
        await asyncio.sleep(after)
        await wire.send(b"HTTP/1.1 200 Connected\r\n\r\n")
        await wire.start_tls(context)
        await wire.request()
        await wire.send(OK)
        await wire.until_closed()

    return script


def through(
    proxy: str, url: str = "https://inside.example:6443/x", *, not_after: float | None = None
) -> Request:
    tls = trust() if url.startswith("https") else None
    return Request(
        method="GET", url=url, timeout=5.0, proxy=proxy, tls=tls, not_after=not_after
    )  # fmt: skip


async def test_a_plain_request_is_handed_to_the_proxy(transport: AiohttpTransport) -> None:
    async with hostile(answering(OK)) as proxy:
        response = await transport.request(through(proxy.url, "http://inside.example/x?y=%20"))
        assert response.body == b"there"
        assert proxy.received.startswith(b"GET http://inside.example/x?y=%20 HTTP/1.1\r\n")


async def test_a_tls_request_goes_through_a_tunnel(transport: AiohttpTransport) -> None:
    async with hostile(tunnel()) as proxy:
        assert (await transport.request(through(proxy.url))).body == b"there"
        connect, request = proxy.received.split(b"\r\n\r\n")[:2]
    assert connect.startswith(b"CONNECT inside.example:6443 HTTP/1.1\r\n")
    assert request.startswith(b"GET /x HTTP/1.1\r\n")


async def test_the_credentials_of_the_proxy_go_to_the_proxy_only(
    transport: AiohttpTransport,
) -> None:
    header = b"Proxy-Authorization: Basic dXNlcjpwQHNz\r\n"
    async with hostile(tunnel()) as proxy:
        await transport.request(through(proxy.url.replace("://", "://user:p%40ss@")))
        connect, request = (part + b"\r\n" for part in proxy.received.split(b"\r\n\r\n")[:2])
    assert header in connect
    assert b"Authorization" not in request
    async with hostile(answering(OK)) as proxy:
        url = proxy.url.replace("://", "://user:p%40ss@")
        await transport.request(through(url, "http://inside.example/"))
        assert header in proxy.received


async def test_what_is_late_does_not_leave_through_a_tunnel_either(
    transport: AiohttpTransport,
) -> None:
    async with hostile(tunnel(after=0.3)) as proxy:
        late = asyncio.get_running_loop().time() + 0.1
        with pytest.raises(TooLate):
            await transport.request(through(proxy.url, not_after=late))
        received = await proxy.when_all_is_received()
    assert received.startswith(b"CONNECT ")
    assert received.count(b"HTTP/1.1") == 1


async def test_a_proxy_that_refuses_is_no_connection(transport: AiohttpTransport) -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    async with hostile(answering(refusal)) as proxy:
        with pytest.raises(
            ConnectFailed, match=r"did not connect us to https://inside\.example:6443: HTTP 407"
        ):
            await transport.request(through(proxy.url))


async def test_a_proxy_that_is_not_there_is_no_connection(transport: AiohttpTransport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    with pytest.raises(ConnectFailed, match=r"the proxy to https://inside\.example:6443 cannot"):
        await transport.request(through(f"http://127.0.0.1:{port}"))


@pytest.mark.parametrize("proxy", ["socks5://user:s3cret@127.0.0.1:1080", "not a proxy"])
async def test_other_kinds_of_proxy_are_refused_in_a_sentence(
    transport: AiohttpTransport, proxy: str
) -> None:
    with pytest.raises(ConnectFailed, match="use an http or https proxy") as caught:
        await transport.request(through(proxy))
    assert "s3cret" not in str(caught.value)
