"""``api``: the embedded API in memory, which counts what it is asked and can be told to refuse."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.seam.serve import Answer, Inbound
from backstay.seam.system import SystemClock, SystemRng
from backstay.sim.api.server import ApiServer
from backstay.sim.kubevirt.definitions import install
from backstay.sim.network import Network
from tests.support.furnished import anew
from tests.support.objects import Json


class CountingApi:
    """``asked`` are the paths (with queries) of all requests; ``refused`` what is answered 403."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.asked: list[str] = []
        self.refused: tuple[str, ...] = ()
        self.at_once = 0
        self._running = 0
        self.client: KubeClient

    async def handle(self, inbound: Inbound) -> Answer:
        self.asked.append(inbound.path + (f"?{inbound.query}" if inbound.query else ""))
        self._running += 1
        self.at_once = max(self.at_once, self._running)
        try:
            await asyncio.sleep(0)
            if any(part in inbound.path for part in self.refused):
                body = {"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403}
                return Answer(status=403, body=msgspec.json.encode(body))
            return await self.server.handle(inbound)
        finally:
            self._running -= 1

    @contextmanager
    def counting(self) -> Iterator[list[str]]:
        self.asked.clear()
        yield self.asked

    async def put(self, body: Json) -> Json:
        """Creates an object of any kind that is known; it must work."""
        group, _, version = body["apiVersion"].rpartition("/")
        [info] = [
            each
            for each in self.server.kinds.of_kind(group, body["kind"])
            if each.version == version
        ]
        path = info.resource.path(namespace=body["metadata"].get("namespace"))
        answer = await self.server.handle(
            Inbound(
                method="POST",
                path=path,
                headers={"content-type": "application/json"},
                body=msgspec.json.encode(anew(body)),
            )
        )
        assert isinstance(answer.body, bytes)
        made: Json = msgspec.json.decode(answer.body)
        assert answer.status == 201, made
        return made


@pytest.fixture
async def api() -> AsyncIterator[CountingApi]:
    counting = CountingApi(ApiServer(wall=SystemClock(), rng=SystemRng(7)))
    network = Network(grace=0.1, keeps_record=False)
    listener = await network.serve.listen(counting.handle)
    counting.client = KubeClient(network.transport, GivenAccess(listener.url, Grant()))
    for name in ("shop", "kube-node-lease"):
        await counting.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield counting
    await listener.close()


@pytest.fixture
def kubevirt(api: CountingApi) -> CountingApi:
    """The same with KubeVirt's kinds."""
    install(api.server)
    return api
