"""Network: ``Transport`` and ``Serve`` joined in memory, with faults that a test can ask for.

A handler that listens at an address gets the requests sent to it, and its answers travel back.
Both ways go through the address's ``Link``, where things go wrong on purpose:

* ``refuse``: no connection;  ``connect_delay``: one, but late;
* ``delay``: seconds that everything is under way, in each direction;
* ``silent``: nothing arrives in either direction, on open connections too; when it ends, what
  was under way arrives, unless its caller has given up;
* ``lose_answer``: the handler does its work, but its answer is lost, by ``"reset"`` (the caller
  learns at once) or by ``"silence"`` (it finds out by its timeout);
* ``cut()``: every open exchange and stream ends now.

``Link.sent`` tells what was put on the wire and when. As in the real world, a handler that has
seen a request finishes its work even when the caller is gone; only a body that is still being
streamed is stopped. TLS and proxies are not simulated: an ``https`` address needs no proof.
"""

import asyncio
import contextvars
import errno
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec

from backstay.seam.errors import BadAnswer, ConnectFailed, ConnectionLost, TimedOut, TooLate
from backstay.seam.serve import Answer, Handler, Inbound, Listener, Serve, ServerTls
from backstay.seam.tasks import Tasks
from backstay.seam.transport import Request, Response, Stream, Transport

# What a sender may have on the wire before it must wait for the receiver, as a TCP window does.
_WINDOW = 256 * 1024

_FIRST_FREE_PORT = 49152
_DEFAULT_PORTS = {"http": 80, "https": 443}

_logger = logging.getLogger("backstay.serve")


class Sent(msgspec.Struct, frozen=True):
    """A request that was put on the wire, and ``loop.time()`` at that moment."""

    at: float
    request: Request


class Link:
    """The way to one address, and what is wrong with it. See the module."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.refuse = False
        self.connect_delay = 0.0
        self.delay = 0.0
        self.lose_answer: Literal["reset", "silence"] | None = None
        self.sent: list[Sent] = []
        self._silent = False
        self._open: dict[_Exchange, None] = {}

    @property
    def silent(self) -> bool:
        return self._silent

    @silent.setter
    def silent(self, silent: bool) -> None:
        self._silent = silent
        for exchange in self._open:
            exchange.wake()

    def cut(self) -> None:
        """End every exchange that is under way; new ones are not affected."""
        for exchange in list(self._open):
            exchange.close()


class _Pipe:
    """One direction of a connection: pieces arrive in order, ``Link.delay`` after they left."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._arrived: deque[object] = deque()
        self._last_arrival = 0.0
        self._under_way = 0
        self._lost = False
        self._news = asyncio.Event()

    async def send(self, piece: object) -> None:
        while not self._lost and self._under_way >= _WINDOW:
            await self._next_news()
        if self._lost:
            raise ConnectionLost(f"the connection to {self._link.address} is gone")
        loop = asyncio.get_running_loop()
        # A delay that was shortened meanwhile must not let a later piece overtake.
        self._last_arrival = max(self._last_arrival, loop.time() + self._link.delay)
        self._under_way += _size(piece)
        if self._last_arrival <= loop.time():
            self._arrive(piece)
        else:
            loop.call_at(self._last_arrival, self._arrive, piece)

    async def receive(self) -> object:
        while not self._lost and (self._link.silent or not self._arrived):
            await self._next_news()
        if self._lost:
            raise ConnectionLost(f"the connection to {self._link.address} was lost")
        piece = self._arrived.popleft()
        self._under_way -= _size(piece)
        self.wake()
        return piece

    def lose(self) -> None:
        self._lost = True
        self.wake()

    def wake(self) -> None:
        self._news.set()

    def _arrive(self, piece: object) -> None:
        self._arrived.append(piece)
        self.wake()

    async def _next_news(self) -> None:
        self._news.clear()
        await self._news.wait()


def _size(piece: object) -> int:
    return len(piece) if isinstance(piece, bytes) else 0


