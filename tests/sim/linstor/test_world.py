"""LINSTOR's volumes in an embedded cluster: kubelets that open devices, nodes that die."""

import asyncio

import msgspec
import pytest

from backstay.kube.resource import PODS
from backstay.seam.errors import SeamError
from backstay.seam.transport import Request
from backstay.sim.linstor.replicas import Kind, Role
from backstay.sim.linstor.storage import URL
from tests.sim.linstor.cluster_rig import Rig, play


def test_a_pod_opens_its_device_where_it_runs_and_closes_it_when_it_ends() -> None:
    async def story(rig: Rig) -> None:
        await rig.run_database()
        assert rig.writers == ["n1"]
        attachment = rig.attached()["n1"]
        finalizers = attachment["metadata"]["finalizers"]
        assert finalizers == ["external-attacher/linstor-csi-linbit-com"]
        await rig.keep_out("n1")
        rig.prefer("n2")
        await rig.client.delete(PODS, "db-0", namespace="default")
        await rig.until(lambda: rig.copies == ["n2"])
        assert rig.writers == ["n2"]
        assert rig.most_writers == 1

    play(story)


def test_a_pod_moves_when_its_node_dies_and_its_attachment_is_deleted() -> None:
    async def story(rig: Rig) -> None:
        await rig.run_database()
        rig.nodes["n1"].kill()
        assert rig.writers == []
        await rig.keep_out("n1")
        await rig.release("n1")
        await rig.until(lambda: rig.copies != [])
        assert rig.writers == rig.copies
        assert rig.copies != ["n1"]
        assert rig.most_writers == 1

    play(story)


def test_a_pod_does_not_start_while_the_old_primary_is_still_connected() -> None:
    """Only its kubelet is dead. The volume is taken from the node, and DRBD keeps it there."""

    async def story(rig: Rig) -> None:
        await rig.run_database()
        rig.nodes["n1"].kill_kubelet()
        await rig.keep_out("n1")
        await rig.release("n1")
        await rig.until(lambda: list(rig.attached()) in (["n2"], ["n3"]))
        await asyncio.sleep(120)
        assert rig.copies == ["n1"]
        assert rig.writers == ["n1"]
        rig.nodes["n1"].kill()
        await rig.until(lambda: rig.copies not in ([], ["n1"]))
        assert rig.most_writers == 1

    play(story)


def test_a_node_that_is_cut_off_cannot_write_and_learns_what_it_has_missed() -> None:
    async def story(rig: Rig) -> None:
        await rig.run_database()
        rig.nodes["n1"].cut_off()
        assert rig.writers == []
        await rig.keep_out("n1")
        await rig.release("n1")
        await rig.until(lambda: len(rig.copies) == 2)
        assert rig.writers == [next(node for node in rig.copies if node != "n1")]
        rig.nodes["n1"].heal()
        await rig.until(lambda: len(rig.copies) == 1)
        assert rig.writers == rig.copies
        assert rig.turns("n1") == ["admitted", "barred"]
        assert rig.most_writers == 1

    play(story)


def test_a_pod_whose_writes_are_suspended_cannot_be_ended_until_they_fail() -> None:
    """Its node is heard again, but its links for DRBD are still cut."""

    async def story(rig: Rig) -> None:
        await rig.run_database()
        for peer in ("n2", "n3"):
            rig.linstor.drbd.cut("n1", peer)
        rig.nodes["n1"].cut_off()
        await rig.keep_out("n1")
        await rig.release("n1")
        await rig.until(lambda: len(rig.copies) == 2)
        rig.nodes["n1"].heal()
        await asyncio.sleep(60)
        assert len(rig.copies) == 2
        assert len(rig.writers) == 1
        for peer in ("n2", "n3"):
            rig.linstor.drbd.mend("n1", peer)
        await rig.until(lambda: len(rig.copies) == 1)
        assert rig.writers == rig.copies
        assert rig.most_writers == 1

    play(story)


def test_without_quorum_a_node_that_is_cut_off_writes_on() -> None:
    async def story(rig: Rig) -> None:
        await rig.run_database()
        rig.nodes["n1"].cut_off()
        await rig.keep_out("n1")
        await rig.release("n1")
        await rig.until(lambda: len(rig.copies) == 2)
        await asyncio.sleep(30)
        assert len(rig.writers) == 2

    play(story, quorum="off")


def test_a_node_that_was_rebooted_opens_its_devices_anew() -> None:
    async def story(rig: Rig) -> None:
        await rig.run_database()
        rig.nodes["n1"].reboot()
        assert rig.writers == []
        await rig.until(lambda: rig.writers == ["n1"])

    play(story)


