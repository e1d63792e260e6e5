"""A machine of a simulated world, and what gets through to it while it is cut off."""

import asyncio

import pytest

from backstay.seam import Seams
from backstay.seam.errors import TimedOut
from backstay.seam.serve import Answer, Inbound
from backstay.seam.transport import Request
from backstay.sim.nodes.machine import Cut, WorldMachine
from backstay.sim.world import World


class Caller:
    """A program on the machine ``n1`` that asks an API, which notes what it is asked."""

    def __init__(self, world: World) -> None:
        self.machine = WorldMachine("n1", world)
        self.paths: list[str] = []
        self._paths: asyncio.Queue[str] = asyncio.Queue()
        world.start("control-plane/api", self._serve)
        self.machine.start("caller", self._call)

    async def ask(self, path: str) -> None:
        self._paths.put_nowait(path)
        await asyncio.sleep(1.0)

    async def _call(self, seams: Seams) -> None:
        while True:
            url = f"http://api{await self._paths.get()}"
            try:
                await seams.transport.request(Request(method="GET", url=url, timeout=10.0))
            except TimedOut:
                return

    async def _serve(self, seams: Seams) -> None:
        await seams.serve.listen(self._handle, host="api", port=80)
        await asyncio.Event().wait()

    async def _handle(self, inbound: Inbound) -> Answer:
        self.paths.append(inbound.path)
        return Answer(body=b"done")


@pytest.mark.parametrize("cut", [Cut.OUT, Cut.API])
def test_nothing_slips_through_while_one_cut_takes_the_place_of_another(cut: Cut) -> None:
    async def scenario() -> None:
        caller = Caller(world)
        await caller.ask("/before")
        caller.machine.cut_off(Cut.BOTH)
        await caller.ask("/held")
        caller.machine.cut_off(cut)
        await asyncio.sleep(1.0)
        assert caller.paths == ["/before"]

    with World(seed=1) as world:
        world.run(scenario())


@pytest.mark.parametrize("first", [Cut.OUT, Cut.BOTH, Cut.API])
def test_what_was_held_back_arrives_once_the_cut_is_of_another_direction(first: Cut) -> None:
    async def scenario() -> None:
        caller = Caller(world)
        await caller.ask("/before")
        caller.machine.cut_off(first)
        await caller.ask("/held")
        caller.machine.cut_off(Cut.IN)
        await asyncio.sleep(1.0)
        assert caller.paths == ["/before", "/held"]

    with World(seed=1) as world:
        world.run(scenario())
