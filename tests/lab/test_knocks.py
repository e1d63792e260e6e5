"""What the network knows of silence: the measure by which presumptions are judged in the lab."""

import math

import pytest

from backstay.lab.knocks import Knocks
from backstay.sim.network import Contact

NOW = 1000.0
OURS = {"backstay-1": "n1/backstay-1", "backstay-2": "n3/backstay-2"}
SILENT = Contact(tried_at=NOW - 4, met_at=-math.inf, in_vain_since=NOW - 160)
MET = Contact(tried_at=NOW - 5, met_at=NOW - 5)
SOUND = {
    ("n1/backstay-1", "n2/kubelet"): SILENT,
    ("n3/backstay-2", "n2/kubelet"): SILENT,
    ("n1/backstay-1", "n3/kubelet"): MET,
    ("n3/backstay-2", "n1/kubelet"): MET,
}


def against(
    *, without: tuple[str, str] | None = None, heard_at: float = NOW - 170, **contacts: Contact
) -> str:
    found = {ends: contact for ends, contact in SOUND.items() if ends != without}
    for name, contact in contacts.items():
        found["n3/backstay-2", f"{name}/kubelet"] = contact
    return Knocks(1.0, found, OURS).against("n2", at=NOW, heard_at=heard_at)


def test_silence_that_was_seen_from_two_places_for_long_enough_is_nothing_against_it() -> None:
    assert against() == ""


def test_what_the_api_has_heard_of_is_not_silent() -> None:
    assert against(heard_at=NOW - 100) == "it was heard of 100 s before"


@pytest.mark.parametrize(
    "contact",
    [
        Contact(tried_at=NOW - 4, in_vain_since=NOW - 100),
        Contact(tried_at=NOW - 60, in_vain_since=NOW - 200),
        Contact(),
    ],
    ids=["too short", "not to the last", "never"],
)
def test_who_did_not_knock_all_the_while_is_no_place(contact: Contact) -> None:
    assert against(n2=contact) == "it had been knocked at in vain from 1 places only"


def test_what_anybody_of_ours_has_met_is_not_silent() -> None:
    met = Contact(tried_at=NOW - 4, met_at=NOW - 90, in_vain_since=NOW - 85)
    assert against(n2=met) == "n3/backstay-2 had met it 90 s before"


def test_who_reaches_nobody_else_is_no_place() -> None:
    said = against(without=("n1/backstay-1", "n3/kubelet"))
    assert said == "it had been knocked at in vain from 1 places only"


def test_to_reach_the_own_node_is_to_reach_nobody() -> None:
    assert against(without=("n3/backstay-2", "n1/kubelet"), n3=MET) != ""


def test_where_there_are_no_ports_nobody_is_presumed_dead() -> None:
    knocks = Knocks(ours=OURS)
    assert knocks.against("n2", at=NOW, heard_at=-math.inf) != ""


def answered(contact: Contact) -> float:
    knocks = Knocks(1.0, {("n1/backstay-1", "n2/kubelet"): contact}, OURS)
    return knocks.answered_at("backstay-1", "n2", by=NOW)


def test_who_met_somebody_a_while_ago_knows_it() -> None:
    assert answered(Contact(met_at=NOW - 20, met_since=NOW - 90)) == NOW - 20


def test_who_has_just_met_somebody_for_the_first_time_need_not_know_it_yet() -> None:
    assert answered(Contact(met_at=NOW - 1, met_since=NOW - 1)) == -math.inf


def test_who_meets_somebody_at_every_knock_knows_of_one_of_the_last_two() -> None:
    assert NOW - 10 < answered(Contact(met_at=NOW - 1, met_since=NOW - 90)) < NOW - 4


def test_a_knock_in_vain_ends_the_time_in_which_somebody_was_met_each_time() -> None:
    contact = Contact()
    for moment in (1.0, 6.0):
        contact.tried(moment)
        contact.met(moment)
    assert contact.met_since == 1.0
    contact.tried(11.0)
    contact.tried(16.0)
    contact.met(16.0)
    assert (contact.met_since, contact.met_at) == (16.0, 16.0)


def test_whoever_was_met_a_moment_ago_may_not_have_been_told_of_yet() -> None:
    contact = Contact(tried_at=NOW - 5, in_vain_since=NOW - 200)
    contact.tried(NOW - 0.1)
    contact.met(NOW - 0.1)
    assert against(n2=contact) == ""


def test_whoever_is_met_again_and_again_was_not_silent() -> None:
    contact = Contact(tried_at=NOW - 45, in_vain_since=NOW - 200)
    for moment in (NOW - 40, NOW - 5):
        contact.tried(moment)
        contact.met(moment)
    assert against(n2=contact) == "it had been knocked at in vain from 1 places only"


@pytest.mark.parametrize(
    ("contact", "met"),
    [
        (Contact(met_since=NOW - 90, met_at=NOW - 10), NOW - 55),
        (Contact(met_since=NOW - 40, met_at=NOW - 10), NOW - 40),
        (Contact(met_since=NOW - 90, met_at=NOW - 58), NOW - 58),
        (Contact(met_since=NOW - 90, met_at=NOW - 70), None),
        (Contact(), None),
    ],
    ids=["all the while", "later", "once more", "before", "never"],
)
def test_who_met_somebody_after_a_moment_met_it_with_the_next_knock(
    contact: Contact, met: float | None
) -> None:
    knocks = Knocks(1.0, {("n1/backstay-1", "n2/kubelet"): contact}, OURS)
    found = [] if met is None else [("backstay-1", met)]
    assert list(knocks.meetings("n2", after=NOW - 60)) == found
