"""AiohttpTransport: the real ``Transport``.

aiohttp has the sockets, TLS and HTTP/1.1; what is here makes it keep the seam's promises:

* ``_Attempt`` learns from ``_GuardedRequest``, the one place that writes requests, whether a
  byte may have left. ``NotSent`` or ``MaybeSent`` follows from that fact, not from the type of
  an exception (``_refuses_our_certificate`` explains the one case in which there is more to say).
* aiohttp's own conveniences are off: its retry on a dead connection, redirects, cookies, netrc,
  proxies from the environment, its timeouts (one ``asyncio.timeout`` bounds it all).
* Where an answer could end early without anybody noticing, it is refused: a body must say how
  long it is, and gzip must reach its own end.
* An answer belongs to its request: a connection on which something arrived that nobody had asked
  for is not used.
"""

import asyncio
import base64
import io
import os
import re
import socket
import ssl
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.http_exceptions import ContentLengthError, TransferEncodingError
from aiohttp.tracing import Trace
from yarl import URL

from backstay.seam.errors import (
    BadAnswer,
    ConnectFailed,
    ConnectionLost,
    NotSent,
    Refused,
    SeamError,
    TimedOut,
    TlsFailed,
    TooLate,
    TransportError,
)
from backstay.seam.system import boot_time
from backstay.seam.tls import UnusablePem, client_context, in_words
from backstay.seam.transport import Request, Response, Stream, Tls

# A connection on which nothing comes back is given up after about this many seconds, whether
# it is idle (probes unanswered) or has something to send (bytes not acknowledged).
_DEAD_PEER_SECONDS = 30
_KEEPALIVE_PROBES = 3

# Idle connections are kept for less time than servers commonly keep them: a request that meets
# a closing connection has an unknown outcome.
_IDLE_SECONDS = 15.0

# A kernel goes on sending for a while what it still has when a socket is closed, also for a process
# that has died. With this it forgets it, and resets the connection.
_NOTHING_LEFT_BEHIND = struct.pack("ii", 1, 0)

_TLS_CONTEXTS = 64
_READ_BUFFER = 2**21
_READ_AT_ONCE = 2**20
_MUCH = 2**17
_INFLATE_STEP = 2**20

_WITHOUT_BODY = frozenset({204, 304})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class _Attempt:
    """One request on its way: until when it may leave, and whether it has left."""

    def __init__(self, request: Request, clock: Callable[[], float]) -> None:
        now = asyncio.get_running_loop().time()
        self.request = request
        self.deadline = now + request.timeout
        self.sent = False
        connect = request.connect_timeout
        self.bound = asyncio.timeout_at(
            self.deadline if connect is None else min(self.deadline, now + connect)
        )
        self._clock = clock
        self._late_at = None if request.not_after is None else clock() + request.not_after - now

    def connected(self) -> None:
        """From here on it is the whole exchange that is bounded."""
        self.bound.reschedule(self.deadline)

    def check(self, transport: asyncio.Transport | None) -> None:
        """Raise unless a byte may leave now. Nothing may be awaited between this and the byte."""
        if transport is None or transport.is_closing():
            raise Refused(f"{_peer(self.request)} closed the connection before it was used")
        if self._late_at is None or self.request.not_after is None:
            return
        # Two clocks: the loop's is the caller's, and the other one counts suspended time too.
        now = asyncio.get_running_loop().time()
        if now > self.request.not_after or self._clock() > self._late_at:
            raise TooLate(f"{_named(self.request)} was not sent: its time had passed")


_current: ContextVar[_Attempt] = ContextVar("attempt")


class _GuardedRequest(aiohttp.ClientRequest):
    """Asks its attempt right before bytes leave, and tells it when they may have.

    aiohttp calls ``send`` with a connection in hand. A request without body leaves in that call;
    one with a body leaves in ``write_bytes``, which on some Python versions runs in a task of its
    own a turn of the loop later, so the question is asked again there.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._attempt = _current.get()

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        self._attempt.connected()
        self._attempt.check(conn.transport)
        self._attempt.sent = not self._attempt.request.body
        if self._attempt.request.not_after is not None and conn.transport is not None:
            made = conn.transport.get_extra_info("socket")
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NOTHING_LEFT_BEHIND)
        return await super().send(conn)

    async def write_bytes(
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> None:
        try:
            self._attempt.check(conn.transport)
        except SeamError as refusal:
            # The answer is being waited for elsewhere: that wait ends with the refusal. The
            # connection is not reused after an exception.
            if conn.protocol is not None:
                conn.protocol.set_exception(refusal)
            return
        self._attempt.sent = True
        await super().write_bytes(writer, conn, content_length)


class _Handler(ResponseHandler):
    """aiohttp's side of a connection, made for much that comes in.

    To go on reading costs nothing where reading goes on: aiohttp asks its parser anew for every
    chunk that is taken. And where much comes at once, more is read at once: each turn of the loop
    has a price, most of all where others want the processor too. Where little comes, as on most
    watches, the buffer for it would be all that the connection ever costs.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._small: Any = getattr(transport, "_ssl_protocol", None)

    def data_received(self, data: bytes) -> None:
        if self._small is not None and len(data) > _MUCH:
            # There is no public way. Its buffer follows.
            self._small.max_size = _READ_AT_ONCE
            self._small = None
        super().data_received(data)

    def resume_reading(self, resume_parser: bool = True) -> None:
        if self._reading_paused:
            super().resume_reading(resume_parser)


