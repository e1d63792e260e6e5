"""Proof: what testimony amounts to, what refutes it, and what it is enough for."""

from typing import Any

import msgspec
import pytest

from backstay.decide.failover import CHAIN, Action, Snapshot, Verdict, decide
from backstay.decide.proof import (
    may_detach,
    objection,
    proofs,
    refutations,
    why_not_presumed,
)
from backstay.decide.storm import Fleet
from backstay.model.evidence import (
    Answer,
    Evidence,
    EvidenceKind,
    Fence,
    GuestStop,
    OutOfService,
    ProviderState,
    Silence,
    Strength,
    Testimony,
)
from backstay.model.labels import TMAX_PROTECT
from backstay.model.policy import Policy, Terms
from backstay.model.power import PowerSight
from backstay.model.workload import Volume
from tests.decide.cases import (
    CONFIRMED,
    HEARD,
    NOW,
    SUSPECTED,
    TIMES,
    VM,
    WORD,
    changed,
    decided,
    verdict,
)

replace = msgspec.structs.replace

LONG = HEARD + TIMES.presume + 10
"""When the node has been silent for long enough to be presumed dead."""
LATER = CONFIRMED + 60
CONSENT = {"labels": {TMAX_PROTECT: "true"}}
SHARED = Volume(claim="root", pv="pv", driver="csi", access_modes=("ReadWriteMany",))


def silence(vantage: str, **fields: Any) -> Silence:
    seen: dict[str, Any] = {
        "since": HEARD + 5,
        "asked_at": LONG,
        "proven_at": LONG,
        "proven_on": "n2",
    }
    return Silence(channel="kubelet port", vantage=vantage, **(seen | fields))


def silent(*silences: Silence, **parts: Any) -> Snapshot:
    """A node that nobody has confirmed to be dead, long after it fell silent."""
    testimony = Testimony(silences=silences or (silence("n2"), silence("n3")))
    facts = {"looked_at": LONG} | parts.pop("facts", {})
    unless: dict[str, Any] = {"confirmations": (), "testimony": testimony}
    return changed(facts=facts, **(unless | parts))


def found(snapshot: Snapshot, now: float = LONG) -> list[EvidenceKind]:
    return [each.kind for each in proofs(snapshot.heard, now, times=TIMES)]


def judged(snapshot: Snapshot) -> Verdict:
    [only] = decide(snapshot, LONG, times=TIMES, chain=CHAIN).verdicts
    return only


def evidence(kind: EvidenceKind, **fields: Any) -> Evidence:
    about: dict[str, Any] = {
        "node": "n1",
        "node_uid": "u1",
        "boot_id": "b1",
        "source": "x",
        "detail": "y",
    }
    return Evidence(kind=kind, **({"observed_at": NOW} | about | fields))


# Presumption


def test_silence_from_two_places_for_long_enough_is_presumed_death() -> None:
    assert found(silent()) == [EvidenceKind.PRESUMED]


