"""What can be typed after the show, on a small lab cluster under virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from backstay.lab import view
from backstay.lab.cluster import LabCluster
from backstay.lab.console import Console
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.world import World


def _at_the_console(scene: Callable[[LabCluster, Console], Coroutine[Any, Any, None]]) -> None:
    with World(seed=1) as world:

        async def scenario() -> None:
            cluster = LabCluster(WorldGround(world))
            await cluster.boot("n1", "n2", "n3")
            await cluster.start_workloads(vms=["a", "b", "c"])
            cluster.start_backstay("backstay-1")
            await cluster.arm()
            await asyncio.sleep(20)
            await scene(cluster, Console(cluster, view.plain))

        world.run(scenario())


def test_a_node_is_killed_confirmed_and_booted_again() -> None:
    async def scene(cluster: LabCluster, console: Console) -> None:
        assert await console.answer("kill n2") == "n2 lost its power; what ran there is down: 1."
        assert await console.answer("kill n2") == "n2 is off already."
        await asyncio.sleep(50)
        assert "OFF, 0 running" in await console.answer("truth")
        assert cluster.down == {"shop/b"}
        assert await console.answer("confirm n2") == "n2 is confirmed dead."
        await cluster.until(lambda: not cluster.down)
        assert await console.answer("boot n2") == "n2 boots."
        assert await console.answer("boot n2") == "n2 is on already."
        await cluster.eventually(lambda: not cluster.open_incidents())
        assert cluster.inspector.broken == []

    _at_the_console(scene)


def test_a_node_is_cut_off_and_healed() -> None:
    async def scene(cluster: LabCluster, console: Console) -> None:
        assert await console.answer("heal n2") == "n2 is not cut off."
        assert await console.answer("cut n2") == "n2 is cut off; what it runs, runs on: 1."
        assert await console.answer("cut n2") == "n2 is cut off already."
        await asyncio.sleep(60)
        assert "Lost: 1 held" in await console.answer("truth")
        assert cluster.down == set()
        assert await console.answer("heal n2") == "n2 reaches the API again."

    _at_the_console(scene)


def test_a_confirmation_can_be_given_twice_and_withdrawn() -> None:
    async def scene(_cluster: LabCluster, console: Console) -> None:
        for _ in range(2):
            assert await console.answer("confirm n2") == "n2 is confirmed dead."
        assert await console.answer("withdraw n2") == "Whatever was confirmed of n2 is withdrawn."

    _at_the_console(scene)


def test_what_is_not_understood_is_said() -> None:
    async def scene(_cluster: LabCluster, console: Console) -> None:
        assert await console.answer("\n") == ""
        assert await console.answer("frob") == "There is no such command as 'frob': type help."
        assert await console.answer("kill") == "kill takes one node: kill n2."
        assert await console.answer("kill n9") == "There is no node 'n9': there are n1, n2, n3."
        assert "loses its power" in await console.answer("help")

    _at_the_console(scene)
