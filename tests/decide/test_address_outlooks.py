"""What is wrong with a workload's addresses is a part of what its death would mean."""

import pytest

from backstay.decide.failover import CHAIN
from backstay.decide.readiness import Ending, Outlook, readiness
from backstay.model.reasons import Reason, Why
from tests.decide.cases import TIMES, changed


def with_note(note: Why) -> Outlook:
    snapshot = changed(workload={"notes": (note,)})
    [found] = readiness(snapshot, times=TIMES, chain=CHAIN).outlooks
    return found


@pytest.mark.parametrize(
    "note",
    [
        Reason.AddressBound.because(workload="VM shop/web", addresses="10.0.0.5", node="n1"),
        Reason.AddressUnreadable.because(
            workload="VM shop/web", thing="The VM", object="vm web", because="it is not JSON"
        ),
    ],
    ids=lambda note: note.code,
)
def test_a_workload_whose_new_pod_cannot_have_its_address_stays_down(note: Why) -> None:
    found = with_note(note)
    assert (found.ending, found.then, found.fix) == (Ending.STAYS_DOWN, note, note.next)
    assert note not in found.caveats


@pytest.mark.parametrize(
    "note",
    [
        Reason.AddressRests.because(addresses="10.0.0.5", seconds=60),
        Reason.AddressHasNoEffect.because(
            workload="VM shop/web", addresses="10.0.0.5", object="vm web"
        ),
    ],
    ids=lambda note: note.code,
)
def test_a_workload_that_only_waits_for_its_address_recovers_and_is_told_so(note: Why) -> None:
    found = with_note(note)
    assert found.ending is Ending.RECOVERS
    assert note in found.caveats
