"""Volumes follow their pods, and the truth says who can write to them."""

import asyncio

import pytest

from backstay.kube.resource import NODES, Resource
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.timers import Timers
from tests.sim.cluster.stages import CLAIMS, Cast, Json, claim, deleting, play, pod_with_claim

DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
OUT_OF_SERVICE = {
    "key": "node.kubernetes.io/out-of-service",
    "value": "nodeshutdown",
    "effect": "NoExecute",
}


class Storage(Cast):
    """A cluster with one claim, ``disk``."""

    @classmethod
    async def with_disk(cls, cluster: EmbeddedCluster, *, mode: str = "ReadWriteOnce") -> "Storage":
        storage = cls(cluster)
        await storage.create(claim("disk", mode=mode), CLAIMS)
        await storage.until(lambda: storage.bound)
        return storage

    @property
    def bound(self) -> bool:
        return [c["status"]["phase"] for c in self.all("persistentvolumeclaims")] == ["Bound"]

    @property
    def volume(self) -> str:
        (found,) = self.all("persistentvolumes")
        return str(found["metadata"]["name"])

    @property
    def writers(self) -> list[str]:
        return sorted(each.node for each in self.cluster.truth.writers(self.volume))

    @property
    def attachments(self) -> dict[str, Json]:
        found = self.all("volumeattachments.storage.k8s.io")
        return {each["spec"]["nodeName"]: each for each in found}

    @property
    def complaints(self) -> list[str]:
        return [e["message"] for e in self.all("events") if e["reason"] == "FailedAttachVolume"]

    async def run_on(self, node: str, name: str = "web") -> None:
        await self.create(pod_with_claim("disk", name, nodeName=node))
        await self.runs(name, on=node)

    async def put_out_of_service(self, node: str) -> None:
        taints = [*self.node(node)["spec"].get("taints", ()), OUT_OF_SERVICE]
        await self.client.merge_patch(NODES, node, {"spec": {"taints": taints}})


def test_a_pod_starts_only_once_its_volume_is_attached_to_its_node() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        storage = await Storage.with_disk(cluster)
        cluster.control_plane.kill("csi-attacher")
        await storage.create(pod_with_claim("disk", nodeName="n1"))
        await asyncio.sleep(300)
        assert storage.attachments["n1"]["status"]["attached"] is False
        assert (storage.copies(), storage.writers) == ([], [])
        cluster.control_plane.start("csi-attacher")
        await storage.until(lambda: bool(storage.copies()), 200)
        assert storage.writers == ["n1"]

    play(scenario)


def test_a_volume_that_is_in_use_is_said_to_be_before_it_is_used_and_until_it_is_not() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        storage = await Storage.with_disk(cluster)
        await storage.run_on("n1")
        status = storage.node("n1")["status"]
        assert status["volumesInUse"] == [v["name"] for v in status["volumesAttached"]]
        assert status["volumesInUse"] == [f"kubernetes.io/csi/csi.example^{storage.volume}"]
        await storage.delete("web")
        await storage.until(lambda: not storage.attachments)
        status = storage.node("n1")["status"]
        assert not status.get("volumesInUse")
        assert not status.get("volumesAttached")

    play(scenario)


def test_a_volume_for_one_node_is_not_attached_to_a_second_one_until_the_first_lets_go() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        storage = await Storage.with_disk(cluster)
        await storage.run_on("n1")
        await storage.create(pod_with_claim("disk", "second", nodeName="n2"))
        await asyncio.sleep(60)
        assert list(storage.attachments) == ["n1"]
        assert storage.complaints == [
            f'Multi-Attach error for volume "{storage.volume}" Volume is already exclusively '
            "attached to one node and can't be attached to another"
        ]
        await storage.delete("web")
        await storage.until(lambda: storage.copies("second") == ["n2"], 200)
        assert storage.writers == ["n2"]

    play(scenario)


def test_a_volume_for_many_nodes_is_attached_to_all_that_need_it() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        storage = await Storage.with_disk(cluster, mode="ReadWriteMany")
        await storage.run_on("n1")
        await storage.run_on("n2", "second")
        assert storage.writers == ["n1", "n2"]

    play(scenario)


