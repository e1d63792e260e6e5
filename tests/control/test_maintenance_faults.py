"""Maintenances while the API fails, forgets and answers late, and controllers die."""

import asyncio
from collections.abc import Callable

import pytest

from backstay.apis.backstay import CONFIG_NAME, CONFIGS
from backstay.apis.drains import BUDGETS
from backstay.app import run
from backstay.kube.client import KubeClient
from backstay.kube.resource import PODS
from backstay.model.labels import ARMED
from backstay.seam import Seams
from backstay.seam.serve import Handler, Inbound
from backstay.settings import Settings
from backstay.sim.api.faults import Again, Busy, Fault, FaultyServer, Forgot, GaveUp
from backstay.sim.api.server import ApiServer
from backstay.sim.api.store import Commit
from backstay.sim.chance import Chance
from tests.control.rig import Scene, play
from tests.control.rig_maintenance import (
    ALL,
    NONE,
    budget,
    end,
    maintain,
    marks_on,
    running,
    serve_maintenances,
    set_up,
    start_deployment,
    until_gone,
    until_told,
)

SUITE = "suite"
OURS = ("/eviction", "nodemaintenance", "/api/v1/nodes/", "poddisruptionbudgets")


class Weather:
    """Bad for what a maintenance asks for, once it is turned on."""

    def __init__(self, seed: int) -> None:
        self.bad = False
        self.faults = 0
        self._dice = Chance(seed, "weather")

    def front(self) -> Callable[[ApiServer], Handler]:
        return lambda server: FaultyServer(server, self.befalls).handle

    def befalls(self, inbound: Inbound) -> Fault | None:
        watch = "watch=true" in inbound.query
        if not self.bad or inbound.headers.get("user-agent") == SUITE:
            return None
        if not any(part in inbound.path for part in OURS):
            return None
        if self._dice.random() >= 0.4:
            return None
        self.faults += 1
        if watch:
            return Forgot() if self._dice.random() < 0.5 else Again(3)
        if inbound.method == "GET":
            return Busy(503, None)
        faults: list[Fault] = [Busy(429, 1), Busy(500, None), Busy(503, None), GaveUp()]
        return faults[int(self._dice.random() * len(faults))]


@pytest.mark.parametrize("seed", range(1, 9))
def test_it_comes_to_its_end_and_nothing_is_left(seed: int) -> None:
    weather = Weather(seed)

    async def scene(s: Scene) -> None:
        s.client = KubeClient(s.client._transport, s.cluster.access(), user_agent=SUITE)
        leader = await set_up(s)
        await start_deployment(s, "web", 6)
        await budget(s, "web", minAvailable=4)
        await s.start_vms("a", "b", eviction_strategy="LiveMigrate")
        await asyncio.sleep(5)
        (node,) = {s.copies(vm)[0] for vm in "ab"}
        fewest = [6]

        def heard(_: Commit) -> None:
            ready = [
                each
                for each in s.cluster.api.operations.store.all(PODS.label)
                if (each.object["metadata"].get("labels") or {}).get("app") == "web"
                and not each.object["metadata"].get("deletionTimestamp")
                and any(
                    c["type"] == "Ready" and c["status"] == "True"
                    for c in (each.object.get("status") or {}).get("conditions") or ()
                )
            ]
            fewest.append(len(ready))

        s.cluster.api.operations.store.follow_each([PODS.label], heard)
        weather.bad = True
        await maintain(s, node)
        await asyncio.sleep(seed * 0.3)
        leader.kill()
        s.start_controller("backstay-2")
        await until_told(s, f"maintain-{node}", "Drained", within=900)
        assert await marks_on(s, node) == ALL
        assert min(fewest) >= 4, "its budget was kept"
        assert node not in await running(s, "web")
        assert all(s.copies(vm) not in ([], [node]) for vm in "ab")
        await end(s, node)
        await until_gone(s, f"maintain-{node}", within=900)
        weather.bad = False
        assert await marks_on(s, node) == NONE
        assert weather.faults > 5

    play(scene, seed=seed, front=weather.front())


def test_after_a_restore_of_the_api_nobody_is_asked_until_somebody_arms_again() -> None:
    async def scene(s: Scene) -> None:
        async def main(seams: Seams) -> None:
            """As ``backstay run`` has it: what went back in time is looked at anew."""
            client = KubeClient(seams.transport, s.cluster.access())
            await run(Settings(identity="one"), seams, client)

        await s.boot("n1", "n2", "n3")
        await serve_maintenances(s)
        s.world.start("backstay", main)
        await s.arm()
        await start_deployment(s, "web", 3)
        await budget(s, "web", minAvailable=3)
        await asyncio.sleep(30)
        await maintain(s, "n1")
        await until_told(s, "maintain-n1", "DrainBlocked")
        backup = s.cluster.api.store.snapshot()
        await asyncio.sleep(30)
        s.cluster.roll_back(backup)
        await until_told(s, "maintain-n1", "MaintenanceRolledBack", within=300)
        await s.client.merge_patch(
            BUDGETS, "web", {"spec": {"minAvailable": 0}}, namespace="default"
        )
        await asyncio.sleep(120)
        assert "n1" in await running(s, "web")
        assert await marks_on(s, "n1") == ALL
        again = {"metadata": {"annotations": {ARMED: "now, by alice"}}}
        await s.client.merge_patch(CONFIGS, CONFIG_NAME, again)
        await until_told(s, "maintain-n1", "Drained", within=300)

    play(scene)
