"""The VM and VMI controllers beyond the recorded timelines."""

import asyncio

import pytest

from backstay.kube.errors import NotFound
from backstay.kube.resource import EVENTS, PODS
from backstay.sim.kubevirt.names import VMIS, VMS
from backstay.sim.kubevirt.vm_status import start_failure
from backstay.sim.kubevirt.vmi_controller import CLAIMS
from tests.sim.kubevirt.rig import CONTROLLER, HANDLER, VM, Json, Rig, in_memory
from tests.support.dice import HIGHEST, LOWEST

NOW = "2030-01-01T00:00:00Z"


async def word(rig: Rig, wanted: str) -> None:
    await rig.until(VMS, lambda vm: (vm.get("status") or {}).get("printableStatus") == wanted)


def test_a_launcher_says_whose_it_is_and_how_long_it_may_take() -> None:
    async def scenario(rig: Rig) -> None:
        vmi = await rig.start_vm(grace=10)
        await rig.until(
            PODS,
            lambda pod: "kubevirt.io/nodeName" in pod["metadata"]["labels"],
            (await rig.launcher())["metadata"]["name"],
        )
        pod = await rig.launcher()
        meta, spec = pod["metadata"], pod["spec"]
        assert meta["labels"] == {
            "kubevirt.io": "virt-launcher",
            "kubevirt.io/created-by": vmi["metadata"]["uid"],
            "kubevirt.io/nodeName": vmi["status"]["nodeName"],
            "vm.kubevirt.io/name": VM,
            "vmi.kubevirt.io/id": VM,
        }
        assert meta["annotations"]["kubevirt.io/domain"] == VM
        (owner,) = meta["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == (VMIS.kind, vmi["metadata"]["uid"])
        assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Never", 40)
        assert [each["name"] for each in spec["containers"]] == ["compute"]
        assert vmi["status"]["activePods"] == {meta["uid"]: vmi["status"]["nodeName"]}

    in_memory(scenario)


def test_a_launcher_that_loses_the_label_of_its_node_is_given_it_again() -> None:
    async def scenario(rig: Rig) -> None:
        vmi = await rig.start_vm()
        name = (await rig.launcher())["metadata"]["name"]

        def is_labelled(pod: Json) -> bool:
            node = pod["metadata"]["labels"].get("kubevirt.io/nodeName")
            return bool(node == vmi["status"]["nodeName"])

        await rig.until(PODS, is_labelled, name)
        lost = {"metadata": {"labels": {"kubevirt.io/nodeName": None}}}
        await rig.client.merge_patch(PODS, name, lost, namespace=rig.namespace)
        await rig.until(PODS, is_labelled, name)

    in_memory(scenario)


def test_a_vm_says_that_its_guest_was_paused_while_it_ran() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start_vm()
        paused = {"type": "Paused", "status": "True", "reason": "PausedByUser"}
        step = {"op": "add", "path": "/status/conditions/-", "value": paused}
        assert rig.cluster is not None
        # The status of a VMI is KubeVirt's own.
        handler = rig.cluster.client(HANDLER)
        await handler.json_patch(VMIS, VM, [step], namespace=rig.namespace)
        await word(rig, "Paused")

    in_memory(scenario)


def test_what_somebody_else_says_of_a_vm_is_put_right() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start_vm()
        await rig.change_vm({"status": {"printableStatus": "Stopped"}}, "status")
        await word(rig, "Running")

    in_memory(scenario)


def test_a_vm_waits_for_its_claims() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_vm(claims=["disk"])
        await word(rig, "ErrorPvcNotFound")
        claim = {
            "metadata": {"name": "disk"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        await rig.client.create(CLAIMS, claim, namespace=rig.namespace)
        await rig.until_running()
        (volume,) = (await rig.launcher())["spec"]["volumes"]
        assert volume == {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}

    in_memory(scenario)


def test_a_vm_that_fits_nowhere_says_so() -> None:
    async def scenario(rig: Rig) -> None:
        for node in rig.nodes:
            await rig.keep_scheduler_away(node)
        await rig.create_vm()
        await word(rig, "ErrorUnschedulable")
        await rig.let_scheduler_in("n2")
        assert (await rig.until_running())["status"]["nodeName"] == "n2"

    in_memory(scenario)


def test_a_vmi_without_a_vm_is_not_made_again() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_vm(run_strategy="Halted")
        template = (await rig.read(VMS))["spec"]["template"]
        vmi = {"metadata": {"name": "alone"}, "spec": template["spec"]}
        await rig.client.create(VMIS, vmi, namespace=rig.namespace)
        await rig.until(VMIS, lambda vmi: vmi.get("status", {}).get("phase") == "Running", "alone")
        await rig.delete_pod(grace=0)
        failed = await rig.until(VMIS, lambda vmi: not vmi["metadata"].get("finalizers"), "alone")
        assert failed["status"]["phase"] == "Failed"
        await asyncio.sleep(60)
        assert await rig.listed(PODS) == []

    in_memory(scenario)


def test_a_vm_controller_that_was_away_catches_up() -> None:
    async def scenario(rig: Rig) -> None:
        before = await rig.start_vm()
        assert rig.cluster is not None
        await rig.keep_scheduler_away(rig.node_of(before).name)
        rig.node_of(before).kill()
        rig.cluster.control_plane.kill(CONTROLLER)
        await rig.delete_pod(grace=0)
        await asyncio.sleep(60)
        assert (await rig.read(VMIS))["status"]["phase"] == "Running"
        rig.cluster.control_plane.start(CONTROLLER)
        await rig.until_running(after=before["metadata"]["uid"])

    in_memory(scenario)


def test_many_vms_come_back_at_once() -> None:
    async def scenario(rig: Rig) -> None:
        names = [f"vm{number}" for number in range(10)]
        for name in names:
            await rig.create_vm(name)
        for name in names:
            await rig.until_running(name)
        for pod in await rig.listed(PODS):
            await rig.client.delete(
                PODS,
                pod["metadata"]["name"],
                namespace=rig.namespace,
                conditions={"grace": 0},
            )
        began = asyncio.get_running_loop().time()
        for name in names:
            await rig.until(
                VMIS,
                lambda vmi: (
                    (vmi.get("status") or {}).get("phase") == "Running"
                    and "deletionTimestamp" not in vmi["metadata"]
                ),
                name,
            )
        assert asyncio.get_running_loop().time() - began < 5, "no timer has a part in it"

    in_memory(scenario)


def test_a_start_waits_ever_longer_up_to_five_minutes() -> None:
    vm: Json = {"spec": {"runStrategy": "Always"}, "status": {}}
    waits = []
    for number in range(7):
        vmi = {"metadata": {"uid": str(number)}, "status": {"phase": "Failed"}}
        failure = start_failure(vm, vmi, NOW, LOWEST)
        assert failure is not None
        assert failure["consecutiveFailCount"] == number + 1
        waits.append(failure["retryAfterTimestamp"][14:19])
        vm = {**vm, "status": {"startFailure": failure}}
    assert waits == ["00:10", "00:40", "01:30", "02:40", "04:10", "05:00", "05:00"]


def test_a_start_waits_up_to_half_as_long_again() -> None:
    vmi = {"metadata": {"uid": "1"}, "status": {"phase": "Failed"}}
    failure = start_failure({"spec": {"runStrategy": "Always"}}, vmi, NOW, HIGHEST)
    assert failure is not None
    assert failure["retryAfterTimestamp"] == "2030-01-01T00:00:15Z"


@pytest.mark.parametrize("strategy", ["Manual", "Halted"])
def test_what_is_not_started_again_need_not_wait(strategy: str) -> None:
    vmi = {"metadata": {"uid": "1"}, "status": {"phase": "Failed"}}
    assert start_failure({"spec": {"runStrategy": strategy}}, vmi, NOW, LOWEST) is None


def test_a_deleted_vm_on_a_dead_node_hangs_until_its_pod_is_gone() -> None:
    async def scenario(rig: Rig) -> None:
        vmi = await rig.start_vm()
        rig.node_of(vmi).kill()
        await rig.client.delete(VMS, VM, namespace=rig.namespace)
        await word(rig, "Terminating")
        await asyncio.sleep(30)
        assert (await rig.read(VMIS))["status"]["phase"] == "Running"
        told = [e for e in await rig.listed(EVENTS) if e["involvedObject"]["kind"] == VMIS.kind]
        assert [e["reason"] for e in told].count("SuccessfulDelete") == 1, (
            "one that goes is left alone"
        )
        await rig.delete_pod(grace=0)
        await rig.until_none(VMS)
        with pytest.raises(NotFound):
            await rig.read(VMIS)

    in_memory(scenario)
