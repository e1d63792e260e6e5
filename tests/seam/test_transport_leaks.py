"""What is given up is given back: no connection outlives its transport.

The kernel is asked, because asyncio and aiohttp both believe that they have closed it.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.errors import TimedOut
from backstay.seam.transport import Request, Tls

_ESTABLISHED = "01"


def open_connections_to(port: int) -> int:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == _ESTABLISHED for row in rows)


class Silent:
    """A TLS server that sends what it is told to, and then nothing, not even a goodbye, unless it
    ``hangs_up``."""

    def __init__(self, ca: trustme.CA) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert("127.0.0.1").configure_cert(self._context)
        self.says = b""
        self.hangs_up = False

    async def start(self) -> int:
        self._held: list[asyncio.StreamWriter] = []
        self._server = await asyncio.start_server(
            self._hold, "127.0.0.1", 0, ssl=self._context, ssl_shutdown_timeout=0.01
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._held.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.says)
        if self.hangs_up:
            writer.close()

    async def stop(self) -> None:
        for writer in self._held:
            writer.transport.abort()
        self._server.close()
        await self._server.wait_closed()


@pytest.fixture
async def silent() -> AsyncIterator[tuple[Silent, int, Tls]]:
    ca = trustme.CA()
    server = Silent(ca)
    port = await server.start()
    yield server, port, Tls(ca=ca.cert_pem.bytes())
    await server.stop()


async def test_a_request_that_was_never_answered_leaves_no_connection(
    silent: tuple[Silent, int, Tls],
) -> None:
    _, port, tls = silent
    transport = AiohttpTransport()
    url = f"https://127.0.0.1:{port}/"
    with pytest.raises(TimedOut):
        await transport.request(Request(method="GET", url=url, timeout=0.3, tls=tls))
    await asyncio.sleep(0)
    assert open_connections_to(port) == 0
    await transport.close()


async def test_a_stream_that_is_left_before_its_end_leaves_no_connection(
    silent: tuple[Silent, int, Tls],
) -> None:
    server, port, tls = silent
    server.says = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
    transport = AiohttpTransport()
    url = f"https://127.0.0.1:{port}/"
    async with transport.stream(Request(method="GET", url=url, timeout=5, tls=tls)) as stream:
        assert await stream.read(5) == b"x"
        assert open_connections_to(port) == 1
    await asyncio.sleep(0)
    assert open_connections_to(port) == 0
    await transport.close()


async def test_a_peer_that_hangs_up_as_it_was_asked_to_is_no_reason_for_a_word(
    silent: tuple[Silent, int, Tls], caplog: pytest.LogCaptureFixture
) -> None:
    server, port, tls = silent
    server.says = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    server.hangs_up = True
    transport = AiohttpTransport()
    url, parting = f"https://127.0.0.1:{port}/", {"Connection": "close"}
    with caplog.at_level(logging.DEBUG, "aiohttp"):
        for _ in range(5):
            request = Request(method="GET", url=url, timeout=5, tls=tls, headers=parting)
            assert (await transport.request(request)).body == b"ok"
    await asyncio.sleep(0)
    assert open_connections_to(port) == 0
    assert caplog.text == ""
    await transport.close()
