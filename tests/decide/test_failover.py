"""The chain: each check with what it objects to and what it lets pass, and how they add up."""

from typing import Any

import msgspec
import pytest

from backstay.decide.failover import (
    CHAIN,
    Action,
    Snapshot,
    decide,
    examine,
)
from backstay.decide.proof import counts, proofs, refuted
from backstay.model.evidence import EvidenceKind, Strength
from backstay.model.node import Life
from backstay.model.policy import AvailabilityRule, Mode
from backstay.model.workload import Volume, WorkloadKind
from tests.decide.cases import (
    CONFIRMED,
    FACTS,
    NOW,
    READY,
    SUSPECTED,
    TIMES,
    VM,
    WORD,
    changed,
    decided,
    verdict,
)

replace = msgspec.structs.replace
Json = dict[str, Any]


def outcome(snapshot: Snapshot) -> tuple[Action, str]:
    found = verdict(snapshot)
    return found.action, found.why.code


def test_what_passes_every_check_is_released() -> None:
    assert outcome(READY) == (Action.RELEASE, "MayBeReleased")


# One check after the other


@pytest.mark.parametrize("state", [Life.LOST, Life.PROVEN, Life.RECOVERED])
def test_a_workload_of_a_node_that_is_down_may_go(state: Life) -> None:
    assert outcome(changed(life={"state": state})) == (Action.RELEASE, "MayBeReleased")


@pytest.mark.parametrize("state", [Life.HEALTHY, Life.SUSPECT, Life.RETURNING])
def test_a_workload_of_a_node_that_is_not_down_is_left(state: Life) -> None:
    found = verdict(changed(life={"state": state}))
    assert found.action is Action.LEAVE
    assert found.why == changed().life.why


def test_a_workload_that_has_ended_is_left() -> None:
    assert outcome(changed(workload={"ended": True})) == (Action.LEAVE, "AlreadyEnded")


def test_a_guest_that_runs_elsewhere_is_left_until_its_node_is_proven_dead() -> None:
    unproven = verdict(changed(workload={"runs_on": "n2"}, confirmations=()))
    assert (unproven.action, unproven.why.code) == (Action.LEAVE, "RunsElsewhere")
    assert verdict(changed(workload={"runs_on": "n2"})).action is Action.RELEASE


def test_a_workload_that_could_not_be_looked_up_is_held_before_it_is_called_unprotected() -> None:
    unknown = changed(workload={"unread": "forbidden.", "label": False})
    found = verdict(unknown)
    assert (found.action, found.why.code) == (Action.HOLD, "LookupFailed")
    assert found.why.sentence.endswith(": forbidden.")


@pytest.mark.parametrize(
    ("workload", "policy"),
    [
        ({}, {}),
        ({"kind": WorkloadKind.INSTANCE}, {}),
        ({"kind": WorkloadKind.STATEFUL_SET}, {}),
        ({"kind": WorkloadKind.OTHER, "label": True}, {}),
        ({"label": True}, {"virtual_machines": False}),
        ({"kind": WorkloadKind.STATEFUL_SET, "label": True}, {"stateful_sets": False}),
        ({"restarts": False, "label": True}, {}),
        ({"restarts": False, "leaving": True}, {}),
        ({"restarts": False, "leaving": True, "pinned_by": "a device"}, {}),
    ],
)
def test_what_is_protected_may_go(workload: Json, policy: Json) -> None:
    assert outcome(changed(workload=workload, policy=policy))[0] is Action.RELEASE


@pytest.mark.parametrize(
    ("workload", "policy"),
    [
        ({"label": False}, {}),
        ({"kind": WorkloadKind.OTHER}, {}),
        ({"restarts": False}, {}),
        ({"restarts": False, "leaving": True, "label": False}, {}),
        ({"restarts": False, "leaving": True}, {"virtual_machines": False}),
        ({}, {"virtual_machines": False}),
        ({"kind": WorkloadKind.INSTANCE}, {"virtual_machines": False}),
        ({"kind": WorkloadKind.STATEFUL_SET}, {"stateful_sets": False}),
    ],
)
def test_what_is_not_protected_is_left(workload: Json, policy: Json) -> None:
    assert outcome(changed(workload=workload, policy=policy)) == (Action.LEAVE, "NotProtected")


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        (WorkloadKind.VIRTUAL_MACHINE, "kubectl label vm web -n shop backstay.dev/protect=true"),
        (WorkloadKind.OTHER, "kubectl label pod web -n shop backstay.dev/protect=true"),
    ],
)
def test_what_is_not_protected_is_told_how_it_could_be(kind: WorkloadKind, command: str) -> None:
    snapshot = changed(
        workload={"kind": kind}, policy={"virtual_machines": False, "stateful_sets": False}
    )
    assert verdict(snapshot).why.next == command


