"""Incidents in the API: opened once, adopted by the next leader, never written over."""

import asyncio
import math

import pytest

from backstay.apis.backstay import INCIDENTS, IncidentRow, IncidentSpec
from backstay.decide.failover import Action
from backstay.kube import errors
from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.model.incident import (
    IncidentStatus,
    Intent,
    PhaseTime,
    Progress,
    StageTime,
    Step,
    WorkloadRecord,
)
from backstay.model.policy import Mode
from backstay.model.reasons import Reason, Why
from backstay.record import telling
from backstay.record.incidents import IncidentBook, incident_name
from backstay.seam import Seams
from backstay.seam.system import SystemRng
from backstay.sim.api.server import ApiServer
from backstay.sim.clock import LoopClock
from backstay.sim.fate import ALL_WELL, Fate
from backstay.sim.world import World
from tests.record.rig import URL, RecordScene, install, lose_the_answer_of
from tests.record.samples import judged, lost, workload
from tests.support.virtual import virtual_time

FOREVER = math.inf
THIS_BOOT = IncidentSpec(node="n1", node_uid="uid-1", boot_id="boot-1")
NEXT_BOOT = IncidentSpec(node="n1", node_uid="uid-1", boot_id="boot-2")
MARKED = Intent(Step.BARRIER, 3, ("shop/db/u1",), "2026-11-16T12:00:00Z")


class Scene(RecordScene):
    """With a book that writes to the API."""

    def __init__(self) -> None:
        super().__init__()
        self.book = IncidentBook(self.client, wall=LoopClock(), rng=SystemRng(2))

    async def names(self) -> list[str]:
        return [row.key for row in await self.book.all()]


async def scene() -> Scene:
    made = Scene()
    await made.begin()
    return made


# Opening and adopting


@virtual_time
async def test_an_incident_is_named_after_its_node_and_the_time_of_day() -> None:
    s = await scene()
    row = await s.book.open(THIS_BOOT, not_after=FOREVER)
    assert row.key == incident_name("n1", f"{LoopClock().now():%Y%m%d-%H%M%S}")
    assert (row.spec, row.open) == (THIS_BOOT, True)


@virtual_time
async def test_one_boot_has_one_open_incident_however_often_it_is_opened() -> None:
    s = await scene()
    first = await s.book.open(THIS_BOOT, not_after=FOREVER)
    assert await s.book.open(THIS_BOOT, not_after=FOREVER) == first
    assert s.writes() == ["POST"]


@virtual_time
async def test_whoever_begins_to_lead_while_the_api_is_away_waits_for_what_it_has_to_know() -> None:
    s = await scene()
    row = await s.book.open(THIS_BOOT, not_after=FOREVER)
    s.network.fate = lambda _: Fate(refuse=True)
    recalled = asyncio.create_task(s.book.recall())
    await asyncio.sleep(60)
    assert not recalled.done()
    assert "http://api:80" in s.book.trouble
    s.network.fate = lambda _: ALL_WELL
    await asyncio.sleep(10)
    assert recalled.result() == [row]
    assert s.book.trouble == ""


@virtual_time
async def test_another_boot_in_the_same_second_gets_a_name_of_its_own() -> None:
    s = await scene()
    first = await s.book.open(THIS_BOOT, not_after=FOREVER)
    second = await s.book.open(NEXT_BOOT, not_after=FOREVER)
    assert second.key.startswith(f"{first.key}-")
    assert (await s.book.adopt(NEXT_BOOT), await s.book.adopt(THIS_BOOT)) == (second, first)


@virtual_time
async def test_an_opening_whose_answer_was_lost_is_found_and_not_repeated() -> None:
    s = await scene()
    s.network.fate = lose_the_answer_of("POST")
    with pytest.raises(errors.OutcomeUnknown):
        await s.book.open(THIS_BOOT, not_after=FOREVER)
    row = await s.book.open(THIS_BOOT, not_after=FOREVER)
    assert await s.names() == [row.key]


@virtual_time
async def test_a_closed_incident_is_not_adopted() -> None:
    s = await scene()
    row = await s.book.open(THIS_BOOT, not_after=FOREVER)
    why = Reason.NodeReturned.because(node="n1")
    closed = await s.book.close(row, why, not_after=FOREVER)
    assert not closed.open
    assert await s.book.adopt(THIS_BOOT) is None


