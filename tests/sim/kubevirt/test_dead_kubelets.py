"""Guests without a kubelet; the real virt-controller goes the same ways in ``test_actual.py``."""

import pytest

from tests.sim.kubevirt.dead_kubelets import KUBELET_CASES
from tests.sim.kubevirt.rig import in_memory
from tests.sim.kubevirt.scenarios import Scenario


@pytest.mark.parametrize("case", KUBELET_CASES, ids=lambda each: each.__name__)
def test_a_guest_without_a_kubelet_ends_as_with_the_real_one(case: Scenario) -> None:
    in_memory(case)
