"""Start, stop and restart, for each run strategy."""

import pytest

from backstay.kube.calls import write
from backstay.kube.errors import Conflict, NotFound, TooManyRequests
from backstay.sim.kubevirt.names import VMIS, VMS
from tests.sim.kubevirt.rig import VM, Json, Rig, in_memory


async def put(rig: Rig, verb: str) -> None:
    vms = f"/apis/subresources.kubevirt.io/v1/namespaces/{rig.namespace}/virtualmachines"
    await rig.client.send(write("PUT", VMS, f"{vms}/{VM}/{verb}", {}))


async def refused(rig: Rig, verb: str) -> str:
    with pytest.raises(Conflict) as caught:
        await put(rig, verb)
    return str(caught.value)


async def stopped(rig: Rig) -> Json:
    await rig.until_none(VMIS)
    return await rig.until(VMS, lambda vm: vm["status"]["printableStatus"] == "Stopped")


def test_a_manual_vm_runs_when_it_is_started_and_until_it_is_stopped() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_vm(run_strategy="Manual")
        await put(rig, "start")
        await rig.until_running()
        assert "already running" in await refused(rig, "start")
        await put(rig, "stop")
        vm = await stopped(rig)
        assert vm["spec"]["runStrategy"] == "Manual"
        assert "not running" in await refused(rig, "stop")

    in_memory(scenario)


def test_a_halted_vm_becomes_always_when_it_is_started() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_vm(run_strategy="Halted")
        assert "does not support manual restart" in await refused(rig, "restart")
        await put(rig, "start")
        await rig.until_running()
        assert (await rig.read(VMS))["spec"]["runStrategy"] == "Always"

    in_memory(scenario)


@pytest.mark.parametrize("strategy", ["Always", "Once"])
def test_what_always_runs_becomes_halted_when_it_is_stopped(strategy: str) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start_vm(run_strategy=strategy)
        await put(rig, "stop")
        vm = await stopped(rig)
        assert vm["spec"]["runStrategy"] == "Halted"
        assert rig.copies() == []

    in_memory(scenario)


@pytest.mark.parametrize("strategy", ["Always", "RerunOnFailure"])
def test_a_restart_makes_a_new_vmi(strategy: str) -> None:
    async def scenario(rig: Rig) -> None:
        before = await rig.start_vm(run_strategy=strategy)
        await put(rig, "restart")
        await rig.until_running(after=before["metadata"]["uid"])
        assert "stateChangeRequests" not in (await rig.read(VMS))["status"]

    in_memory(scenario)


def test_what_reruns_on_failure_cannot_be_started_while_it_has_failed() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start_vm(run_strategy="RerunOnFailure")
        assert rig.cluster is not None
        # Nobody clears the failed VMI away.
        rig.cluster.control_plane.kill("virt-controller")
        await rig.end_guest(code=1)
        await rig.until(VMIS, lambda vmi: vmi["status"]["phase"] == "Failed")
        assert "from failed state" in await refused(rig, "start")

    in_memory(scenario)


def test_the_old_way_to_say_it_works_too() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_vm(run_strategy="Halted")
        await rig.change_vm({"spec": {"runStrategy": None, "running": True}})
        await rig.until_running()
        await put(rig, "stop")
        vm = await stopped(rig)
        assert vm["spec"]["running"] is False

    in_memory(scenario)


def test_what_nobody_serves_is_not_there() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_vm(run_strategy="Halted")
        with pytest.raises(NotFound):
            await put(rig, "explode")

    in_memory(scenario)


def test_a_guest_that_was_to_leave_forgets_it_when_that_is_cancelled() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start_vm(eviction_strategy="External")
        name = (await rig.launcher())["metadata"]["name"]
        with pytest.raises(TooManyRequests):
            await rig.client.evict(name, namespace=rig.namespace)
        assert (await rig.read(VMIS))["status"]["evacuationNodeName"]
        path = f"/apis/subresources.kubevirt.io/v1/namespaces/{rig.namespace}"
        guest = f"{path}/virtualmachineinstances/{VM}/evacuate/cancel"
        await rig.client.send(write("PUT", VMIS, guest, {}))
        assert "evacuationNodeName" not in (await rig.read(VMIS))["status"]

    in_memory(scenario)
