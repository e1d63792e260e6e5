"""What people have said, as it comes to be known."""

from backstay.apis.backstay import ConfirmationRow
from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.sim.chance import Chance
from backstay.sim.clock import LoopClock
from backstay.sim.files import MemoryFiles
from backstay.sim.network import Network
from backstay.sources.operator import OperatorSource
from backstay.sources.past import Past


async def test_confirmations_that_come_together_are_all_there_for_whoever_hears_of_one() -> None:
    network = Network()
    client = KubeClient(network.transport, GivenAccess("http://api", Grant(), origin="a test"))
    wall, rng = LoopClock(), Chance(1, "test")
    past = Past(client, MemoryFiles(), "", rng=rng)
    source = OperatorSource(client, rng=rng, wall=wall, past=past)
    heard: list[int] = []
    source.confirmed.subscribe(lambda _old, _new: heard.append(len(source.confirmations("n1"))))
    picture = source.confirmed.replacement()
    picture.add([word("first"), word("second")])
    for _ in picture.settle(version="7", as_of=0.0):
        pass
    assert heard == [2, 2]


def word(name: str) -> ConfirmationRow:
    return ConfirmationRow(
        key=name, uid=name, version="7", node="n1", node_uid="u", boot_id="b", by="ana",
        reason="its fuse has blown", last_renewal="", last_heartbeat="",
    )  # fmt: skip