class _GuardedConnector(aiohttp.TCPConnector):
    """Hands out no connection on which something is waiting to be read.

    aiohttp looks for that when it puts a connection away, not when it takes it out again, and
    would take what came in between (a server's parting 408, say) for the next answer.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        handler: type[ResponseHandler] = _Handler
        self._factory = partial(handler, loop=self._loop)

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        if connection.protocol is None or connection.protocol.should_close:
            connection.close()
            peer = _peer(_current.get().request)
            raise Refused(f"{peer} sent something before it was asked")
        return connection

    def _release(
        self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False
    ) -> None:
        # Closing TLS politely waits for the peer's goodbye. Who was given up for being silent says
        # none, and the socket would outlive us. First, because what is closed twice is past abort.
        should_close = should_close or protocol.should_close
        if should_close and protocol.transport is not None:
            protocol.transport.abort()
        super()._release(key, protocol, should_close=should_close)


class _Undertaker:
    """Tells the reader of a body when its connection has died.

    aiohttp does so itself, except when the connection dies because what came in was not HTTP:
    then the reader would wait for its timeout.
    """

    def __init__(self) -> None:
        self._bodies: dict[ResponseHandler, aiohttp.StreamReader] = {}

    def watch(self, response: aiohttp.ClientResponse) -> None:
        if response.connection is None or response.connection.protocol is None:
            # All of it is here already, and the connection has gone back to the pool.
            return
        protocol = response.connection.protocol
        if protocol.closed is None:
            _bury(response.content)
            return
        if protocol not in self._bodies:
            protocol.closed.add_done_callback(partial(self._died, protocol))
        self._bodies[protocol] = response.content

    def _died(self, protocol: ResponseHandler, closed: asyncio.Future[None]) -> None:
        # Looked at, because an exception that nobody looks at is reported as forgotten.
        closed.exception()
        _bury(self._bodies.pop(protocol))


def _bury(body: aiohttp.StreamReader) -> None:
    if not body.is_eof() and body.exception() is None:
        body.set_exception(aiohttp.ClientPayloadError("the connection died under the body"))


class _Body:
    """The pieces of an answer's body, as they are."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    async def next(self) -> list[bytes]:
        """Those that are here, or else the next to come; none after the end.

        aiohttp's own ways to read look at each piece, to keep track of where chunks end, and put
        them together. This is a watch's hottest path, so it takes what there is as it stands.
        """
        content = self._content
        if (error := content.exception()) is not None:
            raise error
        while not content.at_eof() and not content._buffer:
            await content._wait("next")
        if content.at_eof():
            return []
        pieces = list(content._buffer)
        content._buffer.clear()
        content._cursor += content._size
        content._size = 0
        if content._http_chunk_splits is not None:
            content._http_chunk_splits.clear()
        content._protocol.resume_reading()
        return pieces


class _GzipBody(_Body):
    """The pieces of a gzip body, inflated in steps, so that a bomb meets ``max_body`` first."""

    def __init__(self, content: aiohttp.StreamReader, request: Request) -> None:
        super().__init__(content)
        self._name = _named(request)
        self._inflate = _new_inflate()
        self._tail = b""
        self._begun = False

    async def next(self) -> list[bytes]:
        while True:
            data = self._tail or b"".join(await super().next())
            ended = not data
            self._begun = self._begun or not ended
            if self._inflate.eof and not ended:
                self._inflate = _new_inflate()
            try:
                piece = self._inflate.decompress(data, _INFLATE_STEP)
            except zlib.error:
                raise BadAnswer(f"the answer to {self._name} is not proper gzip") from None
            self._tail = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                return [piece]
            if ended and self._begun and not self._inflate.eof:
                raise BadAnswer(f"the gzip in the answer to {self._name} stops in the middle")
            if ended:
                return []


def _new_inflate() -> "zlib._Decompress":
    return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)