class _Exchange:
    """One request and its answer: a pipe each way.

    The answer comes down as its head (an ``Answer`` without body), then its bytes, then ``None``.
    """

    def __init__(self, link: Link) -> None:
        self.up = _Pipe(link)
        self.down = _Pipe(link)
        self._link = link
        self._streaming: asyncio.Task[object] | None = None
        link._open[self] = None

    @property
    def open(self) -> bool:
        return self in self._link._open

    def close(self) -> None:
        self._link._open.pop(self, None)
        self.up.lose()
        self.down.lose()
        if self._streaming is not None:
            self._streaming.cancel()

    def wake(self) -> None:
        self.up.wake()
        self.down.wake()

    async def send_body(self, body: AsyncIterator[bytes]) -> None:
        """Send a body as it comes, until it ends or nobody is left to read it."""
        self._streaming = asyncio.current_task()
        try:
            async for chunk in body:
                await self.down.send(chunk)
        finally:
            self._streaming = None


class _Listener:
    """A handler at an address; it sees each request in the context in which it listens."""

    def __init__(self, network: "Network", url: str, handler: Handler, max_body: int) -> None:
        self._network = network
        self._url = url
        self._handler = handler
        self._max_body = max_body
        self._tasks = Tasks(f"serve {url}", logger=_logger)
        self._context = contextvars.copy_context()
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return self._url

    def accept(self, link: Link) -> _Exchange:
        exchange = _Exchange(link)
        task = self._context.run(self._tasks.spawn, self._serve(link, exchange), name="exchange")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        return exchange

    async def close(self) -> None:
        self._network._listeners.pop(self._url, None)
        if self._answering:
            await asyncio.wait(self._answering, timeout=self._network._grace)
        self._network.link(self._url).cut()
        async with self._tasks:
            pass

    async def _serve(self, link: Link, exchange: _Exchange) -> None:
        try:
            inbound = await exchange.up.receive()
            assert isinstance(inbound, Inbound)
            answer = await self._answer(inbound)
            try:
                if link.lose_answer == "reset":
                    exchange.close()
                if link.lose_answer != "silence":
                    await self._reply(exchange, inbound, answer)
            finally:
                # Also when no byte of it was read: a body may hold a subscription.
                if (aclose := getattr(answer.body, "aclose", None)) is not None:
                    await aclose()
        except ConnectionLost:
            return

    async def _answer(self, inbound: Inbound) -> Answer:
        if len(inbound.body) > self._max_body:
            return Answer(status=413)
        try:
            return await self._handler(inbound)
        except Exception:
            _logger.exception("the handler of %s %s failed", inbound.method, inbound.path)
            return Answer(status=500)

    async def _reply(self, exchange: _Exchange, inbound: Inbound, answer: Answer) -> None:
        await exchange.down.send(Answer(status=answer.status, headers=answer.headers))
        body = b"" if inbound.method == "HEAD" else answer.body
        if isinstance(body, bytes):
            await exchange.down.send(body)
        else:
            try:
                await exchange.send_body(body)
            except Exception:
                if exchange.open:
                    _logger.exception("the answer at %s broke off", self._url)
                    exchange.close()
        await exchange.down.send(None)


class _Stream:
    """An answer that is read as it arrives."""

    def __init__(self, exchange: _Exchange, head: Answer, request: Request) -> None:
        self._exchange = exchange
        self._head = head
        self._request = request
        self._ended = False

    @property
    def status(self) -> int:
        return self._head.status

    @property
    def headers(self) -> Mapping[str, str]:
        return _lower(self._head.headers)

    async def read(self, timeout: float) -> bytes:
        try:
            async with asyncio.timeout(timeout):
                return await self.next_chunk()
        except TimeoutError:
            raise TimedOut(f"{_named(self._request)} went silent for {timeout:g} s") from None

    async def next_chunk(self) -> bytes:
        while not self._ended:
            piece = await self._exchange.down.receive()
            if isinstance(piece, bytes) and piece:
                return piece
            self._ended = piece is None
        return b""


