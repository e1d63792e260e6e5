"""How many nodes may be silent at once before silence proves nothing."""

import pytest

from backstay.decide.storm import Fleet, is_storm, most_down
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
