"""Doorkeeper: the side of a simulated network that answers.

A handler sees each request in the context in which it listens, in a task of its own; one that is
marked as ``prompt`` in none, because it never waits. As in the real world, a handler that has seen
a request finishes its work even when the caller is gone; only a body that is still being streamed
is stopped.
"""

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextvars import Context
from functools import lru_cache
from typing import Any, TypeVar

from backstay.seam.errors import ConnectionLost
from backstay.seam.serve import Answer, Handler, Inbound
from backstay.seam.transport import Response
from backstay.sim.fate import CARRIED
from backstay.sim.lane import current_lane
from backstay.sim.wire import Exchange, Head, Link

T = TypeVar("T")
HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])

_logger = logging.getLogger("backstay.serve")


def prompt(handler: HandlerT) -> HandlerT:
    """Marks a handler that has its answer without ever waiting for anything: it needs no task of
    its own for each request."""
    vars(handler)["is_prompt"] = True
    return handler


class Doorkeeper:
    """See the module. ``grace`` is how long it waits for answers when it closes."""

    def __init__(
        self,
        handler: Handler,
        *,
        link: Link,
        max_body: int,
        grace: float,
    ) -> None:
        self.lane = current_lane()
        self._link = link
        self._grace = grace
        self._handler = handler
        self._max_body = max_body
        self._is_prompt = getattr(handler, "is_prompt", False)
        self._context = contextvars.copy_context()
        self._under_way: dict[Exchange, asyncio.Task[None] | None] = {}
        self._quiet: asyncio.Event | None = None

    @property
    def url(self) -> str:
        return self._link.address

    def accept(self, exchange: Exchange) -> None:
        """Answers the request of an exchange when it arrives."""
        self._under_way[exchange] = None
        exchange.up.on_news = self._arrived

    def _arrived(self, exchange: Exchange) -> None:
        exchange.up.on_news = None
        if self._is_prompt:
            # All in the same context, because none of them lasts until the next.
            exchange.loop.call_soon(self._serve_at_once, exchange, context=self._context)
        else:
            # Only now, because a task for each request under way would wait for nothing.
            self._spawn(exchange, self._serve(exchange), self._context.copy())

    def _spawn(
        self, exchange: Exchange, serving: Coroutine[Any, Any, None], context: Context
    ) -> None:
        task = exchange.loop.create_task(serving, name=self._link.address, context=context)
        self._under_way[exchange] = task

    async def close(self) -> None:
        if self._link.listener is self:
            self._link.listener = None
        self._quiet = quiet = asyncio.Event()
        try:
            async with asyncio.timeout(self._grace):
                while self._under_way:
                    quiet.clear()
                    await quiet.wait()
        except TimeoutError:
            pass
        for exchange in list(self._link.exchanges):
            exchange.abort()
        left = [task for task in self._under_way.values() if task is not None]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    def _serve_at_once(self, exchange: Exchange) -> None:
        CARRIED.set(exchange)
        try:
            inbound = exchange.up.take()
            assert type(inbound) is Inbound
            answer = _at_once(self._answer(inbound))
            if type(answer.body) is not bytes:
                streaming = self._stream(exchange, inbound, answer)
                self._spawn(exchange, streaming, contextvars.copy_context())
                return
            self._reply(exchange, inbound, answer)
        except ConnectionLost:
            pass
        self._over(exchange)

    async def _serve(self, exchange: Exchange) -> None:
        CARRIED.set(exchange)
        try:
            inbound = exchange.up.take()
            assert type(inbound) is Inbound
            answer = await self._answer(inbound)
            if type(answer.body) is bytes:
                self._reply(exchange, inbound, answer)
            else:
                await self._stream(exchange, inbound, answer)
        except ConnectionLost:
            return
        finally:
            self._over(exchange)

    def _over(self, exchange: Exchange) -> None:
        self._under_way.pop(exchange, None)
        if self._quiet is not None:
            self._quiet.set()

    async def _answer(self, inbound: Inbound) -> Answer:
        if len(inbound.body) > self._max_body:
            return Answer(status=413)
        try:
            return await self._handler(inbound)
        except Exception:
            _logger.exception("the handler of %s %s failed", inbound.method, inbound.path)
            return Answer(status=500)

    def _reply(self, exchange: Exchange, inbound: Inbound, answer: Answer) -> None:
        """With all of it; with nothing, where nobody is to hear it."""
        if (loss := exchange.fate.lose_answer or self._link.lose_answer) is not None:
            if loss == "reset":
                exchange.abort()
            return
        headers = lower(answer.headers)
        body = answer.body if type(answer.body) is bytes and inbound.method != "HEAD" else b""
        if exchange.fate.drip is None:
            exchange.down.put(Response(answer.status, headers, body))
        else:
            exchange.down.put(Head(answer.status, headers), body, None)

    async def _stream(self, exchange: Exchange, inbound: Inbound, answer: Answer) -> None:
        body = answer.body
        assert not isinstance(body, bytes)
        try:
            lost = exchange.fate.lose_answer or self._link.lose_answer
            if lost or inbound.method == "HEAD":
                self._reply(exchange, inbound, answer)
            else:
                exchange.down.put(Head(answer.status, lower(answer.headers)))
                await self._send(exchange, body)
        except ConnectionLost:
            return
        finally:
            self._over(exchange)
            # Also when no byte of it was read: a body may hold a subscription.
            if hasattr(body, "aclose"):
                await body.aclose()

    async def _send(self, exchange: Exchange, body: AsyncIterator[bytes]) -> None:
        try:
            await exchange.send_body(body)
        except Exception:
            if not exchange.caller_is_gone:
                _logger.exception("the answer at %s broke off", self._link.address)
                exchange.abort()
        else:
            exchange.down.put(None)


def _at_once(steps: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never waits."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError(f"{steps} was to be prompt, and waits")


def lower(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The same, with names in lower case."""
    names = tuple(headers)
    lowered = _lower_names(names)
    return headers if lowered == names else dict(zip(lowered, headers.values(), strict=True))


# The same few come again and again.
@lru_cache(maxsize=1024)
def _lower_names(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(str.lower, names))
