"""Leadership on a real API server, and the contract that its double is held to."""

from collections.abc import AsyncIterator

import pytest

from backstay.kube.client import KubeClient
from harness import pki
from harness.cluster import ControlPlane
from harness.connect import connect
from tests.support.lease_contract import Api, LeaseContract

pytestmark = pytest.mark.real


@pytest.fixture
async def api(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> AsyncIterator[Api]:
    async with connect(control_plane, pki.ORDINARY) as powerless:
        yield Api(client, powerless, namespace)


class TestApiServer(LeaseContract):
    pass
