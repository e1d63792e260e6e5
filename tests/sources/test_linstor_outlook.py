"""What LINSTOR tells ahead of how volumes are replicated."""

import asyncio
from collections.abc import Awaitable, Callable

from backstay.drivers.linstor.access import access_from
from backstay.drivers.linstor.client import Linstor
from backstay.seam.real import open_seams
from backstay.sim.linstor.front import Trouble
from backstay.sim.linstor.served import Lab, Served, serving
from backstay.sources.linstor import LinstorTerms
from backstay.sources.linstor_outlook import Replication, replication
from tests.sources.test_linstor import MINE, workload

Look = Callable[[], Awaitable[Replication]]


def asked(scene: Callable[[Lab, Served, Look], Awaitable[None]]) -> None:
    """LINSTOR on a real socket; ``pvc-1`` is used on n1."""

    async def main() -> None:
        lab = Lab("n1", "n2", "n3")
        lab.define("pvc-1")
        async with open_seams() as seams, serving(seams.serve, lab.controller()) as served:
            linstor = Linstor(
                seams.transport, seams.files, access_from({"LS_CONTROLLERS": served.url})
            )

            async def look() -> Replication:
                used = {"n1": [workload(MINE)], "n2": []}
                return await replication(linstor, used, LinstorTerms())

            online = served.controller.is_online
            while not all(map(online, lab.database.nodes)):  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
            await scene(lab, served, look)
        lab.close()

    asyncio.run(main())


def test_each_resource_is_described_for_the_node_that_uses_it() -> None:
    async def scene(_lab: Lab, _served: Served, look: Look) -> None:
        found = await look()
        assert list(found.sights) == ["n1"]
        [sight] = found.sights["n1"]
        assert (sight.resource, sight.quorum, sight.two_primaries) == ("pvc-1", "majority", False)
        assert [each.node for each in sight.replicas if each.online] == ["n1", "n2", "n3"]
        assert found.problems == ()

    asked(scene)


def test_what_linstor_does_not_know_is_a_problem_that_is_told() -> None:
    async def scene(lab: Lab, _served: Served, look: Look) -> None:
        lab.database.forget("pvc-1")
        assert await look() == Replication(problems=("LINSTOR knows no resource pvc-1",))

    asked(scene)


def test_a_linstor_that_does_not_answer_is_told_once() -> None:
    async def scene(_lab: Lab, served: Served, look: Look) -> None:
        served.faults.trouble = Trouble.UNAVAILABLE
        found = await look()
        assert found.sights == {}
        assert len(found.problems) == 1

    asked(scene)


def test_where_no_volume_is_linstors_nobody_is_asked() -> None:
    async def scene(_lab: Lab, served: Served, _look: Look) -> None:
        before = len(served.front.asked)
        async with open_seams() as seams:
            access = access_from({"LS_CONTROLLERS": served.url})
            linstor = Linstor(seams.transport, seams.files, access)
            assert await replication(linstor, {"n1": []}, LinstorTerms()) == Replication()
        assert len(served.front.asked) == before

    asked(scene)