async def _whole_body(stream: _Stream, request: Request) -> bytes:
    body = bytearray()
    while chunk := await stream.next_chunk():
        body += chunk
        if len(body) > request.max_body:
            limit = f"{request.max_body} bytes"
            raise BadAnswer(f"the answer to {_named(request)} has more than {limit}")
    return bytes(body)


class _Transport:
    """The callers' side."""

    def __init__(self, network: "Network") -> None:
        self._network = network

    async def request(self, request: Request) -> Response:
        deadline = asyncio.get_running_loop().time() + request.timeout
        async with self._open(request, deadline) as stream:
            try:
                async with asyncio.timeout_at(deadline):
                    body = await _whole_body(stream, request)
            except TimeoutError:
                raise _unanswered(request) from None
            return Response(stream.status, stream.headers, body)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        deadline = asyncio.get_running_loop().time() + request.timeout
        async with self._open(request, deadline) as stream:
            yield stream

    @asynccontextmanager
    async def _open(self, request: Request, deadline: float) -> AsyncIterator[_Stream]:
        link = self._network.link(request.url)
        exchange = await self._connect(request, link, deadline)
        try:
            now = asyncio.get_running_loop().time()
            if request.not_after is not None and now > request.not_after:
                raise TooLate(f"{_named(request)} was not sent: its time had passed")
            link.sent.append(Sent(now, request))
            try:
                async with asyncio.timeout_at(deadline):
                    await exchange.up.send(_inbound(request))
                    head = await exchange.down.receive()
            except TimeoutError:
                raise _unanswered(request) from None
            assert isinstance(head, Answer)
            yield _Stream(exchange, head, request)
        finally:
            exchange.close()

    async def _connect(self, request: Request, link: Link, deadline: float) -> _Exchange:
        if request.connect_timeout is not None:
            now = asyncio.get_running_loop().time()
            deadline = min(deadline, now + request.connect_timeout)
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.sleep(link.connect_delay)
        except TimeoutError:
            raise ConnectFailed(f"{link.address} did not accept a connection in time") from None
        listener = self._network._listeners.get(link.address)
        if link.refuse or listener is None:
            raise ConnectFailed(f"{link.address} refused the connection")
        return listener.accept(link)


class _Serve:
    """The handlers' side."""

    def __init__(self, network: "Network") -> None:
        self._network = network
        self._next_port = _FIRST_FREE_PORT

    async def listen(
        self,
        handler: Handler,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ServerTls | None = None,
        max_body: int = 4 * 1024 * 1024,
    ) -> Listener:
        if port == 0:
            port = self._next_port
            self._next_port += 1
        url = _join("https" if tls else "http", host, port)
        if url in self._network._listeners:
            raise OSError(errno.EADDRINUSE, f"{url} is in use")
        listener = _Listener(self._network, url, handler, max_body)
        self._network._listeners[url] = listener
        return listener


class Network:
    """All addresses of one world. ``grace``: how long a closing listener waits for answers."""

    def __init__(self, *, grace: float = 2.0) -> None:
        self._grace = grace
        self.transport: Transport = _Transport(self)
        self.serve: Serve = _Serve(self)
        self._links: dict[str, Link] = {}
        self._listeners: dict[str, _Listener] = {}

    def link(self, url: str) -> Link:
        """The link to the address of ``url``, whether or not anybody listens there."""
        address = _address(url)
        return self._links.setdefault(address, Link(address))


def _address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ConnectFailed(f"{url!r} is not an http or https address")
    return _join(parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme])


def _join(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _inbound(request: Request) -> Inbound:
    parts = urlsplit(request.url)
    return Inbound(
        method=request.method,
        path=unquote(parts.path) or "/",
        query=parts.query,
        headers={"host": parts.netloc, **_lower(request.headers)},
        body=request.body,
        peer="simulated",
    )


def _lower(headers: Mapping[str, str]) -> Mapping[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _named(request: Request) -> str:
    return f"{request.method} {request.url}"


def _unanswered(request: Request) -> TimedOut:
    return TimedOut(f"{_named(request)} was not answered within {request.timeout:g} s")