@pytest.mark.parametrize(
    ("snapshot", "missing"),
    [
        (silent(silence("n2")), "from 1 of 2 places"),
        (silent(silence("n2"), silence("n2")), "from 1 of 2 places"),
        (silent(silence("n2"), silence("n3", proven_at=None)), "from 1 of 2 places"),
        (silent(silence("n2"), silence("n3", proven_at=LONG - 31)), "from 1 of 2 places"),
        (silent(silence("n2"), silence("n3", asked_at=LONG - 31)), "from 1 of 2 places"),
        (silent(silence("n2"), silence("n3", since=LONG - 149)), "from 1 of 2 places"),
        (silent(facts={"looked_at": HEARD + 149}), "silent for 1 s more"),
        (silent(facts={"heartbeat_changed_at": LONG - 140}), "virt-handler was heard of 140 s ago"),
        (silent(policy={"presume_after": 600.0}), "silent for 440 s more"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_missing_before_a_death_is_presumed_is_said(
    snapshot: Snapshot, missing: str
) -> None:
    assert EvidenceKind.PRESUMED not in found(snapshot)
    why = why_not_presumed(snapshot.heard, LONG, times=TIMES)
    assert why is not None
    assert missing in why


def test_nobody_can_ask_for_less_patience_than_the_floor() -> None:
    hasty = silent(policy={"presume_after": 1.0}, facts={"looked_at": HEARD + 149})
    assert found(hasty, HEARD + 149) == []


def test_an_answer_of_late_is_no_silence() -> None:
    testimony = Testimony(
        silences=(silence("n2"), silence("n3")), answers=(Answer("kubelet port", LONG - 100),)
    )
    assert found(silent(testimony=testimony)) == []


def test_presumption_takes_the_owners_consent() -> None:
    held = judged(silent())
    assert (held.action, held.why.code) == (Action.HOLD, "ProofMissing")
    assert "silence is less than its owner asks for (Confirmed)" in held.why.sentence


@pytest.mark.parametrize(
    ("volumes", "because"),
    [
        ((replace(SHARED, access_modes=("ReadWriteOnce",)),), "for one node at a time"),
        ((SHARED, replace(SHARED, claim="b", access_modes=("ReadWriteOncePod",))), "volume b"),
        ((replace(SHARED, access_modes=()),), "it is not known how its volume root may be used"),
        ((replace(SHARED, block=True),), "a block device that nothing locks"),
    ],
)
def test_silence_is_not_enough_where_two_copies_could_write(
    volumes: tuple[Volume, ...], because: str
) -> None:
    presumed, terms = evidence(EvidenceKind.PRESUMED), Terms(minimum=Strength.PRESUMED)
    why = objection(presumed, replace(VM, volumes=volumes), terms)
    assert why is not None
    assert because in why


def test_the_cluster_can_consent_to_block_devices() -> None:
    presumed = evidence(EvidenceKind.PRESUMED)
    terms = Terms(minimum=Strength.PRESUMED, presume_block=True)
    assert objection(presumed, replace(VM, volumes=(replace(SHARED, block=True),)), terms) is None


def test_what_writes_to_something_unknown_is_never_presumed() -> None:
    presumed, terms = evidence(EvidenceKind.PRESUMED), Terms(minimum=Strength.PRESUMED)
    why = objection(presumed, replace(VM, also_writes=("nfs",)), terms)
    assert why == "it writes to nfs"


# Life


@pytest.mark.parametrize(
    "sign",
    [
        {"facts": {"lease_changed_at": SUSPECTED + 1}},
        {"facts": {"heartbeat_changed_at": SUSPECTED + 1}},
        {"facts": {"status_changed_at": SUSPECTED + 1}},
        {"testimony": Testimony(answers=(Answer("kubelet port", NOW - 1),))},
    ],
)
def test_life_since_suspicion_voids_what_speaks_of_the_whole_node(sign: dict[str, Any]) -> None:
    assert found(changed(**sign), NOW) == []


def test_an_answer_after_a_confirmation_contradicts_it() -> None:
    testimony = Testimony(answers=(Answer("kubelet port", NOW - 1),))
    held = verdict(changed(testimony=testimony))
    assert held.why.code == "EvidenceContradicted"
    assert "kubelet port answered" in held.why.sentence


def test_a_status_that_is_posted_after_a_confirmation_contradicts_it() -> None:
    held = verdict(changed(facts={"status_changed_at": NOW - 1}))
    assert held.why.code == "EvidenceContradicted"
    assert "its kubelet posted its status" in held.why.sentence


def test_a_node_that_answers_without_a_confirmation_is_said_to_answer() -> None:
    testimony = Testimony(answers=(Answer("kubelet port", NOW - 1),))
    held = verdict(changed(testimony=testimony, confirmations=()))
    assert (held.action, held.why.code) == (Action.HOLD, "NodeAnswers")


def test_an_answer_of_long_ago_holds_nobody() -> None:
    testimony = Testimony(answers=(Answer("kubelet port", SUSPECTED + 1),))
    later = changed(
        testimony=testimony, word={"seen_at": SUSPECTED + 60}, facts={"looked_at": SUSPECTED + 90}
    )
    assert verdict(later).action is Action.RELEASE


# Once life has refuted somebody's word


def refuted_and_silent_since(testimony: Testimony | None = None, **parts: Any) -> Snapshot:
    """Something answered after the word was given, and nothing has for a minute."""
    answers = (Answer("kernel", CONFIRMED + 1),)
    return changed(
        testimony=replace(testimony or Testimony(), answers=answers),
        facts={"looked_at": LATER},
        **parts,
    )


def code_of(snapshot: Snapshot) -> str:
    return decide(snapshot, LATER, times=TIMES, chain=CHAIN).verdicts[0].why.code


def test_a_word_that_life_refuted_holds_though_all_is_silent_since() -> None:
    assert found(refuted_and_silent_since(), LATER) == []
    assert code_of(refuted_and_silent_since()) == "EvidenceContradicted"


def test_a_word_that_was_refuted_before_we_led_stays_void() -> None:
    recalled = changed(word={"refuted": "its kubelet port answered"})
    assert found(recalled, NOW) == []
    assert verdict(recalled).why.code == "EvidenceContradicted"


def test_a_word_that_came_back_with_a_backup_counts_for_nothing_and_holds_nothing() -> None:
    lapsed = changed(word={"lapsed": True})
    assert found(lapsed, NOW) == []
    assert verdict(lapsed).why.code == "ConfirmationRefused"
    assert "the API was restored from a backup after it was given" in verdict(lapsed).why.sentence
    again = replace(WORD, name="again", uid="c2")
    assert verdict(replace(lapsed, confirmations=(*lapsed.confirmations, again))).why.code == (
        "MayBeReleased"
    )


def test_a_word_that_came_back_with_a_backup_is_refuted_by_nothing_any_more() -> None:
    lapsed = replace(WORD, lapsed=True)
    assert refutations(refuted_and_silent_since(confirmations=(lapsed,)).heard) == ()


def test_the_words_that_life_has_refuted_are_named_with_the_sign() -> None:
    again = replace(WORD, name="again", uid="c2", seen_at=CONFIRMED + 40)
    other = replace(WORD, name="other", uid="c3", boot_id="b0")
    [(word, sign)] = refutations(refuted_and_silent_since(confirmations=(WORD, again, other)).heard)
    assert (word, sign) == (WORD, "its kernel answered")


def test_what_stands_at_a_word_already_is_no_news() -> None:
    written = replace(WORD, refuted="its kubelet port answered")
    assert refutations(refuted_and_silent_since(confirmations=(written,)).heard) == ()


def test_another_word_does_not_outweigh_one_that_life_refuted() -> None:
    again = replace(WORD, name="again", seen_at=CONFIRMED + 40)
    both = refuted_and_silent_since(confirmations=(WORD, again))
    assert found(both, LATER) == []
    assert code_of(both) == "EvidenceContradicted"
    assert code_of(refuted_and_silent_since(confirmations=(again,))) == "MayBeReleased"


def test_silence_does_not_outweigh_a_word_that_life_refuted() -> None:
    once = Testimony(
        answers=(Answer("kernel", HEARD + 5),), silences=(silence("n2"), silence("n3"))
    )
    early = replace(WORD, seen_at=HEARD + 3)
    assert found(silent(testimony=once)) == [EvidenceKind.PRESUMED]
    assert found(silent(testimony=once, confirmations=(early,))) == []


def test_what_the_storage_refuses_outweighs_a_word_that_life_refuted() -> None:
    refused = Testimony(fences=(fence("pv", observed_at=LATER),))
    assert found(refuted_and_silent_since(refused), LATER) == [EvidenceKind.STORAGE_FENCED]
    assert code_of(refuted_and_silent_since(refused)) == "MayBeReleased"


@pytest.mark.parametrize(
    ("observed_at", "code"),
    [(CONFIRMED + 2, "MayBeReleased"), (CONFIRMED + 1, "EvidenceContradicted")],
)
def test_what_a_provider_says_outweighs_it_if_it_is_later_than_the_last_sign(
    observed_at: float, code: str
) -> None:
    off = provider(observed_at=observed_at)
    lasting = replace(TIMES, fresh=2 * LATER)
    held = decide(refuted_and_silent_since(off), LATER, times=lasting, chain=CHAIN)
    assert held.verdicts[0].why.code == code


def test_the_node_is_said_to_be_contradicted_until_something_speaks_of_all_of_it() -> None:
    refused = Testimony(fences=(fence("pv", observed_at=LATER),))
    off = provider(observed_at=LATER)
    said = [
        decide(refuted_and_silent_since(each), LATER, times=TIMES, chain=CHAIN).why.code
        for each in (refused, off)
    ]
    assert said == ["EvidenceContradicted", "NodeLost"]


# The out-of-service taint


def taint(**fields: Any) -> Testimony:
    told: dict[str, Any] = {"by": "kubectl-taint", "person": True, "seen_at": SUSPECTED + 1}
    return Testimony(taint=OutOfService(**(told | fields)))


def test_a_persons_taint_during_the_incident_is_his_word() -> None:
    snapshot = changed(confirmations=(), testimony=taint())
    assert found(snapshot, NOW) == [EvidenceKind.OPERATOR_CONFIRMED]
    assert verdict(snapshot).action is Action.RELEASE


def test_a_controllers_taint_is_only_an_assertion() -> None:
    snapshot = changed(confirmations=(), testimony=taint(person=False, by="some-operator"))
    assert found(snapshot, NOW) == [EvidenceKind.FOREIGN_ASSERTION]
    assert verdict(snapshot).why.code == "ProofMissing"
    consented = changed(
        confirmations=(), testimony=taint(person=False, by="some-operator"), workload=CONSENT
    )
    assert verdict(consented).action is Action.RELEASE


@pytest.mark.parametrize("seen_at", [None, SUSPECTED - 1])
def test_a_taint_from_before_the_incident_says_nothing(seen_at: float | None) -> None:
    assert found(changed(confirmations=(), testimony=taint(seen_at=seen_at)), NOW) == []


def test_life_after_the_taint_voids_it() -> None:
    late = changed(
        confirmations=(), testimony=taint(), facts={"heartbeat_changed_at": SUSPECTED + 2}
    )
    assert found(late, NOW) == []


# What is observed


def provider(**fields: Any) -> Testimony:
    told: dict[str, Any] = {
        "source": "openstack",
        "instance": "i-1",
        "off": True,
        "detail": "it is SHUTOFF",
    }
    return Testimony(provider=ProviderState(**({"observed_at": NOW - 1} | told | fields)))


def power(**fields: Any) -> Testimony:
    told: dict[str, Any] = {
        "device": "the BMC of n1",
        "on": False,
        "identified": True,
        "detail": "its power is Off",
    }
    return Testimony(power=PowerSight(**({"observed_at": NOW - 1} | told | fields)))


def test_a_power_that_is_seen_to_be_off_is_proof_and_stands_first() -> None:
    snapshot = changed(testimony=power())
    assert found(snapshot, NOW) == [EvidenceKind.POWERED_OFF, EvidenceKind.OPERATOR_CONFIRMED]
    assert verdict(snapshot).action is Action.RELEASE


@pytest.mark.parametrize(
    "sight",
    [
        {"on": True},
        {"on": None},
        {"identified": False},
        {"observed_at": SUSPECTED - 1},
        {"observed_at": NOW - TIMES.fresh - 1},
    ],
)
def test_a_device_that_does_not_say_so_now_of_this_machine_is_none(sight: dict[str, Any]) -> None:
    assert found(changed(confirmations=(), testimony=power(**sight)), NOW) == []


@pytest.mark.parametrize(
    "facts",
    [
        {"lease_changed_at": NOW - 0.5},
        {"status_changed_at": NOW - 0.5},
        {"heartbeat_changed_at": NOW - 0.5},
    ],
)
def test_a_power_that_was_off_before_the_last_sign_of_life_is_none(facts: dict[str, Any]) -> None:
    assert found(changed(confirmations=(), testimony=power(), facts=facts), NOW) == []


def test_a_power_that_was_off_before_an_answer_is_none() -> None:
    late = power().joined(Testimony(answers=(Answer("kubelet port", NOW - 0.5),)))
    assert found(changed(confirmations=(), testimony=late), NOW) == []


def test_a_power_that_was_off_before_suspicion_began_is_none() -> None:
    late = {"suspected_at": NOW - 2}
    assert found(changed(confirmations=(), testimony=power(), life=late), NOW)
    before = power(observed_at=NOW - 3)
    assert found(changed(confirmations=(), testimony=before, life=late), NOW) == []


def test_a_power_that_is_off_outweighs_a_word_that_life_has_refuted() -> None:
    snapshot = changed(testimony=power(), word={"refuted": "its kubelet renewed its lease"})
    assert found(snapshot, NOW) == [EvidenceKind.POWERED_OFF]


def test_nobody_is_presumed_dead_who_is_in_maintenance() -> None:
    well = changed(confirmations=(), facts={"in_maintenance": True})
    assert why_not_presumed(well.heard, NOW, times=TIMES) == "it has to be out of maintenance"


def test_maintenance_vetoes_no_other_proof() -> None:
    assert found(changed(facts={"in_maintenance": True}), NOW) == [EvidenceKind.OPERATOR_CONFIRMED]


def test_a_provider_that_has_switched_it_off_is_proof() -> None:
    snapshot = changed(confirmations=(), testimony=provider())
    assert found(snapshot, NOW) == [EvidenceKind.PROVIDER_OFF]
    assert verdict(snapshot).action is Action.RELEASE


@pytest.mark.parametrize(
    "state",
    [{"off": False}, {"observed_at": SUSPECTED - 1}, {"observed_at": NOW - TIMES.fresh - 1}],
)
def test_a_provider_that_does_not_say_so_now_is_none(state: dict[str, Any]) -> None:
    assert found(changed(confirmations=(), testimony=provider(**state)), NOW) == []


def fence(*volumes: str, observed_at: float = NOW) -> Fence:
    return Fence(name="f", detail="refused", volumes=volumes, observed_at=observed_at)


def fenced(*fences: Fence, **parts: Any) -> Snapshot:
    return changed(confirmations=(), testimony=Testimony(fences=fences), **parts)


def test_a_guest_whose_every_volume_is_fenced_may_go() -> None:
    assert verdict(fenced(fence("pv"))).action is Action.RELEASE


@pytest.mark.parametrize(
    ("workload", "because"),
    [
        ({"volumes": (SHARED, replace(SHARED, claim="b", pv="pv-b"))}, "volume b is not covered"),
        ({"volumes": (replace(SHARED, pv=""),)}, "volume root is not covered"),
        ({"volumes": ()}, "no volumes of which that could be said"),
        ({"volumes": (replace(SHARED, plugged=True),)}, "it was started without volumes"),
        ({"also_writes": ("hostPath /data",)}, "also writes to hostPath /data"),
    ],
)
def test_what_is_not_fenced_is_named(workload: dict[str, Any], because: str) -> None:
    held = verdict(fenced(fence("pv"), workload=workload))
    assert held.why.code == "ProofMissing"
    assert because in held.why.sentence


def test_a_plugged_disk_that_is_fenced_too_is_no_hindrance() -> None:
    both = {"volumes": (SHARED, replace(SHARED, claim="b", pv="pv-b", plugged=True))}
    assert verdict(fenced(fence("pv", "pv-b"), workload=both)).action is Action.RELEASE


def test_several_fences_add_up() -> None:
    both = {"volumes": (SHARED, replace(SHARED, claim="b", pv="pv-b"))}
    assert verdict(fenced(fence("pv"), fence("pv-b"), workload=both)).action is Action.RELEASE


def test_a_fence_that_was_not_looked_at_of_late_is_none() -> None:
    assert found(fenced(fence("pv", observed_at=NOW - TIMES.fresh - 1)), NOW) == []


def test_a_singleton_is_not_released_on_account_of_its_volumes() -> None:
    assert objection(
        evidence(EvidenceKind.STORAGE_FENCED, volumes=("pv",)), VM, Terms(singleton=True)
    )


def test_a_stopped_guest_may_go_although_its_node_lives() -> None:
    alive = {"heartbeat_changed_at": SUSPECTED + 1}
    stop = GuestStop(launcher="p1", detail="it was shut down", observed_at=NOW)
    snapshot = changed(confirmations=(), facts=alive, testimony=Testimony(stops=(stop,)))
    released = verdict(snapshot)
    assert released.action is Action.RELEASE
    assert released.evidence is not None
    assert released.evidence.kind is EvidenceKind.GUEST_STOPPED


def test_another_guest_that_stopped_is_nobodys_proof() -> None:
    alive = {"heartbeat_changed_at": SUSPECTED + 1}
    stop = GuestStop(launcher="p2", detail="it was shut down", observed_at=NOW)
    held = verdict(changed(confirmations=(), facts=alive, testimony=Testimony(stops=(stop,))))
    assert held.why.code == "GuestAliveKubeletDead"


# What it is enough for


def test_the_strongest_evidence_comes_first() -> None:
    snapshot = changed(testimony=provider())
    assert found(snapshot, NOW) == [EvidenceKind.PROVIDER_OFF, EvidenceKind.OPERATOR_CONFIRMED]
    [one] = decided(snapshot).verdicts
    assert one.evidence is not None
    assert one.evidence.kind is EvidenceKind.PROVIDER_OFF


def test_an_owner_can_ask_for_more_than_a_persons_word() -> None:
    strict = changed(policy={"weakest": Strength.OBSERVED})
    assert verdict(strict).why.code == "ProofMissing"
    assert "a person's word is less than its owner asks for" in verdict(strict).why.sentence


@pytest.mark.parametrize(
    ("kind", "volumes", "may"),
    [
        (EvidenceKind.OPERATOR_CONFIRMED, (), True),
        (EvidenceKind.PROVIDER_OFF, (), True),
        (EvidenceKind.STORAGE_FENCED, ("pv",), True),
        (EvidenceKind.STORAGE_FENCED, ("other",), False),
        (EvidenceKind.GUEST_STOPPED, (), False),
        (EvidenceKind.PRESUMED, (), False),
        (EvidenceKind.FOREIGN_ASSERTION, (), False),
    ],
)
def test_volumes_are_taken_only_on_proof_that_covers_them(
    kind: EvidenceKind, volumes: tuple[str, ...], may: bool
) -> None:
    assert may_detach(evidence(kind, volumes=volumes), SHARED) is may


# Storms and attempts


def test_in_a_storm_nothing_is_done_that_rests_on_silence() -> None:
    fleet = Fleet(nodes=5, down=("n1", "n2"))
    held = judged(silent(fleet=fleet, workload=CONSENT))
    assert (held.action, held.why.code) == (Action.HOLD, "StormHold")
    assert "2 of 5 nodes are silent at once" in held.why.sentence
    released = silent(fleet=fleet, workload=CONSENT, policy={"storm_released": "rack is off"})
    assert judged(released).action is Action.RELEASE


def test_in_a_storm_what_is_proven_goes_on_a_few_at_a_time() -> None:
    fleet = Fleet(nodes=5, down=("n1", "n2"))
    assert verdict(changed(fleet=fleet)).action is Action.RELEASE
    crowded = replace(fleet, released=Policy().storm_pace)
    assert verdict(changed(fleet=crowded)).why.code == "StormPaced"


def test_in_a_storm_one_decision_keeps_to_the_pace_as_well() -> None:
    fleet = Fleet(nodes=5, down=("n1", "n2"), released=58)
    many = tuple(replace(VM, name=name) for name in "abcd")
    codes = [each.why.code for each in decided(changed(fleet=fleet, workloads=many)).verdicts]
    assert codes == ["MayBeReleased", "MayBeReleased", "StormPaced", "StormPaced"]


def test_in_a_storm_what_its_owner_has_deleted_comes_last_and_burdens_nobody() -> None:
    fleet = Fleet(nodes=5, down=("n1", "n2"), released=59)
    going = replace(VM, name="a", restarts=False, leaving=True, priority=7)
    found = decided(changed(fleet=fleet, workloads=(going, replace(VM, name="b")))).verdicts
    assert [(each.workload.name, each.action) for each in found] == [
        ("b", Action.RELEASE),
        ("a", Action.RELEASE),
    ]


def test_what_was_moved_too_often_is_left_for_now() -> None:
    key = VM.key
    assert verdict(changed(attempts={key: 2})).action is Action.RELEASE
    held = verdict(changed(attempts={key: 3}))
    assert (held.action, held.why.code) == (Action.HOLD, "AttemptCap")
    assert verdict(changed(attempts={key: 3}, policy={"attempts": 4})).action is Action.RELEASE