@virtual_time
async def test_an_incident_that_somebody_made_unreadable_does_not_hide_the_others() -> None:
    s = await scene()
    mine = await s.book.open(THIS_BOOT, not_after=FOREVER)
    other = await s.book.open(NEXT_BOOT, not_after=FOREVER)
    strange = {"status": {"epoch": 9, "workloads": [{"progress": "Sideways"}]}}
    await s.client.merge_patch(INCIDENTS, other.key, strange, subresource="status")
    assert await s.book.adopt(THIS_BOOT) == mine
    assert await s.book.highest_epoch() == 9


def test_a_node_with_the_longest_of_names_leaves_room_for_the_time() -> None:
    node = "a" * 235 + "." + "b" * 17
    name = incident_name(node, "20261116-080512")
    assert len(name) <= 253
    assert name == "a" * 235 + ".b-20261116-080512"


# Writing


@virtual_time
async def test_what_says_nothing_new_is_not_written() -> None:
    s = await scene()
    row = await s.book.open(THIS_BOOT, not_after=FOREVER)
    status = IncidentStatus(state="Lost", code="NodeLost", sentence="n1 is lost.", held=2)
    row = await s.book.update(row, status, not_after=FOREVER)
    assert await s.book.update(row, status, not_after=FOREVER) == row
    assert (s.book.writes, s.writes()) == (2, ["POST", "PATCH"])


@virtual_time
async def test_what_is_no_longer_so_is_taken_away() -> None:
    s = await scene()
    row = await s.book.open(THIS_BOOT, not_after=FOREVER)
    record = WorkloadRecord("VirtualMachine/shop/db", Progress.HELD, "ProofMissing", "held")
    full = IncidentStatus(state="Lost", next="do this", workloads=(record,), held=1)
    row = await s.book.update(row, full, not_after=FOREVER)
    row = await s.book.update(row, IncidentStatus(state="Recovered"), not_after=FOREVER)
    assert (await s.book.read(row.key)).status == IncidentStatus(state="Recovered")


@virtual_time
async def test_a_second_writer_is_refused_and_overwrites_nothing() -> None:
    s = await scene()
    stale = await s.book.open(THIS_BOOT, not_after=FOREVER)
    await s.book.update(stale, IncidentStatus(state="Lost"), not_after=FOREVER)
    with pytest.raises(errors.Conflict):
        await s.book.update(stale, IncidentStatus(state="Suspect"), not_after=FOREVER)
    assert (await s.book.read(stale.key)).status.state == "Lost"


@virtual_time
async def test_an_incident_that_was_replaced_by_one_of_its_name_is_not_written_to() -> None:
    s = await scene()
    row = await s.book.open(THIS_BOOT, not_after=FOREVER)
    await s.client.delete(INCIDENTS, row.key)
    assert (await s.book.open(NEXT_BOOT, not_after=FOREVER)).key == row.key
    with pytest.raises(errors.Conflict):
        await s.book.update(row, IncidentStatus(state="Lost"), not_after=FOREVER)


@virtual_time
async def test_nothing_is_sent_once_the_right_to_act_is_over() -> None:
    s = await scene()
    row = await s.book.open(THIS_BOOT, not_after=FOREVER)
    over = asyncio.get_running_loop().time() - 1.0
    with pytest.raises(errors.TooLate):
        await s.book.intend(row, MARKED, not_after=over)
    with pytest.raises(errors.TooLate):
        await s.book.open(NEXT_BOOT, not_after=over)
    assert s.writes() == ["POST"]


@virtual_time
async def test_a_silent_api_ends_in_an_error_and_not_in_a_wait_without_end() -> None:
    s = await scene()
    row = await s.book.open(THIS_BOOT, not_after=FOREVER)
    s.network.link(URL).silent = True
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(errors.OutcomeUnknown):
        await s.book.update(row, IncidentStatus(state="Lost"), not_after=FOREVER)
    assert loop.time() - began <= 10.0


@virtual_time
async def test_everything_that_can_be_told_is_accepted_by_the_schema() -> None:
    s = await scene()
    row = await s.book.open(THIS_BOOT, not_after=FOREVER)
    why = Why("NodeLost", "é" * 5000, "n" * 5000)
    phases = (PhaseTime("Running", "t"),)
    verdicts = [(workload(action.value.lower()), action, why) for action in Action]
    longest = telling.told(
        IncidentStatus(), life=lost(), decision=judged(why, verdicts), now_text="t",
        mode=Mode.ARMED, epoch=1,
        advances={
            progress.value: telling.Advance(progress, why, 1.5, ready=True, phases=phases)
            for progress in Progress
        },
        stages=[StageTime("detect", 40.2)],
    )  # fmt: skip
    row = await s.book.update(row, longest, not_after=FOREVER)
    assert row.status == longest


