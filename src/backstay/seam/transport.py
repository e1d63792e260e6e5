"""Transport: every HTTP request and stream that leaves Backstay goes through this protocol.

Rules that any implementation keeps (``tests/seam/transport_contract.py`` holds each to them):

* A request is put on the wire at most once. Retrying is the caller's decision, because only
  the caller knows whether it is safe.
* ``not_after`` is checked *after* a connection is in hand, right before the first byte leaves.
  A process that was stopped or starved while it waited for a connection sends nothing late.
  The moment is monotonic (``loop.time()``), and time that the machine slept through counts.
  Nor is such a request sent any further once nobody waits for it, be it that its sender has died:
  what is still on this machine then is forgotten, and only what is in the network may arrive.
* ``timeout`` bounds the whole exchange for ``request`` and the wait for the head of the answer
  for ``stream``; each ``Stream.read`` has its own. There is no call without a bound.
* Redirects are not followed (a redirect would carry credentials to a place nobody configured)
  and proxies come from the request alone, never from the environment.
* An answer that ends early is ``ConnectionLost``, never a shorter body.
* That somebody takes no connection is ``Refused``; that nobody is heard, ``ConnectFailed``. What
  was sent with ``Connection: close`` leaves no connection behind for the next request.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

NO_HEADERS: Mapping[str, str] = {}


class Tls(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Whom to trust and who to be, as a value: rotation is a new value, never a mutation.

    ``ca`` is PEM; without it the system's trust store applies. ``verify=False`` is for people
    who said so in their own configuration; nothing in Backstay sets it.
    """

    ca: bytes | None = None
    cert: bytes | None = None
    key: bytes | None = None
    server_name: str | None = None
    verify: bool = True

    def __repr__(self) -> str:
        own = "with client certificate" if self.cert else "no client certificate"
        return f"Tls(server_name={self.server_name!r}, verify={self.verify}, {own})"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request. ``url`` is absolute; its query is already encoded."""

    method: str
    url: str
    timeout: float
    headers: Mapping[str, str] = NO_HEADERS
    body: bytes = b""
    connect_timeout: float | None = None
    not_after: float | None = None
    tls: Tls | None = None
    proxy: str | None = None
    max_body: int = 256 * 1024 * 1024

    def __repr__(self) -> str:
        # Headers carry credentials and bodies carry secrets: neither belongs in a log.
        return f"Request({self.method} {self.url})"


class Response(msgspec.Struct, frozen=True):
    """A complete answer. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Stream(Protocol):
    """An answer whose body is read as it comes."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read(self, timeout: float) -> bytes:
        """The next bytes; ``b""`` after a proper end.

        Raises ``TimedOut`` after ``timeout`` seconds of silence and ``ConnectionLost`` when
        the body stops short.
        """
        ...

    async def pieces(self, timeout: float) -> list[bytes]:
        """The same in the pieces in which they came, none of them empty; none after the end.

        For those who would take apart again what ``read`` puts together.
        """
        ...


class Transport(Protocol):
    """The way out. See the module's rules."""

    async def request(self, request: Request) -> Response: ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]: ...
