"""A node whose storage is needed is not reported as ready to go down."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from backstay.apis.backstay import CONFIG_NAME, CONFIGS
from backstay.apis.definitions import definitions
from backstay.app import build
from backstay.drivers.linstor.access import access_from
from backstay.kube.client import KubeClient
from backstay.kube.resource import NAMESPACES
from backstay.seam import Seams
from backstay.settings import Settings
from backstay.sim.linstor.front import Trouble
from backstay.sim.linstor.replicas import Kind
from backstay.sim.linstor.storage import URL
from tests.control.rig import DEFINITIONS
from tests.control.rig_maintenance import maintain, serve_maintenances, until_told
from tests.sim.linstor import cluster_rig
from tests.sim.linstor.cluster_rig import Rig

TWO = {"n1": Kind.DISKFUL, "n2": Kind.DISKFUL, "n3": Kind.TIE_BREAKER}
ONE = {"n1": Kind.DISKFUL}


class Scene:
    """A database on n1, and a controller that leads."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.client = rig.client

    async def set_up(self) -> None:
        rig = self.rig
        for definition in definitions():
            await rig.client.create(DEFINITIONS, definition)
        await serve_maintenances(self)
        config = {"metadata": {"name": CONFIG_NAME}, "spec": {"mode": "Armed"}}
        await rig.client.create(CONFIGS, config)
        await rig.client.create(NAMESPACES, {"metadata": {"name": "backstay-system"}})
        await rig.run_database()
        settings = Settings(identity="one", linstor=access_from({"LS_CONTROLLERS": URL}))

        async def main(seams: Seams) -> None:
            client = KubeClient(seams.transport, rig.cluster.access())
            await build(settings, seams, client).run()

        rig.world.start("backstay", main)
        await asyncio.sleep(40)

    async def eventually(
        self, holds: Callable[[], Awaitable[bool]], *, within: float = 120.0
    ) -> None:
        async with asyncio.timeout(within):
            while not await holds():  # noqa: ASYNC110 - time is virtual
                await asyncio.sleep(0.5)


def play(story: Callable[[Scene], Awaitable[None]], *, replicas: Mapping[str, Kind] = TWO) -> None:
    async def told(rig: Rig) -> None:
        scene = Scene(rig)
        await scene.set_up()
        await story(scene)

    cluster_rig.play(told, replicas=replicas)


def test_a_node_is_ready_to_go_while_another_has_the_data() -> None:
    async def story(s: Scene) -> None:
        await maintain(s, "n1")
        await until_told(s, "maintain-n1", "Drained", within=300)
        await s.rig.until(lambda: s.rig.copies not in ([], ["n1"]))
        assert s.rig.most_writers == 1

    play(story)


def test_the_only_copy_is_named_and_nothing_has_succeeded() -> None:
    async def story(s: Scene) -> None:
        await maintain(s, "n1")
        row = await until_told(s, "maintain-n1", "NotSafeYet", within=300)
        (blocker,) = row.status.blockers
        resource = s.rig.linstor.volumes[s.rig.volume].resource
        assert (blocker.code, blocker.pod) == ("LastCopy", "")
        assert f"the only up-to-date copy of {resource.lower()}" in blocker.sentence
        assert row.status.phase == "Running"

    play(story, replicas=ONE)


def test_once_the_other_copy_is_back_and_up_to_date_it_may_go() -> None:
    async def story(s: Scene) -> None:
        s.rig.nodes["n2"].kill()
        await asyncio.sleep(60)
        await maintain(s, "n1")
        row = await until_told(s, "maintain-n1", "NotSafeYet", "DrainBlocked", "Draining")
        assert row.status.phase == "Running"
        await asyncio.sleep(200)
        row = await until_told(s, "maintain-n1", "NotSafeYet", within=600)
        s.rig.nodes["n2"].reboot()
        row = await until_told(s, "maintain-n1", "Drained", within=600)
        assert row.status.phase == "Succeeded"

    play(story)


def test_while_linstor_does_not_answer_nobody_knows_and_nothing_has_succeeded() -> None:
    async def story(s: Scene) -> None:
        s.rig.linstor.faults.trouble = Trouble.UNAVAILABLE
        await maintain(s, "n1")
        row = await until_told(s, "maintain-n1", "NotSafeYet", within=300)
        assert [each.code for each in row.status.blockers] == ["CopiesUnknown"]
        s.rig.linstor.faults.trouble = None
        await until_told(s, "maintain-n1", "Drained", within=300)

    play(story)
