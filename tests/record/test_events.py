"""Events about nodes and workloads: what is said, how loudly, and how often."""

from collections.abc import Callable
from typing import Any

import msgspec

from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.events import EventRecorder
from backstay.kube.resource import EVENTS, NAMESPACES
from backstay.model.node import Life
from backstay.model.reasons import Reason
from backstay.model.workload import PodRef, WorkloadKind
from backstay.record.events import Herald
from backstay.seam.system import SystemRng
from backstay.seam.tasks import Tasks
from backstay.sim.api.server import ApiServer
from backstay.sim.clock import LoopClock
from backstay.sim.network import Network
from tests.record.samples import NODE, decided, life, snapshot, workload
from tests.support.virtual import virtual_time

URL = "http://api:80"
DB = workload("db")
HEALTHY = life(Life.HEALTHY, Reason.NodeHealthy.because(node="n1"))


async def said(talk: Callable[[Herald], None]) -> list[dict[str, Any]]:
    """The Events in the API after this was said, in the order of their last time."""
    network, wall, rng = Network(), LoopClock(), SystemRng(1)
    server = ApiServer(wall=wall, rng=rng)
    await network.serve.listen(server.handle, host="api", port=80)
    client = KubeClient(network.transport, GivenAccess(URL, Grant()))
    for namespace in ("shop", "default"):
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
    recorder = EventRecorder(client, component="backstay", instance="a", wall=wall, rng=rng)
    async with Tasks("test") as tasks:
        tasks.spawn(recorder.run(), name="events")
        talk(Herald(recorder))
        assert await recorder.flush(5.0)
    assert recorder.refused == 0
    items: list[dict[str, Any]] = (await client.list(EVENTS)).json()["items"]
    return items


def summary(events: list[dict[str, Any]]) -> list[tuple[str, str, str, int]]:
    return sorted(
        (event["involvedObject"]["kind"], event["type"], event["reason"], event["count"])
        for event in events
    )


def of_kind(events: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (event for event in events if event["involvedObject"]["kind"] == kind)
    return found


@virtual_time
async def test_a_held_workload_is_a_warning_on_it_and_the_node_has_its_own() -> None:
    events = await said(lambda herald: herald.decided(NODE, decided(snapshot(DB))))
    assert summary(events) == [
        ("Node", "Warning", "NodeLost", 1),
        ("Pod", "Warning", "ProofMissing", 1),
        ("VirtualMachine", "Warning", "ProofMissing", 1),
    ]
    held, pod = (of_kind(events, kind) for kind in ("VirtualMachine", "Pod"))
    assert held["involvedObject"]["name"] == "db"
    assert (pod["involvedObject"]["name"], pod["message"]) == ("launcher-db", held["message"])
    assert held["metadata"]["namespace"] == "shop"
    assert held["message"].endswith(
        "NEXT: make sure that n1 is off, then: backstay confirm-dead n1"
    )


@virtual_time
async def test_the_same_decision_is_said_once() -> None:
    def talk(herald: Herald) -> None:
        for age in (11.0, 12.0, 13.0):
            herald.decided(NODE, decided(snapshot(DB, view_age=age)))

    assert summary(await said(talk)) == [
        ("Node", "Warning", "NodeLost", 1),
        ("Pod", "Warning", "StaleView", 1),
        ("VirtualMachine", "Warning", "StaleView", 1),
    ]


@virtual_time
async def test_what_is_said_again_after_something_else_is_news() -> None:
    def talk(herald: Herald) -> None:
        for age in (1.0, 12.0, 1.0):
            herald.decided(NODE, decided(snapshot(DB, view_age=age)))

    assert ("VirtualMachine", "Warning", "ProofMissing", 2) in summary(await said(talk))


@virtual_time
async def test_a_node_that_is_healthy_again_can_be_news_another_time() -> None:
    def talk(herald: Herald) -> None:
        for of in (None, HEALTHY, None):
            herald.decided(NODE, decided(snapshot(DB, of=of)))

    assert summary(await said(talk)) == [
        ("Node", "Warning", "NodeLost", 2),
        ("Pod", "Warning", "ProofMissing", 2),
        ("VirtualMachine", "Warning", "ProofMissing", 2),
    ]


@virtual_time
async def test_progress_is_normal_and_what_is_left_alone_or_due_is_not_announced() -> None:
    def talk(herald: Herald) -> None:
        other = workload("job", kind=WorkloadKind.OTHER)
        herald.decided(NODE, decided(snapshot(DB, other, confirmed=True)))
        herald.say(Reason.Released.because(workload=DB, node="n1"), node=NODE, workload=DB)
        herald.say(Reason.BarrierRaised.because(node="n1", count=1), node=NODE)

    assert summary(await said(talk)) == [
        ("Node", "Normal", "BarrierRaised", 1),
        ("Node", "Warning", "NodeLost", 1),
        ("Pod", "Normal", "Released", 1),
        ("VirtualMachine", "Normal", "Released", 1),
    ]


@virtual_time
async def test_a_replica_is_spoken_of_at_its_pod_and_at_its_set() -> None:
    replica = workload("web-0", kind=WorkloadKind.STATEFUL_SET)
    replica = msgspec.structs.replace(replica, set_name="web", set_uid="uid-web")
    events = await said(lambda herald: herald.decided(NODE, decided(snapshot(replica))))
    pod, owner = (of_kind(events, kind)["involvedObject"] for kind in ("Pod", "StatefulSet"))
    assert (pod["name"], pod["uid"]) == ("launcher-web-0", "uid-web-0")
    assert (owner["name"], owner["uid"], owner["apiVersion"]) == ("web", "uid-web", "apps/v1")


@virtual_time
async def test_every_pod_of_a_workload_is_told() -> None:
    helper = PodRef("shop", "hp-volume-db", "uid-hp", "8")
    guest = msgspec.structs.replace(DB, pods=(*DB.pods, helper))
    events = await said(lambda herald: herald.decided(NODE, decided(snapshot(guest))))
    told = {event["involvedObject"]["name"] for event in events if event["reason"] != "NodeLost"}
    assert told == {"db", "launcher-db", "hp-volume-db"}
