"""What KubeVirt does about a node whose virt-handler is silent: little, and late."""

import asyncio

from backstay.kube.resource import EVENTS, NODES
from backstay.sim.kubevirt.names import HEARTBEAT, SCHEDULABLE, VMIS
from tests.sim.kubevirt.rig import Rig, in_memory

LONGER_THAN_ANY_TIMER = 900.0


async def schedulable(rig: Rig, node: str) -> str:
    labels = (await rig.client.get(NODES, node)).json()["metadata"]["labels"]
    return str(labels[SCHEDULABLE])


def test_a_silent_node_is_marked_after_five_minutes() -> None:
    async def scenario(rig: Rig) -> None:
        rig.nodes["n1"].kill()
        await asyncio.sleep(170)
        assert await schedulable(rig, "n1") == "true"
        await asyncio.sleep(500)
        assert await schedulable(rig, "n1") == "false"
        assert await schedulable(rig, "n2") == "true"
        reasons = [e["reason"] for e in await rig.listed(EVENTS) if e["source"].get("component")]
        assert reasons.count("NodeUnresponsive") == 1

    in_memory(scenario)


def test_a_vmi_on_a_dead_node_is_left_as_it_is_for_ever() -> None:
    async def scenario(rig: Rig) -> None:
        vmi = await rig.start_vm()
        rig.node_of(vmi).kill()
        await asyncio.sleep(LONGER_THAN_ANY_TIMER)
        left = await rig.read(VMIS)
        assert left["metadata"]["uid"] == vmi["metadata"]["uid"]
        assert left["status"]["phase"] == "Running"
        pod = await rig.launcher()
        assert "deletionTimestamp" in pod["metadata"], "its eviction never ends"

    in_memory(scenario)


def test_a_heart_that_never_beat_is_not_missed() -> None:
    async def scenario(rig: Rig) -> None:
        rig.nodes["n1"].kill()
        without = {"metadata": {"annotations": {HEARTBEAT: None}}}
        await rig.client.merge_patch(NODES, "n1", without)
        await asyncio.sleep(LONGER_THAN_ANY_TIMER)
        assert await schedulable(rig, "n1") == "true"

    in_memory(scenario)


def test_nonsense_for_a_heartbeat_is_no_reason_to_act() -> None:
    async def scenario(rig: Rig) -> None:
        rig.nodes["n1"].kill()
        nonsense = {"metadata": {"annotations": {HEARTBEAT: "yesterday"}}}
        await rig.client.merge_patch(NODES, "n1", nonsense)
        await asyncio.sleep(LONGER_THAN_ANY_TIMER)
        assert await schedulable(rig, "n1") == "true"

    in_memory(scenario)
