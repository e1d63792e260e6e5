"""A watch puts its events on the wire itself, and only when whoever serves it could."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backstay.seam import Seams
from backstay.seam.errors import TimedOut
from backstay.seam.system import SystemRng
from backstay.seam.transport import Request, Stream
from backstay.sim.api.kinds import Object
from backstay.sim.api.server import ApiServer
from backstay.sim.clock import LoopClock
from backstay.sim.process import Process
from backstay.sim.world import World

NODES = "http://api:80/api/v1/nodes"


class Scene:
    """An API in a process of its own; ``put`` commits past that process, as a restore does."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.server = ApiServer(wall=LoopClock(), rng=SystemRng(1))
        self.process: Process = world.start("api", self._serve)

    async def _serve(self, seams: Seams) -> None:
        await seams.serve.listen(self.server.handle, host="api", port=80)
        await asyncio.Event().wait()

    def put(self, name: str, **more: str) -> None:
        store = self.server.store
        meta: Object = {"name": name, "resourceVersion": str(store.next_version()), **more}
        store.put("nodes", ("", name), {"metadata": meta})

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Stream]:
        request = Request(method="GET", url=f"{NODES}?watch=true", timeout=10.0)
        async with self.world.network.transport.stream(request) as stream:
            yield stream


async def heard(stream: Stream, names: int) -> list[str]:
    """The names in the next events."""
    lines: list[bytes] = []
    while len(lines) < names:
        lines += (await stream.read(60.0)).splitlines()
    return [line.split(b'"name":"')[1].split(b'"')[0].decode() for line in lines]


def play(scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def story(world: World) -> None:
        scene = Scene(world)
        await asyncio.sleep(1.0)
        await scenario(scene)

    with World(1) as world:
        world.run(story(world))


def test_what_is_committed_while_its_server_stands_still_leaves_when_that_goes_on() -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.watch() as stream:
            scene.put("before")
            assert await heard(stream, 1) == ["before"]
            scene.process.pause()
            scene.put("meanwhile")
            with pytest.raises(TimedOut):
                await stream.read(5.0)
            scene.process.resume()
            scene.put("after")
            assert await heard(stream, 2) == ["meanwhile", "after"]

    play(scenario)


def test_a_server_without_power_tells_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.watch() as stream:
            scene.process.lose_power()
            scene.put("after")
            with pytest.raises(TimedOut):
                await stream.read(60.0)

    play(scenario)


def test_what_does_not_fit_on_the_wire_waits_and_comes_together_and_in_order() -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.watch() as stream:
            names = [f"n{number}" for number in range(100)]
            for name in names:
                scene.put(name, uid="x" * 10_000)
                await asyncio.sleep(0.1)
            pieces = list[list[str]]()
            while sum(map(len, pieces)) < len(names):
                pieces.append(await heard(stream, 1))
            assert [name for piece in pieces for name in piece] == names
            assert len(pieces) < len(names)

    play(scenario)
