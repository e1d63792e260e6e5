"""Network: ``Transport`` and ``Serve`` joined in memory, with faults that a test can ask for.

A handler that listens at an address gets the requests sent to it, and its answers travel back.
What is wrong with the way to an address is said by its ``Link``:

* ``refuse``: no connection;  ``connect_delay``: one, but late;
* ``delay``: seconds that everything is under way, in each direction;
* ``silent``: nothing arrives in either direction, on open connections too; when it ends, what
  was under way arrives, unless its caller has given up;
* ``lose_answer``: the handler does its work, but its answer is lost, by ``"reset"`` (the caller
  learns at once) or by ``"silence"`` (it finds out by its timeout);
* ``cut()``: every open exchange and stream ends now.

What befalls a single request is its ``Fate``, which ``Network.fate`` decides. What is wrong
between two processes, in one direction or both, is said by ``wires``; see there for what it does
to open connections. A new one cannot be had, but a caller that has an idle one from before puts
its request on that, and the request leaves.

``Link.sent`` tells what was put on the wire and when. As in the real world, a handler that has
seen a request finishes its work even when the caller is gone; only a body that is still being
streamed is stopped. TLS and proxies are not simulated: an ``https`` address needs no proof.
"""

import asyncio
import errno
import math
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from backstay.seam.errors import (
    BadAnswer,
    ConnectFailed,
    Refused,
    TimedOut,
    TooLate,
)
from backstay.seam.serve import Handler, Inbound, Listener, Serve, ServerTls
from backstay.seam.transport import Request, Response, Stream, Transport
from backstay.sim.caller import Caller, name_of
from backstay.sim.doorkeeper import Doorkeeper, lower
from backstay.sim.fate import ALL_WELL, Attempt, Fates
from backstay.sim.lane import LANE, Lane
from backstay.sim.wire import (
    Exchange,
    Head,
    Latency,
    Link,
    Sent,
    Wires,
    true_time,
)

__all__ = ["Contact", "Link", "Network", "Sent"]

_FIRST_FREE_PORT = 49152
_DEFAULT_PORTS = {"http": 80, "https": 443}
_GZIP = 16 + zlib.MAX_WBITS


class _Stream:
    """An answer that is read as it arrives."""

    def __init__(self, exchange: Exchange, head: Head | Response, request: Request) -> None:
        self._exchange = exchange
        self._head = head
        self._request = request
        self._ended = isinstance(head, Response)
        self._unread = head.body if isinstance(head, Response) else b""
        if self._ended:
            exchange.answered()

    @property
    def status(self) -> int:
        return self._head.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._head.headers

    async def read(self, timeout: float) -> bytes:
        pieces = await self.pieces(timeout)
        return pieces[0] if pieces else b""

    async def pieces(self, timeout: float) -> list[bytes]:
        """One, or none at the end."""
        exchange, down = self._exchange, self._exchange.down
        exchange.over_time = False
        exchange.caller.must_hear(exchange, exchange.loop.time() + timeout)
        try:
            while not self._ended:
                while (news := down.news()) is not None:
                    await news
                piece = down.take()
                if piece is None:
                    self._ended = True
                    exchange.answered()
                elif piece:
                    assert type(piece) is bytes
                    return [piece]
        except TimeoutError:
            raise TimedOut(f"{_named(self._request)} went silent for {timeout:g} s") from None
        finally:
            exchange.caller.deadlines.pop(exchange, None)
        unread, self._unread = self._unread, b""
        return [unread] if unread else []


