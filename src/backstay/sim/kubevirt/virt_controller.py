"""virt-controller: all of KubeVirt's controllers in one program, which may run several times.

``KubeVirt`` is the only one of its kind, with a connection that never fails: a program of the
control plane. ``VirtController`` is one of several, each on a node::

    for node in (first, second):
        node.run("virt-controller", VirtController(cluster.api.operations))

They agree by a lease (15 s, renewed every 2 s, given up after 10 s without) which of them works. If
that one's node dies, nothing is done about any VM until another has taken the lease.
"""

import asyncio

from backstay.kube.lease import Leadership, Term
from backstay.seam.clock import Rng
from backstay.sim.api.operations import Operations
from backstay.sim.kubevirt.evacuation_controller import EvacuationController
from backstay.sim.kubevirt.migration_controller import MigrationController
from backstay.sim.kubevirt.names import NAMESPACE
from backstay.sim.kubevirt.node_controller import NodeController
from backstay.sim.kubevirt.reconciler import Connected
from backstay.sim.kubevirt.set_controllers import PoolController, ReplicaSetController
from backstay.sim.kubevirt.vm_controller import VmController
from backstay.sim.kubevirt.vmi_controller import VmiController
from backstay.sim.nodes.agents import AgentContext

LEASE = "virt-controller"


class KubeVirt:
    """``run`` works until it is cancelled, and can be called again: all that it has to remember is
    in the API. ``notices_late`` makes it one from before version 1.2, for which a launcher that is
    gone is no reason to fail a VMI: the node controller does that, when the node is silent."""

    def __init__(
        self,
        operations: Operations,
        *,
        rng: Rng,
        connected: Connected = lambda: True,
        notices_late: bool = False,
    ) -> None:
        self.controllers = (
            VmController(operations, rng=rng, connected=connected),
            VmiController(operations, rng=rng, connected=connected, notices_late=notices_late),
            NodeController(operations, rng=rng, connected=connected),
            MigrationController(operations, rng=rng, connected=connected),
            EvacuationController(operations, rng=rng, connected=connected),
            ReplicaSetController(operations, rng=rng, connected=connected),
            PoolController(operations, rng=rng, connected=connected),
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for controller in self.controllers:
                group.create_task(controller.run(), name=type(controller).__name__)


class VirtController:
    """An ``Agent``, see the module."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def __call__(self, context: AgentContext) -> None:
        leadership = Leadership(
            context.client,
            namespace=NAMESPACE,
            name=LEASE,
            identity=f"{context.node}_{context.boot_id}",
            wall=context.seams.wall,
            rng=context.seams.rng,
            floor=_nothing_recorded,
        )

        async def lead(_: Term) -> None:
            await KubeVirt(
                self._operations,
                rng=context.seams.rng,
                connected=lambda: context.reaches(context.node),
            ).run()

        await leadership.run(lead)


async def _nothing_recorded() -> int:
    return 0
