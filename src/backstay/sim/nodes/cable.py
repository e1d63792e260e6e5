"""Cable: a ``Transport`` that can be pulled, for machines that share one real network.

While it is out, nothing arrives and nothing leaves: what was under way is lost, with its outcome
unknown, and new requests find no connection until it is plugged in again or their time is up. With
a ``delay``, what is sent leaves so much later.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from backstay.seam.errors import ConnectFailed, ConnectionLost
from backstay.seam.transport import Request, Response, Stream, Transport

T = TypeVar("T")


class Cable:
    """See the module."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._plugged_in = asyncio.Event()
        self._plugged_in.set()
        self._under_way: dict[asyncio.Timeout, None] = {}
        self._pulls = 0
        self.delay = 0.0

    @property
    def pulls(self) -> int:
        """How often it was pulled: a connection of an earlier count is lost."""
        return self._pulls

    def pull(self) -> None:
        self._plugged_in.clear()
        self._pulls += 1
        now = asyncio.get_running_loop().time()
        for each in self._under_way:
            each.reschedule(now)

    def plug_in(self) -> None:
        self._plugged_in.set()

    async def request(self, request: Request) -> Response:
        pulls = await self._connect(request)
        return await self.unless_pulled(pulls, lambda: self._inner.request(request))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        pulls = await self._connect(request)
        async with AsyncExitStack() as stack:
            context = self._inner.stream(request)
            stream = await self.unless_pulled(pulls, lambda: stack.enter_async_context(context))
            yield _Stream(self, pulls, stream)

    async def unless_pulled(self, pulls: int, action: Callable[[], Awaitable[T]]) -> T:
        """What the action gives, unless the cable was pulled since it had been pulled so often."""
        if pulls == self._pulls:
            bound = asyncio.timeout(None)
            self._under_way[bound] = None
            try:
                async with bound:
                    result = await action()
                # A pull in the instant in which it arrived still came first.
                if pulls == self._pulls:
                    return result
            except TimeoutError:
                if pulls == self._pulls:
                    raise
            finally:
                del self._under_way[bound]
        raise ConnectionLost("the network cable was pulled")

    async def _connect(self, request: Request) -> int:
        patience = min(request.timeout, request.connect_timeout or request.timeout)
        try:
            async with asyncio.timeout(patience):
                await asyncio.sleep(self.delay)
                await self._plugged_in.wait()
        except TimeoutError:
            raise ConnectFailed("the network cable is out") from None
        return self._pulls


class _Stream:
    """An answer that ends with the connection that it came over."""

    def __init__(self, cable: Cable, pulls: int, inner: Stream) -> None:
        self._cable = cable
        self._pulls = pulls
        self._inner = inner

    @property
    def status(self) -> int:
        return self._inner.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._inner.headers

    async def read(self, timeout: float) -> bytes:
        return await self._cable.unless_pulled(self._pulls, lambda: self._inner.read(timeout))

    async def pieces(self, timeout: float) -> list[bytes]:
        return await self._cable.unless_pulled(self._pulls, lambda: self._inner.pieces(timeout))
