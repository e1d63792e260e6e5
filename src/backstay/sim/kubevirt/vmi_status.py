"""What becomes of a VMI: from its launcher pods to its phase, conditions and finalizers.

``advanced`` is a pure function. The phases that virt-controller is in charge of::

    "" ──pod made──▶ Scheduling ──guest's container runs──▶ Scheduled ──(virt-handler)──▶ Running
     │                   │                                      │                           │
     └───────────────────┴───────── pod gone (at once) ─────────┴──────▶ Failed ◀───────────┘

A pod that is merely going, or whose node is silent, changes no phase from Scheduled on: only that
its object is gone does. A final VMI gives up the finalizer that waits for its pods when none of
them is left, whatever phase they are in.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from backstay.sim.api.kinds import Object
from backstay.sim.kubevirt import hotplug
from backstay.sim.kubevirt.launcher import FindClaim
from backstay.sim.kubevirt.names import (
    COMPUTE,
    FAILED,
    FINAL,
    HANDED_OVER,
    KEPT_FOR_PODS,
    KEPT_FOR_VM,
    NODE_NAME,
    PENDING,
    RUNNING,
    SCHEDULED,
    SCHEDULING,
    UNPROCESSED,
    Json,
)
from backstay.sim.kubevirt.objects import (
    claim_of,
    condition,
    condition_of,
    finalizers_of,
    is_going,
    phase_of,
    with_condition,
    with_metadata,
    with_transition,
    without_condition,
)

CLAIM_NOT_FOUND = "FailedPvcNotFound"


class View(msgspec.Struct, frozen=True):
    """What the VMI controller sees beside the VMI: its launcher, all of its pods, and whether
    the VM that it belongs to is still there. ``attachment`` is the pod that has what is plugged
    into the launcher, ``problem`` is why no launcher could be made. ``notices_late`` is how it was
    before KubeVirt 1.2: that a launcher is gone changes nothing."""

    pod: Object | None
    pods: Sequence[Object]
    has_vm: bool
    find_claim: FindClaim
    now: str
    attachment: Object | None = None
    problem: str = ""
    notices_late: bool = False


def current_pod(vmi: Object, pods: Sequence[Object]) -> Object | None:
    """The newest pod on the node of the VMI, or the newest of all while it has none."""
    node = (vmi.get("status") or {}).get("nodeName")
    here = [pod for pod in pods if not node or pod["spec"].get("nodeName") == node]
    return max(here, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)


def advanced(vmi: Object, view: View) -> Object:
    """The VMI as it should be now."""
    before = vmi.get("status") or {}
    status = {**before, "conditions": list(before.get("conditions") or ())}
    if view.pods or "activePods" in status:
        status["activePods"] = {
            pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in view.pods
        }
    status["conditions"] = with_condition(status["conditions"], _ready(vmi, view))
    changed = _with_phase({**vmi, "status": status}, view)
    if phase_of(vmi) in HANDED_OVER:
        return _handled(changed, view)
    after = dict(changed["status"])
    after["conditions"] = _with_problem(after["conditions"], view)
    return {**changed, "status": with_transition(before, after, view.now)}


def _handled(vmi: Object, view: View) -> Object:
    """What virt-controller still adds to a VMI that is virt-handler's."""
    status = dict(vmi["status"])
    if "volumeStatus" in status:
        status["volumeStatus"] = hotplug.with_attachments(
            status["volumeStatus"], vmi, view.attachment
        )
    kind = "EvictionRequested"
    status["conditions"] = without_condition(status["conditions"], kind)
    if status.get("evacuationNodeName"):
        asked = condition(kind, "True", kind, "", view.now)
        known = condition_of(vmi, kind)
        status["conditions"].append(asked if known is None else known)
    return {**vmi, "status": status}


def is_down(pod: Object) -> bool:
    """It has ended, or is about to."""
    status = pod.get("status") or {}
    compute = _compute(pod)
    ended = compute is not None and "terminated" in (compute.get("state") or {})
    return status.get("phase") in FINAL or ended or is_going(pod)


def is_up(pod: Object) -> bool:
    """The guest's container runs; whether the guest is ready is another question."""
    compute = _compute(pod)
    runs = compute is not None and "running" in (compute.get("state") or {})
    return runs and not is_down(pod)


def _compute(pod: Object) -> Json | None:
    for each in (pod.get("status") or {}).get("containerStatuses") or ():
        if each["name"] == COMPUTE:
            found: Json = each
            return found
    return None


