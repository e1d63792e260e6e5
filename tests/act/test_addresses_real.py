"""Addresses are taken back on a real API server, with the rights that the controller has there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from ipaddress import ip_address, ip_network

import pytest

from backstay.act import addresses
from backstay.apis.calico import find_ipam
from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.errors import NotFound
from backstay.kube.resource import Resource
from backstay.model.addresses import AddressClaim, Fate
from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.transport import Request, Response, Stream
from backstay.sim.calico import V1, definitions
from backstay.sim.calico.blocks import counted, given, new_block, new_handle, place
from backstay.sim.calico.definitions import named
from harness.cluster import ControlPlane
from harness.connect import access
from tests.act.conftest import NOW, Json
from tests.support.installed import USERS, Installed

pytestmark = pytest.mark.real

_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False,
)  # fmt: skip

NETWORK = ip_network("10.244.3.0/26")
BLOCK = "10-244-3-0-26"
PODS = range(8)


class Watched:
    """A transport that remembers how writes of a block were answered."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self._inner = AiohttpTransport()

    async def request(self, request: Request) -> Response:
        response = await self._inner.request(request)
        if request.method == "PUT" and BLOCK in request.url:
            self.answers.append(response.status)
        return response

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


@pytest.fixture
async def calico(client: KubeClient) -> AsyncIterator[None]:
    """Its kinds, and a block of which each of eight pods has an address."""
    for definition in definitions(V1):
        await client.create(_DEFINITIONS, definition)
    async with asyncio.timeout(10):
        while await find_ipam(client) is None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
    block = new_block(NETWORK, node="n1", sequence=1_700_000_000_123_456_789)
    for number in PODS:
        owner = {"pod": f"launcher-{number}", "namespace": "shop", "node": "n1"}
        handle = f"k8s-pod-network.c{number}"
        ordinal = place(block, ip_address(f"10.244.3.{number}"))
        block = given(block, ordinal, handle=handle, owner=owner, node="n1", strict=True)
        counts = counted(new_handle(handle), str(NETWORK), 1)
        await client.create(V1.handles, named(V1.handles, counts))
    await client.create(V1.blocks, named(V1.blocks, block))
    yield
    for kind in (V1.blocks, V1.handles, V1.settings):
        await client.delete(_DEFINITIONS, kind.label)


def claim(number: int) -> AddressClaim:
    address = f"10.244.3.{number}"
    return AddressClaim(
        workload=f"VM shop/vm-{number}", namespace="shop", pod=f"launcher-{number}", node="n1",
        container=f"c{number}", addresses=(address,), pinned=(address,),
    )  # fmt: skip


async def test_several_who_write_to_one_block_at_once_lose_nothing(
    control_plane: ControlPlane, installed: Installed, client: KubeClient, calico: None
) -> None:
    """Each of them ends what it began, at the version that it read last."""
    transport = Watched()
    tls = (await access(control_plane).grant()).tls
    grant = Grant(headers={"Impersonate-User": USERS["controller"]}, tls=tls)
    ours = KubeClient(transport, GivenAccess(control_plane.url, grant))
    later = asyncio.get_running_loop().time() + 30
    try:
        found = await asyncio.gather(
            *(
                addresses.release(ours, [claim(number)], leave=lambda: later, at=NOW)
                for number in PODS[:-1]
            )
        )
    finally:
        await transport.close()
    assert {outcome.fate for outcomes in found for outcome in outcomes} == {Fate.RELEASED}
    assert 409 in transport.answers, "nobody got in anybody's way: this shows nothing"

    block: Json = (await client.get(V1.blocks, BLOCK)).json()
    spec = block["spec"]
    last = PODS[-1]
    assert [n for n, each in enumerate(spec["allocations"]) if each is not None] == [last]
    [left] = spec["attributes"]
    assert left["handle_id"] == f"k8s-pod-network.c{last}"
    assert sorted(spec["unallocated"]) == [n for n in range(64) if n != last]
    assert spec["sequenceNumber"] == 1_700_000_000_123_456_789 + len(PODS) + len(PODS[:-1])
    assert list(spec["sequenceNumberForAllocation"]) == [str(last)]
    for number in PODS[:-1]:
        with pytest.raises(NotFound):
            await client.get(V1.handles, f"k8s-pod-network.c{number}")
    assert (await client.get(V1.handles, f"k8s-pod-network.c{last}")).json()["spec"]["block"]
