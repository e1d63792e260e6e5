"""The Events of the Piraeus HA controller, word for word, beside our own.

Whoever has built alerts on them keeps them. They are told where DRBD's quorum was what something
rested on, after it was done and by our own hand: what somebody else has deleted is not ours to
report. Why it was done, and on what proof, is in our own Events of the same objects.
"""

from collections.abc import Iterable

from backstay.apis.storage import ATTACHMENTS
from backstay.kube.events import EventRecorder, ObjectRef
from backstay.kube.resource import PODS
from backstay.model.storage import Attachment
from backstay.model.workload import PodRef

COMPONENT = "piraeus-ha-controller"


class PiraeusHerald:
    """``events`` should record as ``COMPONENT``."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events

    def deleted(self, pods: Iterable[PodRef]) -> None:
        for pod in pods:
            about = ObjectRef.to(PODS, name=pod.name, uid=pod.uid, namespace=pod.namespace)
            message = "pod deleted because a used volume is marked as failing"
            self._warn(about, "ForceDeleted", message)

    def detached(self, attachments: Iterable[Attachment]) -> None:
        for attachment in attachments:
            about = ObjectRef.to(ATTACHMENTS, name=attachment.name, uid=attachment.uid)
            self._warn(about, "ForceDetached", "volume detached because it is marked as failing")

    def _warn(self, about: ObjectRef, reason: str, message: str) -> None:
        self._events.record(about=about, type="Warning", reason=reason, message=message)
