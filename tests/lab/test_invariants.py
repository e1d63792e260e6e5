"""Every invariant is broken by a controller with a deliberate bug, and by no other."""

import pytest

from backstay.apis.csiaddons import NETWORK_FENCES
from backstay.kube.resource import NODES
from backstay.lab import cases, drain_cases, guest_cases, linstor_cases, policy_cases, power_cases
from backstay.lab.bug import Bug
from backstay.lab.bugs import BUGS
from backstay.lab.inspector import Inspector
from backstay.lab.invariants import INVARIANTS, preconditions
from backstay.lab.knocks import Knocks
from backstay.lab.liveness import PROMISES, SAME_DECISION
from backstay.lab.play import Performance, Played, play, seed_of_beginning
from backstay.lab.scenario import Scenario, dump, load
from backstay.lab.witness import Asked, Witness
from backstay.sim.world import World

CASES = [
    each
    for room in (cases, drain_cases, guest_cases, linstor_cases, policy_cases, power_cases)
    for each in vars(room).values()
    if isinstance(each, Scenario)
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_deliberate_bug_breaks_what_it_should(bug: Bug) -> None:
    """And nothing is missed because a rule was asked only about what it says that it is about."""
    with World(seed_of_beginning(bug.case)) as world:
        played, thorough = world.run(_play_before_two(world, bug))
    assert set(played.broken) >= bug.caught_by
    assert [each for each in played.breaches if each.invariant != SAME_DECISION] == thorough.broken
    assert played.accepted == tuple(thorough.accepted)


async def _play_before_two(world: World, bug: Bug) -> tuple[Played, Inspector]:
    """The second inspector asks every rule about everything."""
    performance = Performance(world, bug.case, bug.instead)
    cluster = performance.cluster
    thorough = Inspector(cluster.witness, linstor=cluster.linstor, thorough=True)
    await performance.set_up()
    return await performance.perform(bug.case, bug.caught_by), thorough


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_without_a_bug_the_same_case_breaks_nothing(case: Scenario) -> None:
    played = play(case)
    assert played.breaches == ()
    assert played.checked > 100


def test_every_invariant_has_a_bug_that_it_catches() -> None:
    caught = {name for bug in BUGS for name in bug.caught_by}
    assert caught == {each.name for each in INVARIANTS} | set(PROMISES.values())


@pytest.mark.parametrize("storage", [NODES.label, NETWORK_FENCES.label])
def test_what_others_write_to_as_well_is_written_at_the_version_that_was_seen(storage: str) -> None:
    witness = Witness(ours=(), renewal=10.0, hold=10.0, knocks=Knocks())

    def found(method: str, **meta: str) -> str | None:
        body = {"metadata": meta, "spec": {"fenceState": "Unfenced"}}
        asked = Asked(1.0, 1.0, "backstay-1", method, storage, ("", "n1"), "", body)
        return preconditions(asked, witness)

    assert found("PATCH") == "n1 was to be written, whatever it had become"
    assert found("PATCH", resourceVersion="7") is None
    assert found("POST") is None


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
