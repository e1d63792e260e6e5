"""Whether a maintenance may go on, and what is told of it."""

from datetime import UTC, datetime

import pytest

from backstay.decide.maintenance import (
    MOST_TOLD,
    ControlPlaneNode,
    gate,
    quorum,
    standing,
    told,
    waiting,
)
from backstay.model.drain import Blocker, DrainState, PodSight
from backstay.model.drain_reasons import DrainReason
from backstay.model.maintenance import MaintenanceStatus
from backstay.model.policy import Job, Mode, Ownership, Policy
from backstay.model.reasons import Why

NOON = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
IN_THE_WAY = DrainReason.NamespaceGoing.because(pod="ns/a", namespace="ns")
ARMED = Policy(mode=Mode.ARMED)


def pods(count: int) -> tuple[PodSight, ...]:
    return tuple(
        PodSight(key=f"ns/{n}", uid=f"u{n}", version="1", namespace="ns", name=str(n), node="n1")
        for n in range(count)
    )


def state(pending: int = 0, most: int = 0, **more: object) -> DrainState:
    return DrainState(node="n1", pending=pods(pending), most=most, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        (ARMED, ""),
        (Policy(), ""),
        (Policy(mode=Mode.DISARMED, disarmed_until="noon"), "MaintenanceDisarmed"),
        (Policy(mode=Mode.ARMED, rolled_back="version 3 after 7"), "MaintenanceRolledBack"),
        (
            Policy(mode=Mode.ARMED, owners={Job.MAINTENANCE: Ownership.OFF}),
            "MaintenanceNotOurs",
        ),
        (
            Policy(mode=Mode.DISARMED, owners={Job.MAINTENANCE: Ownership.FOREIGN}),
            "MaintenanceNotOurs",
        ),
        (Policy(mode=Mode.ARMED, owners={Job.FAILOVER: Ownership.FOREIGN}), ""),
    ],
)
def test_what_people_have_said_is_asked_in_order(policy: Policy, code: str) -> None:
    why = gate(policy, "n1")
    assert ("" if why is None else why.code) == code


@pytest.mark.parametrize(
    ("others", "held"),
    [
        ([ControlPlaneNode("n1"), ControlPlaneNode("n2")], False),
        ([ControlPlaneNode("n1"), ControlPlaneNode("n2", "not ready")], True),
        ([ControlPlaneNode("n1", "not ready"), ControlPlaneNode("n2")], False),
    ],
)
def test_one_of_the_control_plane_may_be_away(others: list[ControlPlaneNode], held: bool) -> None:
    why = quorum("n1", others)
    assert (why is not None) is held
    assert why is None or "n2 is not ready" in why.sentence


@pytest.mark.parametrize(
    ("most", "pending", "percent"), [(5, 3, 40), (5, 0, 99), (0, 0, 0), (5, 7, 0)]
)
def test_the_progress_is_that_of_the_operator_and_never_below_zero(
    most: int, pending: int, percent: int
) -> None:
    assert state(pending, most).progress == percent


def test_only_what_is_drained_is_at_a_hundred_percent() -> None:
    assert state(0, 5, drained=True).progress == 100
    assert state(0, 0, drained=True).progress == 100


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (state(2, 5), "Draining"),
        (state(2, 5, blockers=(Blocker("ns/0", "u0", IN_THE_WAY, 1.0),)), "DrainBlocked"),
        (state(0, 5, blockers=(Blocker("", "", IN_THE_WAY, 1.0),)), "NotSafeYet"),
        (state(0, 5, drained=True), "Drained"),
        (state(2, 5, held=IN_THE_WAY), "NamespaceGoing"),
    ],
)
def test_one_sentence_says_how_far_it_is(now: DrainState, code: str) -> None:
    assert standing("it", now).code == code


def test_the_first_blocker_is_a_part_of_the_sentence() -> None:
    why = standing("it", state(2, 5, blockers=(Blocker("ns/0", "u0", IN_THE_WAY, 1.0),)))
    assert "1 cannot yet: ns/a cannot be evicted: its namespace is being deleted." in why.sentence


def status(now: DrainState, why: Why = IN_THE_WAY) -> MaintenanceStatus:
    return told(MaintenanceStatus(), now, why, generation=3, now=100.0, wall=NOON)


def test_a_blocker_is_told_with_the_time_of_day_from_which_on_it_was_there() -> None:
    blocker = Blocker("ns/0", "u0", IN_THE_WAY, 40.0)
    (record,) = status(state(1, 1, blockers=(blocker,))).blockers
    assert (record.pod, record.code, record.since) == (
        "ns/0", "NamespaceGoing", "2030-01-01T11:59:00Z",
    )  # fmt: skip


def test_a_status_is_bounded_and_its_numbers_are_of_all() -> None:
    many = status(state(5000, 6000))
    assert len(many.pending_pods) == len(many.pending_refs) == MOST_TOLD
    assert many.eviction_pods == 6000


def test_the_last_error_goes_when_nothing_is_in_the_way() -> None:
    blocked = status(state(1, 1, blockers=(Blocker("ns/0", "u0", IN_THE_WAY, 1.0),)))
    assert blocked.last_error
    assert status(state(0, 1, drained=True)).last_error == ""


def test_who_waits_keeps_what_was_told_of_pods_and_has_no_blockers() -> None:
    before = status(state(1, 1, blockers=(Blocker("ns/0", "u0", IN_THE_WAY, 1.0),)))
    after = waiting(before, DrainReason.NodeMissing.because(node="n1"), generation=3)
    assert (after.phase, after.code, after.blockers) == ("Running", "NodeMissing", ())
    assert after.pending_pods == before.pending_pods
