"""The black box: what is kept of an incident's decisions, how often it is written, and by whom."""

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backstay.decide.failover import CHAIN, Snapshot
from backstay.kube import errors
from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.lease import Term
from backstay.kube.resource import CONFIG_MAPS, NAMESPACES
from backstay.model.policy import Mode
from backstay.record.blackbox import MOST_BYTES, MOST_FRAMES, BlackBox, box_name, read_frames
from backstay.record.replay import NotARecording, Recording, replay
from backstay.seam.system import SystemRng
from backstay.seam.tasks import Tasks
from backstay.sim.api.server import ApiServer
from backstay.sim.clock import LoopClock
from backstay.sim.network import Network
from tests.record.samples import frame_of, snapshot, workload
from tests.support.virtual import virtual_time

URL = "http://api:80"
OURS = "backstay-system"
INCIDENT = "n1-20300101-000000"


class Desk:
    """An API, and black boxes of leaders one after the other."""

    def __init__(self) -> None:
        self.network = Network()
        self.server = ApiServer(wall=LoopClock(), rng=SystemRng(1))
        self.client = KubeClient(self.network.transport, GivenAccess(URL, Grant()))

    @asynccontextmanager
    async def leader(self, *, leads_for: float = 10_000.0) -> AsyncIterator[BlackBox]:
        box = BlackBox(self.client, namespace=OURS, program="backstay 0.1.0", wall=LoopClock())
        async with Tasks("leader") as tasks:
            term = Term(1, asyncio.get_running_loop().time() + leads_for)
            tasks.spawn(box.run(term), name="box")
            await asyncio.sleep(0)
            yield box

    def writes(self) -> list[str]:
        sent = self.network.link(URL).sent
        return [each.request.method for each in sent if each.request.method != "GET"]

    async def recording(self) -> Recording:
        return await read_frames(self.client, namespace=OURS, incident=INCIDENT)

    async def stored(self) -> dict[str, Any]:
        reply = await self.client.get(CONFIG_MAPS, box_name(INCIDENT), namespace=OURS)
        stored: dict[str, Any] = reply.json()
        return stored


async def desk() -> Desk:
    made = Desk()
    await made.network.serve.listen(made.server.handle, host="api", port=80)
    await made.client.create(NAMESPACES, {"metadata": {"name": OURS}})
    made.network.link(URL).sent.clear()
    return made


def note(box: BlackBox, about: Snapshot, now: float = 50.0) -> None:
    box.note(frame_of(about, now))


def number(count: int) -> Snapshot:
    return snapshot(workload(f"vm-{count}"))


def names(recording: Recording) -> list[str]:
    return [frame.outcome.verdicts[0].workload.rpartition("/")[2] for frame in recording.frames]


@virtual_time
async def test_what_was_decided_is_in_the_cluster_and_decided_alike_again() -> None:
    at = await desk()
    async with at.leader() as box:
        note(box, snapshot(workload("db")))
        box.opened("n1", INCIDENT)
        note(box, snapshot(workload("db"), confirmed=True))
        note(box, snapshot(workload("db"), mode=Mode.OBSERVE, confirmed=True))
        await asyncio.sleep(1.0)
    recording = await at.recording()
    assert [frame.outcome.verdicts[0].why.code for frame in recording.frames] == [
        "ProofMissing", "MayBeReleased", "Observing",
    ]  # fmt: skip
    made = replay(recording, CHAIN)
    assert (made.frames, made.differences, made.rules) == (3, (), "")
    meta = (await at.stored())["metadata"]
    assert meta["labels"]["app.kubernetes.io/part-of"] == "backstay"
    assert "ownerReferences" not in meta


@virtual_time
async def test_a_node_without_an_incident_costs_no_write() -> None:
    at = await desk()
    async with at.leader() as box:
        note(box, number(1))
        await asyncio.sleep(60.0)
        box.forget("n1")
        box.opened("n1", INCIDENT)
        await asyncio.sleep(60.0)
    assert at.writes() == []


@virtual_time
async def test_many_decisions_are_written_together_at_most_once_in_ten_seconds() -> None:
    at = await desk()
    async with at.leader() as box:
        box.opened("n1", INCIDENT)
        for second in range(31):
            note(box, number(second))
            await asyncio.sleep(1.0)
    assert at.writes() == ["POST", "PATCH", "PATCH", "PATCH"]


@virtual_time
async def test_the_end_is_written_at_once_and_the_node_forgotten() -> None:
    at = await desk()
    async with at.leader() as box:
        box.opened("n1", INCIDENT)
        note(box, number(1))
        await asyncio.sleep(1.0)
        note(box, number(2))
        box.closed("n1")
        await asyncio.sleep(1.0)
        assert names(await at.recording()) == ["vm-1", "vm-2"]
        note(box, number(3))
        await asyncio.sleep(60.0)
    assert names(await at.recording()) == ["vm-1", "vm-2"]


@virtual_time
async def test_the_newest_twenty_are_kept() -> None:
    at = await desk()
    async with at.leader() as box:
        box.opened("n1", INCIDENT)
        for count in range(50):
            note(box, number(count))
            await asyncio.sleep(3.0)
        await asyncio.sleep(10.0)
    assert names(await at.recording()) == [f"vm-{n}" for n in range(50 - MOST_FRAMES, 50)]


