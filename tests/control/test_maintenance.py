"""A node goes into maintenance and comes back, on an embedded cluster under virtual time."""

import asyncio

from tests.control.rig import Scene, play
from tests.control.rig_maintenance import (
    ALL,
    NONE,
    end,
    events,
    maintain,
    marks_on,
    running,
    serve_maintenances,
    start_deployment,
    until_gone,
    until_told,
)


async def set_up(s: Scene, *, armed: bool = True) -> None:
    await s.boot("n1", "n2", "n3")
    await serve_maintenances(s)
    s.start_controller()
    if armed:
        await s.arm()
    await asyncio.sleep(30)


def test_a_node_is_cordoned_and_drained_and_given_back() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await start_deployment(s, "web", 6)
        await s.start_vms("a", eviction_strategy="LiveMigrate")
        await maintain(s, "n1")
        row = await until_told(s, "maintain-n1", "Drained")
        status = row.status
        assert (status.phase, status.drain_progress) == ("Succeeded", 100)
        assert status.pending_pods == ()
        assert await marks_on(s, "n1") == ALL
        assert "n1" not in await running(s, "web")
        assert s.copies("a") not in ([], ["n1"])
        await end(s, "n1")
        await until_gone(s, "maintain-n1")
        assert await marks_on(s, "n1") == NONE
        assert {"BeginMaintenance", "SucceedMaintenance", "RemovedMaintenance"} <= {
            *await events(s, "maintain-n1")
        }

    play(scene)
