"""Guests: whether KubeVirt starts one again by itself, and what else is to be known about that.

KubeVirt gives every run strategy its own meaning once a launcher is gone:

=================  ================================================================================
Always             it comes back
RerunOnFailure     it comes back, unless its VMI had been shut down or was being deleted already:
                   then nothing has failed
Manual             it stays down until somebody starts it
Once               it stays down, and KubeVirt refuses to start it
Halted             nobody wants it to run
=================  ================================================================================

What would stay down and can be started is started if its terms say so. What a replica set or a
pool has made is replaced by another. What its owner has deleted can go.
"""

import msgspec

from backstay.model.caveats import Caveat
from backstay.model.guest import Guest
from backstay.model.policy import Terms
from backstay.model.reasons import Reason, Why
from backstay.model.workload import Workload, WorkloadKind

_STARTABLE = frozenset({"Manual", "RerunOnFailure"})

_RECOVERY = "KubeVirt does not start it before somebody has looked after its volumes"

_DELETED = "its owner has deleted it"

_NOT_READ = Guest()


class Aftermath(msgspec.Struct, frozen=True):
    """How it goes on with a workload that was released. ``down`` is why it stays down, if it does;
    ``start`` says that we ask for its start."""

    why: Why
    down: str = ""
    start: bool = False


def aftermath(workload: Workload, terms: Terms) -> Aftermath:
    """See the module."""
    about = {
        "workload": workload,
        "node": workload.node,
        "name": workload.name,
        "namespace": workload.namespace,
    }
    guest = workload.guest or _NOT_READ
    if guest.needs_recovery and not workload.leaving:
        return Aftermath(Reason.NeedsRecovery.because(**about), down=_RECOVERY)
    if workload.runs_on:
        why = Reason.MigrationCleared.because(target=workload.runs_on, **about)
        return Aftermath(why)
    because = stays_down(workload)
    if because is None:
        if guest.slow:
            return Aftermath(Reason.NoticedLate.because(version=guest.slow, **about))
        return Aftermath(Reason.Released.because(workload=workload, node=workload.node))
    if terms.start and can_be_started(workload):
        return Aftermath(Reason.ToBeStarted.because(because=because, **about), start=True)
    return Aftermath(_down(workload).because(because=because, **about), down=because)


def stays_down(workload: Workload) -> str | None:
    """Why a workload would not start again by itself after its pod is gone, if so."""
    if workload.leaving:
        return _DELETED
    if workload.kind is not WorkloadKind.VIRTUAL_MACHINE:
        return None if workload.restarts else "nobody creates it anew"
    guest = workload.guest or _NOT_READ
    match workload.run_strategy:
        case "Manual" if "Start" not in guest.asked:
            return "its run strategy is Manual"
        case "Once" if not guest.going:
            return "its run strategy is Once"
        case "Halted":
            return "its run strategy is Halted"
        case "RerunOnFailure" if "Start" not in guest.asked:
            return _not_failed(guest)
        case _:
            return None


def can_be_started(workload: Workload) -> bool:
    """Whether KubeVirt would start it on request, and nobody has just asked for the contrary."""
    guest = workload.guest or _NOT_READ
    return (
        workload.kind is WorkloadKind.VIRTUAL_MACHINE
        and workload.run_strategy in _STARTABLE
        and not workload.leaving
        and "Stop" not in guest.asked
        and not guest.needs_recovery
    )


def is_due_to_start(workload: Workload) -> bool:
    """Whether it is down for good unless somebody asks KubeVirt to start it, as it stands now."""
    guest = workload.guest or _NOT_READ
    if not can_be_started(workload) or guest.asked or guest.going:
        return False
    if workload.run_strategy == "Manual":
        return guest.gone or guest.phase in ("Succeeded", "Failed")
    return guest.gone or guest.phase == "Succeeded"


def notes(workload: Workload, terms: Terms) -> tuple[Why, ...]:
    """What is worth knowing in advance of how it would come back."""
    guest = workload.guest or _NOT_READ
    found = []
    if guest.starts_paused:
        about = {"name": workload.name, "namespace": workload.namespace}
        found.append(Caveat.StartsPaused.because(**about))
    if guest.retry_after:
        found.append(
            Reason.StartBackoff.because(
                workload=workload, count=guest.failures, until=guest.retry_after
            )
        )
    if guest.slow:
        found.append(Caveat.NoticesLate.because(version=guest.slow))
    if guest.replaced_by:
        found.append(Caveat.IsReplaced.because(set=spoken_set(guest.replaced_by)))
    if aftermath(workload, terms).start:
        found.append(Caveat.WouldBeStarted.because())
    return tuple(found)


_SETS = {
    "VirtualMachineInstanceReplicaSet": "the replica set",
    "VirtualMachinePool": "the pool",
}


def spoken_set(key: str) -> str:
    """``the pool shop/tills``"""
    kind, _, name = key.partition("/")
    return f"{_SETS.get(kind, kind)} {name}"


def _not_failed(guest: Guest) -> str | None:
    if guest.phase == "Succeeded":
        return "its guest had been shut down, and RerunOnFailure starts only what has failed"
    if guest.going:
        return "its VMI was being deleted, and RerunOnFailure starts only what has failed"
    return None


def _down(workload: Workload) -> Reason:
    if workload.leaving:
        return Reason.NoLongerWanted
    if workload.kind is not WorkloadKind.VIRTUAL_MACHINE:
        return Reason.NobodyStartsIt
    return Reason.RunsOnce if workload.run_strategy == "Once" else Reason.StaysDown
