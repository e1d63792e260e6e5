"""The network of a world, held to the same contracts as the real one.

The contracts are written for any world. Here the test itself is the caller, outside of all
processes, and what it listens with runs in another process, with delays as the seed draws them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from backstay.seam import Seams
from backstay.seam.serve import Handler, Listener, Serve, ServerTls
from backstay.sim.world import World
from tests.seam import worlds
from tests.seam.serve_contract import ServeContract
from tests.seam.transport_contract import StreamContract, TransportContract
from tests.support.in_world import held_to


class ServeElsewhere:
    """``Serve``, done by another process."""

    def __init__(self, world: World) -> None:
        self._orders: asyncio.Queue[tuple[Callable[[Serve], Any], asyncio.Future[Any]]]
        self._orders = asyncio.Queue()
        world.start("server", self._obey)

    async def listen(
        self,
        handler: Handler,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ServerTls | None = None,
        max_body: int = 4 * 1024 * 1024,
    ) -> Listener:
        done: asyncio.Future[Listener] = asyncio.get_running_loop().create_future()
        self._orders.put_nowait(
            (
                lambda serve: serve.listen(
                    handler, host=host, port=port, tls=tls, max_body=max_body
                ),
                done,
            )
        )
        return await done

    async def _obey(self, seams: Seams) -> None:
        while True:
            order, done = await self._orders.get()
            try:
                done.set_result(await order(seams.serve))
            except OSError as error:
                done.set_exception(error)


@asynccontextmanager
async def two_processes(world: World) -> AsyncIterator[worlds.World]:
    world.network.grace = worlds.GRACE
    made = worlds.World(world.network.transport, ServeElsewhere(world))
    yield made
    for listener in made.listeners:
        await listener.close()


@held_to(TransportContract, world=two_processes)
class TestTransport:
    """Requests."""


@held_to(StreamContract, world=two_processes)
class TestStreams:
    """Streams."""


@held_to(ServeContract, world=two_processes)
class TestServe:
    """Handlers."""
