"""``records``: Calico's records in an embedded API, with somebody who interferes on demand."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from typing import Any

import msgspec
import pytest

from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.errors import NotFound
from backstay.model.addresses import AddressClaim
from backstay.seam.serve import Answer, Inbound
from backstay.seam.system import SystemClock, SystemRng
from backstay.sim.api.server import ApiServer
from backstay.sim.calico import V1, V3, Group, install
from backstay.sim.calico.blocks import counted, given, name_of, new_block, new_handle, place
from backstay.sim.network import Network

Json = dict[str, Any]

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Records:
    """``asked`` are method and path of all requests; what is in ``refused`` is answered 403, and
    ``just_before`` is called with each request before it is carried out."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.server = ApiServer(wall=SystemClock(), rng=SystemRng(7))
        self.asked: list[str] = []
        self.refused = ""
        self.just_before: Callable[[str], None] = lambda _: None
        self.lose_answers_to = ""
        self.client: KubeClient
        install(self.server, group)

    async def handle(self, inbound: Inbound) -> Answer:
        said = f"{inbound.method} {inbound.path}"
        self.asked.append(said)
        self.just_before(said)
        if self.refused and self.refused in said:
            body = {"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403}
            return Answer(status=403, body=msgspec.json.encode(body))
        answer = await self.server.handle(inbound)
        if self.lose_answers_to and self.lose_answers_to in said:
            self.lose_answers_to = ""
            return Answer(status=504, body=b"the server did not answer in time")
        return answer

    def written(self) -> list[str]:
        return [each for each in self.asked if not each.startswith("GET")]

    # Setting up

    async def give(
        self,
        *addresses: str,
        container: str = "c0ffee",
        pod: str = "launcher",
        namespace: str = "shop",
        node: str = "n1",
        handle: str = "",
        affinity: str = "host:n1",
        size: int = 26,
    ) -> AddressClaim:
        """Has Calico give these to a pod; the claim is what its annotations would say."""
        handle = handle or f"k8s-pod-network.{container}"
        owner = {"pod": pod, "namespace": namespace, "node": node}
        for each in addresses:
            address = ip_address(each)
            length = size if address.version == 4 else 122
            network = ip_network(f"{address}/{length}", strict=False)
            block = await self.find(name_of(network)) or new_block(
                network, node=affinity.removeprefix("host:"), sequence=10**18
            )
            if not affinity:
                block["spec"].pop("affinity", None)
            made = given(
                block, place(block, address), handle=handle, owner=owner, node=node, strict=False
            )
            await self.put(self.group.blocks, made)
            known = await self.find_handle(handle) or new_handle(handle)
            await self.put(self.group.handles, counted(known, str(network), 1))
        return AddressClaim(
            workload="VM shop/till",
            namespace=namespace,
            pod=pod,
            node=node,
            container=container,
            addresses=addresses,
            pinned=addresses,
        )

    async def put(self, resource: Any, body: Json) -> None:
        name = body["metadata"]["name"]
        if "resourceVersion" in body["metadata"]:
            await self.client.replace(resource, name, body)
        else:
            await self.client.create(resource, body)

    async def configure(self, **spec: Any) -> None:
        await self.put(self.group.settings, {"metadata": {"name": "default"}, "spec": spec})

    # Looking

    async def find(self, block: str) -> Json | None:
        return await self._find(self.group.blocks, block)

    async def find_handle(self, handle: str) -> Json | None:
        return await self._find(self.group.handles, handle.lower())

    async def _find(self, resource: Any, name: str) -> Json | None:
        try:
            return (await self.client.get(resource, name)).json()
        except NotFound:
            return None


@pytest.fixture(params=[V1, V3], ids=["v1", "v3"])
def group(request: pytest.FixtureRequest) -> Group:
    chosen: Group = request.param
    return chosen


@pytest.fixture
async def records(group: Group) -> AsyncIterator[Records]:
    found = Records(group)
    network = Network(grace=0.1, keeps_record=False)
    listener = await network.serve.listen(found.handle)
    found.client = KubeClient(network.transport, GivenAccess(listener.url, Grant()))
    yield found
    await listener.close()
