"""AiohttpServe: the real ``Serve``.

A handler runs in a task of its own. When its caller goes away it finishes its work all the same,
because half of a piece of work is worse than an answer that nobody reads; only a body that is
being streamed is stopped, at once. Requests that are too large or too slow to arrive are refused
before a handler sees them.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable

from aiohttp import web

from backstay.seam.serve import Answer, Handler, Inbound, Listener, ServerTls
from backstay.seam.tasks import Tasks
from backstay.seam.tls import server_context

# How long a request's body may take to arrive.
_ARRIVAL_SECONDS = 30.0

_IDLE_SECONDS = 75.0

_logger = logging.getLogger("backstay.serve")


class AiohttpServe:
    """HTTP over real sockets. ``grace`` is how long ``close`` waits for answers under way."""

    def __init__(self, *, grace: float = 2.0) -> None:
        self._grace = grace

    async def listen(
        self,
        handler: Handler,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ServerTls | None = None,
        max_body: int = 4 * 1024 * 1024,
    ) -> Listener:
        exchanges = _Exchanges(handler, max_body)
        server = web.Server(
            exchanges.handle,
            handler_cancellation=True,
            keepalive_timeout=_IDLE_SECONDS,
            logger=_logger,
            access_log=None,
        )
        context = server_context(tls) if tls else None
        sockets = await asyncio.get_running_loop().create_server(server, host, port, ssl=context)
        bound = sockets.sockets[0].getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        url = f"{'https' if tls else 'http'}://{shown}:{bound}"
        return _Listener(url, sockets, server, exchanges, self._grace)


class _Listener:
    """A socket that accepts connections, and the connections that it accepted."""

    def __init__(
        self,
        url: str,
        sockets: asyncio.Server,
        server: web.Server,
        exchanges: "_Exchanges",
        grace: float,
    ) -> None:
        self._url = url
        self._sockets = sockets
        self._server = server
        self._exchanges = exchanges
        self._grace = grace

    @property
    def url(self) -> str:
        return self._url

    async def close(self) -> None:
        self._sockets.close()
        self._server.pre_shutdown()
        # aiohttp waits twice: for answers to be complete, and for what is cut to notice it.
        await self._server.shutdown(self._grace / 2)
        await self._exchanges.close()


class _Exchanges:
    """Turns aiohttp's requests into values for the handler, and its answers into responses."""

    def __init__(self, handler: Handler, max_body: int) -> None:
        self._handler = handler
        self._max_body = max_body
        self._tasks = Tasks("serve", logger=_logger)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Called by aiohttp, and cancelled by it when the connection is lost."""
        try:
            async with asyncio.timeout(_ARRIVAL_SECONDS):
                body = await self._body(request)
        except TimeoutError:
            return _refusal(408)
        if body is None:
            return _refusal(413)
        inbound = _inbound(request, body)
        work = self._tasks.spawn(self._answer(inbound), name=f"{inbound.method} {inbound.path}")
        try:
            answer = await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(self._discard)
            raise
        try:
            return await _respond(request, answer)
        finally:
            await _close_body(answer)

    async def close(self) -> None:
        async with self._tasks:
            pass

    async def _body(self, request: web.BaseRequest) -> bytes | None:
        """The whole body, or None if it is larger than allowed."""
        if (request.content_length or 0) > self._max_body:
            return None
        body = bytearray()
        while chunk := await request.content.readany():
            body += chunk
            if len(body) > self._max_body:
                return None
        return bytes(body)

    async def _answer(self, inbound: Inbound) -> Answer:
        try:
            return await self._handler(inbound)
        except Exception:
            _logger.exception("the handler of %s %s failed", inbound.method, inbound.path)
            return Answer(status=500)

    def _discard(self, work: asyncio.Task[Answer]) -> None:
        if not work.cancelled():
            self._tasks.spawn(_close_body(work.result()), name="discard")


def _inbound(request: web.BaseRequest, body: bytes) -> Inbound:
    return Inbound(
        method=request.method,
        path=request.rel_url.path,
        query=request.rel_url.raw_query_string,
        headers=_plain(request.headers.items()),
        body=body,
        peer=request.remote or "",
    )


def _plain(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in items:
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers


def _refusal(status: int) -> web.StreamResponse:
    response = web.Response(status=status, headers={"Server": "backstay"})
    # The rest of the request is not worth reading, so the connection is of no further use.
    response.force_close()
    return response


async def _respond(request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    headers = {"Server": "backstay", **answer.headers}
    if isinstance(answer.body, bytes):
        return web.Response(status=answer.status, headers=headers, body=answer.body)
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    if request.method != "HEAD":
        await _stream(request, response, answer.body)
    return response


async def _stream(
    request: web.BaseRequest, response: web.StreamResponse, body: AsyncIterator[bytes]
) -> None:
    try:
        async for chunk in body:
            await response.write(chunk)
    except Exception:
        transport = request.transport
        if transport is None or transport.is_closing():
            # The caller is gone, and writing to it is what failed.
            return
        _logger.exception("the answer to %s %s broke off", request.method, request.path)
        # Not a proper end: the caller must see that this is not all.
        transport.abort()


async def _close_body(answer: Answer) -> None:
    """Also when no byte of it was read: a body may hold a subscription."""
    if (aclose := getattr(answer.body, "aclose", None)) is not None:
        await aclose()
