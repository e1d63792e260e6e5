"""What was released, until it runs and until it is ready."""

import asyncio
from contextlib import suppress
from typing import Any

from backstay.apis.backstay import IncidentRow, IncidentSpec
from backstay.apis.kubevirt import INSTANCES, VIRTUAL_MACHINES
from backstay.control.arrivals import PATIENCE, Arrivals, getting_ready
from backstay.control.incident import OpenIncident
from backstay.control.laps import Laps
from backstay.control.tell import Teller
from backstay.decide.failover import CHAIN
from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.errors import AlreadyExists
from backstay.kube.events import EventRecorder
from backstay.kube.resource import EVENTS, NAMESPACES
from backstay.model.incident import IncidentStatus, Progress, WorkloadRecord
from backstay.model.node import Life, NodeFacts
from backstay.model.policy import PIRAEUS, Policy, Times
from backstay.record.blackbox import BlackBox
from backstay.record.events import Herald
from backstay.record.frames import Frames
from backstay.record.incidents import IncidentBook
from backstay.record.metrics import Metrics, Stage
from backstay.record.telling import Advance
from backstay.seam.system import SystemRng
from backstay.seam.tasks import Tasks
from backstay.sim.api.server import ApiServer
from backstay.sim.clock import LoopClock
from backstay.sim.kubevirt import install
from backstay.sim.network import Network
from tests.support.virtual import virtual_time

URL = "http://api:80"
KEY = "VirtualMachine/shop/db"
FACTS = NodeFacts(name="n1", uid="u", boot_id="b", lease_changed_at=-40.0)


class Port:
    """An API with one guest on its way up, and somebody who looks out for it."""

    def __init__(self) -> None:
        self.network, wall, rng = Network(), LoopClock(), SystemRng(1)
        self.server = ApiServer(wall=wall, rng=rng)
        self.client = KubeClient(self.network.transport, GivenAccess(URL, Grant()))
        self.metrics = Metrics(version="0")
        self.events = EventRecorder(
            self.client, component="backstay", instance="a", wall=wall, rng=rng
        )
        teller = Teller(
            herald=Herald(self.events),
            metrics=self.metrics,
            recorder=None,
            box=BlackBox(self.client, namespace="backstay-system", program="x", wall=wall),
            frames=Frames(wall, times=Times(), chain=CHAIN),
        )
        self.arrivals = Arrivals(self.client, teller, opt_in=PIRAEUS)
        self.book = IncidentBook(self.client, wall=wall, rng=rng)
        self.laps = Laps(FACTS, Life.LOST)

    def incident(self, progress: Progress, *, ready: bool = False) -> OpenIncident:
        record = WorkloadRecord(KEY, progress, "x", "y", uids=("old",), ready=ready)
        row = IncidentRow("n1-a", "u", "1", IncidentSpec("n1", "u", "b"), IncidentStatus())
        opened = OpenIncident(self.book, row)
        opened.row = IncidentRow(
            row.key, row.uid, row.version, row.spec, IncidentStatus(workloads=(record,))
        )
        return opened

    async def guest(self, **status: Any) -> None:
        owner = {
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "db",
            "uid": "uid-db", "controller": True,
        }  # fmt: skip
        body = {
            "metadata": {"name": "db", "ownerReferences": [owner]},
            "spec": {"domain": {"devices": {}}},
            "status": {"phase": "Running", "nodeName": "n2", **status},
        }
        await self.client.create(INSTANCES, body, namespace="shop")

    async def machine(self, status: dict[str, Any], *, strategy: str = "Always") -> None:
        """Its VM says so, and has no guest."""
        spec = {"runStrategy": strategy, "template": {"spec": {"domain": {}}}}
        with suppress(AlreadyExists):
            body = {"metadata": {"name": "db"}, "spec": spec}
            await self.client.create(VIRTUAL_MACHINES, body, namespace="shop")
        await self.client.merge_patch(
            VIRTUAL_MACHINES, "db", {"status": status}, namespace="shop", subresource="status"
        )

    async def becomes_ready(self) -> None:
        status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await self.client.merge_patch(
            INSTANCES, "db", status, namespace="shop", manager="virt-controller"
        )

    async def look(self, progress: Progress) -> dict[str, Advance]:
        incident = self.incident(progress)
        return (await self.arrivals.look(FACTS, incident, self.laps, Policy())).advances


async def port() -> Port:
    made = Port()
    install(made.server)
    await made.network.serve.listen(made.server.handle, host="api", port=80)
    await made.client.create(NAMESPACES, {"metadata": {"name": "shop"}})
    return made


