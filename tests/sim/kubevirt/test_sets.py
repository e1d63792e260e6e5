"""Replica sets and pools, and what an old KubeVirt notices; the real one goes through the same
cases in ``test_actual.py``."""

import asyncio

import pytest

from backstay.sim.kubevirt import KubeVirt
from backstay.sim.kubevirt.names import POOLS, VMIS, VMS
from tests.sim.kubevirt.rig import CONTROLLER, VM, Rig, in_memory
from tests.sim.kubevirt.scenarios import Scenario, on_a_dead_node
from tests.sim.kubevirt.sets import CASES, make_pool, until_complete


@pytest.mark.parametrize("case", CASES, ids=lambda each: each.__name__)
def test_the_stand_in_of_a_set_does_what_the_real_one_does(case: Scenario) -> None:
    in_memory(case)


def test_a_pool_makes_a_machine_that_is_missing() -> None:
    async def scenario(rig: Rig) -> None:
        await make_pool(rig, 2)
        await rig.client.delete(VMS, "web-0", namespace=rig.namespace)
        await rig.until(VMS, lambda vm: not vm["metadata"].get("deletionTimestamp"), "web-0")
        await until_complete(rig, POOLS, 2)

    in_memory(scenario)


def test_an_old_kubevirt_notices_that_a_launcher_is_gone_after_five_minutes() -> None:
    async def scenario(rig: Rig) -> None:
        assert rig.cluster is not None
        rig.cluster.control_plane.kill(CONTROLLER)
        operations = rig.cluster.api.operations
        rig.cluster.add_controller(
            "old", lambda seams: KubeVirt(operations, rng=seams.rng, notices_late=True)
        )
        vmi = await on_a_dead_node(rig, "Always")
        died = asyncio.get_running_loop().time()
        await rig.delete_pod(grace=0)
        await asyncio.sleep(120)
        assert (await rig.read(VMIS))["status"]["phase"] == "Running"
        await rig.until_running(after=vmi["metadata"]["uid"])
        assert 240 < asyncio.get_running_loop().time() - died < 400

    in_memory(scenario)


def test_a_guest_that_is_to_start_paused_is_paused_again_elsewhere() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_vm(start_strategy="Paused")
        await rig.until(VMS, lambda vm: (vm.get("status") or {}).get("printableStatus") == "Paused")
        pod = await rig.launcher()
        await rig.keep_scheduler_away(pod["spec"]["nodeName"])
        rig.nodes[pod["spec"]["nodeName"]].kill()
        await rig.delete_pod(grace=0)
        await rig.until(VMS, lambda vm: vm["status"]["printableStatus"] == "Starting", VM)
        await rig.until(VMS, lambda vm: vm["status"]["printableStatus"] == "Paused", VM)

    in_memory(scenario)
