"""One decision, told to everybody: in which order, and how often."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from backstay.control.tell import Teller
from backstay.decide.failover import CHAIN, Snapshot
from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.events import EventRecorder
from backstay.kube.lease import Term
from backstay.kube.resource import NAMESPACES
from backstay.model.reasons import Reason
from backstay.record.blackbox import BlackBox, read_frames
from backstay.record.events import Herald
from backstay.record.frames import Frames
from backstay.record.metrics import Metrics
from backstay.record.notify import Notification, Notifier, Webhook
from backstay.seam.serve import Answer, Inbound
from backstay.seam.system import SystemRng
from backstay.seam.tasks import Tasks
from backstay.sim.api.server import ApiServer
from backstay.sim.clock import LoopClock
from backstay.sim.files import MemoryFiles
from backstay.sim.network import Network
from tests.record.samples import CONFIRMED, NODE, TIMES, decided, lost, snapshot, workload
from tests.seam.worlds import server_tls
from tests.support.virtual import virtual_time

URL = "http://api:80"
OURS = "backstay-system"
DB = workload("db")


class Desk:
    """A teller with everybody that it tells."""

    def __init__(self) -> None:
        self.network, wall, rng = Network(), LoopClock(), SystemRng(1)
        self.server = ApiServer(wall=wall, rng=rng)
        self.client = KubeClient(self.network.transport, GivenAccess(URL, Grant()))
        self.files = MemoryFiles()
        self.messages: list[Notification] = []
        metrics = Metrics(version="0")
        self.box = BlackBox(self.client, namespace=OURS, program="backstay 0", wall=wall)
        self.notifier = Notifier(
            self.network.transport, self.files, Webhook(url_file="/url"),
            wall=wall, rng=rng, metrics=metrics,
        )  # fmt: skip
        self.recorder = EventRecorder(
            self.client, component="backstay", instance="a", wall=wall, rng=rng
        )
        self.teller = Teller(
            herald=Herald(self.recorder), metrics=metrics, recorder=None, box=self.box,
            notifier=self.notifier, frames=Frames(wall, times=TIMES, chain=CHAIN),
        )  # fmt: skip

    async def receive(self, inbound: Inbound) -> Answer:
        self.messages.append(msgspec.json.decode(inbound.body, type=Notification))
        return Answer(status=204)

    def decide(self, about: Snapshot) -> None:
        self.teller.decided(about, decided(about), 50.0)

    def events(self) -> list[tuple[str, str]]:
        return [(message.event.value, message.incident) for message in self.messages]


@asynccontextmanager
async def desk() -> AsyncIterator[Desk]:
    at = Desk()
    await at.network.serve.listen(at.server.handle, host="api", port=80)
    await at.network.serve.listen(at.receive, host="hooks", port=443, tls=server_tls())
    await at.client.create(NAMESPACES, {"metadata": {"name": OURS}})
    await at.files.write("/url", b"https://hooks/x")
    term = Term(1, asyncio.get_running_loop().time() + 10_000.0)
    async with Tasks("test") as tasks:
        tasks.spawn(at.notifier.run(term), name="notifier")
        tasks.spawn(at.box.run(term), name="box")
        tasks.spawn(at.recorder.run(), name="events")
        await asyncio.sleep(0)
        yield at


@virtual_time
async def test_that_an_incident_was_opened_is_told_before_what_it_holds() -> None:
    async with desk() as at:
        at.decide(snapshot(DB))
        await asyncio.sleep(5.0)
        assert at.messages == []
        at.teller.opened("n1-a", lost().why, node="n1", anew=True)
        at.decide(snapshot(DB))
        await asyncio.sleep(5.0)
    assert at.events() == [("opened", "n1-a"), ("held", "n1-a")]


@virtual_time
async def test_a_successor_does_not_open_it_again() -> None:
    async with desk() as at:
        at.teller.opened("n1-a", lost().why, node="n1", anew=False)
        at.decide(snapshot(DB))
        await asyncio.sleep(5.0)
    assert at.events() == [("held", "n1-a")]


@virtual_time
async def test_a_contradiction_is_told_once_for_the_node_and_not_for_each_workload() -> None:
    alive = msgspec.structs.replace(NODE, lease_changed_at=CONFIRMED.seen_at + 1.0)
    refuted = msgspec.structs.replace(snapshot(DB, workload("web"), confirmed=True), facts=alive)
    async with desk() as at:
        at.teller.opened("n1-a", lost().why, node="n1", anew=False)
        for _ in range(3):
            at.decide(refuted)
            await asyncio.sleep(5.0)
    assert at.events() == [("contradicted", "n1-a")]


@virtual_time
async def test_what_was_decided_last_is_kept_when_the_incident_closes_and_no_more_after_it() -> (
    None
):
    async with desk() as at:
        at.teller.opened("n1-a", lost().why, node="n1", anew=True)
        at.decide(snapshot(DB))
        await asyncio.sleep(1.0)
        at.decide(snapshot(DB, confirmed=True))
        at.teller.forget("n1")
        at.teller.closed(Reason.NodeReturned.because(node="n1"), node="n1")
        await asyncio.sleep(1.0)
        kept = await read_frames(at.client, namespace=OURS, incident="n1-a")
        assert len(kept.frames) == 2
        at.decide(snapshot(workload("web")))
        await asyncio.sleep(60.0)
        assert await read_frames(at.client, namespace=OURS, incident="n1-a") == kept
    assert at.events()[-1] == ("closed", "n1-a")


@virtual_time
async def test_the_same_decision_is_no_event_again_unless_something_else_was_said_meanwhile() -> (
    None
):
    async with desk() as at:
        about = snapshot(DB)
        at.decide(about)
        assert await at.recorder.flush(5.0)
        at.decide(about)
        waiting = [at.recorder.waiting]
        at.teller.say(Reason.BarrierRaised.because(node="n1", count=1), node=NODE)
        at.decide(about)
        waiting.append(at.recorder.waiting)
    assert waiting == [0, 2]


@virtual_time
async def test_a_pod_that_came_later_is_told_of_what_holds_its_workload() -> None:
    (pod,) = DB.pods
    later = msgspec.structs.replace(DB, pods=(msgspec.structs.replace(pod, uid="another"),))
    async with desk() as at:
        at.decide(snapshot(DB))
        before = at.recorder.waiting
        at.decide(snapshot(later))
        assert at.recorder.waiting == before + 1
