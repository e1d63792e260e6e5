"""virt-handler: its heartbeat, and what it does for guests when others cannot."""

import asyncio
from datetime import datetime

from backstay.kube.resource import NODES
from backstay.sim.kubevirt.names import HEARTBEAT, VMIS, VMS
from backstay.sim.kubevirt.vmi_controller import CLAIMS
from tests.sim.kubevirt.rig import Json, Rig, in_memory

BEATS = 5


def beat_of(node: Json) -> datetime:
    return datetime.fromisoformat(node["metadata"]["annotations"][HEARTBEAT])


async def read_beat(rig: Rig, node: str) -> datetime:
    return beat_of((await rig.client.get(NODES, node)).json())


async def next_beat(rig: Rig, node: str, after: datetime) -> datetime:
    return beat_of(await rig.until(NODES, lambda node: beat_of(node) != after, node))


def test_the_heart_beats_every_one_to_two_minutes() -> None:
    async def scenario(rig: Rig) -> None:
        beat = await read_beat(rig, "n1")
        for _ in range(BEATS):
            later = await next_beat(rig, "n1", beat)
            assert 60 <= (later - beat).total_seconds() <= 60 * 2.2 + 1
            beat = later

    in_memory(scenario)


def test_the_heart_beats_on_without_a_kubelet() -> None:
    async def scenario(rig: Rig) -> None:
        rig.nodes["n1"].kill_kubelet()
        beat = await read_beat(rig, "n1")
        assert await next_beat(rig, "n1", beat) > beat

    in_memory(scenario)


def test_a_node_that_is_cut_off_is_not_heard() -> None:
    async def scenario(rig: Rig) -> None:
        rig.nodes["n1"].cut_off()
        beat = await read_beat(rig, "n1")
        await asyncio.sleep(600)
        assert await read_beat(rig, "n1") == beat

    in_memory(scenario)


def test_the_guest_of_a_deleted_vmi_is_ended_without_a_kubelet() -> None:
    """The way to move a guest off a node whose kubelet is dead, without any fencing."""

    async def scenario(rig: Rig) -> None:
        vmi = await rig.start_vm()
        rig.node_of(vmi).kill_kubelet()
        await rig.delete_instance()
        ended = await rig.until(VMIS, lambda vmi: vmi["status"]["phase"] == "Succeeded")
        assert ended["metadata"]["uid"] == vmi["metadata"]["uid"]
        assert rig.copies() == []
        await asyncio.sleep(5)
        assert (await rig.read(VMIS))["metadata"]["uid"] == vmi["metadata"]["uid"], (
            "nobody has ended the pod"
        )

    in_memory(scenario)


def test_a_guest_runs_twice_until_its_node_hears_of_it() -> None:
    async def scenario(rig: Rig) -> None:
        vmi = await rig.start_vm()
        node = rig.node_of(vmi)
        await rig.keep_scheduler_away(node.name)
        node.cut_off()
        await rig.delete_pod(grace=0)
        after = await rig.until_running(after=vmi["metadata"]["uid"])
        assert rig.copies() == sorted([node.name, after["status"]["nodeName"]])
        node.heal()
        await rig.truth.until(lambda: rig.copies() == [after["status"]["nodeName"]], timeout=600)

    in_memory(scenario)


def test_virt_handler_alone_ends_a_guest_that_runs_twice() -> None:
    async def scenario(rig: Rig) -> None:
        vmi = await rig.start_vm()
        node = rig.node_of(vmi)
        node.kill_kubelet()
        await rig.keep_scheduler_away(node.name)
        await rig.delete_pod(grace=0)
        after = await rig.until_running(after=vmi["metadata"]["uid"])
        await rig.truth.until(lambda: rig.copies() == [after["status"]["nodeName"]], timeout=10)

    in_memory(scenario)


def test_a_guest_that_was_lost_with_its_power_has_failed_after_a_reboot() -> None:
    async def scenario(rig: Rig) -> None:
        vmi = await rig.start_vm(run_strategy="Once")
        rig.node_of(vmi).reboot()
        failed = await rig.until(VMIS, lambda vmi: vmi["status"]["phase"] == "Failed")
        phases = [each["phase"] for each in failed["status"]["phaseTransitionTimestamps"]]
        assert phases == ["Scheduling", "Scheduled", "Running", "Failed"]

    in_memory(scenario)


def test_whether_a_vm_can_migrate_is_a_matter_of_its_disks() -> None:
    async def scenario(rig: Rig) -> None:
        for name, modes in (("own", ["ReadWriteOnce"]), ("shared", ["ReadWriteMany"])):
            await create_claim(rig, name, modes)
            await rig.start_vm(name, claims=[name])
        assert await live_migratable(rig, "own") == ("False", "DisksNotLiveMigratable")
        assert await live_migratable(rig, "shared") == ("True", "")

    in_memory(scenario)


async def create_claim(rig: Rig, name: str, modes: list[str]) -> None:
    requests = {"storage": "1Gi"}
    claim: Json = {
        "metadata": {"name": name},
        "spec": {"accessModes": modes, "resources": {"requests": requests}},
    }
    await rig.client.create(CLAIMS, claim, namespace=rig.namespace)


async def live_migratable(rig: Rig, name: str) -> tuple[str, str]:
    vm = await rig.read(VMS, name)
    (found,) = [c for c in vm["status"]["conditions"] if c["type"] == "LiveMigratable"]
    return found["status"], found.get("reason", "")