@virtual_time
async def test_a_guest_that_runs_is_recovered_before_it_is_ready() -> None:
    at = await port()
    at.laps.released[KEY] = 0.0
    transition = {"phase": "Running", "phaseTransitionTimestamp": "2030-01-01T00:00:00Z"}
    await at.guest(phaseTransitionTimestamps=[transition])
    await asyncio.sleep(5.0)
    advance = (await at.look(Progress.RELEASED))[KEY]
    assert (advance.progress, advance.why.code, advance.ready) == (
        Progress.RECOVERED, "Recovered", False,
    )  # fmt: skip
    assert advance.after == 45.0
    assert [(each.phase, each.at) for each in advance.phases] == [
        ("Running", "2030-01-01T00:00:00Z")
    ]
    assert await at.look(Progress.RECOVERED) == {}
    await asyncio.sleep(5.0)
    await at.becomes_ready()
    advance = (await at.look(Progress.RECOVERED))[KEY]
    assert (advance.why.code, advance.ready, advance.after) == ("ReadyAgain", True, 50.0)
    counts = [at.metrics.stages.count(stage) for stage in (Stage.RECOVERED, Stage.GUEST_READY)]
    assert counts == [1, 1]


@virtual_time
async def test_one_that_is_ready_when_it_is_first_seen_has_been_ready_since_then() -> None:
    at = await port()
    await at.guest()
    await at.becomes_ready()
    assert (await at.look(Progress.RELEASED))[KEY].why.code == "Recovered"
    await asyncio.sleep(3.0)
    assert (await at.look(Progress.RECOVERED))[KEY].after == 40.0


@virtual_time
async def test_one_that_never_gets_ready_is_not_looked_at_for_ever() -> None:
    at = await port()
    await at.guest()
    await at.look(Progress.RELEASED)
    await asyncio.sleep(PATIENCE - 1)
    assert getting_ready(at.incident(Progress.RECOVERED), at.laps)
    await asyncio.sleep(2)
    assert not getting_ready(at.incident(Progress.RECOVERED), at.laps)
    at.network.link(URL).sent.clear()
    assert await at.look(Progress.RECOVERED) == {}
    assert at.network.link(URL).sent == []


@virtual_time
async def test_what_is_ready_is_not_looked_at_again() -> None:
    at = await port()
    assert not getting_ready(at.incident(Progress.RECOVERED, ready=True), at.laps)


@virtual_time
async def test_without_a_sign_of_life_that_we_saw_nothing_is_counted() -> None:
    at = await port()
    at.laps = Laps(NodeFacts(name="n1", uid="u", boot_id="b"), Life.LOST)
    await at.guest()
    assert (await at.look(Progress.RELEASED))[KEY].after is None
    assert Laps(FACTS, Life.RETURNING).after(5.0) is None


@virtual_time
async def test_both_moments_are_events_on_the_vm() -> None:
    at = await port()
    await at.guest()
    await at.becomes_ready()
    async with Tasks("test") as tasks:
        tasks.spawn(at.events.run(), name="events")
        await at.look(Progress.RELEASED)
        await at.look(Progress.RECOVERED)
        assert await at.events.flush(5.0)
    events = (await at.client.list(EVENTS)).json()["items"]
    assert sorted(event["reason"] for event in events) == ["ReadyAgain", "Recovered"]
    for event in events:
        about = event["involvedObject"]
        assert (about["kind"], about["name"], about["uid"]) == ("VirtualMachine", "db", "uid-db")
        assert event["type"] == "Normal"


@virtual_time
async def test_what_keeps_a_machine_from_starting_is_told() -> None:
    at = await port()
    status: dict[str, Any] = {"printableStatus": "ErrorUnschedulable"}
    await at.machine(status)
    [waits] = (await at.look(Progress.RELEASED)).values()
    assert (waits.progress, waits.why.code) == (Progress.RELEASED, "StartFails")
    assert "ErrorUnschedulable" in waits.why.sentence
    failure = {"consecutiveFailCount": 2, "retryAfterTimestamp": "2026-01-01T00:00:00Z"}
    await at.machine({**status, "startFailure": failure})
    [waits] = (await at.look(Progress.RELEASED)).values()
    assert (waits.progress, waits.why.code) == (Progress.RELEASED, "StartBackoff")
    condition = {"type": "ManualRecoveryRequired", "status": "True"}
    await at.machine({**status, "conditions": [condition]})
    [ends] = (await at.look(Progress.RELEASED)).values()
    assert (ends.progress, ends.why.code) == (Progress.STAYS_DOWN, "NeedsRecovery")


@virtual_time
async def test_a_manual_machine_is_due_if_its_policy_says_so_and_stays_down_otherwise() -> None:
    at = await port()
    await at.machine({}, strategy="Manual")
    incident = at.incident(Progress.RELEASED)
    left = await at.arrivals.look(FACTS, incident, at.laps, Policy())
    assert [advance.progress for advance in left.advances.values()] == [Progress.STAYS_DOWN]
    assert left.due == []
    asked = await at.arrivals.look(FACTS, incident, at.laps, Policy(start=True))
    assert (asked.advances, [each.key for each in asked.due]) == ({}, [KEY])
    await at.machine({"stateChangeRequests": [{"action": "Start"}]}, strategy="Manual")
    under_way = await at.arrivals.look(FACTS, incident, at.laps, Policy(start=True))
    assert (under_way.advances, under_way.due) == ({}, [])