class _Answer:
    """An answer whose head has arrived. Implements ``Stream``."""

    def __init__(self, attempt: _Attempt, response: aiohttp.ClientResponse) -> None:
        self._attempt = attempt
        self._response = response
        self._headers = _plain(response)
        self._body = _body_of(attempt.request, response, self._headers)

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._headers

    async def read(self, timeout: float) -> bytes:
        return b"".join(await self.pieces(timeout))

    async def pieces(self, timeout: float) -> list[bytes]:
        with _translated(self._attempt, f"went silent for {timeout:g} s"):
            async with asyncio.timeout(timeout):
                return await self._body.next()

    def close(self) -> None:
        """Close the connection, unless the body was read to its end and it is free already."""
        self._response.close()

    async def whole_body(self) -> bytes:
        request = self._attempt.request
        declared = self._headers.get("content-length", "")
        too_long = BadAnswer(
            f"the answer to {_named(request)} has more than {request.max_body} bytes"
        )
        if declared.isdecimal() and int(declared) > request.max_body:
            raise too_long
        body: list[bytes] = []
        size = 0
        while pieces := await self._body.next():
            size += sum(map(len, pieces))
            if size > request.max_body:
                raise too_long
            body += pieces
        return b"".join(body)


def _plain(response: aiohttp.ClientResponse) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers


def _body_of(
    request: Request, response: aiohttp.ClientResponse, headers: Mapping[str, str]
) -> _Body:
    bodiless = request.method == "HEAD" or response.status in _WITHOUT_BODY
    if not bodiless and "content-length" not in headers and "transfer-encoding" not in headers:
        # It would end when the connection does, and a cut would look like an end.
        raise BadAnswer(f"the answer to {_named(request)} does not say where its body ends")
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding == "gzip" and not bodiless:
        return _GzipBody(response.content, request)
    if encoding != "identity" and not bodiless:
        raise BadAnswer(
            f"the answer to {_named(request)} is encoded as {encoding!r}, which nobody asked for"
        )
    return _Body(response.content)


class AiohttpTransport:
    """HTTP over real sockets. One per event loop; ``close`` ends every connection."""

    def __init__(self, *, clock: Callable[[], float] = boot_time) -> None:
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._context = lru_cache(maxsize=_TLS_CONTEXTS)(client_context)
        self._undertaker = _Undertaker()

    async def request(self, request: Request) -> Response:
        attempt = _Attempt(request, self._clock)
        with _translated(attempt, f"was not answered within {request.timeout:g} s"):
            async with attempt.bound:
                answer = await self._open(attempt)
                try:
                    return Response(answer.status, answer.headers, await answer.whole_body())
                finally:
                    answer.close()

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        attempt = _Attempt(request, self._clock)
        with _translated(attempt, f"was not answered within {request.timeout:g} s"):
            async with attempt.bound:
                answer = await self._open(attempt)
        try:
            yield answer
        finally:
            answer.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _open(self, attempt: _Attempt) -> _Answer:
        request = attempt.request
        if self._session is None:
            self._session = _new_session()
        url = _url(request)
        _refuse_to_be_split(request)
        headers = dict(request.headers)
        proxy, proxy_headers = _proxy(request)
        if url.scheme == "http":
            # There is no tunnel to set up first: the proxy reads the request itself.
            headers |= proxy_headers
        token = _current.set(attempt)
        try:
            response = await self._session.request(
                request.method,
                url,
                headers=headers,
                data=io.BytesIO(request.body) if request.body else None,
                allow_redirects=False,
                proxy=proxy,
                proxy_headers=proxy_headers,
                ssl=self._tls(request) if url.scheme == "https" else True,
                server_hostname=request.tls.server_name if request.tls else None,
            )
        finally:
            _current.reset(token)
        self._undertaker.watch(response)
        try:
            return _Answer(attempt, response)
        except BadAnswer:
            response.close()
            raise

    def _tls(self, request: Request) -> ssl.SSLContext:
        try:
            return self._context(request.tls or Tls())
        except UnusablePem as error:
            raise TlsFailed(f"no TLS with {_peer(request)}: {error}") from None


def _refuse_to_be_split(request: Request) -> None:
    """A line break in a token or a name must not begin a header, or a request, of its own."""
    if _CONTROL.search(request.method + request.url) or " " in request.url:
        raise NotSent(f"{request.url!r} contains characters that are not allowed in a URL")
    for name, value in request.headers.items():
        if _CONTROL.search(name + value):
            raise NotSent(
                f"{_named(request)} was not sent: its header {name!r} contains characters that "
                "are not allowed there, for example a line break"
            )


