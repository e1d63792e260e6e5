"""Serve: what others ask of us comes in as a value and goes out as a value.

Webhooks, metrics, health and the dashboard are ``Handler`` functions. They know no socket, so
the same handler answers over HTTPS in a cluster and in memory in a simulation. A handler that
raises is answered with a bare 500; the exception goes to the log, never to the peer.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

from backstay.seam.transport import NO_HEADERS


class Inbound(msgspec.Struct, frozen=True, kw_only=True):
    """A request as received. Header names are lower case; ``query`` is still encoded."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = NO_HEADERS
    body: bytes = b""
    peer: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What to send back; a body that comes in pieces is sent as it comes."""

    status: int = 200
    headers: Mapping[str, str] = NO_HEADERS
    body: bytes | AsyncIterator[bytes] = b""


Handler = Callable[[Inbound], Awaitable[Answer]]


class ServerTls(msgspec.Struct, frozen=True, kw_only=True):
    """The server's certificate and key (PEM), and whose client certificates it demands."""

    cert: bytes
    key: bytes
    client_ca: bytes | None = None

    def __repr__(self) -> str:
        return f"ServerTls(client certificates {'required' if self.client_ca else 'not asked for'})"


class Listener(Protocol):
    """A door that is open until ``close``, which waits for answers under way (briefly)."""

    @property
    def url(self) -> str: ...

    async def close(self) -> None: ...


class Serve(Protocol):
    """The way in. ``port=0`` takes a free one; ``Listener.url`` tells which."""

    async def listen(
        self,
        handler: Handler,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ServerTls | None = None,
        max_body: int = 4 * 1024 * 1024,
    ) -> Listener: ...
