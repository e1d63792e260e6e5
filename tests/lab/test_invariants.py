"""Every invariant is broken by a controller with a deliberate bug, and by no other."""

import pytest

from backstay.lab import cases, guest_cases, linstor_cases, policy_cases
from backstay.lab.bug import Bug
from backstay.lab.bugs import BUGS
from backstay.lab.invariants import INVARIANTS
from backstay.lab.liveness import PROMISES
from backstay.lab.play import play
from backstay.lab.scenario import Scenario, dump, load

CASES = [
    each
    for room in (cases, guest_cases, linstor_cases, policy_cases)
    for each in vars(room).values()
    if isinstance(each, Scenario)
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_deliberate_bug_breaks_what_it_should(bug: Bug) -> None:
    played = play(bug.case, enough=bug.caught_by, **bug.instead)
    assert set(played.broken) >= bug.caught_by


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_without_a_bug_the_same_case_breaks_nothing(case: Scenario) -> None:
    played = play(case)
    assert played.breaches == ()
    assert played.checked > 100


def test_every_invariant_has_a_bug_that_it_catches() -> None:
    caught = {name for bug in BUGS for name in bug.caught_by}
    assert caught == {each.name for each in INVARIANTS} | set(PROMISES.values())


def test_every_case_has_a_bug_that_shows_in_it() -> None:
    assert {bug.case.name for bug in BUGS} == {case.name for case in CASES}


def test_no_two_bugs_share_a_name() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 20


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_a_scenario_like_any_other(case: Scenario) -> None:
    assert load(dump(case)) == case


def test_a_node_that_is_cut_off_keeps_all_that_it_runs() -> None:
    played = play(cases.CUT_OFF)
    assert played.recovered == {}
    assert played.down == ()


def test_a_death_that_is_confirmed_costs_nothing_but_time() -> None:
    played = play(cases.DEATH)
    assert set(played.recovered) == {"till", "db-0"}
    assert played.down == ()


def test_a_vm_with_a_plugged_disk_recovers_with_it() -> None:
    played = play(cases.HOTPLUG)
    assert set(played.recovered) == {"till"}
    assert played.held == {}


def test_a_wrong_word_about_a_node_that_cannot_object_is_an_accepted_risk() -> None:
    """Of whoever gives it: nobody could see that the node lives."""
    played = play(cases.RETURN)
    assert played.breaches == ()
    assert {breach.invariant for breach in played.accepted} == {"AcceptedRisk"}