def test_a_workload_of_an_exempt_node_is_left() -> None:
    assert outcome(changed(facts={"exempt": True})) == (Action.LEAVE, "Exempt")


def test_a_workload_that_is_pinned_is_held() -> None:
    pinned = changed(workload={"pinned_by": "it uses the device gpu of n1"})
    assert outcome(pinned) == (Action.HOLD, "CannotRunElsewhere")


def test_a_workload_with_a_volume_of_the_node_is_held() -> None:
    local = changed(workload={"volumes": (*VM.volumes, Volume(claim="data", only_on="n1"))})
    found = verdict(local)
    assert (found.action, found.why.code) == (Action.HOLD, "CannotRunElsewhere")
    assert "data" in found.why.sentence


@pytest.mark.parametrize(
    ("age", "action"),
    [
        (0.0, Action.RELEASE),
        (TIMES.fresh, Action.RELEASE),
        (TIMES.fresh + 0.1, Action.HOLD),
        (float("inf"), Action.HOLD),
    ],
)
def test_an_old_view_is_not_acted_on(age: float, action: Action) -> None:
    found = verdict(changed(view_age=age))
    assert found.action is action
    assert (found.why.code == "StaleView") is (action is Action.HOLD)


@pytest.mark.parametrize("sign", ["lease_changed_at", "heartbeat_changed_at"])
def test_a_sign_of_life_after_the_confirmation_contradicts_it(sign: str) -> None:
    snapshot = changed(facts={sign: CONFIRMED + 1})
    assert outcome(snapshot) == (Action.HOLD, "EvidenceContradicted")
    assert decided(snapshot).why.code == "EvidenceContradicted"
    assert decided(snapshot).evidence == ()


def test_a_sign_of_life_before_the_confirmation_does_not_contradict_it() -> None:
    assert refuted(changed(facts={"lease_changed_at": CONFIRMED - 1}).heard) is None


def test_a_confirmation_of_another_boot_is_not_contradicted_by_this_one() -> None:
    other = changed(facts={"lease_changed_at": CONFIRMED + 1}, word={"boot_id": "b0"})
    assert refuted(other.heard) is None


def test_guests_whose_handler_still_reports_are_held() -> None:
    alive = changed(facts={"heartbeat_changed_at": SUSPECTED + 1}, confirmations=())
    assert outcome(alive) == (Action.HOLD, "GuestAliveKubeletDead")


def test_a_handler_that_reported_before_the_suspicion_says_nothing() -> None:
    before = changed(facts={"heartbeat_changed_at": SUSPECTED - 1})
    assert outcome(before)[0] is Action.RELEASE


def test_without_evidence_a_workload_is_held_and_its_volumes_are_named() -> None:
    found = verdict(changed(confirmations=()))
    assert (found.action, found.why.code) == (Action.HOLD, "ProofMissing")
    assert "root" in found.why.sentence
    assert "backstay confirm-dead n1" in found.why.next


@pytest.mark.parametrize("word", [{"boot_id": "b0"}, {"node_uid": "u0"}])
def test_a_confirmation_of_another_boot_or_node_is_no_evidence(word: Json) -> None:
    assert outcome(changed(word=word)) == (Action.HOLD, "ProofMissing")


def test_when_only_observing_what_would_be_released_is_held() -> None:
    assert outcome(changed(policy={"mode": Mode.OBSERVE})) == (Action.HOLD, "Observing")


def test_when_disarmed_it_is_said_until_when_and_why() -> None:
    disarmed = {
        "mode": Mode.DISARMED, "disarmed_until": "tomorrow", "disarmed_because": "works on racks",
    }  # fmt: skip
    found = verdict(changed(policy=disarmed))
    assert (found.action, found.why.code) == (Action.HOLD, "Disarmed")
    assert "tomorrow: works on racks" in found.why.sentence


def test_what_stands_in_the_way_is_said_in_observation_too() -> None:
    observing = changed(policy={"mode": Mode.OBSERVE}, confirmations=())
    assert outcome(observing) == (Action.HOLD, "ProofMissing")


# Evidence


def test_evidence_is_a_confirmation_of_this_boot_with_its_source() -> None:
    [evidence] = proofs(READY.heard, NOW, times=TIMES)
    assert evidence.kind is EvidenceKind.OPERATOR_CONFIRMED
    assert evidence.is_about(node_uid="u1", boot_id="b1")
    assert (evidence.source, evidence.detail, evidence.observed_at) == (
        "carla", "pulled the plug", NOW,
    )  # fmt: skip


def test_one_confirmation_that_counts_is_enough_beside_one_that_does_not() -> None:
    both = changed(confirmations=(replace(WORD, boot_id="b0"), WORD))
    assert outcome(both)[0] is Action.RELEASE


