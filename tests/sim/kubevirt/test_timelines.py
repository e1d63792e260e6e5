"""The stand-in goes through the recorded timelines of the real KubeVirt."""

import pytest

from tests.sim.kubevirt.rig import embedded
from tests.sim.kubevirt.scenarios import RECORDED, Scenario
from tests.support.virtual import virtual_time


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scenario", RECORDED, ids=lambda each: each.__name__)
@virtual_time
async def test_the_stand_in_does_what_the_real_one_did(scenario: Scenario, seed: int) -> None:
    async with embedded(seed=seed) as rig:
        await scenario(rig)
