"""What becomes of a migration: from its VMI and its target pod to its phase.

``advanced`` is a pure function. Each phase waits for somebody else's word::

    "" ─▶ Pending ──a target pod is made──▶ Scheduling ──it is ready──▶ Scheduled
       ──both nodes are told──▶ PreparingTarget ──the target listens──▶ TargetReady
       ──the source begins──▶ Running ──the guest has arrived──▶ Succeeded

From all of them it fails, at once, when its VMI ends, when its target pod is down or gone, when
somebody else took the VMI over, or when the nodes report that it did not work. Nothing here waits
for a node that is silent: a migration with a dead end stays as it is until its pod is taken away.
"""

from typing import Any

import msgspec

from backstay.sim.api.kinds import Object
from backstay.sim.kubevirt import hotplug
from backstay.sim.kubevirt.names import (
    FAILED,
    FINAL,
    KEPT_FOR_MIGRATION,
    PENDING,
    RUNNING,
    SCHEDULED,
    SCHEDULING,
    SUCCEEDED,
    Json,
)
from backstay.sim.kubevirt.objects import (
    condition_of,
    finalizers_of,
    is_final,
    is_going,
    migration_of,
    phase_of,
    with_metadata,
    with_transition,
)
from backstay.sim.kubevirt.vmi_status import is_down

PREPARING_TARGET = "PreparingTarget"
TARGET_READY = "TargetReady"

HAS_TARGET = frozenset({SCHEDULING, SCHEDULED, PREPARING_TARGET, TARGET_READY, RUNNING})
"""The phases of a migration that counts as running: a pod was made for it."""

_HANDED_OVER = frozenset({PREPARING_TARGET, TARGET_READY, RUNNING})


class Sight(msgspec.Struct, frozen=True):
    """What the migration controller sees beside the migration. ``is_busy`` is a VMI that another
    migration is moving."""

    vmi: Object
    target: Object | None
    attachment: Object | None
    is_busy: bool
    now: str


def advanced(migration: Object, sight: Sight) -> Object:
    """The migration as it should be now."""
    before = migration.get("status") or {}
    if phase_of(migration) in FINAL:
        return _let_go(migration, sight)
    failed = _has_failed(migration, sight)
    phase = FAILED if failed else _next(migration, sight)
    after: Json = {**before, "phase": phase}
    if failed and is_going(migration):
        asked = {"type": "migrationAbortRequested", "status": "True", "lastProbeTime": sight.now}
        after["conditions"] = [*(before.get("conditions") or ()), asked]
    return {**migration, "status": with_transition(before, after, sight.now)}


def is_ready(pod: Object | None) -> bool:
    found = condition_of(pod, "Ready")
    return found is not None and found["status"] == "True"


def is_its_own(migration: Object, vmi: Object) -> bool:
    """Whether what the VMI says of its migration is about this one."""
    return bool(migration_of(vmi).get("migrationUid") == migration["metadata"]["uid"])


def _let_go(migration: Object, sight: Sight) -> Object:
    status = dict(migration["status"])
    if is_its_own(migration, sight.vmi):
        status["migrationState"] = migration_of(sight.vmi)
    kept = [each for each in finalizers_of(migration) if each != KEPT_FOR_MIGRATION]
    return with_metadata({**migration, "status": status}, finalizers=kept)


def _has_failed(migration: Object, sight: Sight) -> bool:
    phase, mine = phase_of(migration), is_its_own(migration, sight.vmi)
    handed_over = phase in _HANDED_OVER
    return (
        is_final(sight.vmi)
        or (is_going(migration) and not handed_over)
        or (sight.target is not None and is_down(sight.target))
        or (phase in HAS_TARGET and sight.target is None)
        or (handed_over and not mine)
        or (mine and bool(migration_of(sight.vmi).get("failed")))
        or (sight.attachment is not None and is_down(sight.attachment))
    )


def _next(migration: Object, sight: Sight) -> str:
    state: dict[str, Any] = migration_of(sight.vmi) if is_its_own(migration, sight.vmi) else {}
    has_volumes = not hotplug.plugged(sight.vmi) or hotplug.is_ready(sight.attachment)
    match phase := phase_of(migration):
        case "":
            return FAILED if sight.is_busy else PENDING
        case "Pending" if sight.target is not None and has_volumes:
            return SCHEDULING
        case "Scheduling" if is_ready(sight.target) and has_volumes:
            return SCHEDULED
        case "Scheduled" if state.get("targetNode"):
            return PREPARING_TARGET
        case "PreparingTarget" if state.get("targetNodeAddress"):
            return TARGET_READY
        case "TargetReady" if state.get("startTimestamp"):
            return RUNNING
        case "Running" if state.get("completed"):
            return SUCCEEDED
    return phase
