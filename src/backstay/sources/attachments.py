"""Attachments: which volumes a node has, as the API tells at this moment.

The API cannot be asked for those of one node, so all are listed, page by page. That is done when a
node was proven dead and something was released from it, and not before.
"""

from backstay.apis.storage import ATTACHMENT_PROJECTION, ATTACHMENTS
from backstay.kube.client import KubeClient
from backstay.model.storage import Attachment
from backstay.sources.lookups import list_all


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
