"""Nodes that die while a guest is on its way from one to the other."""

import asyncio

import msgspec
import pytest

from backstay.lab.broken import Reading
from backstay.lab.cluster import NAMESPACE, LabCluster
from backstay.lab.play import play
from backstay.lab.shipped import find
from backstay.model.workload import Workload
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.kubevirt import Copying
from backstay.sim.kubevirt.names import MIGRATIONS, VMIS
from backstay.sim.world import World

GUEST = (NAMESPACE, "till")


async def begin_to_move(cluster: LabCluster) -> dict[str, str]:
    """Until the guest is being copied; which nodes it is moved between."""
    migration = {"metadata": {"name": "by-hand"}, "spec": {"vmiName": GUEST[1]}}
    await cluster.client.create(MIGRATIONS, migration, namespace=NAMESPACE)
    await cluster.until(lambda: bool(state(cluster).get("startTimestamp")))
    return {end: state(cluster)[f"{end}Node"] for end in ("source", "target")}


def state(cluster: LabCluster) -> dict[str, str]:
    vmi = cluster.store.get(VMIS.label, GUEST)
    return dict((vmi.object["status"].get("migrationState") or {}) if vmi else {})


def uid(cluster: LabCluster) -> str:
    vmi = cluster.store.get(VMIS.label, GUEST)
    return str(vmi.object["metadata"]["uid"]) if vmi else ""


async def prepared(world: World, copying: Copying | None = None) -> LabCluster:
    cluster = LabCluster(WorldGround(world))
    await cluster.boot("n1", "n2", "n3", copying=copying)
    await cluster.start_workloads(vms=["till"])
    await cluster.arm()
    cluster.start_backstay("backstay-1")
    await cluster.eventually(lambda: cluster.leader is not None)
    return cluster


def test_a_migration_is_nothing_to_worry_about() -> None:
    async def scenario(world: World) -> None:
        cluster = await prepared(world)
        moved = await begin_to_move(cluster)
        await cluster.until(lambda: cluster.truth.running(moved["source"]) == [])
        assert cluster.running(moved["target"]) == {"shop/till"}
        assert cluster.inspector.broken == []

    with World(3) as world:
        world.run(scenario(world))


@pytest.mark.parametrize("end", ["source", "target"])
def test_whichever_end_dies_the_guest_is_there_once(end: str) -> None:
    async def scenario(world: World) -> None:
        cluster = await prepared(world)
        before = uid(cluster)
        moved = await begin_to_move(cluster)
        node = moved[end]
        cluster.nodes[node].kill()
        await cluster.confirm_dead(node, by="ana", reason="its fuse has blown")
        if end == "source":
            await cluster.until(lambda: not cluster.down and uid(cluster) != before)
        else:
            await cluster.until(lambda: bool(state(cluster).get("failed")))
            assert uid(cluster) == before, "the guest was not touched"
        assert cluster.inspector.broken == []

    with World(3) as world:
        world.run(scenario(world))


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_guest_that_is_torn_apart_in_post_copy_is_started_anew_and_once(end: str) -> None:
    """It has gone over, and half of its memory is still on the other side."""

    async def scenario(world: World) -> None:
        cluster = await prepared(world, Copying(seconds=1.0, behind=60.0))
        before = uid(cluster)
        moved = await begin_to_move(cluster)
        await cluster.until(lambda: state(cluster).get("mode") == "PostCopy")
        cluster.nodes[moved[end]].kill()
        await cluster.confirm_dead(moved[end], by="ana", reason="its fuse has blown")
        await cluster.until(lambda: uid(cluster) != before and not cluster.down)
        await asyncio.sleep(30)
        assert len([each for each in cluster.truth.running() if "till" in each.name]) == 1
        assert cluster.inspector.broken == []

    with World(3) as world:
        world.run(scenario(world))


class WithoutRemains(Reading):
    """Does not see the launchers of a guest that have ended."""

    def _take(self, workload: Workload) -> Workload:
        return msgspec.structs.replace(workload, remains=())


@pytest.mark.parametrize(
    "name", ["migrated-away-and-back", "migration-leads-to-the-same-node-again"]
)
def test_what_a_guest_has_left_on_a_dead_node_keeps_it_down_if_it_stays(name: str) -> None:
    scenario = msgspec.structs.replace(find(name), until=300.0)
    played = play(scenario, observer=WithoutRemains)
    assert played.down == ("till",)
    assert played.broken == ("Recovered",)
