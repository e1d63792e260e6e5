"""Failover of virtual machines, with a real virt-controller on a real control plane.

Where there is none to run, nothing here can be done; the same is played on the embedded cluster
(``test_failover.py``), whose stand-in is held to what the real one was seen to do.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.model.incident import Progress
from backstay.sim.kubevirt import VirtHandler, virtual_machine
from backstay.sim.kubevirt.names import SCHEDULABLE, VMIS, VMS
from backstay.sim.nodes.truth import What
from harness.cluster import ControlPlane
from harness.connect import until
from tests.control.rig_real import RealScene, real_scene
from tests.sim.kubevirt.actual import DEVICES, LABELS, VARIABLE, program, virt_controller
from tests.sim.kubevirt.rig import HANDLER, Json
from tests.support.controller_program import removes
from tests.support.installed import Installed

pytestmark = [
    pytest.mark.skipif(
        program() is None,
        reason=f"{VARIABLE} does not name a virt-controller of KubeVirt 1.9 to run.",
    ),
    pytest.mark.timeout(180),
]

GUESTS = {
    "vm-a": "Always", "vm-b": "Always", "vm-c": "Always", "vm-d": "RerunOnFailure",
    "vm-e": "Manual", "vm-f": "Once",
}  # fmt: skip
COME_BACK = [name for name, strategy in GUESTS.items() if strategy not in ("Manual", "Once")]
PATIENCE = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kubevirt(control_plane: ControlPlane) -> AsyncIterator[None]:
    path = program()
    assert path is not None
    async with virt_controller(control_plane, path):
        yield


@pytest.fixture
async def scene(
    client: KubeClient, installed: Installed, namespace: str, kubevirt: None
) -> AsyncIterator[RealScene]:
    """All guests are on the victim, and there are two more nodes."""
    async with real_scene(client, installed, namespace) as built:
        await boot(built, 1)
        for name, strategy in GUESTS.items():
            where = {"test": namespace}
            vm = virtual_machine(
                name, namespace=namespace, run_strategy=strategy, node_selector=where
            )
            await client.create(VMS, vm, namespace=namespace)
            if strategy == "Manual":
                asked = {"status": {"stateChangeRequests": [{"action": "Start"}]}}
                await client.merge_patch(
                    VMS, name, asked, namespace=namespace, subresource="status"
                )
        await until(client, VMIS, all_run, namespace=namespace, timeout=PATIENCE)
        await boot(built, 2)
        yield built


async def boot(scene: RealScene, count: int) -> None:
    agents = {HANDLER: VirtHandler()}
    for name in await scene.boot(count, labels=LABELS, agents=agents):
        status = {"status": {"capacity": DEVICES, "allocatable": DEVICES}}
        await scene.client.strategic_patch(NODES, name, status, subresource="status")
        await until(scene.client, NODES, takes_guests, name=name, timeout=PATIENCE)


def takes_guests(nodes: list[Json]) -> bool:
    return any(node["metadata"]["labels"].get(SCHEDULABLE) == "true" for node in nodes)


def all_run(instances: list[Json]) -> bool:
    return running(instances) == set(GUESTS)


def all_are_back(instances: list[Json]) -> bool:
    return running(instances) == set(COME_BACK)


def running(instances: list[Json]) -> set[str]:
    return {
        each["metadata"]["name"]
        for each in instances
        if (each.get("status") or {}).get("phase") == "Running"
    }


def most_copies(scene: RealScene, guest: str) -> int:
    """Of its launcher, whose name is another one each time."""
    count = most = 0
    for entry in scene.fleet.ground.log:
        if entry.name.startswith(f"virt-launcher-{guest}-"):
            count += {What.STARTED: 1, What.STOPPED: -1}.get(entry.what, 0)
            most = max(most, count)
    return most


async def test_confirmed_dead_its_machines_start_elsewhere_and_once_as_their_strategies_say(
    scene: RealScene,
) -> None:
    controller = await scene.start_controller()
    await scene.arm()
    victim = scene.victim.name
    before = scene.bound_to(victim)
    scene.victim.kill()
    await controller.looks(2)
    await scene.confirm_dead(victim)
    told = await scene.until_incident(lambda row: row.status.recovered == len(COME_BACK))
    progress = {r.workload.rpartition("/")[2]: r.progress for r in told.status.workloads}
    assert progress == dict.fromkeys(GUESTS, Progress.STAYS_DOWN) | dict.fromkeys(
        COME_BACK, Progress.RECOVERED
    )
    assert len(controller.removals) == len(GUESTS)
    assert scene.bound_to(victim) == before
    assert {most_copies(scene, guest) for guest in GUESTS} == {1}


async def test_a_node_that_reboots_before_the_removal_starts_no_machine_a_second_time(
    scene: RealScene,
) -> None:
    controller = await scene.start_controller()
    await scene.arm()
    victim = scene.victim
    uids = scene.bound_to(victim.name)

    async def reboot() -> None:
        victim.reboot()
        await scene.fleet.ground.until(lambda: scene.dealt_with_by(victim) >= uids)

    controller.just_before(removes, reboot)
    victim.kill()
    await controller.looks(2)
    await scene.confirm_dead(victim.name)
    await scene.until_incident(lambda row: not row.open)
    await until(scene.client, VMIS, all_are_back, namespace=scene.namespace, timeout=PATIENCE)
    assert {most_copies(scene, guest) for guest in GUESTS} == {1}