def _ready(vmi: Object, view: View) -> Json:
    now = view.now
    if view.pod is None:
        why = "virt-launcher pod has not yet been scheduled"
        return condition("Ready", "False", "PodNotExists", why, now)
    if is_down(view.pod):
        why = "virt-launcher pod is terminating"
        return condition("Ready", "False", "PodTerminating", why, now)
    if phase_of(vmi) != RUNNING:
        why = "Guest VM is not reported as running"
        return condition("Ready", "False", "GuestNotRunning", why, now)
    found = condition_of(view.pod, "Ready")
    if found is None:
        why = "virt-launcher pod is missing the Ready condition"
        return condition("Ready", "False", "PodConditionMissing", why, now)
    said = ("status", "reason", "message", "lastProbeTime", "lastTransitionTime")
    return {"type": "Ready", **{field: found[field] for field in said if field in found}}


def _with_phase(vmi: Object, view: View) -> Object:
    phase, pod = phase_of(vmi), view.pod
    if phase in FINAL:
        return _let_go(vmi, view)
    if phase in UNPROCESSED:
        waiting = FAILED if is_going(vmi) else PENDING
        return _in(vmi, SCHEDULING if pod is not None else waiting)
    if pod is None:
        return vmi if view.notices_late and not is_going(vmi) else _in(vmi, FAILED)
    return _scheduling(vmi, pod, view) if phase == SCHEDULING else vmi


def _scheduling(vmi: Object, pod: Object, view: View) -> Object:
    if is_up(pod) and not is_going(vmi):
        return _handed_over(vmi, pod, view)
    if is_down(pod):
        return _in(vmi, FAILED)
    unscheduled = condition_of(pod, "PodScheduled")
    conditions = without_condition(vmi["status"]["conditions"], "PodScheduled")
    if unscheduled is not None and unscheduled["status"] == "False":
        conditions.append(unscheduled)
    return _in(vmi, SCHEDULING, conditions=conditions)


def _handed_over(vmi: Object, pod: Object, view: View) -> Object:
    """From here on it is the business of virt-handler on that node."""
    node = pod["spec"]["nodeName"]
    fields: dict[str, Any] = {
        "nodeName": node,
        "conditions": without_condition(vmi["status"]["conditions"], "PodScheduled"),
        "volumeStatus": _volume_status(vmi["spec"], view.find_claim),
    }
    address = (pod.get("status") or {}).get("podIP")
    if address:
        networks = [each["name"] for each in vmi["spec"].get("networks") or ()]
        fields["interfaces"] = [
            {"name": name, "ipAddress": address, "ipAddresses": [address]} for name in networks
        ]
    labels = {**(vmi["metadata"].get("labels") or {}), NODE_NAME: node}
    return with_metadata(_in(vmi, SCHEDULED, **fields), labels=labels)


def _volume_status(spec: Json, find_claim: FindClaim) -> list[Json]:
    """What is known of the claims, so that virt-handler need not ask for it."""
    found = []
    for volume in spec.get("volumes") or ():
        status: Json = {"name": volume["name"], "target": ""}
        claim = find_claim(claim_of(volume))
        if claim is not None:
            status["persistentVolumeClaimInfo"] = {
                "claimName": claim["metadata"]["name"],
                "accessModes": claim["spec"].get("accessModes") or [],
                "volumeMode": claim["spec"].get("volumeMode", "Filesystem"),
            }
        found.append(status)
    return found


def _let_go(vmi: Object, view: View) -> Object:
    given_up = set()
    if not view.pods:
        given_up.add(KEPT_FOR_PODS)
    if not view.has_vm:
        given_up.add(KEPT_FOR_VM)
    kept = [each for each in finalizers_of(vmi) if each not in given_up]
    return vmi if kept == finalizers_of(vmi) else with_metadata(vmi, finalizers=kept)


def _in(vmi: Object, phase: str, **fields: Any) -> Object:
    return {**vmi, "status": {**vmi["status"], **fields, "phase": phase}}


def _with_problem(conditions: Sequence[Json], view: View) -> list[Json]:
    if not view.problem:
        return without_condition(conditions, "Synchronized")
    failed = condition("Synchronized", "False", CLAIM_NOT_FOUND, view.problem, view.now)
    return with_condition(conditions, failed)
