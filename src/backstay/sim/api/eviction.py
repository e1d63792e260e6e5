"""Evictions: a deletion of a pod that its disruption budget has to allow.

The budget's status is what counts, not the pods: an eviction takes one disruption away from it
and notes the pod there, so that a second one that comes before anybody has counted again cannot
use the same permission. Pods that do not serve anybody (not running yet, over, or going already)
need no permission.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from backstay.sim.api.disruption import BUDGETS, is_ready, with_verdict
from backstay.sim.api.kinds import Object
from backstay.sim.api.label_selectors import selects
from backstay.sim.api.operations import DeleteOptions, Operations, Write
from backstay.sim.api.requests import Target
from backstay.sim.api.status import Cause, Refusal, bad_request, forbidden
from backstay.sim.api.store import Stored

Json = Mapping[str, Any]

Intercept: TypeAlias = Callable[[Object, Write], None]
"""Is asked about a pod before it is evicted, and raises a ``Refusal`` if it is not to be."""

_MOST_DISRUPTED = 2000
_WAIT_FOR_A_COUNT = 10
_NO = "Cannot evict pod as it would violate the pod's disruption budget."


class Evictions:
    """Evicts pods from one store."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        budgets = operations.kinds.find("policy", "v1", "poddisruptionbudgets")
        assert budgets is not None
        self._budgets = budgets
        self._intercepts: list[Intercept] = []

    def intercept(self, intercept: Intercept) -> None:
        self._intercepts.append(intercept)

    def evict(self, target: Target, sent: Object, write: Write) -> None:
        """Deletes the pod, or raises a ``Refusal``. As in a real server, what a budget has given
        is spent even if the pod then turns out to be another one than was meant."""
        if (sent.get("metadata") or {}).get("name") != target.name:
            raise bad_request("name in URL does not match name in Eviction object")
        wanted = sent.get("deleteOptions") or {}
        write = Write(write.manager, write.dry_run or bool(wanted.get("dryRun")))
        pod = self._operations.find(target)
        for intercept in self._intercepts:
            intercept(pod.object, write)
        if not _needs_no_permission(pod.object):
            self._ask_budgets(pod, write)
        self._delete(target, pod, _delete_options(wanted), write)

    def _ask_budgets(self, pod: Stored, write: Write) -> None:
        budgets = list(self._budgets_of(pod))
        if len(budgets) > 1:
            raise Refusal(
                500, "", "This pod has more than one PodDisruptionBudget, which the eviction "
                "subresource does not support.",
            )  # fmt: skip
        if budgets and not _may_go_unhealthy(pod.object, budgets[0].object):
            self._spend(budgets[0], pod, write)

    def _budgets_of(self, pod: Stored) -> Iterator[Stored]:
        labels = pod.object["metadata"].get("labels") or {}
        for budget in self._operations.store.all(BUDGETS):
            same_place = budget.key[0] == pod.key[0]
            if same_place and selects(budget.object["spec"].get("selector"), labels):
                yield budget

    def _spend(self, budget: Stored, pod: Stored, write: Write) -> None:
        """Takes one disruption from the budget and notes whose it is."""
        self._check(budget)
        if write.dry_run:
            return
        now = self._operations.now()

        def spent(obj: Object) -> Object:
            status = obj["status"]
            left = status["disruptionsAllowed"] - 1
            disrupted = {**(status.get("disruptedPods") or {}), pod.key[1]: now}
            status = {**status, "disruptionsAllowed": left, "disruptedPods": disrupted}
            return {**obj, "status": with_verdict(status, now) if left == 0 else status}

        target = Target(self._budgets, *budget.key, "status")
        self._operations.patch(target, spent, Write("kube-apiserver"))

    def _check(self, budget: Stored) -> None:
        name, status = budget.key[1], budget.object.get("status") or {}
        if status.get("observedGeneration", 0) < budget.object["metadata"].get("generation", 0):
            why = f"The disruption budget {name} is still being processed by the server."
            raise _too_many(why, retry_after=_WAIT_FOR_A_COUNT)
        allowed = status.get("disruptionsAllowed", 0)
        if allowed < 0:
            raise forbidden(self._budgets, name, "pdb disruptions allowed is negative")
        if len(status.get("disruptedPods") or ()) > _MOST_DISRUPTED:
            why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
            raise forbidden(self._budgets, name, why)
        if allowed == 0:
            raise _too_many(_why_not(name, status))

    def _delete(self, target: Target, pod: Stored, options: DeleteOptions, write: Write) -> None:
        main = Target(target.info, target.namespace, target.name)
        if not write.dry_run:
            _check_preconditions(pod, options)
            marked = _disrupted(pod.object, self._operations.now())
            if marked is not pod.object:
                self._operations.enact(main, pod, marked, write)
            options = DeleteOptions(grace=options.grace, propagation=options.propagation)
        self._operations.delete(main, options, write)


