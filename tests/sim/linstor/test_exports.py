"""Volumes that LINSTOR serves over NFS: who has the device, and who can write."""

import asyncio

import msgspec

from backstay.sim.linstor.storage import NFS_EXPORT, Placement
from tests.sim.cluster.stages import Json
from tests.sim.linstor.cluster_rig import CLASS, EVERYWHERE, Rig, play

PEERS = ("n2", "n3")


async def run_from(server: str, rig: Rig) -> str:
    """A database on n1 whose volume this node serves; the resource."""
    placed = rig.linstor.classes[CLASS]
    rig.linstor.classes[CLASS] = Placement(EVERYWHERE, placed.props, exported_by=server)
    await rig.run_database()
    return rig.linstor.volumes[rig.volume].resource


async def shut_out(node: str, rig: Rig, resource: str) -> None:
    for peer in PEERS:
        rig.linstor.drbd.cut(node, peer)
    await rig.until(lambda: not rig.linstor.drbd.can_write(resource, node))


def test_the_server_has_the_device_and_whoever_mounts_it_has_not() -> None:
    async def story(rig: Rig) -> None:
        resource = await run_from("n2", rig)
        assert rig.linstor.drbd.can_write(resource, "n2")
        assert not rig.linstor.drbd.can_write(resource, "n1")
        assert rig.writers == ["n1"]

    play(story)


def test_the_volume_says_that_it_is_exported() -> None:
    async def story(rig: Rig) -> None:
        await run_from("n2", rig)
        [volume] = rig.cluster.api.store.all("persistentvolumes")
        source: Json = msgspec.to_builtins(volume.object)["spec"]["csi"]
        assert source["volumeAttributes"] == {NFS_EXPORT: "true"}

    play(story)


def test_a_node_that_drbd_has_shut_out_writes_on_through_the_next_server() -> None:
    async def story(rig: Rig) -> None:
        resource = await run_from("n1", rig)
        await shut_out("n1", rig, resource)
        assert not rig.linstor.exports.is_served(resource)
        await rig.until(lambda: rig.linstor.exports.serve(resource, "n2"))
        assert rig.writers == ["n1"]

    play(story)


def test_nothing_is_mounted_while_nobody_serves_it() -> None:
    async def story(rig: Rig) -> None:
        resource = await run_from("n1", rig)
        rig.nodes["n1"].kill()
        await rig.keep_out("n1")
        await rig.release("n1")
        await asyncio.sleep(200)
        assert rig.copies == []
        assert rig.linstor.exports.serve(resource, "n2")
        await rig.until(lambda: len(rig.copies) == 1)

    play(story)


def test_a_server_is_not_started_where_drbd_refuses_it() -> None:
    async def story(rig: Rig) -> None:
        resource = await run_from("n1", rig)
        assert not rig.linstor.exports.serve(resource, "n2")
        assert rig.linstor.exports.is_served(resource)

    play(story)
