"""How many nodes may be silent at once before silence proves nothing."""

import pytest

from backstay.decide.storm import Fleet, is_storm, most_down, silent_together
from backstay.model.policy import Policy

TABLE = {2: 1, 3: 1, 5: 1, 10: 1, 19: 1, 20: 2, 50: 5, 100: 10, 5000: 500}


@pytest.mark.parametrize(("nodes", "most"), TABLE.items())
def test_one_node_may_always_be_down_and_of_many_a_tenth(nodes: int, most: int) -> None:
    fleet = Fleet(nodes=nodes, down=tuple(f"n{number}" for number in range(most)))
    assert most_down(nodes, Policy()) == most
    assert not is_storm(fleet, Policy())
    assert is_storm(Fleet(nodes=nodes, down=(*fleet.down, "one more")), Policy())


@pytest.mark.parametrize(("said", "most"), [(0, 1), (1, 1), (3, 3)])
def test_people_can_say_how_many_but_not_that_none_may_be(said: int, most: int) -> None:
    assert most_down(5, Policy(storm_most=said)) == most


def test_a_storm_that_a_person_has_lifted_is_none() -> None:
    fleet = Fleet(nodes=5, down=("n1", "n2", "n3"))
    assert is_storm(fleet, Policy())
    assert not is_storm(fleet, Policy(storm_released="the switch is being replaced"))


def test_nodes_that_fall_silent_soon_after_one_another_do_so_together() -> None:
    since = {"a": 1000.0, "b": 1590.0, "c": 1610.0}
    assert silent_together(since, 1000.0, within=600.0) == ("a", "b")
    assert silent_together(since, 1590.0, within=600.0) == ("a", "b", "c")


def test_a_node_that_was_broken_long_before_is_no_part_of_the_storm() -> None:
    assert silent_together({"old": 0.0, "new": 9000.0}, 9000.0, within=600.0) == ("new",)


def test_for_a_node_that_is_not_silent_nobody_is_silent_together_with_it() -> None:
    assert silent_together({"a": 0.0}, None, within=600.0) == ()
