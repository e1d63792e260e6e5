"""An API that was restored from a backup which is but seconds old."""

import asyncio

from tests.control.rig import Scene, play


def test_a_leader_notices_it_between_two_looks_at_the_version() -> None:
    """Every renewal of its lease shows a version, and so does each look at the nodes' leases."""

    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        await s.arm()
        s.start_controller()
        await asyncio.sleep(13)
        backup = s.cluster.api.store.snapshot()
        await asyncio.sleep(4)
        s.cluster.roll_back(backup)
        past = s.apps["backstay-1"].past
        await s.until(lambda: bool(past.words), timeout=15)

    play(scene)
