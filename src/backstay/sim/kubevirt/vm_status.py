"""What a VM says of itself: created, ready, its conditions, and one word for people.

The word (``printableStatus``) is the first in a list of those that are true. During a recovery
that goes well it passes through ``Stopped`` for a moment. Not in the list, because what they speak
of is not here: DataVolumeError, Provisioning and WaitingForReceiver.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from backstay.seam.clock import Rng
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import parse_stamp, stamp
from backstay.sim.kubevirt.names import (
    ALWAYS,
    ONCE,
    RERUN_ON_FAILURE,
    RUNNING,
    SCHEDULED,
    SCHEDULING,
    SUCCEEDED,
    UNPROCESSED,
    Json,
)
from backstay.sim.kubevirt.objects import (
    claims_of,
    condition,
    condition_of,
    has_condition,
    is_final,
    is_going,
    phase_of,
    run_strategy_of,
    with_condition,
)
from backstay.sim.kubevirt.vmi_status import CLAIM_NOT_FOUND

_SHORTEST_BACKOFF = 10
_LONGEST_BACKOFF = 300
_RETRYING = frozenset({ALWAYS, RERUN_ON_FAILURE, ONCE})
_OWN_CONDITIONS = frozenset({"Ready", "Failure", "RestartRequired", "ManualRecoveryRequired"})


WAITS = "WaitingForVolumeBinding"

_STARTING = UNPROCESSED | {SCHEDULING, SCHEDULED}


class Sight(msgspec.Struct, frozen=True):
    """What the VM controller sees beside the VM: its VMI, a creation or deletion of one that it
    asked for and has not heard of yet, and whether a claim of the VM is unbound."""

    vmi: Object | None
    start_expected: bool
    stop_expected: bool
    unbound_claim: bool
    now: str


def what_matters(vmi: Object) -> tuple[object, ...]:
    """All of a VMI that its VM goes by and that can change. How far its start has come is not."""
    meta, status = vmi["metadata"], vmi.get("status") or {}
    phase = status.get("phase") or ""
    return (
        "" if phase in _STARTING else phase,
        status.get("conditions"),
        status.get("migrationState"),
        meta.get("deletionTimestamp"),
        meta.get("finalizers"),
        meta.get("ownerReferences"),
    )


# Requests: what somebody asked for through the API of KubeVirt


def requests_of(vm: Object) -> list[Json]:
    return list((vm.get("status") or {}).get("stateChangeRequests") or ())


def wants_start(vm: Object) -> bool:
    """Only the first request counts; the others wait for it."""
    asked = requests_of(vm)
    return bool(asked) and asked[0]["action"] == "Start"


def wants_stop(vm: Object, vmi: Object) -> bool:
    asked = requests_of(vm)
    return bool(asked) and (asked[0]["action"], asked[0].get("uid")) == (
        "Stop",
        vmi["metadata"]["uid"],
    )


def _is_answered(request: Json, vmi: Object | None) -> bool:
    if request["action"] == "Stop":
        return vmi is None or request.get("uid") != vmi["metadata"]["uid"]
    return vmi is not None and not is_going(vmi) and not is_final(vmi)


# Backoff


def backoff_left(vm: Object, now: str) -> int:
    """For how many seconds the next start has to wait."""
    failure = (vm.get("status") or {}).get("startFailure")
    if not failure:
        return 0
    left = parse_stamp(failure["retryAfterTimestamp"]) - parse_stamp(now)
    return max(0, int(left.total_seconds()))


def start_failure(vm: Object, vmi: Object | None, now: str, rng: Rng) -> Json | None:
    """A VMI that ended without having run once makes the next start wait, ever longer."""
    known: Json | None = (vm.get("status") or {}).get("startFailure")
    if _has_run(vmi) or run_strategy_of(vm) not in _RETRYING:
        return None
    if vmi is None or not is_final(vmi):
        return known
    uid = vmi["metadata"]["uid"]
    if known is not None and known["lastFailedVMIUID"] == uid:
        return known
    count = (known["consecutiveFailCount"] if known else 0) + 1
    wait = _SHORTEST_BACKOFF * count**2
    wait = min(wait + int(rng.random() * (wait // 2 + 1)), _LONGEST_BACKOFF)
    return {
        "consecutiveFailCount": count,
        "lastFailedVMIUID": uid,
        "retryAfterTimestamp": stamp(parse_stamp(now) + timedelta(seconds=wait)),
    }


def _has_run(vmi: Object | None) -> bool:
    entered = ((vmi or {}).get("status") or {}).get("phaseTransitionTimestamps") or ()
    return any(each["phase"] == RUNNING for each in entered)


# Status


def vm_status(vm: Object, sight: Sight, rng: Rng) -> Json:
    """The status that the VM should have."""
    vmi = sight.vmi
    status: Json = dict(vm.get("status") or {})
    _set(status, "created", vmi is not None)
    _set(status, "ready", has_condition(vmi, "Ready", "True"))
    if vmi is not None:
        generation = vm["metadata"].get("generation", 1)
        status |= {"observedGeneration": generation, "desiredGeneration": generation}
    if status.get("runStrategy") or vmi is not None:
        status["runStrategy"] = run_strategy_of(vm)
    asked = requests_of(vm)
    _set(
        status, "stateChangeRequests", asked[1:] if asked and _is_answered(asked[0], vmi) else asked
    )
    _set(status, "startFailure", start_failure(vm, vmi, sight.now, rng))
    status["conditions"] = _conditions(status.get("conditions") or [], sight)
    status["printableStatus"] = _word({**vm, "status": status}, sight)
    return status


def _set(status: Json, field: str, value: Any) -> None:
    """What is empty is not said."""
    if value:
        status[field] = value
    else:
        status.pop(field, None)


def _conditions(conditions: list[Json], sight: Sight) -> list[Json]:
    vmi, now = sight.vmi, sight.now
    if vmi is None:
        gone = condition("Ready", "False", "VMINotExists", "VMI does not exist", now)
        return with_condition(conditions, gone)
    missing = condition(
        "Ready", "False", "VMIConditionMissing", "VMI is missing the Ready condition", now
    )
    conditions = with_condition(conditions, condition_of(vmi, "Ready") or missing)
    copied = [
        each
        for each in (vmi.get("status") or {}).get("conditions") or ()
        if each["type"] not in _OWN_CONDITIONS
    ]
    for each in copied:
        conditions = with_condition(conditions, each)
    kept = _OWN_CONDITIONS | {each["type"] for each in copied}
    return [each for each in conditions if each["type"] in kept]


# The word

Test = Callable[[Object, Sight], bool]


def _is_stopping(vm: Object, sight: Sight) -> bool:
    vmi = sight.vmi
    return vmi is not None and not is_final(vmi) and (is_going(vmi) or sight.stop_expected)


def _is_migrating(vm: Object, sight: Sight) -> bool:
    state = ((sight.vmi or {}).get("status") or {}).get("migrationState") or {}
    return bool(state.get("startTimestamp")) and not state.get("completed")


def _runs(sight: Sight, *, paused: bool) -> bool:
    vmi = sight.vmi
    if vmi is None or phase_of(vmi) != RUNNING:
        return False
    return has_condition(vmi, "Paused", "True") is paused


def _is_starting(vm: Object, sight: Sight) -> bool:
    if sight.vmi is None:
        return sight.start_expected
    return phase_of(sight.vmi) in _STARTING


def _waits_for_volume(vm: Object, sight: Sight) -> bool:
    return sight.unbound_claim and _is_set_to_start(vm, sight.vmi)


def _is_set_to_start(vm: Object, vmi: Object | None) -> bool:
    match run_strategy_of(vm):
        case "Always":
            return True
        case "Manual":
            return wants_start(vm) if vmi is None else not wants_stop(vm, vmi)
        case "RerunOnFailure":
            return vmi is None or phase_of(vmi) != SUCCEEDED
        case "Once":
            return vmi is None
    return False


def _is_crash_looping(vm: Object, sight: Sight) -> bool:
    ended = sight.vmi is None or is_final(sight.vmi)
    failed = bool(vm["status"].get("startFailure"))
    return ended and not sight.start_expected and failed and run_strategy_of(vm) in _RETRYING


def _is_stopped(vm: Object, sight: Sight) -> bool:
    return is_final(sight.vmi) if sight.vmi is not None else not sight.start_expected


def _is_not_synchronized(reason: str) -> Test:
    return lambda vm, sight: has_condition(sight.vmi, "Synchronized", "False", reason)


_WORDS: tuple[tuple[str, Test], ...] = (
    ("Terminating", lambda vm, sight: is_going(vm)),
    ("Stopping", _is_stopping),
    ("Migrating", _is_migrating),
    ("Paused", lambda vm, sight: _runs(sight, paused=True)),
    ("Running", lambda vm, sight: _runs(sight, paused=False)),
    ("ErrorPvcNotFound", _is_not_synchronized(CLAIM_NOT_FOUND)),
    ("ErrorUnschedulable",
     lambda vm, sight: has_condition(sight.vmi, "PodScheduled", "False", "Unschedulable")),
    (WAITS, _waits_for_volume),
    ("Starting", _is_starting),
    ("CrashLoopBackOff", _is_crash_looping),
    ("Stopped", _is_stopped),
)  # fmt: skip


def _word(vm: Object, sight: Sight) -> str:
    return next((word for word, is_true in _WORDS if is_true(vm, sight)), "Unknown")


def unbound(vm: Object, find_claim: Callable[[str], Object | None]) -> bool:
    """Whether a claim of the VM is there and has no volume yet."""
    claims = (find_claim(name) for name in claims_of(vm["spec"]["template"]["spec"]))
    return any(
        claim is not None and (claim.get("status") or {}).get("phase") != "Bound"
        for claim in claims
    )
