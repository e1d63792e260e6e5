"""Rescue: what is done for guests that live on although the kubelet of their node has died.

By default nothing: they run, and a person who restarts the kubelet has lost nothing. Where the
policy (``onKubeletLoss``) asks for more, a guest is migrated while it runs, once, and left where
it is if that fails. Only ``StopAndMove`` goes on from there: the guest is shut down by the node's
living virt-handler, and started elsewhere once that has said so.

* A guest is shut down only if it could be started elsewhere afterwards. A volume for one node at a
  time stays with a node whose kubelet is dead, because it may still be mounted there.
* Nothing here takes a launcher away. That needs evidence like any other removal (GuestStopped).
"""

from enum import StrEnum

import msgspec

from backstay.model.evidence import GuestMove, Testimony
from backstay.model.guest import Guest
from backstay.model.policy import OnKubeletLoss, Terms, Times
from backstay.model.reasons import Reason, Why
from backstay.model.workload import Workload, WorkloadKind

_RESTARTABLE = frozenset({"Always", "RerunOnFailure", "Manual"})
_SHARED = "ReadWriteMany"


class Way(StrEnum):
    MIGRATE = "Migrate"
    STOP = "Stop"
    WAIT = "Wait"
    """Something is under way, or nothing can be done."""


class Rescue(msgspec.Struct, frozen=True):
    way: Way
    why: Why


def rescue(
    workload: Workload, terms: Terms, testimony: Testimony, now: float, *, times: Times
) -> Rescue | None:
    """For a guest that is alive on a node whose kubelet is not; None if it is left alone."""
    guest = workload.guest
    if guest is None or terms.on_kubelet_loss is OnKubeletLoss.LEAVE:
        return None
    node = workload.node
    stopping = any(pod.uid in testimony.stopping for pod in workload.pods)
    if stopping or guest.going or "Stop" in guest.asked:
        return Rescue(Way.WAIT, Reason.GuestStopping.because(workload=workload, node=node))
    move = move_of(workload, testimony)
    if move is None and guest.migratable:
        why = Reason.MayBeMigrated.because(workload=workload, node=node)
        return Rescue(Way.MIGRATE, why)
    if move is not None and not move.failed and now - move.since < times.move:
        why = Reason.GuestMigrating.because(
            workload=workload,
            node=node,
            phase=move.phase or "asked for",
            namespace=workload.namespace,
        )
        return Rescue(Way.WAIT, why)
    if terms.on_kubelet_loss is OnKubeletLoss.MIGRATE:
        because = _why_not_migrated(move, guest, times)
        why = Reason.MigrationFailed.because(workload=workload, node=node, because=because)
        return Rescue(Way.WAIT, why)
    return _stop(workload, guest)


def move_of(workload: Workload, testimony: Testimony) -> GuestMove | None:
    """The migration that we asked for, if we have. Labels can be written by anybody in a namespace,
    so one in another namespace is none of it."""
    uids, guest = {pod.uid for pod in workload.pods}, f"{workload.namespace}/{workload.name}"
    mine = (
        move for move in testimony.moves if (move.guest, move.launcher in uids) == (guest, True)
    )
    return next(mine, None)


def _why_not_migrated(move: GuestMove | None, guest: Guest, times: Times) -> str:
    if move is None:
        said = guest.immovable.rstrip(".") or "it does not say why"
        return "KubeVirt has not said yet whether it can be" if guest.migratable is None else said
    if move.failed:
        return move.because.rstrip(".") or "the migration has failed"
    return f"the migration has not ended within {round(times.move)} s"


def _stop(workload: Workload, guest: Guest) -> Rescue:
    because = _why_not_stopped(workload, guest)
    about = {"workload": workload, "node": workload.node}
    if because:
        return Rescue(Way.WAIT, Reason.CannotBeStopped.because(because=because, **about))
    return Rescue(Way.STOP, Reason.MayBeStopped.because(**about))


def _why_not_stopped(workload: Workload, guest: Guest) -> str:
    if workload.kind is not WorkloadKind.VIRTUAL_MACHINE:
        return "it has no VM that could be restarted"
    if workload.run_strategy not in _RESTARTABLE:
        return f"KubeVirt restarts no VM whose run strategy is {workload.run_strategy}"
    if guest.needs_recovery:
        return "KubeVirt would not start it again before somebody has looked after its volumes"
    if guest.asked:
        return "somebody has just asked to stop or start it"
    for volume in workload.volumes:
        if _SHARED not in volume.access_modes:
            modes = ", ".join(volume.access_modes) or "nobody knows for whom"
            return (
                f"its volume {volume.claim} ({modes}) cannot be detached from a node that may "
                "still have it mounted"
            )
    return ""
