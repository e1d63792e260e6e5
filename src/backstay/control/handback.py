"""Handing back: what a controller that is taken away leaves on nodes and on maintenances.

It is for whoever uninstalls, in his own name: nobody else will do it then.
"""

from math import inf

from backstay.act import cordons
from backstay.act import maintenance as verbs
from backstay.apis.maintenance import NODE_MAINTENANCES, NodeMaintenance, maintenance_row
from backstay.kube.client import KubeClient
from backstay.model.maintenance import marks_of


async def give_back(client: KubeClient, node: str, said: str) -> None:
    """What our annotation there says is ours. Raises ``KubeError``."""
    marks = marks_of(said)
    if marks is not None:
        await cordons.give_back(
            client, node, maintenance=marks.maintenance, inherits=False, leave=lambda: inf
        )


async def let_go(client: KubeClient, name: str, *, uid: str) -> None:
    """Takes our finalizer off, so that it can be deleted. Raises ``KubeError``."""
    row = maintenance_row((await client.get(NODE_MAINTENANCES, name)).into(NodeMaintenance))
    if row.uid == uid and row.begun:
        await verbs.let_go(client, row, not_after=inf)