def _new_session() -> aiohttp.ClientSession:
    connector = _GuardedConnector(
        limit=0,
        keepalive_timeout=_IDLE_SECONDS,
        resolver=aiohttp.ThreadedResolver(),
        socket_factory=_new_socket,
    )
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept-Encoding": "identity"},
        skip_auto_headers=("User-Agent", "Content-Type"),
        request_class=_GuardedRequest,
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        read_bufsize=_READ_BUFFER,
        trust_env=False,
    )
    # Otherwise aiohttp sends GET, PUT and DELETE a second time when a kept-alive connection
    # dies under them, although the first may have been carried out. There is no public switch.
    session._retry_connection = False
    return session


def _new_socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    interval = _DEAD_PEER_SECONDS // (_KEEPALIVE_PROBES + 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, interval)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_PEER_SECONDS * 1000)
    return made


def _proxy(request: Request) -> tuple[URL | None, dict[str, str]]:
    """The proxy without the credentials in its URL, and the header that carries them."""
    if request.proxy is None:
        return None, {}
    url = URL(request.proxy)
    if url.scheme not in ("http", "https"):
        raise ConnectFailed(
            f"{_peer(request)} is to be reached through a {url.scheme!r} proxy, which is not "
            "supported: use an http or https proxy"
        )
    if url.user is None:
        return url, {}
    credentials = base64.b64encode(f"{url.user}:{url.password or ''}".encode()).decode()
    return url.with_user(None), {"Proxy-Authorization": f"Basic {credentials}"}


@contextmanager
def _translated(attempt: _Attempt, silence: str) -> Iterator[None]:
    """Turn what aiohttp raises into the seam's errors.

    The originals are not chained: some of them carry the request with its credentials.
    """
    try:
        yield
    except TimeoutError:
        if attempt.sent:
            raise TimedOut(f"{_named(attempt.request)} {silence}") from None
        raise ConnectFailed(f"{_peer(attempt.request)} gave no connection in time") from None
    except (aiohttp.ClientError, OSError) as error:
        explain = _after_sending if attempt.sent else _before_sending
        raise explain(attempt.request, error) from None


def _before_sending(request: Request, error: Exception) -> TransportError:
    peer = _peer(request)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return ConnectFailed(f"the proxy did not connect us to {peer}: HTTP {error.status}")
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return TlsFailed(f"the certificate of {peer} cannot be trusted: {in_words(cause)}")
    if isinstance(cause, ssl.SSLError):
        # A server that says "internal error" has trouble of its own, which may pass.
        passing = "INTERNAL_ERROR" in (cause.reason or "")
        kind = ConnectFailed if passing else TlsFailed
        return kind(f"no TLS with {peer}: {in_words(cause)}")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return ConnectFailed(f"the name of {peer} cannot be resolved: {_reason(cause)}")
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return ConnectFailed(f"the proxy to {peer} cannot be reached: {_reason(cause)}")
    kind = Refused if isinstance(cause, ConnectionRefusedError) else ConnectFailed
    return kind(f"{peer} cannot be reached: {_reason(cause)}")


def _after_sending(request: Request, error: Exception) -> TransportError:
    cause = error.__cause__
    if isinstance(error, aiohttp.ClientPayloadError):
        # These two mean that the connection ended before the body did.
        if isinstance(cause, ContentLengthError | TransferEncodingError):
            return ConnectionLost(f"the answer to {_named(request)} stopped in the middle")
        return BadAnswer(f"the answer to {_named(request)} is not proper HTTP")
    if isinstance(error, aiohttp.ClientResponseError):
        return BadAnswer(f"the answer to {_named(request)} is not proper HTTP")
    if isinstance(cause, ssl.SSLError) and _refuses_our_certificate(cause):
        return TlsFailed(f"{_peer(request)} refused our client certificate: {in_words(cause)}")
    return ConnectionLost(
        f"the connection was lost after {_named(request)} was sent: {_reason(error)}"
    )


def _refuses_our_certificate(error: ssl.SSLError) -> bool:
    """With TLS 1.3 a server's verdict on our certificate arrives after our first request.

    Until it has accepted us the server does not look at what we send, so this is ``NotSent``
    in every sense that matters.
    """
    reason = error.reason or ""
    return "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)


def _reason(error: BaseException) -> str:
    """The system's own words where there are any: asyncio puts addresses in their place."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__


def _named(request: Request) -> str:
    return f"{request.method} {request.url}"


def _peer(request: Request) -> str:
    """Scheme, host and port: a path says nothing about a connection."""
    return str(_url(request).origin())


def _url(request: Request) -> URL:
    try:
        url = URL(request.url, encoded=True)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.raw_host:
        raise ConnectFailed(f"{request.url!r} is not an http or https address")
    return url
