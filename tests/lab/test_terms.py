"""What was sent within a term is right, however late it lands; what was sent after it is not."""

from typing import Any

from backstay.lab.terms import Terms

HOLD = 10.0


def lease(holder: str, epoch: int) -> dict[str, Any]:
    return {"spec": {"holderIdentity": holder, "leaseTransitions": epoch}}


def incident(epoch: int, *pods: str, outcome: str = "") -> dict[str, Any]:
    return {"status": {"intent": {"epoch": epoch, "pods": list(pods), "outcome": outcome}}}


def test_a_right_is_counted_from_when_the_renewal_left_and_not_from_when_it_landed() -> None:
    terms = Terms(HOLD)
    terms.led("ours-1", lease("ours-1", 1), sent=100.0, now=104.0)
    assert terms.ended("ours-1", 105.0) == 110.0


def test_a_renewal_that_landed_later_does_not_excuse_what_left_before() -> None:
    terms = Terms(HOLD)
    terms.led("ours-1", lease("ours-1", 1), sent=100.0, now=100.1)
    terms.led("ours-1", lease("ours-1", 1), sent=109.0, now=112.0)
    assert terms.ended("ours-1", 111.0) == 110.0


def test_who_gives_the_lease_up_has_no_right_left() -> None:
    terms = Terms(HOLD)
    terms.led("ours-1", lease("ours-1", 1), sent=100.0, now=100.1)
    terms.led("ours-1", lease("", 1), sent=103.0, now=103.1)
    assert terms.ended("ours-1", 104.0) == 103.0


def test_who_never_led_never_had_a_right() -> None:
    terms = Terms(HOLD)
    assert terms.ended("ours-2", 100.0) < 0
    assert terms.epoch("ours-2", 100.0) == 0


def test_a_restored_api_cannot_know_of_renewals_before_it_and_knows_of_those_after() -> None:
    terms = Terms(HOLD)
    terms.led("ours-1", lease("ours-1", 1), sent=100.0, now=100.1)
    assert not terms.is_forgotten("ours-1", 100.5)
    terms.forget(101.0)
    assert terms.is_forgotten("ours-1", 102.0)
    assert terms.ended("ours-1", 102.0) == 110.0
    terms.led("ours-1", lease("ours-1", 1), sent=103.0, now=103.1)
    assert not terms.is_forgotten("ours-1", 104.0)
    assert not terms.is_forgotten("ours-2", 104.0)


def test_a_right_that_is_over_is_none_that_could_be_forgotten() -> None:
    terms = Terms(HOLD)
    terms.led("ours-1", lease("ours-1", 1), sent=100.0, now=100.1)
    terms.forget(101.0)
    assert terms.is_forgotten("ours-1", 109.0)
    assert not terms.is_forgotten("ours-1", 111.0)


def test_what_was_announced_when_it_left_counts_although_its_outcome_is_told_by_now() -> None:
    terms = Terms(HOLD)
    terms.told("ours-1", "n1-1", incident(3, "shop/db-0/u1"), now=100.0)
    terms.told("ours-2", "n1-1", incident(4, "shop/db-0/u1"), now=120.0)
    terms.told("ours-2", "n1-1", incident(4, "shop/db-0/u1", outcome="released 1"), now=121.0)
    assert terms.announced("ours-1", "shop/db-0", 101.0) == {3}
    assert terms.announced("ours-1", "shop/db-0", 120.5) == set()
    assert terms.announced("ours-2", "shop/db-0", 120.5) == {4}
    assert terms.announced("ours-2", "shop/db-0", 122.0) == set()


def test_what_one_announces_gives_another_no_right() -> None:
    terms = Terms(HOLD)
    terms.told("ours-1", "n1-1", incident(3, "shop/db-0/u1"), now=100.0)
    assert terms.announced("ours-2", "shop/db-0", 101.0) == set()
    assert terms.announced("ours-1", "shop/db", 101.0) == set()


def test_who_leads_goes_on_for_as_long_as_it_renews_that_very_term() -> None:
    terms = Terms(HOLD)
    terms.led("ours-1", lease("ours-1", 1), sent=100.0, now=100.1)
    terms.led("ours-1", lease("ours-1", 1), sent=108.0, now=108.1)
    terms.led("ours-1", lease("ours-1", 2), sent=150.0, now=150.1)
    assert terms.went_on("ours-1", 102.0) == 6.0
    assert terms.went_on("ours-1", 130.0) < 0, "it had no right then"
    assert terms.went_on("ours-2", 102.0) < 0
