"""What is concluded from versions, and from what others tell of them: pure rules."""

import pytest

from backstay.sources.past import (
    Memory,
    RolledBack,
    leaps,
    once_more,
    rolled_back,
    step,
    told_by_another,
    within,
)

WENT_BACK = Memory("900", RolledBack("900", "100", "monday"))


def seen(highest: str, went_back: RolledBack | None = None, *, restored: str = "") -> Memory:
    return Memory(highest, went_back, ("monday",), restored)


@pytest.mark.parametrize(
    ("memory", "before", "version", "after"),
    [
        (Memory(), "", "5", seen("5")),
        (Memory("900"), "900", "900", seen("900")),
        (Memory("900"), "900", "1000", seen("1000")),
        (Memory("900"), "900", "100", seen("900", WENT_BACK.rolled_back, restored="100")),
        (Memory("900"), "900", "99999999999999999999999", seen("99999999999999999999999")),
    ],
)
def test_a_lower_version_than_was_seen_is_a_way_back(
    memory: Memory, before: str, version: str, after: Memory
) -> None:
    assert step(memory, before=before, version=version, armed="monday") == after


def test_a_read_that_began_before_a_higher_one_was_seen_says_nothing() -> None:
    assert step(Memory("905"), before="900", version="902", armed="") == Memory("905")


def test_a_version_that_is_no_number_says_nothing() -> None:
    assert step(Memory("900"), before="900", version="abc", armed="") == Memory("900")


def test_it_is_not_forgotten_when_the_version_grows_again() -> None:
    assert step(WENT_BACK, before="900", version="5000", armed="monday") == WENT_BACK


def test_whoever_arms_anew_accepts_it() -> None:
    accepted = Memory("120", armings=("tuesday",))
    assert step(WENT_BACK, before="900", version="120", armed="tuesday") == accepted


def test_an_arming_that_was_seen_before_accepts_nothing() -> None:
    """It is back from a backup, be it an older one, or a newer one than was restored at first."""
    memory = Memory()
    for armed in ("sunday", "monday", "tuesday"):
        memory = step(memory, before=memory.highest, version="900", armed=armed)
    held = step(memory, before="900", version="100", armed="monday")
    for armed in ("sunday", "monday", "tuesday", ""):
        assert step(held, before="900", version="110", armed=armed) == held
    assert step(held, before="900", version="110", armed="wednesday").rolled_back is None


def test_an_arming_in_an_api_that_went_back_once_more_accepts_nothing() -> None:
    held = once_more(WENT_BACK, before="120", version="40", armed="sunday", lease=None)
    assert step(held, before="900", version="50", armed="sunday") == held
    assert step(held, before="900", version="50", armed="tuesday").rolled_back is None
    for armed in ("sunday", ""):
        assert once_more(held, before="120", version="40", armed=armed, lease=None) == held
    assert once_more(
        Memory("900"), before="120", version="40", armed="sunday", lease=None
    ) == Memory("900")


def test_up_to_where_it_went_back_the_last_time_is_known_for_good() -> None:
    held = step(Memory("900"), before="900", version="100", armed="monday")
    assert held.restored == "100"
    once = once_more(held, before="120", version="40", armed="monday", lease=None)
    assert rolled_back_words(once) == "its version was 120 before, and then 40"
    accepted = step(once, before="900", version="50", armed="tuesday")
    assert step(accepted, before="50", version="60", armed="tuesday").restored == "40"


@pytest.mark.parametrize(
    ("before", "version", "seconds", "is_one"),
    [
        ("900", "1000000890", 3600, True),
        ("900", "100000900", 0, False),
        ("900", "100000901", 0, True),
        ("900", "100000901", 1, False),
        ("", "1000000890", 0, False),
        ("900", "yes", 0, False),
        ("900", "9" * 5000, 0, False),
        ("1000000890", "900", 0, False),
    ],
)
def test_more_than_can_be_written_is_a_leap(
    before: str, version: str, seconds: float, is_one: bool
) -> None:
    assert leaps(before, version, seconds=seconds) == is_one


def test_a_leap_is_a_way_back() -> None:
    after = step(Memory("900"), before="900", version="1000000890", armed="monday", leapt=True)
    assert after.rolled_back == RolledBack("900", "1000000890", "monday")


def test_who_has_missed_that_it_went_back_once_more_is_told_by_another() -> None:
    held = step(Memory("900"), before="900", version="100", armed="monday")
    told = RolledBack("147", "145", "sunday", ("friday",))
    once = told_by_another(held, told)
    assert rolled_back_words(once) == told.words
    assert once.restored == "145"
    for armed in ("friday", "sunday", "monday"):
        assert step(once, before="900", version="150", armed=armed) == once
    assert step(once, before="900", version="150", armed="tuesday").rolled_back is None


def test_who_knows_more_than_another_is_told_of_armings_alone() -> None:
    """Its words may be those of a backup."""
    held = step(Memory("900"), before="900", version="100", armed="monday")
    told = RolledBack("80", "70", "sunday")
    once = told_by_another(held, told)
    assert rolled_back_words(once) == rolled_back_words(held)
    assert once.restored == "100"
    assert step(once, before="900", version="150", armed="sunday") == once


def test_a_way_back_that_was_accepted_counts_beside_one_that_is_told_of_now() -> None:
    once = told_by_another(Memory("900", restored="145"), RolledBack("120", "100", "sunday"))
    assert once.restored == "145"


def test_what_lies_beyond_the_version_of_the_api_is_of_a_history_that_is_over() -> None:
    held = step(Memory("900"), before="900", version="100", armed="monday")
    assert within(held, "100") == held
    assert (within(held, "60").restored, within(Memory("900"), "60")) == ("60", Memory("900"))
    told = within(held, "60").rolled_back
    assert told is not None
    assert told.found == "60"


def rolled_back_words(memory: Memory) -> str:
    assert memory.rolled_back is not None
    return memory.rolled_back.words


def test_only_the_last_armings_are_kept() -> None:
    memory = Memory()
    for number in range(100):
        memory = step(memory, before="", version="900", armed=f"day {number}")
    assert memory.armings == tuple(f"day {number}" for number in range(84, 100))


def test_a_configuration_that_is_gone_accepts_nothing() -> None:
    assert step(WENT_BACK, before="900", version="120", armed="") == WENT_BACK


@pytest.mark.parametrize("text", ["", "yes", "{}", "[1]", '{"highest": 5}'])
def test_what_somebody_else_wrote_on_the_lease_is_no_way_back(text: str) -> None:
    assert rolled_back(text) is None
