"""What the others see of a machine that loses its power, and of one that is back."""

import asyncio

import pytest

from backstay.seam import Seams
from backstay.seam.errors import ConnectFailed, ConnectionLost, Refused, TimedOut
from backstay.sim.world import World
from tests.sim.an_api import get, outcome, started


def test_peers_of_a_machine_without_power_hear_nothing_at_all(world: World) -> None:
    async def scenario() -> None:
        await started(world)
        transport = world.network.transport
        async with transport.stream(get("/watch")) as stream:
            assert await stream.read(5.0) == b"tick"
            world.processes["api"].lose_power()
            with pytest.raises(TimedOut):
                await stream.read(600.0)
            with pytest.raises(ConnectFailed, match="did not accept a connection in time"):
                await transport.request(get(timeout=30.0))

    world.run(scenario())


def test_a_request_on_an_old_connection_to_a_machine_without_power_leaves(world: World) -> None:
    async def scenario() -> None:
        await started(world)
        transport = world.network.transport
        await transport.request(get())
        world.processes["api"].lose_power()
        assert await outcome(transport.request(get(timeout=5.0))) is TimedOut
        assert await outcome(transport.request(get(timeout=5.0))) is ConnectFailed

    world.run(scenario())


def test_a_request_that_asks_for_the_end_leaves_no_old_connection(world: World) -> None:
    async def scenario() -> None:
        await started(world)
        transport = world.network.transport
        await transport.request(get(headers={"Connection": "close"}))
        world.processes["api"].lose_power()
        assert await outcome(transport.request(get(timeout=5.0))) is ConnectFailed

    world.run(scenario())


def test_where_a_process_was_killed_its_machine_refuses_until_it_loses_power(world: World) -> None:
    async def scenario() -> None:
        await started(world)
        transport = world.network.transport
        world.processes["api"].kill()
        assert await outcome(transport.request(get(timeout=5.0))) is Refused
        world.processes["api"].lose_power()
        assert await outcome(transport.request(get(timeout=5.0))) is ConnectFailed

    world.run(scenario())


def test_a_machine_that_is_back_knows_nothing_of_its_old_connections(world: World) -> None:
    async def scenario() -> None:
        api = await started(world)
        transport = world.network.transport
        async with transport.stream(get("/watch")) as stream:
            assert await stream.read(5.0) == b"tick"
            world.processes["api"].lose_power()
            await asyncio.sleep(60.0)
            world.processes["api"].restart()
            with pytest.raises(ConnectionLost):
                await stream.read(60.0)
        assert await outcome(transport.request(get("/again"))) == 200
        assert api.seen[-1] == ("world", "/again")

    world.run(scenario())


def test_what_was_held_up_on_a_machine_that_lost_power_is_gone(world: World) -> None:
    async def main(seams: Seams) -> None:
        await seams.transport.request(get())
        world.wires.block("a", "api")
        await seams.transport.request(get("/held-up", timeout=60.0))

    async def scenario() -> None:
        api = await started(world)
        process = world.start("a", main)
        await asyncio.sleep(1.0)
        process.lose_power()
        world.wires.heal()
        await asyncio.sleep(60.0)
        assert api.seen == [("a", "/")]

    world.run(scenario())
