"""KubeVirt, as far as the life of a VM goes: a stand-in, held to timelines of the real one.

``install`` has an embedded API serve its kinds, ``KubeVirt`` is its virt-controller (and
``VirtController`` one of several, each on a node), and each node that is to run guests has a
``VirtHandler``. ``virtual_machine`` makes something to run. Start, stop
and restart are what virt-api does with them, see ``lifecycle``.

Reading order: ``names``, ``objects``; ``vmi_status`` and ``vm_status``, which are pure and hold the
rules; ``vmi_controller``, ``vm_controller`` and ``node_controller``, which carry them out;
``handler``, which is on the nodes. Then what moves a running guest: ``migration_status`` and
``migration_controller``, ``transfer`` for what the two nodes do, ``eviction_webhook`` and
``evacuation_controller`` for who asks for it; ``hotplug``; ``set_controllers``; and
``status_mutator``, which keeps others from saying how a guest is.

Not here: snapshots, instance types, data volumes, presets and everything else that has no part in
where a VM runs; readiness gates and probes of guests; migrations between clusters; and all webhooks
but those for evictions and for who writes a VMI's status, so that nothing that is wrong with a VM
is refused.
"""

from backstay.sim.kubevirt.definitions import definitions, install
from backstay.sim.kubevirt.handler import VirtHandler
from backstay.sim.kubevirt.lifecycle import Lifecycle
from backstay.sim.kubevirt.objects import virtual_machine
from backstay.sim.kubevirt.transfer import Copying
from backstay.sim.kubevirt.virt_controller import KubeVirt, VirtController

__all__ = [
    "Copying",
    "KubeVirt",
    "Lifecycle",
    "VirtController",
    "VirtHandler",
    "definitions",
    "install",
    "virtual_machine",
]
