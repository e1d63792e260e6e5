"""Volumes that are plugged into a guest while it runs, and the pods that bring them."""

import asyncio

from backstay.kube.resource import PODS
from backstay.sim.kubevirt.names import MIGRATIONS, VMIS
from tests.sim.kubevirt.rig import Json, Rig, in_memory

PLUGGED = "kubevirt.io=hotplug-disk"


async def start(rig: Rig) -> Json:
    """A VM with a disk and a plugged one, when the guest has both."""
    await rig.create_claim("disk")
    await rig.create_claim("extra")
    await rig.start_vm(claims=["disk"], hotplug=["extra"])
    return await rig.until(VMIS, has_extra)


def has_extra(vmi: Json) -> bool:
    volumes = (vmi.get("status") or {}).get("volumeStatus") or ()
    return any(each["name"] == "extra" and each.get("phase") == "Ready" for each in volumes)


async def attachment(rig: Rig) -> Json:
    (pod,) = await rig.listed(PODS, PLUGGED)
    return pod


def writes(rig: Rig) -> dict[str, int]:
    """How many volumes the launchers can write to, by their nodes."""
    return {
        run.node: len(run.volumes)
        for run in rig.truth.running()
        if any(run in rig.truth.writers(volume) for volume in run.volumes)
    }


def test_a_plugged_volume_comes_with_a_pod_of_its_own() -> None:
    async def scenario(rig: Rig) -> None:
        vmi = await start(rig)
        pod, launcher = await attachment(rig), await rig.launcher()
        assert pod["metadata"]["name"].startswith("hp-volume-")
        (owner,) = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Pod", launcher["metadata"]["uid"])
        assert pod["spec"]["nodeName"] == vmi["status"]["nodeName"]
        assert [each["name"] for each in launcher["spec"]["volumes"]] == ["disk"]
        assert pod["metadata"]["uid"] not in vmi["status"]["activePods"]

    in_memory(scenario)


def test_it_is_the_guest_that_writes_to_it() -> None:
    async def scenario(rig: Rig) -> None:
        vmi = await start(rig)
        assert writes(rig) == {vmi["status"]["nodeName"]: 2}
        idle = next(r for r in rig.truth.running() if r.name.startswith("hp-volume-"))
        assert rig.truth.is_held_back(idle.node, idle.uid)

    in_memory(scenario)


def test_a_pod_with_plugged_volumes_is_gone_as_soon_as_somebody_asks() -> None:
    """It has no grace period, so even a gentle deletion takes it off the API at once."""

    async def scenario(rig: Rig) -> None:
        vmi = await start(rig)
        rig.node_of(vmi).kill()
        name = (await attachment(rig))["metadata"]["name"]
        await rig.client.delete(PODS, name, namespace=rig.namespace)
        await rig.until_none(PODS, name)

    in_memory(scenario)


def test_a_guest_that_lost_its_attachment_gets_another() -> None:
    async def scenario(rig: Rig) -> None:
        await start(rig)
        old = (await attachment(rig))["metadata"]
        await rig.client.delete(PODS, old["name"], namespace=rig.namespace)
        await rig.until_none(PODS, old["name"])
        await rig.truth.until(
            lambda: any(
                run.name.startswith("hp-volume-") and run.uid != old["uid"]
                for run in rig.truth.running()
            ),
            timeout=60,
        )

    in_memory(scenario)


def test_a_dead_nodes_attachment_goes_with_its_launcher() -> None:
    async def scenario(rig: Rig) -> None:
        before = await start(rig)
        old = (await attachment(rig))["metadata"]["name"]
        await rig.keep_scheduler_away(before["status"]["nodeName"])
        rig.node_of(before).kill()
        await rig.delete_pod(grace=0)
        await rig.until_none(PODS, old)
        uid = before["metadata"]["uid"]
        after = await rig.until(VMIS, lambda vmi: vmi["metadata"]["uid"] != uid and has_extra(vmi))
        assert writes(rig) == {after["status"]["nodeName"]: 2}

    in_memory(scenario)


def test_plugged_volumes_move_with_their_guest() -> None:
    async def scenario(rig: Rig) -> None:
        before = await start(rig)
        move = await rig.migrate()
        await rig.until(
            MIGRATIONS, lambda each: (each.get("status") or {}).get("phase") == "Succeeded", move
        )
        await asyncio.sleep(5)
        after = await rig.read(VMIS)
        assert after["status"]["nodeName"] != before["status"]["nodeName"]
        assert has_extra(after)
        assert writes(rig) == {after["status"]["nodeName"]: 2}

    in_memory(scenario)
