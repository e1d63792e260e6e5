"""LINSTOR in scenarios: what can be said of it, and that what is said comes true."""

import pytest

from backstay.lab import shipped
from backstay.lab.linstor_spec import LinstorClass, LinstorSpec, What
from backstay.lab.play import play
from backstay.lab.scenario import BadScenario, dump, load
from backstay.sim.linstor.database import QUORUM, TWO_PRIMARIES
from backstay.sim.linstor.front import Trouble
from backstay.sim.linstor.replicas import Kind

BASE = """
name: drbd
question: What if?
nodes: [n1, n2, n3]
until: 10
"""
WITH_DATABASE = """
linstor: {}
workloads: {statefulSets: [{name: db, node: n1, claims: [linstor]}]}
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("linstor: {controller: n9}", "linstor.controller: there is no node n9."),
        (
            "linstor: {classes: {gold: {replicas: [n1, n8]}}}",
            "linstor.classes.gold.replicas: there is no node n8.",
        ),
        (
            "linstor: {classes: {gold: {tieBreaker: n7}}}",
            "linstor.classes.gold.tieBreaker: there is no node n7.",
        ),
        (
            "linstor: {classes: {gold: {quorum: most}}}",
            "linstor.classes.gold.quorum: it is majority, all, off or a number.",
        ),
        (
            "workloads: {vms: [{name: till, claims: [linstor]}]}",
            "linstor: till has a disk there: say linstor, be it with {}.",
        ),
        (
            "linstor: {}\nworkloads: {vms: [{name: a, claims: [linstor], storageClass: gold}]}",
            "linstor.classes: there is no class gold, which a is to have.",
        ),
        (
            "steps: [{at: 1, do: linstor, what: html}]",
            "steps[0].do: linstor needs linstor.",
        ),
        ("linstor: {}\nsteps: [{at: 1, do: linstor}]", "steps[0].what: linstor needs one."),
        (
            "linstor: {}\nsteps: [{at: 1, do: kill, node: n1, what: html}]",
            "steps[0].what: kill has none.",
        ),
        (
            "linstor: {}\nsteps: [{at: 1, do: cut-replication, node: n1}]",
            "steps[0].peer: cut-replication needs one.",
        ),
        (
            "linstor: {}\nsteps: [{at: 1, do: cut-replication, node: n1, peer: n1}]",
            "steps[0].peer: n1 is no other node.",
        ),
        (
            "linstor: {}\nsteps: [{at: 1, do: kill, node: n1, peer: n2}]",
            "steps[0].peer: kill has none.",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(BadScenario) as wrong:
        load(BASE + text)
    assert str(wrong.value) == f"the scenario: {sentence}"


def test_a_scenario_with_linstor_survives_being_written_and_read() -> None:
    text = """
linstor: {controller: n2, upperCase: true, classes: {linstor: {replicas: [n1, n2], quorum: all}}}
workloads: {vms: [{name: till, node: n1, claims: [linstor-shared]}]}
steps: [{at: 1, do: cut-replication, node: n1, peer: n2}, {at: 2, do: linstor, what: stale}]
"""
    scenario = load(BASE + text)
    assert load(dump(scenario)) == scenario


def test_a_class_says_where_volumes_are_and_where_their_options_are_set() -> None:
    usual = LinstorSpec().all_classes["linstor"].placement(("n1", "n2", "n3", "n4"))
    assert usual.replicas == dict.fromkeys(("n1", "n2", "n3"), Kind.DISKFUL)
    assert usual.props[QUORUM] == "majority"
    at_group = LinstorClass(level="group", two_primaries=True, replicas=("n1",), tie_breaker="n2")
    placed = at_group.placement(("n1", "n2"))
    assert placed.replicas == {"n1": Kind.DISKFUL, "n2": Kind.TIE_BREAKER}
    assert placed.group_props == {QUORUM: "majority", TWO_PRIMARIES: "yes"}
    assert QUORUM not in placed.props
    nowhere = LinstorClass(level="nowhere").placement(("n1",))
    assert QUORUM not in nowhere.props | nowhere.group_props


def test_every_trouble_can_be_asked_for() -> None:
    assert {str(each) for each in Trouble} <= {str(each) for each in What}


def test_two_writers_of_a_volume_without_quorum_are_noticed() -> None:
    """Somebody removes the pod of a node that is cut off, and both sides of the cut write."""
    scenario = load(
        BASE.replace("until: 10", "until: 130")
        + """
linstor: {controller: n3, classes: {linstor: {quorum: "off"}}}
workloads: {statefulSets: [{name: db, node: n1, claims: [linstor]}]}
steps:
  - {at: 5, do: cut, node: n1}
  - {at: 60, do: put-out-of-service, node: n1}
expect: {risk: true}
"""
    )
    played = play(scenario)
    written = [each.sentence for each in played.accepted if "is written to by" in each.sentence]
    assert written, "it was a person's word, and DRBD did not stop it"


def test_a_quiet_cluster_with_linstor_stays_as_it_is() -> None:
    played = play(load(BASE + WITH_DATABASE + "expect: {untouched: [db-0], taints: []}"))
    assert played.unmet == ()
    assert played.breaches == ()


def test_a_satellite_can_be_stopped_once_and_evicted_only_while_it_is_away() -> None:
    steps = """
steps:
  - {at: 1, do: evict-satellite, node: n2}
  - {at: 2, do: start-satellite, node: n2}
  - {at: 3, do: stop-satellite, node: n2}
  - {at: 4, do: stop-satellite, node: n2}
  - {at: 5, do: evict-satellite, node: n2}
  - {at: 6, do: evict-satellite, node: n2}
"""
    played = play(load(BASE + WITH_DATABASE + steps))
    assert [(line.at, line.who) for line in played.timeline] == [(3.0, "n2"), (5.0, "n2")]


def test_a_case_that_is_made_smaller_keeps_to_the_nodes_that_are_left() -> None:
    own = LinstorClass(replicas=("n1", "n4"), tie_breaker="n4")
    spec = LinstorSpec(controller="n4", classes={"linstor": own})
    left = spec.on(("n1", "n2", "n3"))
    assert list(left.wrongs(("n1", "n2", "n3"), {})) == []
    assert left.classes["linstor"].replicas == ("n1",)


def test_linstor_is_said_to_be_back_when_it_has_spoken_and_not_before() -> None:
    """The stream to the controller that died with the node looks open until somebody notices."""
    played = play(shipped.find("drbd-controller-dies-with-the-node"))
    (starts,) = [
        line.at
        for line in played.timeline
        if line.what.startswith("linstor-controller") and "starts" in line.what
    ]
    (back,) = [line.at for line in played.timeline if line.what.startswith("LinstorIsBack")]
    assert back > starts + 5, "it takes that long until it listens"
