"""Guests that were here before; the real virt-controller goes the same ways in
``test_actual.py``."""

import pytest

from tests.sim.kubevirt.came_back import CAME_BACK_CASES
from tests.sim.kubevirt.rig import in_memory
from tests.sim.kubevirt.scenarios import Scenario


@pytest.mark.parametrize("case", CAME_BACK_CASES, ids=lambda each: each.__name__)
def test_a_guest_that_came_back_ends_as_with_the_real_one(case: Scenario) -> None:
    in_memory(case)