class _Transport:
    """The callers' side."""

    def __init__(self, network: "Network") -> None:
        self._network = network

    async def request(self, request: Request) -> Response:
        exchange = await self._connect(request)
        down = exchange.down
        try:
            while (news := down.news()) is not None:
                await news
            answer = down.take()
            if type(answer) is not Response:
                answer = await _whole(answer, exchange, request)
            if len(answer.body) > request.max_body:
                raise _too_large(request)
        except BaseException as error:
            exchange.leave()
            if isinstance(error, TimeoutError):
                raise _unanswered(request) from None
            raise
        exchange.answered()
        if "content-encoding" in answer.headers:
            answer = _decoded(answer, request)
        return answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        exchange = await self._connect(request)
        try:
            try:
                head = await exchange.down.receive()
            except TimeoutError:
                raise _unanswered(request) from None
            exchange.caller.deadlines.pop(exchange, None)
            assert isinstance(head, Head | Response)
            yield _Stream(exchange, head, request)
        finally:
            exchange.leave()

    async def _connect(self, request: Request) -> Exchange:  # noqa: C901 - each would pay for parts
        """A connection on which the request has just been sent."""
        network = self._network
        caller = network.callers.get(LANE.get(None)) or network.new_caller()
        loop = caller.loop
        deadline = loop.time() + request.timeout
        place = _place(request.url)
        link = network.links.get(place.address) or network.link_to(place.address)
        network.attempts += 1
        fate = ALL_WELL
        if network.fate is not None:
            fate = network.fate(Attempt(network.attempts, caller.name, link.address, request))
        delay = link.connect_delay + fate.connect_delay
        idle = caller.idle.get(link.address, 0) > 0
        if idle:
            caller.idle[link.address] -= 1
        if delay or not idle:
            patience = request.connect_timeout
            until = deadline if patience is None else min(deadline, loop.time() + patience)
            try:
                async with asyncio.timeout_at(until):
                    await network.connect(caller, link, delay, idle=idle)
            except TimeoutError:
                raise ConnectFailed(f"{link.address} did not accept a connection in time") from None
        if (
            link.refuse
            or fate.refuse
            or (link.listener is None and not network.is_dark(link, idle))
        ):
            raise _refused(link)
        if request.not_after is not None and loop.time() > request.not_after:
            raise TooLate(f"{_named(request)} was not sent: its time had passed")
        exchange = Exchange(link, network.wires, fate, caller)
        if link.listener is not None:
            link.listener.accept(exchange)
        if network.keeps_record:
            link.sent.append(Sent(loop.time(), request))
        if fate.lose_request is None:
            inbound = _inbound(request, place, caller.name)
            if "connection" in inbound.headers:
                exchange.is_reusable = inbound.headers["connection"] != "close"
            exchange.up.put(inbound)
        elif fate.lose_request == "reset":
            exchange.cut()
        caller.must_hear(exchange, deadline)
        return exchange


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
        link = self._network.link(url)
        if link.listener is not None:
            raise OSError(errno.EADDRINUSE, f"{url} is in use")
        listener = Doorkeeper(handler, link=link, max_body=max_body, grace=self._network.grace)
        link.listener = listener
        link.lead_to(listener.lane)
        return listener


@dataclass
class Contact:
    """What came of the attempts of one process to connect to another: when it was last tried, when
    somebody was last met, since when somebody was met each time (until then), and since when it has
    been tried in vain, now or until somebody was met. In true time."""

    tried_at: float = -math.inf
    met_at: float = -math.inf
    met_since: float = math.inf
    in_vain_since: float | None = None
    in_vain_before: float | None = None

    def tried(self, now: float) -> None:
        self.tried_at = now
        self.in_vain_since = now if self.in_vain_since is None else self.in_vain_since

    def met(self, now: float) -> None:
        failed_before = self.in_vain_since != self.tried_at
        if failed_before or self.met_since == math.inf:
            self.met_since, self.in_vain_before = now, self.in_vain_since
        self.met_at, self.in_vain_since = now, None


_NO_LATENCY = Latency(0.0, 0.0, lambda: 0.0)


