"""Nodes that die while a guest is on its way from one to the other."""

import pytest

from backstay.lab.cluster import NAMESPACE, LabCluster
from backstay.sim.cluster.ground import WorldGround
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


async def prepared(world: World) -> LabCluster:
    cluster = LabCluster(WorldGround(world))
    await cluster.boot("n1", "n2", "n3")
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