def _too_many(why: str, *, retry_after: int | None = None) -> Refusal:
    return Refusal(
        429, "TooManyRequests", _NO,
        causes=[Cause("DisruptionBudget", why)], retry_after=retry_after,
    )  # fmt: skip


def _why_not(name: str, status: Json) -> str:
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    budget = f"The disruption budget {name}"
    refusal: Json = next(
        (c for c in status.get("conditions") or () if c["type"] == "DisruptionAllowed"), {}
    )
    message = refusal.get("message") if refusal.get("status") == "False" else ""
    if message and refusal.get("reason") == "SyncFailed":
        return f"{budget} does not allow evicting pods currently because it failed sync: {message}"
    if healthy <= desired:
        return f"{budget} needs {desired} healthy pods and has {healthy} currently"
    if message:
        return f"{budget} does not allow evicting pods currently ({refusal['reason']}): {message}"
    return f"{budget} does not allow evicting pods currently"


def _delete_options(sent: Json) -> DeleteOptions:
    preconditions = sent.get("preconditions") or {}
    return DeleteOptions(
        grace=sent.get("gracePeriodSeconds"),
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        propagation=sent.get("propagationPolicy") or "",
    )


def _check_preconditions(pod: Stored, options: DeleteOptions) -> None:
    meta, name = pod.object["metadata"], pod.key[1]
    for what, asked, actual, end in (
        ("UID", options.uid, meta["uid"], "been deleted and then recreated"),
        ("ResourceVersion", options.resource_version, meta["resourceVersion"], "been modified"),
    ):
        if asked and asked != actual:
            raise Refusal(
                409, "Conflict", f'Operation cannot be fulfilled on Pod "{name}": the {what} in '
                f"the precondition ({asked}) does not match the {what} in record ({actual}). The "
                f"object might have {end}",
                details={"name": name, "kind": "Pod"},
            )  # fmt: skip


def _needs_no_permission(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    over = phase in ("Pending", "Succeeded", "Failed")
    return over or bool(pod["metadata"].get("deletionTimestamp"))


def _may_go_unhealthy(pod: Object, budget: Object) -> bool:
    """A pod that is not ready does not count, so its going costs nothing if enough others are."""
    if is_ready(pod):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def _disrupted(pod: Object, now: str) -> Object:
    """With the condition that tells others why it goes; the same pod if it has it already."""
    status = pod.get("status") or {}
    conditions = list(status.get("conditions") or ())
    if any(c["type"] == "DisruptionTarget" and c["status"] == "True" for c in conditions):
        return pod
    conditions = [c for c in conditions if c["type"] != "DisruptionTarget"]
    conditions.append({
        "type": "DisruptionTarget", "status": "True", "lastProbeTime": None,
        "lastTransitionTime": now, "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    })  # fmt: skip
    return {**pod, "status": {**status, "conditions": conditions}}
