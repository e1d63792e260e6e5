"""Nobody but KubeVirt says how a guest is: virt-api puts back what others write."""

from backstay.sim.kubevirt.names import VMIS
from tests.sim.kubevirt.rig import VM, Rig, in_memory

DEAD = {"status": {"phase": "Failed"}}


def test_a_status_that_somebody_else_writes_is_put_back_without_a_word() -> None:
    async def scenario(rig: Rig) -> None:
        before = await rig.start_vm()
        reply = await rig.client.merge_patch(VMIS, VM, DEAD, namespace=rig.namespace)
        assert reply.json()["status"]["phase"] == "Running"
        after = await rig.read(VMIS)
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]

    in_memory(scenario)


def test_a_replacement_keeps_the_status_and_changes_the_rest() -> None:
    async def scenario(rig: Rig) -> None:
        before = await rig.start_vm()
        meta = {**before["metadata"], "annotations": {"note": "hello"}}
        sent = {**before, **DEAD, "metadata": meta}
        await rig.client.replace(VMIS, VM, sent, namespace=rig.namespace)
        after = await rig.read(VMIS)
        assert after["status"] == before["status"]
        assert after["metadata"]["annotations"]["note"] == "hello"

    in_memory(scenario)


def test_a_status_that_is_taken_away_is_put_back() -> None:
    async def scenario(rig: Rig) -> None:
        before = await rig.start_vm()
        nothing = {"status": None}
        await rig.client.merge_patch(VMIS, VM, nothing, namespace=rig.namespace)
        assert (await rig.read(VMIS))["status"] == before["status"]

    in_memory(scenario)


def test_kubevirt_itself_goes_on_writing_it() -> None:
    async def scenario(rig: Rig) -> None:
        vmi = await rig.start_vm()
        await rig.keep_scheduler_away(vmi["status"]["nodeName"])
        rig.node_of(vmi).kill()
        await rig.delete_pod(grace=0)
        await rig.until_running(after=vmi["metadata"]["uid"])

    in_memory(scenario)
