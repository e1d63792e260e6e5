"""Wires: what lies between two processes, and what can become of bytes on the way.

* What has left arrives, whatever becomes of its sender: a process that gave up, or that died, had
  its request on the wire all the same. That a connection ended travels as a last piece behind the
  others, so the peer learns of it as late as of anything else.
* Pieces of one connection arrive in order. Between connections there is no order.
* A direction between two processes can be blocked. Pieces on a blocked way are sent again and
  again, as TCP does, and arrive when it opens, unless that takes longer than TCP has patience.
* A receiver that is behind holds up its sender.

Conditions belong to three things: the ``Wires`` between processes, the ``Link`` to an address, and
the ``Fate`` of a single request.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextvars import Context
from typing import Protocol

import msgspec

from backstay.seam.errors import ConnectionLost
from backstay.seam.transport import Request
from backstay.sim.caller import Caller, name_of
from backstay.sim.fate import Fate, Loss
from backstay.sim.lane import Lane
from backstay.sim.loop import VirtualLoop

# What a sender may have on the wire before it must wait for the receiver, as a TCP window does.
_WINDOW = 256 * 1024

# For how long the kernel of a real machine sends again what was not acknowledged.
_PATIENCE = 924.0

_END = object()


class Sent(msgspec.Struct, frozen=True):
    """A request that was put on the wire, and ``loop.time()`` at that moment."""

    at: float
    request: Request


class Listening(Protocol):
    """Who answers at an address."""

    def accept(self, exchange: "Exchange") -> None: ...


class Link:
    """The way to one address, and what is wrong with it. See ``network``."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.refuse = False
        self.connect_delay = 0.0
        self.delay = 0.0
        self.lose_answer: Loss | None = None
        self.sent: list[Sent] = []
        self.listener: Listening | None = None
        self.host: Lane | None = None
        """Who listens there, or did: where its machine is without power, nobody refuses."""
        self.had_host = False
        self.exchanges: dict[Exchange, None] = {}
        self.is_silent = False
        """To be read, for every piece that arrives; to change it, set ``silent``."""

    @property
    def silent(self) -> bool:
        return self.is_silent

    @silent.setter
    def silent(self, silent: bool) -> None:
        self.is_silent = silent
        for exchange in self.exchanges:
            exchange.wake()

    def lead_to(self, host: Lane | None) -> None:
        self.host, self.had_host = host, True

    def cut(self) -> None:
        """End every exchange that is under way; new ones are not affected."""
        for exchange in list(self.exchanges):
            exchange.cut()


class Latency:
    """How long a piece is under way: ``least`` seconds, and by chance up to ``spread`` more."""

    __slots__ = ("draw", "least", "spread")

    def __init__(self, least: float, spread: float, draw: Callable[[], float]) -> None:
        self.least = least
        self.spread = spread
        self.draw = draw

    def __call__(self) -> float:
        return self.least + self.spread * self.draw()


class Feed(AsyncIterator[bytes]):
    """A body that need not be read for every piece: while its reader waits, it may offer what is
    new to ``offer``, which says whether that has left. If not, it is there to be read."""

    offer: Callable[[bytes], bool] | None = None


