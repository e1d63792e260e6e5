"""The real KubeVirt goes through its recorded timelines again.

Where there is no virt-controller to run, nothing here can be done, and nothing is lost: the
timelines in ``recorded/`` are what it did before. These tests are therefore not counted among
those that a run has to answer for.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from backstay.kube.client import KubeClient
from harness.cluster import ControlPlane
from tests.sim.kubevirt.actual import VARIABLE, actual, program, virt_controller
from tests.sim.kubevirt.came_back import CAME_BACK_CASES
from tests.sim.kubevirt.dead_kubelets import KUBELET_CASES
from tests.sim.kubevirt.deleted import DELETED_CASES
from tests.sim.kubevirt.post_copy import POST_COPY_CASES, SLOWLY
from tests.sim.kubevirt.scenarios import SCENARIOS, Scenario
from tests.sim.kubevirt.sets import CASES

pytestmark = [
    pytest.mark.skipif(
        program() is None,
        reason=f"{VARIABLE} does not name a virt-controller of KubeVirt 1.9 to run.",
    ),
    pytest.mark.timeout(180),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kubevirt(control_plane: ControlPlane) -> AsyncIterator[None]:
    path = program()
    assert path is not None
    async with virt_controller(control_plane, path):
        yield


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
@pytest.mark.usefixtures("kubevirt")
async def test_the_real_one_does_what_it_did(
    scenario: Scenario, client: KubeClient, namespace: str
) -> None:
    async with actual(client, namespace) as rig:
        await scenario(rig)


@pytest.mark.parametrize(
    "case",
    [*CASES, *KUBELET_CASES, *CAME_BACK_CASES, *DELETED_CASES],
    ids=lambda each: each.__name__,
)
@pytest.mark.usefixtures("kubevirt")
async def test_the_real_one_does_the_same_with_sets_and_guests_on_dead_nodes(
    case: Scenario, client: KubeClient, namespace: str
) -> None:
    async with actual(client, namespace) as rig:
        await case(rig)


@pytest.mark.parametrize("case", POST_COPY_CASES, ids=lambda each: each.__name__)
@pytest.mark.usefixtures("kubevirt")
async def test_the_real_one_starts_a_guest_anew_that_was_torn_apart(
    case: Scenario, client: KubeClient, namespace: str
) -> None:
    async with actual(client, namespace, copying=SLOWLY) as rig:
        await case(rig)