def test_a_driver_that_needs_no_attaching_gets_none() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        storage = await Storage.with_disk(cluster)
        driver = {"metadata": {"name": "csi.example"}, "spec": {"attachRequired": False}}
        await storage.create(driver, DRIVERS)
        await storage.run_on("n1")
        assert storage.attachments == {}
        assert storage.writers == ["n1"]

    play(scenario)


def test_a_claim_that_is_only_read_makes_no_writer() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        storage = await Storage.with_disk(cluster)
        body = pod_with_claim("disk", nodeName="n1")
        body["spec"]["volumes"][0]["persistentVolumeClaim"]["readOnly"] = True
        await storage.create(body)
        await storage.runs(on="n1")
        assert storage.writers == []

    play(scenario)


@pytest.mark.parametrize("alive", [False, True])
def test_a_silent_node_has_its_volume_taken_by_force_after_six_minutes(*, alive: bool) -> None:
    """Whether or not something still writes there: that is what makes it dangerous."""

    async def scenario(cluster: EmbeddedCluster) -> tuple[float, list[str]]:
        storage = await Storage.with_disk(cluster)
        await storage.run_on("n1")
        node = cluster.nodes["n1"]
        node.cut_off() if alive else node.kill()
        await storage.given_up("n1")
        await storage.delete("web", grace=0)
        since = storage.now
        await storage.create(pod_with_claim("disk", nodeName="n2"))
        await storage.until(lambda: deleting(storage.attachments["n1"]), 400)
        forced = storage.now - since
        await storage.until(lambda: "n2" in storage.copies(), 200)
        return forced, storage.writers

    forced, writers = play(scenario)
    assert forced == pytest.approx(360, abs=0.5)
    assert writers == (["n1", "n2"] if alive else ["n2"])


def test_a_pod_that_hangs_terminating_on_a_silent_node_keeps_its_volume_there() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        storage = await Storage.with_disk(cluster)
        await storage.run_on("n1")
        await storage.ready()
        cluster.nodes["n1"].kill()
        await storage.given_up("n1")
        await storage.delete("web")
        await asyncio.sleep(1000)
        assert deleting(storage.pod())
        assert not deleting(storage.attachments["n1"])

    play(scenario)


def test_storage_that_refuses_a_node_from_which_it_was_detached_leaves_one_writer() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        storage = await Storage.with_disk(cluster)
        await storage.run_on("n1")
        cluster.nodes["n1"].cut_off()
        await storage.given_up("n1")
        await storage.delete("web", grace=0)
        await storage.create(pod_with_claim("disk", nodeName="n2"))
        await storage.until(lambda: "n2" in storage.copies(), 600)
        assert storage.copies() == ["n1", "n2"]
        assert storage.writers == ["n2"]

    play(scenario, detach_revokes=True)


def test_a_node_that_is_ready_keeps_a_volume_that_it_has_in_use_for_as_long_as_it_likes() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        storage = await Storage.with_disk(cluster)
        await storage.run_on("n1")
        await storage.delete("web", grace=0)
        # Its containers take an hour to stop.
        await asyncio.sleep(1000)
        assert not deleting(storage.attachments["n1"])
        assert storage.writers == ["n1"]

    play(scenario, timers=Timers(stop=3600.0, second=3600.0))


def test_a_node_that_is_out_of_service_loses_its_volumes_at_once() -> None:
    async def scenario(cluster: EmbeddedCluster) -> float:
        storage = await Storage.with_disk(cluster)
        await storage.run_on("n1")
        cluster.nodes["n1"].kill()
        await storage.given_up("n1")
        await storage.delete("web", grace=0)
        await asyncio.sleep(30)
        assert not deleting(storage.attachments["n1"])
        since = storage.now
        await storage.put_out_of_service("n1")
        await storage.until(lambda: not storage.attachments)
        return storage.now - since

    assert play(scenario) < 1


def test_a_claim_in_use_outlives_its_deletion_until_its_pod_is_gone() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        storage = await Storage.with_disk(cluster)
        await storage.run_on("n1")
        await storage.delete("disk", CLAIMS)
        await asyncio.sleep(10)
        assert deleting(storage.get("persistentvolumeclaims", "disk"))
        await storage.delete("web")
        await storage.until(lambda: not storage.all("persistentvolumeclaims"))
        await storage.until(lambda: not storage.all("persistentvolumes"))

    play(scenario)