def test_a_frozen_node_writes_on() -> None:
    """DRBD is in the kernel."""

    async def story(rig: Rig) -> None:
        await rig.run_database()
        rig.nodes["n1"].freeze()
        await asyncio.sleep(60)
        assert rig.writers == ["n1"]

    play(story)


def test_a_volume_is_given_a_diskless_replica_where_it_has_none_and_it_goes_again() -> None:
    replicas = {"n2": Kind.DISKFUL, "n3": Kind.DISKFUL}

    async def story(rig: Rig) -> None:
        await rig.run_database(on="n1")
        assert rig.replicas == {"n2": "diskful", "n3": "diskful", "n1": "diskless"}
        assert rig.writers == ["n1"]
        await rig.keep_out("n1")
        rig.prefer("n2")
        await rig.client.delete(PODS, "db-0", namespace="default")
        await rig.until(lambda: rig.copies == ["n2"])
        assert rig.replicas == {"n2": "diskful", "n3": "diskful"}

    play(story, replicas=replicas)


def test_a_tie_breaker_is_a_diskless_replica_while_it_is_used() -> None:
    replicas = {"n1": Kind.TIE_BREAKER, "n2": Kind.DISKFUL, "n3": Kind.DISKFUL}

    async def story(rig: Rig) -> None:
        await rig.run_database(on="n1")
        assert rig.replicas["n1"] == "diskless"
        assert rig.writers == ["n1"]
        await rig.keep_out("n1")
        rig.prefer("n2")
        await rig.client.delete(PODS, "db-0", namespace="default")
        await rig.until(lambda: rig.copies == ["n2"])
        assert rig.replicas["n1"] == "tie-breaker"

    play(story, replicas=replicas)


def test_nothing_is_attached_while_linstors_controller_is_away() -> None:
    async def story(rig: Rig) -> None:
        await rig.run_database()
        rig.nodes["n3"].kill()
        await rig.keep_out("n1")
        await rig.keep_out("n3")
        rig.prefer("n2")
        await rig.client.delete(PODS, "db-0", namespace="default")
        await asyncio.sleep(30)
        assert rig.copies == []
        # After five minutes Kubernetes replaces its pod, and what it knew is still there.
        await rig.until(lambda: rig.copies == ["n2"], timeout=600)
        assert rig.linstor.host == "n2"

    play(story)


async def states(rig: Rig) -> dict[str, bool | None]:
    """Who is said to use the volume, by whoever serves LINSTOR at its address."""
    url = f"{URL}/v1/resource-definitions/{rig.volume}/resources"
    request = Request(method="GET", url=url, timeout=5)
    answer = await rig.world.network.transport.request(request)
    return {
        each["node_name"]: each.get("state", {}).get("in_use")
        for each in msgspec.json.decode(answer.body)
    }


def test_linstor_answers_under_one_address_wherever_its_controller_runs() -> None:
    async def story(rig: Rig) -> None:
        await rig.run_database()
        await asyncio.sleep(5)
        assert await states(rig) == {"n1": True, "n2": False, "n3": False}
        rig.nodes["n3"].cut_off()
        await asyncio.sleep(1)
        with pytest.raises(SeamError):
            await states(rig)
        await rig.until(lambda: not rig.served_by("n3") and rig.linstor.is_served, timeout=600)
        await asyncio.sleep(5)
        assert await states(rig) == {"n1": True, "n2": False, "n3": None}
        host = rig.linstor.host
        rig.nodes["n3"].heal()
        await asyncio.sleep(60)
        assert rig.served_by(host)
        assert await states(rig) == {"n1": True, "n2": False, "n3": False}

    play(story)


def test_a_link_between_two_nodes_can_be_cut_for_drbd_alone() -> None:
    async def story(rig: Rig) -> None:
        await rig.run_database()
        rig.linstor.drbd.cut("n1", "n2")
        await asyncio.sleep(60)
        assert rig.writers == ["n1"]
        resource = rig.linstor.drbd.resources[rig.volume]
        assert resource["n1"].role is Role.PRIMARY
        assert resource.may_promote("n2"), "which it says, and yet it could not"

    play(story)


def test_the_same_seed_gives_the_same_story() -> None:
    async def story(rig: Rig) -> None:
        await rig.run_database()
        rig.nodes["n1"].cut_off()
        await asyncio.sleep(60)
        stories.append([(each.at, each.node, each.what) for each in rig.cluster.truth.log])

    stories: list[object] = []
    play(story)
    play(story)
    assert stories[0] == stories[1]
    play(story, seed=4)
    assert stories[2] != stories[0]
