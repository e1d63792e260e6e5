"""A process that is asked for things, and what comes of asking it."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any

from backstay.seam import Seams
from backstay.seam.errors import ConnectFailed, ConnectionLost, TimedOut
from backstay.seam.serve import Answer, Inbound
from backstay.seam.transport import NO_HEADERS, Request
from backstay.sim.world import World

URL = "http://api"


async def idle(_: Seams) -> None:
    await asyncio.Event().wait()


def get(
    path: str = "/", *, timeout: float = 10.0, headers: Mapping[str, str] = NO_HEADERS
) -> Request:
    return Request(method="GET", url=URL + path, timeout=timeout, headers=headers)


class Api:
    """A process that answers "done", and streams a tick every second at ``/watch``."""

    def __init__(self, world: World) -> None:
        self.seen: list[tuple[str, str]] = []
        self.streams_ended = 0
        self._world = world

    async def __call__(self, seams: Seams) -> None:
        await seams.serve.listen(self.answer, host="api", port=80)
        await idle(seams)

    async def answer(self, inbound: Inbound) -> Answer:
        self.seen.append((inbound.peer, inbound.path))
        if inbound.path == "/watch":
            return Answer(body=self._ticks())
        if inbound.path == "/slow":
            await asyncio.sleep(3.0)
            self.seen.append((inbound.peer, "/slow done"))
        return Answer(body=b"done")

    async def _ticks(self) -> AsyncIterator[bytes]:
        try:
            while True:
                await asyncio.sleep(1.0)
                yield b"tick"
        finally:
            self.streams_ended += 1


async def started(world: World) -> Api:
    api = Api(world)
    world.start("api", api)
    await asyncio.sleep(0.1)
    return api


async def outcome(request: Coroutine[Any, Any, Any]) -> type[Exception] | int:
    try:
        status: int = (await request).status
    except (ConnectionLost, ConnectFailed, TimedOut) as error:
        return type(error)
    return status
