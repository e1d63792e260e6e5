"""VMs that are deleted on a dead node; the real virt-controller goes the same ways in
``test_actual.py``."""

import pytest

from tests.sim.kubevirt.deleted import DELETED_CASES
from tests.sim.kubevirt.rig import in_memory
from tests.sim.kubevirt.scenarios import Scenario


@pytest.mark.parametrize("case", DELETED_CASES, ids=lambda each: each.__name__)
def test_a_vm_that_is_deleted_ends_as_with_the_real_one(case: Scenario) -> None:
    in_memory(case)
