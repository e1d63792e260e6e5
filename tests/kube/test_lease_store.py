"""The double that leadership is tested on keeps to what a real API server does."""

import pytest

from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.sim.network import Network
from tests.support.lease_contract import Api, LeaseContract
from tests.support.lease_store import LeaseStore

URL = "http://api:6443"


async def client_of(store: LeaseStore) -> KubeClient:
    network = Network()
    await network.serve.listen(store, host="api", port=6443)
    return KubeClient(network.transport, GivenAccess(URL, Grant()))


@pytest.fixture
async def api() -> Api:
    closed = LeaseStore()
    closed.forbidden = {"get", "patch", "create", "watch"}
    return Api(await client_of(LeaseStore()), await client_of(closed), "default")


class TestLeaseStore(LeaseContract):
    pass
