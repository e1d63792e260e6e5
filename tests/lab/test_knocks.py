"""What the network knows of silence: the measure by which presumptions are judged in the lab."""

import math

import pytest

from backstay.lab.knocks import Knocks
from backstay.sim.network import Contact

NOW = 1000.0
OURS = ("n1/backstay-1", "n3/backstay-2")
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
    return Knocks(1.0, found, lambda: OURS).against("n2", at=NOW, heard_at=heard_at)


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
    knocks = Knocks(ours=lambda: OURS)
    assert knocks.against("n2", at=NOW, heard_at=-math.inf) != ""
