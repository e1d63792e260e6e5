"""KubeVirt: the controllers that virt-controller is made of, in one process."""

import asyncio

from backstay.seam.clock import Rng
from backstay.sim.api.operations import Operations
from backstay.sim.kubevirt.evacuation_controller import EvacuationController
from backstay.sim.kubevirt.migration_controller import MigrationController
from backstay.sim.kubevirt.node_controller import NodeController
from backstay.sim.kubevirt.vm_controller import VmController
from backstay.sim.kubevirt.vmi_controller import VmiController


class KubeVirt:
    """``run`` works until it is cancelled, and can be called again: all that it has to remember is
    in the API."""

    def __init__(self, operations: Operations, *, rng: Rng) -> None:
        self.controllers = (
            VmController(operations, rng=rng),
            VmiController(operations, rng=rng),
            NodeController(operations, rng=rng),
            MigrationController(operations, rng=rng),
            EvacuationController(operations, rng=rng),
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for controller in self.controllers:
                group.create_task(controller.run(), name=type(controller).__name__)