class Wires:
    """Which process can reach which, and how long that takes. Processes go by their names."""

    def __init__(self, latency: Latency) -> None:
        self.latency = latency
        self._blocked: set[tuple[str, str]] = set()
        self._mute: set[str] = set()
        self._deaf: set[str] = set()
        self._without_power: set[str] = set()
        self.slow: dict[str, float] = {}
        """How much longer than others each of these takes."""
        self.are_whole = True
        """Whether everybody can reach everybody."""
        self._held: dict[Pipe, None] = {}
        self._news = asyncio.Event()

    def slow_down(self, name: str, seconds: float) -> None:
        """All that this process sends, and all that is sent to it, takes so much longer."""
        self.slow.pop(name, None)
        if seconds:
            self.slow[name] = seconds

    def slowness(self, one: str, other: str) -> float:
        """How much longer a piece between these two takes."""
        return self.slow.get(one, 0.0) + self.slow.get(other, 0.0)

    def block(self, source: str, target: str) -> None:
        self._blocked.add((source, target))
        self.are_whole = False

    def part(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Nothing passes between the two groups, in neither direction."""
        others = list(others)
        for one in some:
            for other in others:
                self.block(one, other)
                self.block(other, one)

    def unblock(self, source: str, target: str) -> None:
        self._blocked.discard((source, target))
        self._changed()

    def wall_off(self, name: str, *, mute: bool = True, deaf: bool = True) -> None:
        """Nothing gets from it, or to it, whoever is or will be there; except on its machine, whose
        programs are named ``machine/program``."""
        for wall, stands in ((self._mute, mute), (self._deaf, deaf)):
            if stands:
                wall.add(name)
            else:
                wall.discard(name)
        self._changed()

    def open_up(self, name: str) -> None:
        self._mute.discard(name)
        self._deaf.discard(name)
        self._changed()

    def heal(self) -> None:
        for each in (self._blocked, self._mute, self._deaf):
            each.clear()
        self._changed()

    def power_off(self, name: str) -> None:
        """Nothing that was not on the wire yet will ever come from there."""
        self._without_power.add(name)
        self.are_whole = False
        for pipe in [pipe for pipe in self._held if pipe.source == name]:
            del self._held[pipe]

    def power_on(self, name: str) -> None:
        self._without_power.discard(name)
        self._changed()

    def has_power(self, name: str) -> bool:
        return name not in self._without_power

    def are_open(self, source: str, target: str) -> bool:
        return (
            (source, target) not in self._blocked
            and target not in self._without_power
            and not ((self._mute or self._deaf) and self._is_walled_off(source, target))
        )

    def _is_walled_off(self, source: str, target: str) -> bool:
        if source not in self._mute and target not in self._deaf:
            return False
        return source.partition("/")[0] != target.partition("/")[0]

    def join(self, one: str, other: str) -> bool:
        """Whether there is a way there and back, as a new connection needs it."""
        return self.are_open(one, other) and self.are_open(other, one)

    def hold(self, pipe: "Pipe") -> None:
        self._held[pipe] = None

    async def change(self) -> None:
        await self._news.wait()

    def _changed(self) -> None:
        self.are_whole = not (self._blocked or self._mute or self._deaf or self._without_power)
        news, self._news = self._news, asyncio.Event()
        news.set()
        for pipe in [pipe for pipe in self._held if self.are_open(pipe.source, pipe.target)]:
            del self._held[pipe]
            pipe.release()


class Pipe:
    """One direction of a connection, from ``source`` to ``target``.

    Who waits for something to take does so by ``receive``, or by ``news``, or is called by
    ``on_news``.
    """

    on_news: Callable[["Exchange"], None] | None = None
    _held: list[tuple[float, tuple[object, ...]]] | None = None
    _last_arrival = 0.0
    _under_way = 0
    _lost = False
    _reader: asyncio.Future[None] | None = None
    _writer: asyncio.Future[None] | None = None

    def __init__(self, exchange: "Exchange", source: str, target: str) -> None:
        self.source = source
        self.target = target
        self._exchange = exchange
        # Never more than a window of them, so that taking the first from a list costs nothing.
        self._arrived: list[object] = []

    async def send(self, piece: bytes) -> None:
        """Returns when it has left."""
        while not self._lost and self._under_way >= _WINDOW:
            self._writer = asyncio.Future(loop=self._exchange.loop)
            await self._writer
        self.put(piece)

    def put(self, *pieces: object, later: float = 0.0) -> None:
        """The same for what fits into any window, being the first or the last. They arrive
        together, and ``later`` than what was put before."""
        if self._lost:
            raise ConnectionLost(f"the connection to {self._exchange.link.address} is gone")
        exchange = self._exchange
        virtual = exchange.virtual
        now = exchange.loop.time() if virtual is None else virtual.true_time
        wires = exchange.wires
        latency = wires.latency
        delay = exchange.link.delay + exchange.fate.delay
        # As ``latency()`` has it: every piece on every wire asks for it.
        delay += latency.least + latency.spread * latency.draw()
        if wires.slow:
            delay += wires.slowness(self.source, self.target)
        arrival = now + delay
        # A delay that was shortened meanwhile must not let a later piece overtake.
        if arrival < self._last_arrival + later:
            arrival = self._last_arrival + later
        self._last_arrival = arrival
        for piece in pieces:
            if type(piece) is bytes:
                self._under_way += len(piece)
        if arrival <= now:
            self._arrive(pieces)
        elif virtual is not None:
            virtual.set_in_motion(arrival, self._arrive, pieces)
        else:
            # Not in the context of the sender: it is out of its hands now.
            exchange.loop.call_at(arrival, self._arrive, pieces, context=Context())

    def offer(self, piece: bytes) -> bool:
        """Sends it for a sender that waits for nothing else, if that could do so at once."""
        server = self._exchange.server
        stands_still = server is not None and server.paused
        if self._lost or stands_still or self._under_way >= _WINDOW:
            return False
        self.put(piece)
        return True

    def end(self) -> None:
        """The sender is gone. The receiver learns of it behind everything else."""
        if not self._lost:
            self.put(_END)

    def lose(self) -> None:
        """Both ends know that it is over, and what was not read yet will not be."""
        self._lost = True
        self.wake()

    async def receive(self) -> object:
        """Raises ``TimeoutError`` when the exchange is over its time."""
        while (news := self.news()) is not None:
            await news
        return self.take()

    def news(self) -> asyncio.Future[None] | None:
        """What to wait for; None if there is something to take. Raises as ``receive`` does."""
        exchange = self._exchange
        if self._lost or (self._arrived and not exchange.link.is_silent):
            return None
        if exchange.over_time:
            raise TimeoutError
        # Not the loop's own kind, which costs more: nobody puts it into a set.
        self._reader = asyncio.Future(loop=exchange.loop)
        return self._reader

    def take(self) -> object:
        """What is there."""
        if self._lost or (piece := self._arrived.pop(0)) is _END:
            self._lost = True
            raise ConnectionLost(f"the connection to {self._exchange.link.address} was lost")
        if type(piece) is bytes:
            self._under_way -= len(piece)
            if self._writer is not None:
                self.wake()
        return piece

    def release(self) -> None:
        held, self._held = self._held or [], None
        now = self._exchange.now()
        for since, pieces in held:
            if now - since > _PATIENCE:
                self.lose()
            else:
                self._arrive(pieces)

    def wake(self) -> None:
        """Whoever waits, to see for itself."""
        if (reader := self._reader) is not None:
            self._reader = None
            if not reader.done():
                reader.set_result(None)
        if (writer := self._writer) is not None:
            self._writer = None
            if not writer.done():
                writer.set_result(None)
        if self.on_news is not None and (
            self._lost or (self._arrived and not self._exchange.link.is_silent)
        ):
            self.on_news(self._exchange)

    def _arrive(self, pieces: tuple[object, ...]) -> None:
        exchange = self._exchange
        wires = exchange.wires
        if self._held or not (wires.are_whole or wires.are_open(self.source, self.target)):
            if self._held is None:
                self._held = []
            self._held.append((exchange.now(), pieces))
            wires.hold(self)
            return
        self._arrived += pieces
        if pieces[-1] is _END and self is exchange.up:
            exchange.caller_left()
        # As ``wake`` has it, of which only this much can matter here.
        if (reader := self._reader) is not None:
            self._reader = None
            if not reader.done():
                reader.set_result(None)
        elif self.on_news is not None and not exchange.link.is_silent:
            self.on_news(exchange)


class _Dripping(Pipe):
    """One in which bytes come in drops of a ``size``, one ``every`` so many seconds."""

    def __init__(self, exchange: "Exchange", source: str, target: str) -> None:
        super().__init__(exchange, source, target)
        assert exchange.fate.drip is not None
        self._size, self._every = exchange.fate.drip

    def put(self, *pieces: object, later: float = 0.0) -> None:
        for drop in _drops(pieces, self._size):
            super().put(drop, later=later if drop is _END else self._every)


class Head(msgspec.Struct, frozen=True):
    """The beginning of an answer whose body follows."""

    status: int
    headers: Mapping[str, str]


class Exchange:
    """One request and its answer: a pipe each way.

    The answer comes down as a ``Response``; or in pieces, as a ``Head``, then bytes, then ``None``.
    ``is_reusable`` says whether its connection may serve another request.
    """

    caller_is_gone = False
    over_time = False
    is_reusable = True
    _streaming: asyncio.Task[object] | None = None
    _cut_at: asyncio.TimerHandle | None = None

    def __init__(self, link: Link, wires: Wires, fate: Fate, caller: Caller) -> None:
        self.loop = loop = caller.loop
        self.virtual = virtual = caller.virtual
        self.began = loop.time() if virtual is None else virtual.true_time
        self.link = link
        self.wires = wires
        self.fate = fate
        self.caller = caller
        self.server = server = link.host
        here, there = caller.name, name_of(server)
        self.up = Pipe(self, here, there)
        self.down = Pipe(self, there, here) if fate.drip is None else _Dripping(self, there, here)
        if fate.cut_after is not None:
            self._cut_at = loop.call_later(fate.cut_after, self.cut, context=Context())
        link.exchanges[self] = None

    def now(self) -> float:
        """True time."""
        return self.loop.time() if self.virtual is None else self.virtual.true_time

    def finish(self) -> None:
        """Nobody waits for it any more."""
        if self in self.caller.deadlines:
            del self.caller.deadlines[self]
        if self in self.link.exchanges:
            del self.link.exchanges[self]
        if self._cut_at is not None:
            self._cut_at.cancel()

    def answered(self) -> None:
        """The answer was read to its end, and its connection can be used again, if it may."""
        self.finish()
        if self.is_reusable:
            idle, address = self.caller.idle, self.link.address
            idle[address] = idle[address] + 1 if address in idle else 1

    def leave(self) -> None:
        """The caller is gone, whether or not it had its answer."""
        if self not in self.link.exchanges:
            return
        self.finish()
        if self.link.is_silent:
            # Nobody is there to send it again.
            self.cut()
        else:
            self.up.end()

    def abort(self) -> None:
        """The server is gone, or gives up in the middle of its answer."""
        self.up.lose()
        self.down.end()

    def cut(self) -> None:
        """The connection is reset in between, and both learn of it at once."""
        self.finish()
        self.up.lose()
        self.caller_left()

    def expire(self) -> None:
        """The caller waits no longer."""
        self.over_time = True
        self.wake()

    def wake(self) -> None:
        self.up.wake()
        self.down.wake()

    async def send_body(self, body: AsyncIterator[bytes]) -> None:
        """Send a body as it comes, until it ends or nobody is left to read it."""
        self._streaming = asyncio.current_task()
        if isinstance(body, Feed):
            body.offer = self.down.offer
        try:
            async for chunk in body:
                await self.down.send(chunk)
        finally:
            self._streaming = None

    def caller_left(self) -> None:
        """The server will find nobody there."""
        self.caller_is_gone = True
        self.down.lose()
        if self._streaming is not None:
            self._streaming.cancel()


def true_time() -> float:
    """``loop.time()`` as it is in no process."""
    loop = asyncio.get_running_loop()
    return loop.true_time if isinstance(loop, VirtualLoop) else loop.time()


def _drops(pieces: tuple[object, ...], size: int) -> Iterator[object]:
    for piece in pieces:
        if isinstance(piece, bytes):
            for start in range(0, len(piece), size):
                yield piece[start : start + size]
        else:
            yield piece
