"""Guests that live on although the kubelet of their node has died, while virt-handler has not. It
runs against any ``Rig``.

What the move of such guests rests on: KubeVirt migrates away from a node that is not ready, and a
request to restart ends a guest there before anything takes its pod away, whatever its strategy.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from backstay.kube.resource import NODES
from backstay.sim.kubevirt.names import FINAL, VMIS
from tests.sim.kubevirt.rig import VM, Json, Rig


async def without_kubelet(rig: Rig, run_strategy: str) -> Json:
    """A guest on a node that Kubernetes takes for dead; its VMI."""
    await rig.create_vm(run_strategy=run_strategy)
    if run_strategy == "Manual":
        await rig.ask_for_start()
    vmi = await rig.until_running()
    node = rig.node_of(vmi)
    node.kill_kubelet()
    await rig.until(NODES, _is_unknown, node.name)
    return vmi


def _is_unknown(node: Json) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Ready", "Unknown") for each in conditions)


async def guest_is_migrated_away(rig: Rig) -> None:
    vmi = await without_kubelet(rig, "Always")
    before = vmi["status"]["nodeName"]
    await rig.migrate()
    moved = await rig.until(VMIS, lambda each: each["status"]["nodeName"] != before)
    assert moved["metadata"]["uid"] == vmi["metadata"]["uid"], "it was never stopped"
    state = moved["status"]["migrationState"]
    assert state["completed"]
    assert not state.get("failed")


def restarted(run_strategy: str) -> Callable[[Rig], Coroutine[Any, Any, None]]:
    async def guest_ends_before_its_pod_goes(rig: Rig) -> None:
        vmi = await without_kubelet(rig, run_strategy)
        pod = await rig.launcher()
        # This is what virt-api makes of a request to restart.
        await rig.ask_for_start(vmi)
        await rig.until(VMIS, lambda each: each["status"]["phase"] in FINAL)
        assert rig.copies() == [], "virt-handler has ended it"
        await asyncio.sleep(1)
        left = await rig.read(VMIS)
        assert left["metadata"]["uid"] == vmi["metadata"]["uid"], "it waits for its pod"
        assert left["status"]["activePods"] == {
            pod["metadata"]["uid"]: vmi["status"]["nodeName"]
        }, "by which its launcher is known"
        await rig.keep_scheduler_away(vmi["status"]["nodeName"])
        await rig.remove_pod(pod["metadata"]["name"])
        again = await rig.until_running(after=vmi["metadata"]["uid"])
        assert again["status"]["nodeName"] != vmi["status"]["nodeName"]

    guest_ends_before_its_pod_goes.__name__ = f"a_restart_of_{run_strategy}"
    return guest_ends_before_its_pod_goes


async def once_runs_once_more_when_its_instance_is_deleted(rig: Rig) -> None:
    """KubeVirt refuses to start it; this is what remains for its owner."""
    await rig.start_vm(run_strategy="Once")
    vmi = await rig.read(VMIS)
    await rig.keep_scheduler_away(vmi["status"]["nodeName"])
    rig.node_of(vmi).kill()
    await rig.delete_pod(grace=0)
    await rig.until(VMIS, lambda each: each["status"]["phase"] == "Failed")
    await rig.delete_instance()
    await rig.until_running(VM, after=vmi["metadata"]["uid"])


KUBELET_CASES = (
    guest_is_migrated_away,
    *map(restarted, ("Always", "RerunOnFailure", "Manual")),
    once_runs_once_more_when_its_instance_is_deleted,
)