def test_a_later_confirmation_does_not_outweigh_one_that_life_contradicted() -> None:
    """Two people disagree about a node that has shown life since the first spoke: somebody has to
    look at it before anything is deleted."""
    later = replace(WORD, name="again", seen_at=CONFIRMED + 5)
    both = changed(facts={"lease_changed_at": CONFIRMED + 1}, confirmations=(WORD, later))
    assert outcome(both) == (Action.HOLD, "EvidenceContradicted")


@pytest.mark.parametrize("sign", ["lease_changed_at", "heartbeat_changed_at"])
def test_life_since_the_suspicion_leaves_no_evidence(sign: str) -> None:
    """Even where the confirmation came after it: a boot that lived is not dead on old silence."""
    alive = changed(facts={sign: SUSPECTED + 1}, word={"seen_at": SUSPECTED + 2})
    assert proofs(alive.heard, NOW, times=TIMES) == ()


def test_a_confirmation_counts_until_something_is_heard() -> None:
    assert counts(WORD, FACTS)
    assert counts(WORD, replace(FACTS, lease_changed_at=None))
    assert not counts(WORD, replace(FACTS, lease_changed_at=CONFIRMED + 0.001))


@pytest.mark.parametrize(
    ("moment", "value", "last"),
    [
        ("lease_changed_at", "renewal", "last_renewal"),
        ("heartbeat_changed_at", "heartbeat", "last_heartbeat"),
        ("status_changed_at", "status", "last_status"),
    ],
)
def test_a_sign_that_the_confirmation_knew_of_does_not_refute_it(
    moment: str, value: str, last: str
) -> None:
    """It was seen later only because leases are looked at every few seconds, and a watch may lag
    behind another."""
    facts = replace(FACTS, **{moment: CONFIRMED + 1, value: "12:00:00"})
    assert counts(replace(WORD, **{last: "12:00:00"}), facts)
    assert not counts(replace(WORD, **{last: "11:59:50"}), facts)


def test_a_status_that_came_after_the_confirmation_speaks_against_it_for_whoever_starts_anew() -> (
    None
):
    """It has not seen it come; but the confirmation names another as the last one."""
    facts = replace(FACTS, status="12:00:00")
    assert not counts(replace(WORD, last_status="11:59:50"), facts)
    assert counts(replace(WORD, last_status=""), facts), "one that names none counts without it"


@pytest.mark.parametrize(
    ("value", "last", "because"),
    [
        ("renewal", "last_renewal", "the node's lease was renewed after it was given"),
        (
            "heartbeat", "last_heartbeat",
            "the node's virt-handler sent a heartbeat after it was given",
        ),
        ("status", "last_status", "the node's kubelet posted its status after it was given"),
    ],
)  # fmt: skip
def test_whoever_did_not_see_the_sign_come_says_why_the_word_does_not_count(
    value: str, last: str, because: str
) -> None:
    late = changed(facts={value: "12:00:00"}, word={last: "11:59:50"})
    found = verdict(late)
    assert (found.action, found.why.code) == (Action.HOLD, "ConfirmationRefused")
    assert because in found.why.sentence


def test_where_a_death_may_be_presumed_it_is_said_what_that_waits_for() -> None:
    consent = AvailabilityRule(name="ours", namespace="shop", minimum=Strength.PRESUMED)
    unproven = changed(confirmations=(), policy={"rules": (consent,)})
    assert "to presume its death, " in verdict(unproven).why.sentence
    assert "presume" not in verdict(changed(confirmations=())).why.sentence


# The whole node


def test_what_matters_more_comes_first_and_then_by_name() -> None:
    workloads = (
        replace(VM, name="b"), replace(VM, name="a"), replace(VM, name="z", priority=1000),
    )  # fmt: skip
    found = decided(changed(workloads=workloads))
    assert [each.workload.name for each in found.verdicts] == ["z", "a", "b"]


def test_held_and_released_are_told_apart() -> None:
    pinned = replace(VM, name="gpu", pinned_by="it uses a device")
    found = decided(changed(workloads=(VM, pinned)))
    assert [each.workload.name for each in found.held] == ["gpu"]
    assert [each.workload.name for each in found.releases] == ["web"]


def test_examine_asks_every_check_and_the_first_objection_is_the_verdict() -> None:
    unproven = changed(confirmations=(), policy={"mode": Mode.OBSERVE})
    answers = examine(unproven, VM, NOW, times=TIMES, chain=CHAIN)
    assert [answer.check for answer in answers] == [check.__name__ for check in CHAIN]
    objections = [answer.objection for answer in answers if answer.objection]
    assert [each.why.code for each in objections] == ["ProofMissing", "Observing"]
    assert verdict(unproven).why == objections[0].why


def test_a_check_that_is_taken_out_of_the_chain_is_not_asked() -> None:
    without = tuple(check for check in CHAIN if check.__name__ != "is_it_proven")
    unproven = changed(confirmations=())
    [found] = decide(unproven, NOW, times=TIMES, chain=without).verdicts
    assert found.action is Action.RELEASE
