"""The stand-in goes through the recorded timelines of the real KubeVirt."""

import pytest

from tests.sim.kubevirt.rig import in_memory
from tests.sim.kubevirt.scenarios import SCENARIOS, Scenario


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_the_stand_in_does_what_the_real_one_did(scenario: Scenario, seed: int) -> None:
    in_memory(scenario, seed=seed)
