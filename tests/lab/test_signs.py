"""What of a node's life was shown, and what of it one of ours could know."""

import math

import pytest

from backstay.kube.resource import LEASES, NODES
from backstay.lab.knocks import Knocks
from backstay.lab.looks import Look, Looks
from backstay.lab.signs import Signs
from backstay.lab.terms import Terms
from backstay.model.labels import HEARTBEAT, LEASE_NAMESPACE
from backstay.model.policy import Times
from backstay.sim.api.store import Commit, Key, Stored
from backstay.sim.network import Contact

US = "backstay-1"
LEASE: Key = (LEASE_NAMESPACE, "n1")
NODE: Key = ("", "n1")


def a_lease(renewed: str) -> Stored:
    return Stored(LEASE, {"spec": {"renewTime": renewed}}, 1)


def a_node(beat: str) -> Stored:
    return Stored(NODE, {"metadata": {"annotations": {HEARTBEAT: beat}}}, 1)


def lease_changes(before: str, after: str, version: int) -> Commit:
    return Commit(version, LEASES.label, a_lease(before), a_lease(after), deleted=False)


def node_changes(before: str, after: str, version: int) -> Commit:
    return Commit(version, NODES.label, a_node(before), a_node(after), deleted=False)


@pytest.fixture
def signs() -> Signs:
    """Two renewals, and a heartbeat between them."""
    signs = Signs(Looks(), Terms(10.0), Knocks(), Times())
    signs.note_lease(lease_changes("a", "b", 5), version=5, at=100.0)
    signs.note_node(node_changes("a", "b", 6), version=6, at=104.0)
    signs.note_lease(lease_changes("b", "c", 7), version=7, at=110.0)
    return signs


def looks_at(signs: Signs, *, lease: int, node: int, at: float) -> None:
    signs.looks.note(US, LEASES.label, LEASE, Look(at, lease, None))
    signs.looks.note(US, NODES.label, NODE, Look(at, node, None))


def test_a_lease_that_is_written_without_a_new_time_shows_no_life(signs: Signs) -> None:
    signs.note_lease(lease_changes("c", "c", 9), version=9, at=130.0)
    assert signs.renewed_at("n1") == 110.0


def test_a_node_of_which_nothing_was_ever_shown_was_never_renewed(signs: Signs) -> None:
    assert signs.renewed_at("n2") == -math.inf
    assert signs.shown("n2") == 0


def test_life_is_shown_by_a_heartbeat_as_well(signs: Signs) -> None:
    assert signs.shown("n1", until=6) == 6
    assert signs.shown("n1") == 7


def test_who_has_looked_before_a_renewal_could_not_know_of_it(signs: Signs) -> None:
    looks_at(signs, lease=6, node=6, at=109.0)
    assert signs.seen_renewed_at(US, "n1", sent=111.0) == 100.0
    assert signs.heard_at(US, "n1", sent=111.0) == 104.0


def test_who_has_not_looked_of_late_had_to_know_of_every_renewal(signs: Signs) -> None:
    looks_at(signs, lease=6, node=6, at=109.0)
    assert signs.seen_renewed_at(US, "n1", sent=109.0 + Times().fresh + 1) == 110.0


def test_what_was_looked_at_after_a_request_left_is_nothing_that_it_rests_on(signs: Signs) -> None:
    looks_at(signs, lease=7, node=7, at=111.0)
    assert signs.heard_at(US, "n1", sent=110.5) == math.inf


def test_a_heartbeat_long_after_the_last_renewal_is_a_late_sign(signs: Signs) -> None:
    late = 110.0 + Times().suspect + 11.0
    signs.note_node(node_changes("b", "c", 8), version=8, at=late)
    looks_at(signs, lease=8, node=8, at=late + 1)
    assert signs.late(US, "n1", sent=late + 2) == "virt-handler of n1 had been heard of 2 s before"


def test_a_heartbeat_that_one_could_not_have_seen_is_no_sign_to_it(signs: Signs) -> None:
    late = 110.0 + Times().suspect + 11.0
    signs.note_node(node_changes("b", "c", 8), version=8, at=late)
    looks_at(signs, lease=7, node=7, at=late + 1)
    assert signs.late(US, "n1", sent=late + 2) == ""


def test_an_answer_at_a_port_of_a_node_that_has_long_been_silent_is_a_late_sign() -> None:
    contacts = {("n2/controller", "n1/kubelet"): Contact(met_at=200.0, met_since=200.0)}
    knocks = Knocks(contacts=contacts, ours={US: "n2/controller"})
    signs = Signs(Looks(), Terms(10.0), knocks, Times())
    signs.note_lease(lease_changes("a", "b", 5), version=5, at=100.0)
    assert signs.late(US, "n1", sent=205.0) == "n1 had answered at its port 5 s before"
    assert signs.late(US, "n1", sent=201.0) == ""
