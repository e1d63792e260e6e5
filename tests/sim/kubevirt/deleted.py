"""A VM that its owner deletes while its node lies dead. It runs against any ``Rig``.

What the removal of deleted VMs rests on: as long as its launcher is there, which nobody but the
dead node would end, neither the VMI nor the VM can go. Once that is removed both do, and nothing
starts it again.
"""

import asyncio

from backstay.kube.resource import PODS
from backstay.sim.kubevirt.names import VMIS, VMS
from tests.sim.kubevirt.rig import VM, Json, Rig
from tests.sim.kubevirt.scenarios import A_WHILE, on_a_dead_node


def _is_going(obj: Json) -> bool:
    return "deletionTimestamp" in obj["metadata"]


async def vm_that_is_deleted_goes_once_its_launcher_is_removed(rig: Rig) -> None:
    await on_a_dead_node(rig, "Always")
    launcher = await rig.launcher()
    await rig.client.delete(VMS, VM, namespace=rig.namespace)
    await rig.until(VMIS, _is_going)
    await rig.until(PODS, _is_going, launcher["metadata"]["name"])
    await asyncio.sleep(A_WHILE)
    assert _is_going(await rig.until(VMS, lambda _: True)), "it waits for its VMI"
    await rig.remove_pod(launcher["metadata"]["name"])
    await rig.until_none(VMIS)
    await rig.until_none(VMS)
    assert rig.copies() == []


DELETED_CASES = (vm_that_is_deleted_goes_once_its_launcher_is_removed,)
