"""Attachments: which volumes a node has, as the API tells at this moment.

The API cannot be asked for those of one node, so all are listed, page by page. That is done when a
node was proven dead and something was released from it, and not before.
"""

import msgspec

from backstay.apis.storage import ATTACHMENT_PROJECTION, ATTACHMENTS
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.model.storage import Accounts, Attachment
from backstay.sources.lookups import Wanted, beside, list_all, look_up
from backstay.sources.workloads import read_pods

_CSI = "kubernetes.io/csi/"


async def read_attachments(client: KubeClient, node: str) -> tuple[Attachment, ...]:
    """Those of persistent volumes, by a quorum read. Raises ``KubeError``."""
    page = await list_all(client, ATTACHMENTS, ATTACHMENT_PROJECTION)
    return tuple(
        Attachment(
            name=row.key,
            uid=row.uid,
            version=row.version,
            node=row.node,
            pv=row.volume,
            going=row.deleting,
        )
        for row in page.rows
        if row.node == node and row.volume
    )


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    volumes_in_use: list[str] | None = None


class _Node(msgspec.Struct, frozen=True):
    status: _Status = _Status()


async def read_mounted(client: KubeClient, node: str) -> frozenset[str]:
    """What the kubelet says that it has mounted, for pods that are in the API or not, as
    ``driver^handle``; by a quorum read. Raises ``KubeError``."""
    live = (await client.get(NODES, node)).into(_Node)
    in_use = live.status.volumes_in_use or ()
    return frozenset(name.removeprefix(_CSI) for name in in_use if name.startswith(_CSI))


async def read_accounted_for(client: KubeClient, node: str) -> Accounts:
    """What the pods that the API lists on the node may have mounted, whoever they belong to; by
    quorum reads. Raises ``KubeError``."""
    pods = await read_pods(client, node)
    claims = {beside(pod.key, claim): pod.key for pod in pods.pods for claim in pod.claims}
    found = await look_up(client, Wanted(claims=frozenset(claims)))
    unread = [f"{each.key or 'a pod'} cannot be read" for each in pods.unreadable]
    unread += [f"{what} cannot be read" for what in found.unread]
    devices = (f"{row.driver}^{row.handle}" for row in found.volumes.values())
    return Accounts(devices=frozenset(devices), unread=next(iter(unread), ""))
