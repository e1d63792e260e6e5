"""Asking: what came of asking one pod to leave, and how that is told.

Part of the drain (``drain.py``), which decides whom to ask and when.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backstay.apis.machines import MigrationRow
from backstay.kube.errors import ApiError, KubeError
from backstay.model.drain import Answer, GuestSight, PodSight, Refusal, Verdict
from backstay.model.drain_reasons import DrainReason
from backstay.model.reasons import Why


@dataclass(slots=True)
class Asked:
    """What came of asking one pod. ``again`` is when it is asked once more, if nothing happens."""

    answer: Answer | None
    at: float
    again: float
    since: float
    """From when on the same stands in its way."""
    ended: bool = False
    budget_version: str = ""
    looked_into: float = 0.0


def refusal_of(error: KubeError) -> Refusal:
    """What decisions know of it. Nothing was answered if there is no status."""
    if not isinstance(error, ApiError):
        return Refusal(status=0, message=str(error))
    return Refusal(
        status=error.status.code or error.code,
        reason=error.reason,
        message=error.status.message or str(error),
        causes=tuple((cause.reason, cause.message) for cause in error.causes),
        retry_after=error.retry_after,
    )


def is_alike(one: Answer | None, other: Answer | None) -> bool:
    """Whether the same stands in the way, but for numbers."""
    if one is None or other is None:
        return one is other
    codes = [each.why.code if each.why is not None else "" for each in (one, other)]
    moving = one.verdict is other.verdict is Verdict.MOVING
    return moving or (codes[0] == codes[1] and one.verdict is other.verdict)


def overdue(pod: PodSight, seconds: float) -> Why:
    kept = f", kept by {', '.join(pod.finalizers)}" if pod.finalizers else ""
    return DrainReason.StillTerminating.because(
        pod=pod.key, name=pod.name, namespace=pod.namespace, seconds=round(seconds), because=kept
    )


def standing(node: str, guest: GuestSight | None, migrations: Sequence[MigrationRow]) -> str:
    """How far KubeVirt is with it, in words."""
    if guest is not None and guest.node not in ("", node):
        return f"it runs on {guest.node} by now, and the pod that it has left behind has not ended"
    if guest is not None and guest.strategy == "External":
        return "it is somebody else's to move (evictionStrategy External)"
    if not migrations:
        return "KubeVirt has not begun to migrate it"
    last = migrations[-1]
    failures = sum(row.phase == "Failed" for row in migrations)
    failed = f"; {failures} failed" if failures else ""
    because = f" ({last.failure})" if last.failure else ""
    return f"its last migration is {last.phase or 'Pending'}{because}{failed}"
