"""A server that follows a script instead of HTTP, on a real socket."""

import asyncio
import re
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from socket import SO_LINGER, SOL_SOCKET

from backstay.seam.transport import Request, Tls


class Wire:
    """The server's end of one connection, and everything that came in through it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received = b""
        self.ended = asyncio.Event()
        self._reader = reader
        self._writer = writer

    async def request(self) -> bytes:
        """The next request, with its body if it says how long that is."""
        request = await self._keep(self._reader.readuntil(b"\r\n\r\n"))
        if length := re.search(rb"\r\nContent-Length: (\d+)\r\n", request):
            request += await self.read(int(length[1]))
        return request

    async def read(self, size: int) -> bytes:
        return await self._keep(self._reader.readexactly(size))

    async def _keep(self, reading: Awaitable[bytes]) -> bytes:
        try:
            data = await reading
        except asyncio.IncompleteReadError as error:
            self.received += error.partial
            raise
        self.received += data
        return data

    async def until_closed(self) -> None:
        """Returns when the other side has closed; a reset counts."""
        try:
            while data := await self._reader.read(2**16):
                self.received += data
        except ConnectionError:
            return

    async def send(self, *pieces: bytes | float) -> None:
        """Send each piece at once; a number is a pause."""
        for piece in pieces:
            if isinstance(piece, bytes):
                self._writer.write(piece)
                await self._writer.drain()
            else:
                await asyncio.sleep(piece)

    async def start_tls(self, context: ssl.SSLContext) -> None:
        await self._writer.start_tls(context)

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        socket = self._writer.get_extra_info("socket")
        socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def stop_reading(self) -> None:
        transport = self._writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()


Script = Callable[[Wire], Awaitable[None]]


class Hostile:
    """What became of the script: one wire for each connection."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.wires: list[Wire] = []

    @property
    def received(self) -> bytes:
        return b"".join(wire.received for wire in self.wires)

    async def when_all_is_received(self) -> bytes:
        """Everything that was ever sent here, once the other side has closed each connection."""
        async with asyncio.timeout(5.0):
            for wire in self.wires:
                await wire.ended.wait()
        return self.received

    def request(
        self,
        *,
        method: str = "GET",
        path: str = "/",
        timeout: float = 5.0,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        connect_timeout: float | None = None,
        not_after: float | None = None,
        tls: Tls | None = None,
        max_body: int = 16 * 1024 * 1024,
    ) -> Request:
        return Request(
            method=method, url=self.url + path, timeout=timeout, body=body, headers=headers or {},
            connect_timeout=connect_timeout, not_after=not_after, tls=tls, max_body=max_body,
        )  # fmt: skip


@asynccontextmanager
async def hostile(script: Script, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Hostile]:
    """Runs ``script`` for each connection, which stays open until the script or the block ends."""
    tasks: set[asyncio.Task[None]] = set()
    server = Hostile("")

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        wire = Wire(reader, writer)
        server.wires.append(wire)
        try:
            await script(wire)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            wire.close()
            wire.ended.set()

    listener = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    host, port = listener.sockets[0].getsockname()
    server.url = f"{'https' if tls else 'http'}://{host}:{port}"
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(*pieces: bytes | float, then: Callable[[Wire], None] | None = None) -> Script:
    """A script that answers each request with the pieces, or the first one, and does ``then``."""

    async def script(wire: Wire) -> None:
        while True:
            await wire.request()
            await wire.send(*pieces)
            if then is not None:
                then(wire)
                return await wire.until_closed()

    return script
