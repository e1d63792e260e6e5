"""Whom DRBD has shut out, as LINSTOR tells: looked at for as long as it lasts, on nodes whose
leases Kubernetes sees."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import msgspec

from backstay.decide.quorum import settled
from backstay.drivers.linstor.access import access_from
from backstay.drivers.linstor.client import Linstor
from backstay.drivers.linstor.stream import RENEW_EVERY, Promotions
from backstay.model.drbd import ResourceSight
from backstay.model.node import NodeFacts
from backstay.model.policy import Times
from backstay.model.workload import PodRef, Volume, Workload, WorkloadKind
from backstay.seam.files import Files
from backstay.seam.tasks import Tasks
from backstay.sim.chance import Chance
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.files import MemoryFiles
from backstay.sim.linstor.database import QUORUM, TWO_PRIMARIES
from backstay.sim.linstor.front import STREAM, Trouble
from backstay.sim.linstor.served import Lab, Served, serving
from backstay.sources.linstor import LinstorSource, LinstorTerms
from backstay.sources.nodes import NodeSource
from tests.sim.cluster.stages import play

GRACE = 45.0
KNOWN = 20.0
TIMES = Times()
LINSTOR = "linstor.csi.linbit.com"


class Scene:
    """Three nodes, on which n1 uses the resource ``pvc-1``, and a source that looks on."""

    def __init__(self, cluster: EmbeddedCluster, lab: Lab, served: Served) -> None:
        assert isinstance(cluster.ground, WorldGround)
        self.cluster = cluster
        self.lab = lab
        self.served = served
        self.told: list[str] = []
        rng = Chance(1, "linstor")
        self.nodes = NodeSource(
            cluster.client(), rng=rng, interval=2.5, window=22.0, on_look=lambda: None
        )
        files: Files = MemoryFiles()
        access = access_from({"LS_CONTROLLERS": served.url})
        linstor = Linstor(cluster.ground.transport, files, access)
        self.source = LinstorSource(
            linstor,
            Promotions(linstor, rng=rng),
            self.nodes,
            terms=LinstorTerms(new_grace=GRACE, known_grace=KNOWN),
            interval=2.5,
            patience=TIMES.fresh,
        )
        self.source.subscribe(self.told.append)

    @property
    def node(self) -> NodeFacts:
        facts = self.nodes.facts("n1")
        assert facts is not None
        return facts

    @property
    def sights(self) -> tuple[ResourceSight, ...]:
        return self.source.testimony(self.node).quorums

    def objection(self) -> str | None:
        """Why nothing may rest on what is seen of ``pvc-1``."""
        [sight] = [each for each in self.sights if each.resource == "pvc-1"]
        return settled(sight, asyncio.get_running_loop().time(), times=TIMES)

    async def lose_n1(self) -> None:
        """It is gone for DRBD and for LINSTOR, whatever Kubernetes hears of it."""
        self.lab.cut_off("n1")
        await asyncio.sleep(3)

    def looks(self, of: str = "/resources") -> int:
        return sum(path.endswith(of) for path in self.served.front.asked)


def seen(scene: Callable[[Scene], Awaitable[None]]) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        assert isinstance(cluster.ground, WorldGround)
        lab = Lab("n1", "N2", "n3")
        lab.define("PVC-1")
        lab.drbd.promote("pvc-1", "n1")
        serve = cluster.ground.world.network.serve
        async with AsyncExitStack() as stack:
            stack.callback(lab.close)
            served = await stack.enter_async_context(serving(serve, lab.controller(), port=3370))
            tasks = await stack.enter_async_context(Tasks("test"))
            staged = Scene(cluster, lab, served)
            tasks.spawn(staged.nodes.run(), name="nodes")
            tasks.spawn(staged.source.run(), name="linstor")
            await asyncio.sleep(30)
            await scene(staged)

    play(scenario, nodes=3)


def workload(*volumes: Volume) -> Workload:
    return Workload(
        kind=WorkloadKind.STATEFUL_SET,
        namespace="shop",
        name="db-0",
        node="n1",
        pods=(PodRef("shop", "db-0", "u", "1"),),
        volumes=volumes,
    )


MINE = Volume(claim="data", pv="pv-1", driver=LINSTOR, handle="pvc-1")


def test_while_all_is_well_the_stream_is_listened_to_and_nobody_is_asked_anything() -> None:
    async def scene(staged: Scene) -> None:
        assert staged.source.promotions.connected
        assert staged.source.trouble == ""
        assert (staged.looks(), staged.sights) == (0, ())

    seen(scene)


def test_a_node_that_drbd_shuts_out_is_proven_so_after_the_whole_grace_and_not_before() -> None:
    async def scene(staged: Scene) -> None:
        await staged.lose_n1()
        assert staged.told == ["n1"], "somebody may want to know at once"
        await asyncio.sleep(GRACE - 4)
        assert f"of {GRACE:g} s" in (staged.objection() or "")
        await asyncio.sleep(4)
        assert staged.objection() is None
        assert staged.told == ["n1", "n1"], "and when the grace is over"
        [sight] = staged.sights
        assert {each.node: each.sees for each in sight.replicas if each.node != "n1"} == {
            "n2": False,
            "n3": False,
        }

    seen(scene)


def test_a_reconnection_in_between_begins_the_grace_anew() -> None:
    """Two short windows are not one long one."""

    async def scene(staged: Scene) -> None:
        await staged.lose_n1()
        await asyncio.sleep(GRACE - 10)
        staged.lab.heal("n1")
        await asyncio.sleep(1)
        await staged.lose_n1()
        await asyncio.sleep(12)
        assert f"of {KNOWN:g} s" in (staged.objection() or ""), "and it is a known resource now"
        await asyncio.sleep(KNOWN - 10)
        assert staged.objection() is None

    seen(scene)


def test_time_without_looks_is_no_part_of_the_grace() -> None:
    async def scene(staged: Scene) -> None:
        await staged.lose_n1()
        staged.served.faults.trouble = Trouble.UNAVAILABLE
        staged.served.faults.on = "/v1/resource-definitions"
        await asyncio.sleep(GRACE)
        assert "last looked at" in (staged.objection() or "")
        assert "LINSTOR cannot be asked" in staged.source.trouble
        staged.served.faults.trouble = None
        await asyncio.sleep(4)
        assert f"of {GRACE:g} s" in (staged.objection() or "")
        assert staged.source.trouble == ""

    seen(scene)


def test_nothing_rests_on_looks_while_the_stream_is_not_heard() -> None:
    async def scene(staged: Scene) -> None:
        await staged.lose_n1()
        staged.served.faults.trouble = Trouble.UNAVAILABLE
        staged.served.faults.on = STREAM
        staged.served.controller.promotions.end()
        await asyncio.sleep(GRACE)
        assert "LINSTOR's events are not heard" in (staged.objection() or "")
        assert "LINSTOR's events are not heard" in staged.source.trouble
        staged.served.faults.trouble = None
        await asyncio.sleep(40)
        assert staged.objection() is None, "the looks went on all the time"

    seen(scene)


def test_a_satellite_that_is_online_and_dead_is_no_witness() -> None:
    """LINSTOR may not notice for long. What it last heard from there is then told for ever."""

    async def scene(staged: Scene) -> None:
        await staged.lose_n1()
        staged.lab.hearing.sticky.add("n2")
        staged.cluster.nodes["n2"].kill()
        staged.lab.cut_off("n2")
        await asyncio.sleep(2 * GRACE)
        assert staged.objection() == "n2, whose word it is, has not been heard of lately"

    seen(scene)


def test_the_options_are_read_anew_wherever_they_are_set() -> None:
    async def scene(staged: Scene) -> None:
        await staged.lose_n1()
        await asyncio.sleep(GRACE + 2)
        assert staged.objection() is None
        staged.lab.database.set_property(QUORUM, None, resource="pvc-1")
        await asyncio.sleep(3)
        assert "quorum is not set" in (staged.objection() or "")
        staged.lab.database.set_property(QUORUM, "majority")
        staged.lab.database.set_property(TWO_PRIMARIES, "yes")
        await asyncio.sleep(20)
        assert "two primaries" in (staged.objection() or "")

    seen(scene)


def test_a_replica_that_was_freed_of_the_quorum_proves_nothing_whatever_binds_the_others() -> None:
    async def scene(staged: Scene) -> None:
        staged.lab.database.definitions["pvc-1"].own["n1"] = {QUORUM: "off"}
        await staged.lose_n1()
        await asyncio.sleep(2 * GRACE)
        assert "quorum is off" in (staged.objection() or "")

    seen(scene)


def test_right_before_a_deed_it_is_looked_anew_at_all_that_the_workload_has() -> None:
    async def scene(staged: Scene) -> None:
        staged.lab.define("pvc-2")
        staged.lab.drbd.promote("pvc-2", "n1")
        await staged.lose_n1()
        before, now = staged.looks(), asyncio.get_running_loop().time()
        more = msgspec.structs.replace(MINE, claim="logs", handle="PVC-2/0")
        said = await staged.source.ask(staged.node, [workload(MINE, more)])
        assert {each.resource for each in said.quorums} == {"pvc-1", "pvc-2"}
        assert all(each.observed_at >= now for each in said.quorums)
        assert staged.looks() == before + 2

    seen(scene)


def test_what_cannot_be_asked_right_then_is_not_said() -> None:
    async def scene(staged: Scene) -> None:
        await staged.lose_n1()
        await asyncio.sleep(GRACE + 2)
        staged.served.faults.trouble = Trouble.HTML
        said = await staged.source.ask(staged.node, [workload(MINE)])
        assert said.quorums == ()
        assert "does not answer as LINSTOR does" in staged.source.trouble

    seen(scene)


def test_while_the_stream_is_not_heard_nobody_waits_for_answers_that_would_not_count() -> None:
    async def scene(staged: Scene) -> None:
        await staged.lose_n1()
        staged.served.faults.trouble = Trouble.SILENT
        staged.served.controller.promotions.end()
        await asyncio.sleep(20)
        asked, now = len(staged.served.front.asked), asyncio.get_running_loop().time()
        assert (await staged.source.ask(staged.node, [workload(MINE)])).quorums == ()
        assert asyncio.get_running_loop().time() == now
        assert len(staged.served.front.asked) == asked

    seen(scene)


def test_volumes_of_others_are_nothing_to_ask_linstor_about() -> None:
    async def scene(staged: Scene) -> None:
        others = [
            msgspec.structs.replace(MINE, driver="ceph"),
            msgspec.structs.replace(MINE, exported=True),
            msgspec.structs.replace(MINE, pv=""),
        ]
        said = await staged.source.ask(staged.node, [workload(*others)])
        assert (said.quorums, staged.looks()) == ((), 0)

    seen(scene)


def test_how_things_stand_is_known_of_a_silent_node_that_still_uses_its_volume() -> None:
    """Its kubelet is dead and its guests are not: what stands in the way can be told."""

    async def scene(staged: Scene) -> None:
        staged.source.watch([staged.node])
        await asyncio.sleep(5)
        assert staged.objection() == "n1 is still its primary, by its own satellite's word"

    seen(scene)


def test_a_node_that_kubernetes_hears_of_is_named_as_cut_off() -> None:
    async def scene(staged: Scene) -> None:
        await staged.lose_n1()
        loop = asyncio.get_running_loop()
        assert staged.source.notes(loop.time()) == []
        await asyncio.sleep(GRACE)
        [note] = staged.source.notes(loop.time())
        assert "n1 is alive, but DRBD has shut it out of pvc-1" in note.sentence

    seen(scene)


def test_a_resource_that_is_gone_is_forgotten() -> None:
    async def scene(staged: Scene) -> None:
        await staged.lose_n1()
        assert staged.sights
        staged.lab.database.forget("pvc-1")
        await asyncio.sleep(5)
        assert staged.sights == ()
        before = staged.looks()
        await asyncio.sleep(30)
        assert staged.looks() == before

    seen(scene)


def test_what_was_deleted_is_not_remembered_for_ever() -> None:
    """Nobody looks at what is not in use; so it is the stream that tells what there is."""

    async def scene(staged: Scene) -> None:
        names = [f"old-{number}" for number in range(20)]
        for name in names:
            staged.lab.define(name)
        await asyncio.sleep(RENEW_EVERY + 5)
        assert staged.source.told_of == 21
        for name in names:
            staged.lab.database.forget(name)
        await asyncio.sleep(2 * RENEW_EVERY + 10)
        assert staged.source.told_of == 1

    seen(scene)


def test_a_resource_without_drbd_proves_nothing() -> None:
    async def scene(staged: Scene) -> None:
        staged.lab.define("plain", has_drbd=False)
        volume = msgspec.structs.replace(MINE, handle="plain")
        said = await staged.source.ask(staged.node, [workload(volume)])
        assert said.quorums == ()

    seen(scene)


def test_after_a_thousand_cuts_the_next_failover_is_still_heard_of() -> None:
    async def scene(staged: Scene) -> None:
        promotions = staged.served.controller.promotions
        for _ in range(1000):
            promotions.end()
            await asyncio.sleep(0.2)
        await asyncio.sleep(60)
        await staged.lose_n1()
        await asyncio.sleep(GRACE + 2)
        assert staged.objection() is None

    seen(scene)


def test_what_was_said_before_a_stream_fell_silent_does_not_count_against_a_loss_since() -> None:
    """The next stream says everything anew, one replica after the other. Until it has, what the
    others said last is from a time when the node was there."""

    async def scene(staged: Scene) -> None:
        staged.served.controller.promotions.go_silent()
        await staged.lose_n1()
        staged.source.watch([staged.node])
        connects = staged.source.promotions.connects
        await asyncio.sleep(GRACE + 1)
        assert staged.source.promotions.connects > connects, "it was opened anew meanwhile"
        assert staged.objection() is None

    seen(scene)
