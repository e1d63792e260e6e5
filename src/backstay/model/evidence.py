"""Evidence: what shows that a node, or what ran on it, can no longer write.

Evidence belongs to one boot of one node, and was had at a moment of our own monotonic clock. It is
never inherited: a new leader observes again, and what is recorded of it is history. Where it is
looked at again after the barrier (docs/safety.md), it is a new piece of evidence.
"""

from enum import StrEnum

import msgspec


class EvidenceKind(StrEnum):
    """How it is known."""

    OPERATOR_CONFIRMED = "OperatorConfirmed"
    REBOOTED = "Rebooted"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """``observed_at`` is the event loop's time; ``source`` names the object or person."""

    kind: EvidenceKind
    node: str
    node_uid: str
    boot_id: str
    source: str
    detail: str
    observed_at: float

    def is_about(self, *, node_uid: str, boot_id: str) -> bool:
        return (self.node_uid, self.boot_id) == (node_uid, boot_id)


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """A person's word that one boot of a node is off, as it stands in the API.

    ``seen_at`` is when *we* first saw it: a sign of life after that contradicts it. But whoever
    starts anew has seen nothing, so it also names what was there when it was given: the lease's
    last renewal and virt-handler's last heartbeat. They are compared as they stand, never as
    times; where they differ, the node has lived since.
    """

    name: str
    uid: str
    node: str
    node_uid: str
    boot_id: str
    by: str
    reason: str
    seen_at: float
    last_renewal: str = ""
    last_heartbeat: str = ""
