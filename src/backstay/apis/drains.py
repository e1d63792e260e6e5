"""What a drain looks at: the pods of one node, disruption budgets, and guests.

These are watched for one node at a time, so each is kept as the value that decisions are made on
(``model/drain.py``).
"""

import msgspec

from backstay.apis.core import PodStatus
from backstay.apis.kubevirt import Condition
from backstay.apis.pods import OwnedMeta, controller_of
from backstay.kube.projection import Meta, Projection, share
from backstay.kube.resource import Resource
from backstay.model.drain import BudgetSight, GuestSight, PodSight
from backstay.model.labels import HOTPLUG_VALUE, LAUNCHER
from backstay.model.policy import Requirement

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")

_MIRROR = "kubernetes.io/config.mirror"
_GRACE = 30
_IMPOSSIBLE = Requirement("", "In")
"""No label has no name: what we cannot read selects nothing, and the API has the last word."""


# Pods


class _PodMeta(OwnedMeta, frozen=True, gc=False, rename="camel"):
    finalizers: list[str] | None = None


class _Volume(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    empty_dir: msgspec.Raw = msgspec.Raw(b"null")


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str | None = None
    volumes: list[_Volume] | None = None
    termination_grace_period_seconds: int | None = None


class DrainPod(msgspec.Struct, frozen=True, gc=False):
    metadata: _PodMeta
    spec: _Spec = _Spec()
    status: PodStatus = PodStatus()


def pod_sight(pod: DrainPod) -> PodSight:
    meta, spec = pod.metadata, pod.spec
    owner, grace = controller_of(meta.owner_references), spec.termination_grace_period_seconds
    labels = meta.labels or {}
    plugs = labels.get(LAUNCHER) == HOTPLUG_VALUE and owner is not None
    return PodSight(
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        namespace=share(meta.namespace or ""),
        name=meta.name,
        node=share(spec.node_name or ""),
        phase=share(pod.status.phase or ""),
        ready=any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ()),
        terminating=meta.deletion_timestamp or "",
        grace=_GRACE if grace is None else grace,
        labels=labels,
        owner=None if owner is None else (owner.group, owner.kind, owner.name, owner.uid),
        mirror=_MIRROR in (meta.annotations or {}),
        empty_dirs=tuple(v.name for v in spec.volumes or () if bytes(v.empty_dir) != b"null"),
        plugs=plugs and owner is not None and (owner.group, owner.kind) == ("", "Pod"),
        finalizers=tuple(meta.finalizers or ()),
    )


# Budgets


class _Expression(msgspec.Struct, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Expression] | None = None


class _BudgetMeta(Meta, frozen=True, gc=False, rename="camel"):
    generation: int = 0


class _BudgetSpec(msgspec.Struct, frozen=True, rename="camel"):
    selector: _Selector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class _BudgetStatus(msgspec.Struct, frozen=True, rename="camel"):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    observed_generation: int = 0


class Budget(msgspec.Struct, frozen=True):
    metadata: _BudgetMeta
    spec: _BudgetSpec = _BudgetSpec()
    status: _BudgetStatus = _BudgetStatus()


def budget_sight(budget: Budget) -> BudgetSight:
    meta, status = budget.metadata, budget.status
    return BudgetSight(
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        namespace=share(meta.namespace or ""),
        selector=_requirements(budget.spec.selector),
        allowed=status.disruptions_allowed,
        healthy=status.current_healthy,
        desired=status.desired_healthy,
        counted=status.observed_generation >= meta.generation,
        unhealthy_may_go=budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
    )


_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


def _requirements(selector: _Selector | None) -> tuple[Requirement, ...] | None:
    """An empty selector selects everything, and none selects nothing."""
    if selector is None:
        return None
    labels = sorted((selector.match_labels or {}).items())
    equal = [Requirement(key, "In", (value,)) for key, value in labels]
    more = [
        Requirement(each.key, each.operator, each.values or ())
        if each.operator in _OPERATORS
        else _IMPOSSIBLE
        for each in selector.match_expressions or ()
    ]
    return (*equal, *more)


# Guests


class _GuestSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    eviction_strategy: str | None = None


class _GuestStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str | None = None
    node_name: str | None = None
    conditions: list[Condition] | None = None
    evacuation_node_name: str | None = None


class DrainGuest(msgspec.Struct, frozen=True, gc=False):
    metadata: OwnedMeta
    spec: _GuestSpec = _GuestSpec()
    status: _GuestStatus = _GuestStatus()


def guest_sight(guest: DrainGuest) -> GuestSight:
    meta, status = guest.metadata, guest.status
    conditions = status.conditions or ()
    movable = next((each for each in conditions if each.type == "LiveMigratable"), None)
    return GuestSight(
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        node=share(status.node_name or ""),
        phase=share(status.phase or ""),
        strategy=guest.spec.eviction_strategy or "",
        migratable=None if movable is None else movable.status == "True",
        immovable="" if movable is None else movable.message or movable.reason,
        evacuating=share(status.evacuation_node_name or ""),
    )


class _Configuration(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    eviction_strategy: str | None = None


class _KubeVirtSpec(msgspec.Struct, frozen=True, gc=False):
    configuration: _Configuration | None = None


class KubeVirtDefaults(msgspec.Struct, frozen=True, gc=False):
    """What KubeVirt does with guests that say nothing themselves."""

    metadata: Meta
    spec: _KubeVirtSpec = _KubeVirtSpec()

    @property
    def eviction_strategy(self) -> str:
        configured = self.spec.configuration
        return "" if configured is None else configured.eviction_strategy or ""


DRAIN_POD_PROJECTION: Projection[DrainPod, PodSight] = Projection(DrainPod, pod_sight)
BUDGET_PROJECTION: Projection[Budget, BudgetSight] = Projection(Budget, budget_sight)
GUEST_PROJECTION: Projection[DrainGuest, GuestSight] = Projection(DrainGuest, guest_sight)
