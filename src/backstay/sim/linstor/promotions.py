"""Promotions: the stream of ``may-promote-change`` events, with all its traps.

* There is no heartbeat, no id and no end. What is unknown is left out of an event.
* The head of the answer leaves at once. ``late`` makes it leave with the first event, as some
  servers do: where there is none, nothing comes at all.
* A client that asks for it (``Last-Event-ID: current``) is told the state of every replica first.
  So is everybody else who is connected. The state is taken at one moment and told a little later,
  so that it may follow behind a newer change.
* A client that cannot be served is told so by an ``error`` event, with status 200.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

import msgspec

from backstay.seam.errors import ConnectionLost
from backstay.seam.serve import Answer

_SNAPSHOT_TAKES = 0.01
_HEADERS = {"Content-Type": "text/event-stream"}

State = tuple[str, str, bool | None]


class _Client:
    """One connection. What it is to send, or None for an end."""

    def __init__(self) -> None:
        self.silent = False
        self._frames: deque[bytes | Exception | None] = deque()
        self._news = asyncio.Event()

    def put(self, frame: bytes | Exception | None) -> None:
        if not self.silent:
            self._frames.append(frame)
            self._news.set()

    async def wait(self) -> None:
        while not self._frames:
            self._news.clear()
            await self._news.wait()

    async def frames(self) -> AsyncIterator[bytes]:
        while True:
            await self.wait()
            frame = self._frames.popleft()
            if frame is None:
                return
            if isinstance(frame, Exception):
                raise frame
            yield frame


class Promotions:
    """See the module. ``snapshot`` gives the state of every replica."""

    def __init__(self, snapshot: Callable[[], list[State]]) -> None:
        self.sent = 0
        self._snapshot = snapshot
        self._clients: dict[_Client, None] = {}

    @property
    def clients(self) -> int:
        return len(self._clients)

    async def subscribe(self, *, current: bool, late: bool = False) -> Answer:
        client = _Client()
        self._clients[client] = None
        try:
            if current:
                states = self._snapshot()
                await asyncio.sleep(_SNAPSHOT_TAKES)
                for state in states:
                    self.publish(*state)
            if late:
                await client.wait()
        except BaseException:
            del self._clients[client]
            raise
        return Answer(headers=_HEADERS, body=self._body(client))

    async def _body(self, client: _Client) -> AsyncIterator[bytes]:
        try:
            async for frame in client.frames():
                yield frame
        finally:
            self._clients.pop(client, None)

    def publish(self, resource: str, node: str, may_promote: bool | None) -> None:
        told: dict[str, object] = {"resource_name": resource, "node_name": node}
        if may_promote is not None:
            told["may_promote"] = may_promote
        self.say(frame("may-promote-change", msgspec.json.encode(told)))

    # Trouble

    def say(self, words: bytes) -> None:
        """To everybody who is connected, whatever it is."""
        self.sent += 1
        for client in self._clients:
            client.put(words)

    def cut(self) -> None:
        """Every connection is reset."""
        for client in list(self._clients):
            client.put(ConnectionLost("the stream was cut"))

    def end(self) -> None:
        """Every stream ends as if nothing were wrong."""
        for client in list(self._clients):
            client.put(None)

    def go_silent(self) -> None:
        """Nothing more comes on the connections that there are, and they stay open."""
        for client in self._clients:
            client.silent = True


def frame(event: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)


async def refusal(data: bytes) -> AsyncIterator[bytes]:
    """The whole of a stream that says why there is none."""
    yield frame("error", data)