def sizeable(count: int, workloads: int) -> Snapshot:
    """Names that cannot be packed well."""
    dice = SystemRng(count)
    return snapshot(*(workload(f"{dice.token(150)}-{n}") for n in range(workloads)))


@virtual_time
async def test_frames_that_are_large_are_fewer() -> None:
    at = await desk()
    async with at.leader() as box:
        box.opened("n1", INCIDENT)
        for count in range(15):
            note(box, sizeable(count, 60))
            await asyncio.sleep(4.0)
        await asyncio.sleep(10.0)
    kept = (await at.stored())["binaryData"]
    assert 2 <= len(kept) < 15
    assert sum(map(len, kept.values())) <= MOST_BYTES
    assert (await at.recording()).frames[-1].snapshot == sizeable(14, 60)


@virtual_time
async def test_a_frame_that_is_too_large_by_itself_is_counted_and_the_others_kept() -> None:
    at = await desk()
    async with at.leader() as box:
        box.opened("n1", INCIDENT)
        note(box, sizeable(1, 1200))
        note(box, number(2))
        await asyncio.sleep(1.0)
        assert box.lost == 1
    assert names(await at.recording()) == ["vm-2"]


@virtual_time
async def test_a_successor_adds_to_what_its_predecessor_kept() -> None:
    at = await desk()
    async with at.leader() as first:
        first.opened("n1", INCIDENT)
        note(first, number(1))
        await asyncio.sleep(1.0)
    async with at.leader() as second:
        second.opened("n1", INCIDENT)
        note(second, number(2))
        await asyncio.sleep(1.0)
    assert names(await at.recording()) == ["vm-1", "vm-2"]


@virtual_time
async def test_of_two_who_write_at_once_nobody_loses_a_frame() -> None:
    at = await desk()
    async with at.leader() as first, at.leader() as second:
        for box in (first, second):
            box.opened("n1", INCIDENT)
        for count in range(6):
            note(first if count % 2 else second, number(count))
            await asyncio.sleep(5.0)
        await asyncio.sleep(60.0)
    assert sorted(names(await at.recording())) == [f"vm-{n}" for n in range(6)]


@virtual_time
async def test_nothing_leaves_after_the_term() -> None:
    at = await desk()
    async with at.leader(leads_for=5.0) as box:
        box.opened("n1", INCIDENT)
        at.network.link(URL).connect_delay = 3.0
        note(box, number(1))
        await asyncio.sleep(60.0)
    assert at.writes() == []


@virtual_time
async def test_while_the_api_is_away_nothing_is_lost_and_the_trouble_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    at = await desk()
    async with at.leader() as box:
        at.network.link(URL).refuse = True
        box.opened("n1", INCIDENT)
        for count in range(5):
            note(box, number(count))
            await asyncio.sleep(20.0)
        at.network.link(URL).refuse = False
        await asyncio.sleep(20.0)
        assert box.lost == 0
    assert names(await at.recording()) == [f"vm-{n}" for n in range(5)]
    assert len(caplog.records) == 1


@virtual_time
async def test_what_may_not_be_written_is_lost_counted_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    at = await desk()
    await at.client.delete(NAMESPACES, OURS)
    async with at.leader() as box:
        box.opened("n1", INCIDENT)
        for count in range(3):
            note(box, number(count))
            await asyncio.sleep(20.0)
        assert box.lost == 3
    assert len(caplog.records) == 1


@virtual_time
async def test_an_incident_without_frames_is_not_found() -> None:
    at = await desk()
    with pytest.raises(errors.NotFound):
        await at.recording()


def entry(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    "tampered",
    [entry(b"no gzip"), entry(gzip.compress(b"x" * 100)[:-9]), entry(gzip.compress(b"[]"))],
    ids=["no gzip", "cut off", "no frame"],
)
def test_what_somebody_has_tampered_with_is_one_sentence(tampered: str) -> None:
    @virtual_time
    async def play() -> None:
        at = await desk()
        async with at.leader() as box:
            box.opened("n1", INCIDENT)
            note(box, number(1))
            await asyncio.sleep(1.0)
        patch = {"binaryData": {"00000001": tampered}}
        await at.client.merge_patch(CONFIG_MAPS, box_name(INCIDENT), patch, namespace=OURS)
        with pytest.raises(NotARecording, match=r"^[^\n]*frames-n1-[^\n]* is damaged: [^\n]*\.$"):
            await at.recording()

    play()


@virtual_time
async def test_a_small_entry_cannot_fill_our_memory() -> None:
    at = await desk()
    bomb = gzip.compress(b"\0" * 20_000_000)
    header = {"format": "backstay-flight", "version": 1, "program": "x", "at": "t"}
    await at.client.create(
        CONFIG_MAPS,
        {
            "metadata": {"name": box_name(INCIDENT)},
            "data": {"header.json": json.dumps(header)},
            "binaryData": {"00000001": entry(bomb)},
        },
        namespace=OURS,
    )
    with pytest.raises(NotARecording, match="larger than any frame"):
        await at.recording()


def test_the_name_of_any_incident_gives_a_name_of_its_own() -> None:
    long = "n" * 240 + "-20300101-000"
    assert box_name("n1-a") == "frames-n1-a"
    assert len(box_name(long)) <= 253
    assert box_name(long) != box_name(f"{long}1")
