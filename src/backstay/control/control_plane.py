"""The control plane: whether one of its nodes may be taken down.

One at a time: with two of them away the API may lose its quorum, and then nobody can do anything
about either. Who belongs to it, and who is missing, is read anew each time.
"""

from collections.abc import Callable, Collection

from backstay.apis.core import NODE_PROJECTION, NodeRow
from backstay.decide.maintenance import ControlPlaneNode, quorum
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.model.labels import CONTROL_PLANE, DRAIN_TAINT
from backstay.model.reasons import Why

_TAINT = f"{DRAIN_TAINT}:NoSchedule"


class ControlPlane:
    """``down`` are the nodes that are silent."""

    def __init__(self, client: KubeClient, down: Callable[[], Collection[str]]) -> None:
        self._client = client
        self._down = down

    async def objection(self, node: str) -> Why | None:
        """What keeps this node from going; None for all that do not belong to it. Raises
        ``KubeError``."""
        members: dict[str, NodeRow] = {}
        for role in CONTROL_PLANE:
            reply = await self._client.list(NODES, labels=role)
            page = NODE_PROJECTION.page(reply.body, call=reply.call)
            members |= {row.key: row for row in page.rows}
        if node not in members:
            return None
        return quorum(node, [ControlPlaneNode(r.key, self._away(r)) for r in members.values()])

    def _away(self, row: NodeRow) -> str:
        if row.maintenance or _TAINT in row.taints:
            return "in maintenance"
        if row.key in self._down():
            return "silent"
        return "" if row.ready == "True" else "not ready"
