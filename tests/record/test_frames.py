"""Which decisions become frames, and what stands in them."""

import math

from backstay.decide.failover import CHAIN, Snapshot
from backstay.model.node import Life
from backstay.model.reasons import Reason
from backstay.record.frames import Frame, Frames
from backstay.sim.clock import LoopClock
from tests.record.samples import TIMES, decided, life, snapshot, workload
from tests.support.virtual import virtual_time

HEALTHY = life(Life.HEALTHY, Reason.NodeHealthy.because(node="n1"))


def frames() -> Frames:
    return Frames(LoopClock(), times=TIMES, chain=CHAIN)


def taken(made: Frames, *about: Snapshot) -> list[Frame]:
    found = (made.of(each, decided(each), 50.0) for each in about)
    return [frame for frame in found if frame is not None]


@virtual_time
async def test_a_frame_is_made_when_the_decision_changes_and_only_then() -> None:
    about = (snapshot(workload("db"), confirmed=c) for c in (False, False, True, True, False))
    codes = [frame.outcome.verdicts[0].why.code for frame in taken(frames(), *about)]
    assert codes == ["ProofMissing", "MayBeReleased", "ProofMissing"]


@virtual_time
async def test_that_the_view_has_grown_older_is_not_another_decision() -> None:
    about = (snapshot(workload("db"), view_age=age) for age in (11.0, 12.0, 13.0))
    assert len(taken(frames(), *about)) == 1


@virtual_time
async def test_healthy_nodes_are_no_news_when_a_controller_starts() -> None:
    made = frames()
    assert taken(made, snapshot(of=HEALTHY)) == []
    told = [frame.outcome.why.code for frame in taken(made, snapshot(), snapshot(of=HEALTHY))]
    assert told == ["NodeLost", "NodeHealthy"]


@virtual_time
async def test_what_is_decided_of_a_node_that_was_forgotten_is_news() -> None:
    made, about = frames(), snapshot(workload("db"))
    assert len(taken(made, about, about)) == 1
    made.forget("n1")
    assert len(taken(made, about, about)) == 1
    made.forget_all()
    assert len(taken(made, about, about)) == 1


@virtual_time
async def test_a_view_without_any_age_can_be_kept_and_asked_again() -> None:
    about = snapshot(workload("db"), view_age=math.inf)
    [frame] = taken(frames(), about)
    assert frame.snapshot.view_age == 0.0
    assert frame.question == about
