"""Two virt-controllers, of which one works."""

import asyncio

from backstay.kube.resource import LEASES, PODS
from backstay.sim.kubevirt import VirtController
from backstay.sim.kubevirt.names import NAMESPACE, VMIS
from tests.sim.kubevirt.rig import CONTROLLER, Rig, in_memory


async def two_replicas(rig: Rig) -> tuple[str, str]:
    """On two nodes instead of beside the API; the node of the one that works, and the other's."""
    assert rig.cluster is not None
    rig.cluster.control_plane.kill(CONTROLLER)
    for name in ("n1", "n2"):
        rig.nodes[name].run("virt-controller", VirtController(rig.cluster.api.operations))
    await rig.cluster.until(lambda: bool(holder(rig)))
    first = holder(rig)
    return first, "n2" if first == "n1" else "n1"


def holder(rig: Rig) -> str:
    assert rig.cluster is not None
    lease = rig.cluster.api.store.get(LEASES.label, (NAMESPACE, "virt-controller"))
    spec = lease.object["spec"] if lease is not None else {}
    return str(spec.get("holderIdentity") or "").partition("_")[0]


async def dead_vm(rig: Rig, *others: str) -> str:
    """A VM on a node that is neither of these and has just died; the uid of its VMI."""
    for node in others:
        await rig.keep_scheduler_away(node)
    vmi = await rig.start_vm()
    for node in others:
        await rig.let_scheduler_in(node)
    await rig.keep_scheduler_away(vmi["status"]["nodeName"])
    rig.node_of(vmi).kill()
    return str(vmi["metadata"]["uid"])


def test_one_of_two_starts_vms() -> None:
    async def scenario(rig: Rig) -> None:
        await two_replicas(rig)
        await rig.start_vm()
        await asyncio.sleep(60)
        assert len(await rig.listed(PODS)) == 1

    in_memory(scenario)


def test_when_the_leader_dies_the_other_goes_on_a_lease_later() -> None:
    async def scenario(rig: Rig) -> None:
        first, second = await two_replicas(rig)
        uid = await dead_vm(rig, first, second)
        await rig.keep_scheduler_away(first)
        rig.nodes[first].kill()
        await rig.delete_pod(grace=0)
        await asyncio.sleep(10)
        assert (await rig.read(VMIS))["status"]["phase"] == "Running", "nobody works"
        loop = asyncio.get_running_loop()
        began = loop.time()
        await rig.until_running(after=uid)
        assert loop.time() - began < 10
        assert holder(rig) == second

    in_memory(scenario)


def test_a_leader_that_is_cut_off_changes_nothing_any_more() -> None:
    async def scenario(rig: Rig) -> None:
        first, second = await two_replicas(rig)
        uid = await dead_vm(rig, first, second)
        await rig.keep_scheduler_away(first)
        rig.nodes[first].cut_off()
        await rig.delete_pod(grace=0)
        await asyncio.sleep(10)
        assert (await rig.read(VMIS))["status"]["phase"] == "Running"
        await rig.until_running(after=uid)
        assert holder(rig) == second
        rig.nodes[first].heal()
        await asyncio.sleep(60)
        assert holder(rig) == second
        assert len(rig.copies()) == 1

    in_memory(scenario)
