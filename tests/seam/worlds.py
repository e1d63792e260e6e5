"""Worlds: a ``Transport`` and the ``Serve`` that it reaches, in each way that we have them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import trustme

from backstay.seam.aiohttp_serve import AiohttpServe
from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.serve import Handler, Listener, Serve, ServerTls
from backstay.seam.transport import Request, Tls, Transport
from backstay.sim.network import Network

GRACE = 0.2


@dataclass
class World:
    """One implementation of both seams, with what it takes to trust each other."""

    transport: Transport
    serve: Serve
    server_tls: ServerTls | None = None
    client_tls: Tls | None = None
    listeners: list[Listener] = field(default_factory=list)

    async def listen(self, handler: Handler, **options: Any) -> Listener:
        listener = await self.serve.listen(handler, tls=self.server_tls, **options)
        self.listeners.append(listener)
        return listener

    def request(self, url: str, *, method: str = "GET", **options: Any) -> Request:
        options = {"timeout": 10.0, **options}
        return Request(method=method, url=url, tls=self.client_tls, **options)


@cache
def authority() -> trustme.CA:
    return trustme.CA()


def server_tls(*names: str, ca: trustme.CA | None = None) -> ServerTls:
    issued = (ca or authority()).issue_cert(*(names or ("127.0.0.1",)))
    cert = b"".join(part.bytes() for part in issued.cert_chain_pems)
    return ServerTls(cert=cert, key=issued.private_key_pem.bytes())


def trust(ca: trustme.CA | None = None) -> Tls:
    return Tls(ca=(ca or authority()).cert_pem.bytes())


@asynccontextmanager
async def over_http() -> AsyncIterator[World]:
    transport = AiohttpTransport()
    world = World(transport, AiohttpServe(grace=GRACE))
    try:
        yield world
    finally:
        await transport.close()
        for listener in world.listeners:
            await listener.close()


@asynccontextmanager
async def over_tls() -> AsyncIterator[World]:
    async with over_http() as world:
        world.server_tls, world.client_tls = server_tls(), trust()
        yield world


@asynccontextmanager
async def in_memory() -> AsyncIterator[World]:
    network = Network(grace=GRACE)
    world = World(network.transport, network.serve)
    yield world
    for listener in world.listeners:
        await listener.close()


WORLDS: dict[str, Callable[[], AbstractAsyncContextManager[World]]] = {
    "aiohttp-http": over_http,
    "aiohttp-tls": over_tls,
    "memory": in_memory,
}