# Intents


async def intended(s: Scene) -> IncidentRow:
    row = await s.book.open(THIS_BOOT, not_after=FOREVER)
    return await s.book.intend(row, MARKED, not_after=FOREVER)


@virtual_time
async def test_an_outcome_and_what_else_is_new_are_one_write() -> None:
    s = await scene()
    row = await intended(s)
    news = telling.bounded(IncidentStatus(state="Proven", intent=row.status.intent))
    row = await s.book.settle(row, "1 of 1 marked", not_after=FOREVER, status=news)
    assert row.status.intent is not None
    assert (row.status.state, row.status.intent.outcome) == ("Proven", "1 of 1 marked")
    assert s.writes() == ["POST", "PATCH", "PATCH"]


@virtual_time
async def test_the_next_intent_does_not_inherit_the_outcome_of_the_last() -> None:
    s = await scene()
    row = await s.book.settle(await intended(s), "1 of 1 marked", not_after=FOREVER)
    removal = Intent(Step.REMOVAL, 3, ("shop/db/u1",), "2026-11-16T12:00:02Z")
    row = await s.book.intend(row, removal, not_after=FOREVER)
    assert telling.unsettled((await s.book.read(row.key)).status) == removal


@virtual_time
async def test_an_intent_whose_answer_was_lost_is_read_back_as_unsettled() -> None:
    s = await scene()
    row = await s.book.open(THIS_BOOT, not_after=FOREVER)
    s.network.fate = lose_the_answer_of("PATCH")
    with pytest.raises(errors.OutcomeUnknown):
        await s.book.intend(row, MARKED, not_after=FOREVER)
    assert telling.unsettled((await s.book.read(row.key)).status) == MARKED


@virtual_time
async def test_epochs_count_wherever_they_are_recorded() -> None:
    s = await scene()
    assert await s.book.highest_epoch() == 0
    row = await s.book.open(THIS_BOOT, not_after=FOREVER)
    row = await s.book.update(row, IncidentStatus(epoch=4), not_after=FOREVER)
    await s.book.close(row, Reason.NodeReturned.because(node="n1"), not_after=FOREVER)
    assert await s.book.highest_epoch() == 4
    other = await s.book.open(NEXT_BOOT, not_after=FOREVER)
    body = {"status": {"intent": {"step": "Barrier", "epoch": 6, "pods": [], "at": "t"}}}
    await s.client.merge_patch(INCIDENTS, other.key, body, subresource="status")
    assert await s.book.highest_epoch() == 6


def test_a_controller_that_dies_between_intent_and_outcome_leaves_it_to_the_next() -> None:
    """Killed without any cleanup, on a machine of its own; the next one adopts and settles."""
    found: list[Intent | None] = []

    def book(seams: Seams) -> IncidentBook:
        client = KubeClient(seams.transport, GivenAccess(URL, Grant()))
        return IncidentBook(client, wall=seams.wall, rng=seams.rng)

    async def api(seams: Seams) -> None:
        server = ApiServer(wall=seams.wall, rng=seams.rng)
        await seams.serve.listen(server.handle, host="api", port=80)
        await asyncio.Event().wait()

    async def first(seams: Seams) -> None:
        await install(KubeClient(seams.transport, GivenAccess(URL, Grant())))
        row = await book(seams).open(THIS_BOOT, not_after=FOREVER)
        await book(seams).intend(row, MARKED, not_after=FOREVER)
        await asyncio.Event().wait()

    async def second(seams: Seams) -> None:
        row = await book(seams).adopt(THIS_BOOT)
        assert row is not None
        found.append(telling.unsettled(row.status))
        row = await book(seams).settle(row, "seen: u1 is marked", not_after=FOREVER)
        found.append(telling.unsettled(row.status))

    async def scenario(world: World) -> None:
        world.start("api", api)
        await asyncio.sleep(0.1)
        leader = world.start("first", first)
        await asyncio.sleep(1.0)
        leader.kill()
        world.start("second", second)
        await asyncio.sleep(1.0)

    with World(seed=1) as world:
        world.run(scenario(world))
    assert found == [MARKED, None]
