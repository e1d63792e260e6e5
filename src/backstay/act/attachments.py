"""Detaching a volume: its VolumeAttachment is deleted, exactly the one that was looked at.

Whoever attaches for the storage driver has a finalizer on it and does the rest. That finalizer is
never ours to take off: it says that the storage has not let go of the node yet.
"""

from backstay.apis.storage import ATTACHMENTS
from backstay.kube.client import KubeClient
from backstay.model.storage import Attachment


async def detach(client: KubeClient, attachment: Attachment, *, not_after: float) -> None:
    await client.delete(
        ATTACHMENTS,
        attachment.name,
        conditions={"uid": attachment.uid, "resource_version": attachment.version},
        not_after=not_after,
    )
