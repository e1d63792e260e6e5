"""Pods on hollow nodes get, keep and give back their addresses as they do with Calico."""

import asyncio

from backstay.sim.calico import V3
from backstay.sim.calico.plugin import DUAL
from tests.sim.calico.rig import PINNED, PINNED_V6, Rig, in_a_world


def test_a_pod_is_told_its_address_and_gives_it_back_when_it_ends() -> None:
    async def story(rig: Rig) -> None:
        pod = await rig.started("web", "n1")
        said = pod["metadata"]["annotations"]
        address = pod["status"]["podIP"]
        assert said["cni.projectcalico.org/podIPs"] == f"{address}/32"
        handle = f"k8s-pod-network.{said['cni.projectcalico.org/containerID']}"
        assert rig.allocated() == {address: (handle, "web")}
        assert rig.handles()[handle]["spec"]["block"] == {"10.244.0.0/26": 1}
        assert [each.name for each in rig.truth.users(address)] == ["web"]

        await rig.delete("web")
        await rig.cluster.until(lambda: not rig.pod("web"))
        assert rig.allocated() == {}
        assert rig.handles() == {}
        [block] = rig.blocks()
        assert block["spec"]["unallocated"][-1] == 0
        assert block["spec"]["attributes"] == []
        assert rig.truth.users(address) == []

    in_a_world(story)


def test_every_node_has_blocks_of_its_own() -> None:
    async def story(rig: Rig) -> None:
        first = await rig.started("web", "n1")
        second = await rig.started("db", "n2")
        assert first["status"]["podIP"] == "10.244.0.0"
        assert second["status"]["podIP"] == "10.244.0.64"
        assert [block["spec"]["affinity"] for block in rig.blocks()] == ["host:n1", "host:n2"]

    in_a_world(story)


def test_with_both_families_a_pod_has_an_address_of_each() -> None:
    async def story(rig: Rig) -> None:
        pod = await rig.started("web", "n1", PINNED, PINNED_V6)
        assert pod["status"]["podIPs"] == [{"ip": PINNED}, {"ip": PINNED_V6}]
        other = await rig.started("db", "n1")
        assert len(other["status"]["podIPs"]) == 2
        [handle] = {handle for handle, owner in rig.allocated().values() if owner == "web"}
        assert sum(rig.handles()[handle]["spec"]["block"].values()) == 2

    in_a_world(story, pools=DUAL, group=V3)


def test_a_pinned_address_that_is_taken_keeps_a_pod_from_starting_until_it_is_free() -> None:
    async def story(rig: Rig) -> None:
        await rig.started("web", "n1", PINNED)
        await rig.start("other", "n2", PINNED)
        await asyncio.sleep(60)
        assert rig.phase("other") == "Pending"
        [status] = rig.pod("other")["status"]["containerStatuses"]
        assert status["state"] == {"waiting": {"reason": "ContainerCreating"}}
        await rig.delete("web")
        await rig.cluster.until(lambda: rig.phase("other") == "Running")
        assert rig.pod("other")["status"]["podIP"] == PINNED
        # It is borrowed from the block of another node.
        assert [block["spec"]["affinity"] for block in rig.blocks()] == ["host:n1"]

    in_a_world(story)


def test_a_dead_node_keeps_its_addresses_though_its_pods_are_gone() -> None:
    async def story(rig: Rig) -> None:
        await rig.started("web", "n1", PINNED)
        rig.nodes["n1"].kill()
        await rig.remove("web")
        await rig.start("other", "n2", PINNED)
        await asyncio.sleep(600)
        assert rig.allocated()[PINNED][1] == "web"
        assert rig.phase("other") == "Pending"
        # Back again, it clears up what it had.
        rig.nodes["n1"].reboot()
        await rig.cluster.until(lambda: rig.phase("other") == "Running")
        assert rig.allocated()[PINNED][1] == "other"

    in_a_world(story)


def test_a_pod_that_starts_again_after_a_reboot_has_a_new_sandbox_with_its_pinned_address() -> None:
    async def story(rig: Rig) -> None:
        pod = await rig.started("web", "n1", PINNED)
        before = pod["metadata"]["annotations"]["cni.projectcalico.org/containerID"]
        rig.nodes["n1"].reboot()
        await rig.cluster.until(lambda: len(rig.truth.users(PINNED)) == 1)
        after = rig.pod("web")["metadata"]["annotations"]["cni.projectcalico.org/containerID"]
        assert before != after
        assert list(rig.handles()) == [f"k8s-pod-network.{after}"]

    in_a_world(story)


def test_strict_affinity_keeps_an_address_with_the_node_of_its_block() -> None:
    async def story(rig: Rig) -> None:
        await rig.configure(strictAffinity=True)
        await rig.started("web", "n1", PINNED)
        await rig.delete("web")
        await rig.cluster.until(lambda: not rig.pod("web"))
        await rig.start("other", "n2", PINNED)
        await asyncio.sleep(60)
        assert rig.phase("other") == "Pending"
        assert rig.handles() == {}

    in_a_world(story)


def test_an_address_that_cools_down_is_given_to_nobody_for_so_long() -> None:
    async def story(rig: Rig) -> None:
        await rig.configure(ipCooldownSeconds=100)
        await rig.started("web", "n1", PINNED)
        await rig.delete("web")
        await rig.cluster.until(lambda: not rig.pod("web"))
        freed = rig.world.now
        await rig.start("other", "n2", PINNED)
        await rig.cluster.until(lambda: rig.phase("other") == "Running", timeout=300)
        assert 100 <= rig.world.now - freed < 120

    in_a_world(story)


def test_an_annotation_that_nobody_can_read_keeps_a_pod_from_starting() -> None:
    async def story(rig: Rig) -> None:
        await rig.start("web", "n1", "not an address")
        await asyncio.sleep(60)
        assert rig.phase("web") == "Pending"

    in_a_world(story)
