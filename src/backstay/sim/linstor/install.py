"""Install: LINSTOR in an embedded cluster, as Piraeus' operator sets it up.

``Linstor`` is made first, and given to the cluster as its ``devices``; ``install`` then joins the
two, and adds LINSTOR's CSI driver to the programs of the control plane. Each node that is to have a
satellite is told of by ``add_satellite``. The controller starts with its ``DEPLOYMENT``.
"""

import asyncio
from typing import Any

from backstay.sim.cluster.attachments import ExternalAttacher
from backstay.sim.cluster.claims import storage_class
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.linstor.provisioner import Provisioner
from backstay.sim.linstor.storage import COMPONENT, CONTROLLER, DRIVER, Linstor

CSI = "linstor-csi"
AGENT = "linstor"

Json = dict[str, Any]

_LABELS = {"app.kubernetes.io/name": "piraeus-datastore", COMPONENT: CONTROLLER}

DEPLOYMENT: Json = {
    "metadata": {"name": CONTROLLER, "labels": _LABELS},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": _LABELS},
        "template": {
            "metadata": {"labels": _LABELS},
            "spec": {"containers": [{"name": CONTROLLER, "image": "example/linstor-controller"}]},
        },
    },
}


def install(linstor: Linstor, embedded: EmbeddedCluster) -> None:
    linstor.join(embedded)
    operations = embedded.api.operations
    embedded.add_controller(
        CSI,
        lambda _: _Driver(
            ExternalAttacher(
                operations,
                timers=embedded.timers,
                truth=embedded.truth,
                driver=DRIVER,
                publisher=linstor,
            ),
            Provisioner(operations, linstor),
        ),
    )


def add_satellite(linstor: Linstor, embedded: EmbeddedCluster, node: str, *, shown: str) -> None:
    """``shown`` is how LINSTOR writes the name of the node."""
    linstor.database.add_node(shown)
    embedded.nodes[node].run(AGENT, linstor.agent())


def class_object(name: str) -> Json:
    return storage_class(name, driver=DRIVER)


class _Driver:
    """The sidecars of the CSI driver, in one program."""

    def __init__(self, attacher: ExternalAttacher, provisioner: Provisioner) -> None:
        self._attacher = attacher
        self._provisioner = provisioner

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._attacher.run())
            group.create_task(self._provisioner.run())
