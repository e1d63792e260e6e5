"""Terms: what holds for a workload, who has said so, and what nobody can ask for."""

from typing import Any

import msgspec
import pytest

from backstay.decide.policy import explained, selects, terms_of
from backstay.model.evidence import Strength
from backstay.model.labels import MINIMUM_PROOF, TMAX_PROTECT
from backstay.model.policy import (
    AvailabilityRule,
    Detach,
    OnKubeletLoss,
    Policy,
    Requirement,
    Terms,
)
from backstay.model.workload import Workload
from tests.decide.cases import VM, changed, verdict

replace = msgspec.structs.replace


def rule(name: str = "ours", **fields: Any) -> AvailabilityRule:
    return AvailabilityRule(**({"namespace": "shop", "name": name} | fields))


def terms(*rules: AvailabilityRule, vm: dict[str, Any] | None = None, **cluster: Any) -> Terms:
    return terms_of(replace(VM, **(vm or {})), Policy(rules=rules, **cluster))


def labelled(**labels: str) -> Workload:
    return replace(VM, labels=labels)


def test_with_nothing_said_a_persons_word_is_enough_and_silence_is_not() -> None:
    assert terms().minimum is Strength.CONFIRMED
    assert terms().origins["minimum"] == "default"


def test_the_cluster_can_ask_for_more_than_a_persons_word() -> None:
    strict = terms(weakest=Strength.OBSERVED)
    assert strict.minimum is Strength.OBSERVED
    assert strict.origins["minimum"] == "BackstayConfig cluster"
    assert strict.notes == ()


def test_an_owner_can_consent_to_silence() -> None:
    asked = terms(rule(minimum=Strength.PRESUMED))
    assert asked.minimum is Strength.PRESUMED
    assert asked.origins["minimum"] == "AvailabilityPolicy shop/ours"


def test_nobody_can_consent_to_less_than_the_cluster_allows() -> None:
    bounded = terms(rule(minimum=Strength.PRESUMED), weakest=Strength.CONFIRMED)
    assert bounded.minimum is Strength.CONFIRMED
    assert bounded.notes == (
        "AvailabilityPolicy shop/ours asks for minimumProof Presumed, and the cluster grants "
        "Confirmed",
    )


def test_the_label_of_the_controller_that_we_replace_is_consent() -> None:
    asked = terms(vm={"labels": {TMAX_PROTECT: "true"}})
    assert asked.minimum is Strength.PRESUMED
    assert asked.origins["minimum"] == f"its label {TMAX_PROTECT}"


def test_a_label_of_its_own_goes_before_the_policy_of_its_namespace() -> None:
    asked = terms(rule(minimum=Strength.PRESUMED), vm={"labels": {MINIMUM_PROOF: "observed"}})
    assert asked.minimum is Strength.OBSERVED


def test_a_label_that_means_nothing_is_taken_for_the_most_cautious() -> None:
    asked = terms(vm={"labels": {MINIMUM_PROOF: "whatever"}})
    assert asked.minimum is Strength.OBSERVED
    assert "none of Observed, Confirmed, Presumed" in asked.notes[0]


@pytest.mark.parametrize(
    ("field", "one", "other", "holds"),
    [
        ("protect", True, False, False),
        ("minimum", Strength.PRESUMED, Strength.OBSERVED, Strength.OBSERVED),
        ("on_kubelet_loss", OnKubeletLoss.STOP_AND_MOVE, OnKubeletLoss.LEAVE, OnKubeletLoss.LEAVE),
        ("detach", Detach.ATTACHMENTS, Detach.LEAVE, Detach.LEAVE),
        ("start", True, False, False),
        ("singleton", False, True, True),
        ("priority", 50, 7, 7),
    ],
)
def test_where_policies_contradict_each_other_the_more_cautious_holds(
    field: str, one: Any, other: Any, holds: Any
) -> None:
    for first, second in ((one, other), (other, one)):
        both = terms(rule("a", **{field: first}), rule("b", **{field: second}))
        assert getattr(both, field) == holds
        assert "contradict each other" in both.notes[0]


def test_an_owner_cannot_take_volumes_where_the_cluster_leaves_them() -> None:
    asked = terms(rule(detach=Detach.ATTACHMENTS), detach=Detach.LEAVE)
    assert asked.detach is Detach.LEAVE
    assert asked.origins["detach"] == "BackstayConfig cluster"


def test_nobody_can_put_himself_before_everybody() -> None:
    asked = terms(rule(priority=1000), highest_priority=100)
    assert asked.priority == 100
    assert "grants 100" in asked.notes[0]


def test_a_policy_is_for_its_own_namespace() -> None:
    assert terms(rule(namespace="bank", protect=False)).protect is None


@pytest.mark.parametrize(
    ("requirement", "labels", "selected"),
    [
        (Requirement("tier", "In", ("db", "web")), {"tier": "db"}, True),
        (Requirement("tier", "In", ("db",)), {"tier": "web"}, False),
        (Requirement("tier", "In", ("db",)), {}, False),
        (Requirement("tier", "NotIn", ("db",)), {}, True),
        (Requirement("tier", "NotIn", ("db",)), {"tier": "db"}, False),
        (Requirement("tier", "Exists"), {"tier": ""}, True),
        (Requirement("tier", "Exists"), {}, False),
        (Requirement("tier", "DoesNotExist"), {}, True),
        (Requirement("tier", "DoesNotExist"), {"tier": "x"}, False),
    ],
)
def test_a_selector_means_what_it_means_in_kubernetes(
    requirement: Requirement, labels: dict[str, str], selected: bool
) -> None:
    assert selects(rule(requirements=(requirement,)), labelled(**labels)) is selected


def test_all_requirements_of_a_selector_must_hold() -> None:
    both = (Requirement("a", "Exists"), Requirement("b", "Exists"))
    assert not selects(rule(requirements=both), labelled(a=""))


def test_every_term_says_who_has_set_it() -> None:
    said = {field: (value, origin) for field, value, origin in explained(terms(start=True))}
    assert said["start"] == ("true", "BackstayConfig cluster")
    assert said["onKubeletLoss"] == ("Leave", "default")
    assert said["priority"] == ("not said", "its PriorityClass")
    assert said.keys() >= {"protect", "minimumProof", "detach", "singleton", "presumeBlock"}


def test_a_policy_that_cannot_be_read_holds_what_it_might_speak_of() -> None:
    unread = {"shop": "AvailabilityPolicy shop/ours cannot be read (it is garbled)"}
    held = verdict(changed(policy={"unread": unread}))
    assert (held.action, held.why.code) == ("Hold", "PolicyUnreadable")
    elsewhere = verdict(changed(policy={"unread": {"bank": "garbled"}}))
    assert elsewhere.why.code == "MayBeReleased"
