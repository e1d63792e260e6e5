"""An API with our kinds, and a client that writes to it."""

from collections.abc import Callable

from backstay.apis.definitions import definitions
from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.resource import Resource
from backstay.seam.system import SystemRng
from backstay.sim.api.server import ApiServer
from backstay.sim.clock import LoopClock
from backstay.sim.fate import ALL_WELL, Attempt, Fate
from backstay.sim.network import Network

URL = "http://api:80"
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False,
)  # fmt: skip


class RecordScene:
    """See the module. ``begin`` comes first."""

    def __init__(self) -> None:
        self.network = Network()
        self.server = ApiServer(wall=LoopClock(), rng=SystemRng(1))
        self.client = KubeClient(self.network.transport, GivenAccess(URL, Grant()))

    async def begin(self) -> None:
        await self.network.serve.listen(self.server.handle, host="api", port=80)
        await install(self.client)
        self.network.link(URL).sent.clear()

    def writes(self) -> list[str]:
        """The requests that could have changed something."""
        sent = self.network.link(URL).sent
        return [each.request.method for each in sent if each.request.method != "GET"]


async def install(client: KubeClient) -> None:
    for definition in definitions():
        await client.create(DEFINITIONS, definition)


def lose_the_answer_of(method: str) -> Callable[[Attempt], Fate]:
    """To the first such request; the work is done."""
    left = [Fate(lose_answer="reset")]

    def fate(attempt: Attempt) -> Fate:
        return left.pop() if left and attempt.request.method == method else ALL_WELL

    return fate
