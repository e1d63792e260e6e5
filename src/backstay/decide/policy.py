"""Terms: what holds for one workload, and who has said so.

From the weakest to the strongest: what ships, the cluster's configuration, the policies of the
workload's namespace, the labels of the workload itself.

* What an owner asks for is bounded by the cluster: nobody can consent to less proof than
  ``weakest``, take volumes away where the cluster leaves them, or put himself before everybody.
* Where several policies select one workload, the most cautious of each field holds. That they
  contradict each other, or ask for more than they get, is noted.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from backstay.model.evidence import Strength
from backstay.model.labels import MINIMUM_PROOF, PROTECT, TMAX_PROTECT
from backstay.model.policy import (
    AvailabilityRule,
    Detach,
    OnKubeletLoss,
    Policy,
    Terms,
)
from backstay.model.workload import Workload

T = TypeVar("T")

_SHIPPED = dict.fromkeys(Terms.__struct_fields__) | msgspec.structs.asdict(Policy())
_CLUSTER = "BackstayConfig cluster"
_BUILT_IN = "default"

# The most cautious first.
_STRENGTHS = tuple(Strength)
_KUBELET_LOSS = tuple(OnKubeletLoss)
_DETACH = (Detach.LEAVE, Detach.ATTACHMENTS, Detach.OUT_OF_SERVICE)


def terms_of(workload: Workload, policy: Policy) -> Terms:
    """See the module."""
    asked = _Asked([rule for rule in policy.rules if selects(rule, workload)])
    minimum = _minimum(workload, policy, asked)
    detach = _detach(policy, asked)
    return Terms(
        protect=_protect(workload, asked),
        minimum=minimum,
        presume_block=asked.left_to("presume_block", policy.presume_block),
        on_kubelet_loss=asked.get(
            "on_kubelet_loss", _KUBELET_LOSS.index, default=policy.on_kubelet_loss
        ),
        detach=detach,
        start=asked.get("start", _as_it_is, default=policy.start),
        singleton=asked.get("singleton", _yes_first, default=False),
        priority=_priority(policy, asked),
        origins=asked.origins,
        notes=tuple(asked.notes),
    )


def selects(rule: AvailabilityRule, workload: Workload) -> bool:
    return rule.namespace == workload.namespace and all(
        requirement.holds(workload.labels) for requirement in rule.requirements
    )


def _as_it_is(value: Any) -> int:
    """No before yes, little before much."""
    return int(value)


def _yes_first(value: bool) -> int:
    return int(not value)


class _Asked:
    """What the policies that select a workload ask for, field by field, with an account of who
    has decided each."""

    def __init__(self, rules: Sequence[AvailabilityRule]) -> None:
        self.origins: dict[str, str] = {}
        self.notes: list[str] = []
        self._rules = rules

    def get(self, field: str, caution: Callable[[T], int], *, default: T) -> T:
        if not self._rules:
            return self.left_to(field, default)
        found: list[tuple[AvailabilityRule, T]] = [
            (rule, value) for rule in self._rules if (value := getattr(rule, field)) is not None
        ]
        if not found:
            return self.left_to(field, default)
        rule, value = min(found, key=lambda each: caution(each[1]))
        self.origins[field] = _named(rule)
        others = [_named(each) for each, other in found if other != value]
        if others:
            self.notes.append(
                f"{', '.join(others)} and {_named(rule)} contradict each other about "
                f"{_spoken(field)}: the more cautious {_shown(value)} holds"
            )
        return value

    def left_to(self, field: str, value: T) -> T:
        self.origins[field] = _BUILT_IN if value == _SHIPPED[field] else _CLUSTER
        return value

    def bound(self, field: str, wanted: object, granted: T) -> T:
        self.notes.append(
            f"{self.origins[field]} asks for {_spoken(field)} {_shown(wanted)}, and the cluster "
            f"grants {_shown(granted)}"
        )
        self.origins[field] = _CLUSTER
        return granted


def _protect(workload: Workload, asked: _Asked) -> bool | None:
    by_policy: bool | None = asked.get("protect", _as_it_is, default=None)
    if workload.label is None:
        return by_policy
    asked.origins["protect"] = workload.labelled_by or f"its label {PROTECT}"
    return workload.label


def _minimum(workload: Workload, policy: Policy, asked: _Asked) -> Strength:
    wanted = asked.get("minimum", _STRENGTHS.index, default=Strength.CONFIRMED)
    if asked.origins["minimum"] == _CLUSTER:
        asked.origins["minimum"] = _BUILT_IN
    own = _own_minimum(workload, asked)
    wanted = wanted if own is None else own
    if wanted.suffices(policy.weakest):
        return wanted
    if asked.origins["minimum"] == _BUILT_IN:
        asked.origins["minimum"] = _CLUSTER
        return policy.weakest
    return asked.bound("minimum", wanted, policy.weakest)


def _own_minimum(workload: Workload, asked: _Asked) -> Strength | None:
    """By label. That of the controller which we replace is consent to act on silence."""
    own = workload.labels.get(MINIMUM_PROOF)
    if own is not None:
        named = {each.value.lower(): each for each in Strength}.get(own.lower())
        asked.origins["minimum"] = f"its label {MINIMUM_PROOF}"
        if named is None:
            choices = ", ".join(Strength)
            asked.notes.append(
                f"its label {MINIMUM_PROOF} is {own!r:.80}, which is none of {choices}: the most "
                "cautious holds"
            )
            return Strength.OBSERVED
        return named
    if workload.labels.get(TMAX_PROTECT, "").lower() == "true":
        asked.origins["minimum"] = f"its label {TMAX_PROTECT}"
        return Strength.PRESUMED
    return None


def _detach(policy: Policy, asked: _Asked) -> Detach:
    wanted = asked.get("detach", _DETACH.index, default=policy.detach)
    if wanted is policy.detach or _DETACH.index(wanted) < _DETACH.index(policy.detach):
        return wanted
    return asked.bound("detach", wanted, policy.detach)


def _priority(policy: Policy, asked: _Asked) -> int | None:
    wanted: int | None = asked.get("priority", _as_it_is, default=None)
    if wanted is None:
        asked.origins["priority"] = "its PriorityClass"
    elif wanted > policy.highest_priority:
        return asked.bound("priority", wanted, policy.highest_priority)
    return wanted


def _named(rule: AvailabilityRule) -> str:
    return f"AvailabilityPolicy {rule.namespace}/{rule.name}"


_WORDS = {
    "minimum": "minimumProof",
    "on_kubelet_loss": "onKubeletLoss",
    "presume_block": "presumeBlock",
}


def _spoken(field: str) -> str:
    """As it stands in the objects."""
    return _WORDS.get(field, field)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def explained(terms: Terms) -> Iterable[tuple[str, str, str]]:
    """Each field with its value and who has set it, for people."""
    for field, origin in terms.origins.items():
        value = getattr(terms, field)
        yield _spoken(field), "not said" if value is None else _shown(value), origin
