"""Two real API servers, of which one is stopped or ended: calls go on through the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.kube.endpoints import EndpointWatch
from backstay.kube.resource import ENDPOINT_SLICES, Resource
from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.tasks import Tasks
from backstay.seam.transport import Request, Response, Stream, Transport
from harness.build import ensure_binaries
from harness.cluster import FAST, ControlPlane
from harness.connect import access
from tests.support.dice import LOWEST

pytestmark = pytest.mark.real

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
ANYTHING: dict[str, Any] = {"metadata": {"generateName": "any-"}}


class Routed:
    """A transport for which the cluster's own addresses lead to where its servers listen.

    Endpoints may not be on loopback, where the harness has its servers.
    """

    def __init__(self, transport: Transport, routes: dict[str, str]) -> None:
        self._transport = transport
        self._routes = routes

    async def request(self, request: Request) -> Response:
        return await self._transport.request(self._routed(request))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        async with self._transport.stream(self._routed(request)) as stream:
            yield stream

    def _routed(self, request: Request) -> Request:
        for address, real in self._routes.items():
            if request.url.startswith(address):
                url = real + request.url.removeprefix(address)
                return msgspec.structs.replace(request, url=url)
        return request


class Pair:
    """Two API servers: the first is configured, the second known from the endpoints only."""

    def __init__(self, plane: ControlPlane, transport: AiohttpTransport) -> None:
        self.first, self.second = plane.apiservers
        self._plane = plane
        port = self.second.url.rpartition(":")[2]
        self.address = f"https://192.0.2.2:{port}"
        routed = Routed(transport, {self.address: self.second.url})
        self.client = KubeClient(routed, access(plane))

    async def publish(self) -> None:
        body = {
            "metadata": {
                "name": "kubernetes-2",
                "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["192.0.2.2"]}],
            "ports": [{"name": "https", "port": int(self.address.rpartition(":")[2])}],
        }
        await self.client.create(ENDPOINT_SLICES, body, namespace="default")

    @asynccontextmanager
    async def first_stopped(self) -> AsyncIterator[None]:
        self.first.pause()
        try:
            yield
        finally:
            self.first.resume()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two_apiservers() -> AsyncIterator[ControlPlane]:
    async with ControlPlane(ensure_binaries(), timers=FAST, extra_apiservers=1) as plane:
        transport = AiohttpTransport()
        await Pair(plane, transport).publish()
        await transport.close()
        yield plane


@pytest.fixture
async def pair(two_apiservers: ControlPlane) -> AsyncIterator[Pair]:
    transport = AiohttpTransport()
    made = Pair(two_apiservers, transport)
    if not await made.first.ready():  # A test before this one has ended it.
        await made.first.start()
    yield made
    await transport.close()


async def test_the_addresses_in_the_endpoints_are_learned(pair: Pair) -> None:
    addresses = pair.client.addresses
    async with Tasks("test") as tasks, asyncio.timeout(10):
        tasks.spawn(EndpointWatch(pair.client, rng=LOWEST).run(), name="endpoints")
        while len(addresses.all) == 1:  # noqa: ASYNC110 - they tell nobody
            await asyncio.sleep(0.02)
    assert addresses.all == (pair.first.url, pair.address)


async def test_a_write_to_an_api_server_that_stops_answering_is_the_last_one_there(
    pair: Pair,
) -> None:
    pair.client.addresses.learn([pair.address])
    await pair.client.list(CONFIG_MAPS, namespace="default")  # A connection is open from now on.
    async with pair.first_stopped():
        with pytest.raises(errors.OutcomeUnknown):
            await pair.client.create(CONFIG_MAPS, ANYTHING, namespace="default", timeout=0.3)
        await pair.client.create(CONFIG_MAPS, ANYTHING, namespace="default")
    assert pair.client.addresses.order(0.0)[0] == pair.address


async def test_a_write_that_gets_no_connection_to_one_api_server_goes_to_the_other(
    pair: Pair,
) -> None:
    pair.client.addresses.learn([pair.address])
    async with pair.first_stopped():
        await pair.client.create(CONFIG_MAPS, ANYTHING, namespace="default", timeout=2.0)


async def test_a_read_finds_the_other_api_server_within_its_own_time(pair: Pair) -> None:
    pair.client.addresses.learn([pair.address])
    await pair.client.list(CONFIG_MAPS, namespace="default")  # A connection is open from now on.
    async with pair.first_stopped():
        await pair.client.list(CONFIG_MAPS, namespace="default", timeout=2.0)


async def test_calls_go_on_when_the_configured_api_server_is_gone(pair: Pair) -> None:
    pair.client.addresses.learn([pair.address])
    await pair.first.stop()
    await pair.client.create(CONFIG_MAPS, ANYTHING, namespace="default")
    async with pair.client.watch(CONFIG_MAPS, namespace="default", initial_events=True) as lines:
        assert await lines.read(10.0)