class Network:
    """All addresses of one world. ``grace``: how long a closing listener waits for answers."""

    def __init__(
        self,
        *,
        grace: float = 2.0,
        latency: Latency = _NO_LATENCY,
        fate: Fates | None = None,
        keeps_record: bool = True,
    ) -> None:
        self.grace = grace
        self.fate = fate
        self.keeps_record = keeps_record
        self.transport: Transport = _Transport(self)
        self.serve: Serve = _Serve(self)
        self.wires = Wires(latency)
        self.contacts: dict[tuple[str, str], Contact] = {}
        """By the names of who called and who was called."""
        self.links: dict[str, Link] = {}
        self.callers: dict[Lane | None, Caller] = {}
        self.attempts = 0

    def link(self, url: str) -> Link:
        """The link to the address of ``url``, whether or not anybody listens there."""
        return self.link_to(_place(url).address)

    def link_to(self, address: str) -> Link:
        link = self.links.get(address)
        if link is None:
            link = self.links[address] = Link(address)
        return link

    def free(self, url: str) -> None:
        """Somebody else is to listen there from now on, as when a Service leads to another pod. Who
        is connected stays so."""
        self.link(url).listener = None

    def new_caller(self) -> Caller:
        """For a process that asks for the first time."""
        lane = LANE.get(None)
        self.callers[lane] = caller = Caller(lane)
        return caller

    # Connections

    async def connect(self, caller: Caller, link: Link, delay: float, *, idle: bool) -> None:
        """Returns when a connection has been made, or refused by the other side; or with the one
        that was ``idle``."""
        await asyncio.sleep(delay)
        if idle:
            return
        contact = self.contacts.setdefault((caller.name, name_of(link.host)), Contact())
        contact.tried(true_time())
        await asyncio.sleep(self.wires.latency() + self.wires.latency())
        while link.had_host and not self.wires.join(caller.name, name_of(link.host)):
            await self.wires.change()
        contact.met(true_time())

    def is_dark(self, link: Link, idle: bool) -> bool:
        """Whether a caller that has a connection is not even told that nobody is there."""
        return idle and not self.wires.has_power(name_of(link.host))

    # Processes

    def left(self, lane: Lane) -> None:
        """The process in this lane is gone. Its machine is not, and closes its connections."""
        self._forget(lane)
        self._forget_idle(lambda host: host is lane)
        for exchange in self._exchanges():
            if exchange.caller.lane is lane:
                exchange.leave()
            elif exchange.server is lane:
                exchange.abort()

    def lost_power(self, lane: Lane) -> None:
        """The process in this lane is gone with its machine. Nobody is left to tell its peers."""
        self._forget(lane)
        self.wires.power_off(lane.name)

    def has_power_again(self, name: str) -> None:
        """The machine knows nothing of the connections that it had, and says so."""
        for exchange in self._exchanges():
            ends = (exchange.caller.lane, exchange.server)
            if any(end and end.ended and end.name == name for end in ends):
                exchange.cut()
        self._forget_idle(lambda host: host is not None and host.ended and host.name == name)
        self.wires.power_on(name)

    def _exchanges(self) -> list[Exchange]:
        return [exchange for link in self.links.values() for exchange in link.exchanges]

    def _forget(self, lane: Lane) -> None:
        self.callers.pop(lane, None)
        for link in self.links.values():
            if link.listener is not None and link.host is lane:
                link.listener = None

    def _forget_idle(self, is_gone: Callable[[Lane | None], bool]) -> None:
        gone = [link.address for link in self.links.values() if is_gone(link.host)]
        for caller in self.callers.values():
            for address in gone:
                caller.idle.pop(address, None)


async def _whole(head: object, exchange: Exchange, request: Request) -> Response:
    assert isinstance(head, Head)
    chunks, size = list[bytes](), 0
    while (piece := await exchange.down.receive()) is not None:
        assert isinstance(piece, bytes)
        chunks.append(piece)
        size += len(piece)
        if size > request.max_body:
            raise _too_large(request)
    return Response(head.status, head.headers, b"".join(chunks))


def _decoded(answer: Response, request: Request) -> Response:
    """As a real transport hands it on, whoever has asked for it."""
    if answer.headers["content-encoding"] != "gzip":
        return answer
    inflating = zlib.decompressobj(wbits=_GZIP)
    try:
        found = inflating.decompress(answer.body, request.max_body)
    except zlib.error:
        raise BadAnswer(f"the answer to {_named(request)} is not proper gzip") from None
    if not inflating.eof:
        raise BadAnswer(f"the answer to {_named(request)} is too large, or stops in the middle")
    return Response(answer.status, answer.headers, found)


class _Place(NamedTuple):
    """What a URL says, as both ends need it."""

    address: str
    host: str
    path: str
    query: str


# The same few are asked for again and again.
@lru_cache(maxsize=1024)
def _place(url: str) -> _Place:
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ConnectFailed(f"{url!r} is not an http or https address")
    address = _join(parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme])
    return _Place(address, parts.netloc, unquote(parts.path) or "/", parts.query)


def _join(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _inbound(request: Request, place: _Place, peer: str) -> Inbound:
    return Inbound(
        method=request.method,
        path=place.path,
        query=place.query,
        headers={"host": place.host, **lower(request.headers)},
        body=request.body,
        peer=peer,
    )


def _named(request: Request) -> str:
    return f"{request.method} {request.url}"


def _too_large(request: Request) -> BadAnswer:
    limit = f"{request.max_body} bytes"
    return BadAnswer(f"the answer to {_named(request)} has more than {limit}")


def _refused(link: Link) -> Refused:
    return Refused(f"{link.address} refused the connection")


def _unanswered(request: Request) -> TimedOut:
    return TimedOut(f"{_named(request)} was not answered within {request.timeout:g} s")
