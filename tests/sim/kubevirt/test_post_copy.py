"""Guests torn apart; the real virt-controller goes the same ways in ``test_actual.py``."""

import pytest

from tests.sim.kubevirt.post_copy import POST_COPY_CASES, SLOWLY
from tests.sim.kubevirt.rig import in_memory
from tests.sim.kubevirt.scenarios import Scenario


@pytest.mark.parametrize("case", POST_COPY_CASES, ids=lambda each: each.__name__)
def test_a_guest_that_is_torn_apart_starts_anew_as_with_the_real_one(case: Scenario) -> None:
    in_memory(case, copying=SLOWLY)
