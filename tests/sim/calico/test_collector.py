"""Leaked addresses come back after a while, and not before."""

import asyncio

from backstay.kube.resource import NODES
from backstay.sim.calico import AddressCollector
from tests.sim.calico.rig import PINNED, Rig, in_a_world


def collect(rig: Rig) -> None:
    cluster = rig.cluster
    cluster.add_controller(
        "calico-kube-controllers",
        lambda seams: AddressCollector(cluster.api.operations, seams.wall),
    )


def test_an_address_of_a_pod_that_is_gone_comes_back_after_the_grace_period() -> None:
    async def story(rig: Rig) -> None:
        collect(rig)
        await rig.started("web", "n1", PINNED)
        rig.nodes["n1"].kill()
        await rig.remove("web")
        await asyncio.sleep(840)
        assert PINNED in rig.allocated()
        await asyncio.sleep(900)
        assert rig.allocated() == {}
        assert rig.handles() == {}

    in_a_world(story)


def test_an_address_that_is_used_is_never_collected() -> None:
    async def story(rig: Rig) -> None:
        collect(rig)
        await rig.started("web", "n1", PINNED)
        await asyncio.sleep(3000)
        assert rig.allocated()[PINNED][1] == "web"

    in_a_world(story)


def test_the_addresses_of_a_node_that_was_deleted_come_back_with_the_next_look() -> None:
    async def story(rig: Rig) -> None:
        collect(rig)
        await rig.started("web", "n1", PINNED)
        rig.nodes["n1"].kill()
        await rig.client.delete(NODES, "n1")
        await rig.remove("web")
        await asyncio.sleep(460)
        assert rig.allocated() == {}

    in_a_world(story)
