"""How an incident is told: what is news, what is kept, and that it always fits."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.decide.failover import Action, Decision
from backstay.model.incident import (
    IncidentStatus,
    Intent,
    Moment,
    PhaseTime,
    Progress,
    StageTime,
    Step,
    WorkloadRecord,
)
from backstay.model.node import Life
from backstay.model.policy import Mode
from backstay.model.reasons import Reason, Why
from backstay.model.workload import WorkloadKind
from backstay.record import telling
from backstay.record.telling import MOST_BYTES, MOST_MOMENTS, Advance, told
from tests.record.samples import decided, judged, life, lost, snapshot, workload

NOON = "2026-11-16T12:00:00Z"
LATER = "2026-11-16T12:00:05Z"


def fold(
    status: IncidentStatus,
    decision: Decision,
    *,
    at: str = NOON,
    advances: Mapping[str, Advance] = telling.NO_ADVANCE,
    epoch: int = 1,
) -> IncidentStatus:
    return told(
        status, life=lost(), decision=decision, now_text=at, mode=Mode.ARMED, epoch=epoch,
        advances=advances,
    )  # fmt: skip


def codes(status: IncidentStatus) -> list[str]:
    return [moment.code for moment in status.timeline]


def released(name: str) -> Advance:
    why = Reason.Released.because(workload=workload(name), node="n1")
    return Advance(Progress.RELEASED, why)


def test_the_first_telling_opens_the_incident_with_what_is_held_and_what_to_do() -> None:
    status = fold(IncidentStatus(), decided(snapshot(workload("db"))))
    assert (status.state, status.code, status.opened_at) == ("Lost", "NodeLost", NOON)
    assert status.held == 1
    assert status.workloads[0].progress is Progress.HELD
    assert status.workloads[0].uids == ("uid-db",)
    assert status.next == "make sure that n1 is off, then: backstay confirm-dead n1"
    assert codes(status) == ["NodeLost", "ProofMissing"]


def test_the_same_decision_made_again_changes_nothing() -> None:
    decision = decided(snapshot(workload("db")))
    status = fold(IncidentStatus(), decision)
    assert fold(status, decision, at=LATER) == status


def test_that_a_view_has_grown_older_is_no_news() -> None:
    status = fold(IncidentStatus(), decided(snapshot(workload("db"), view_age=12.0)))
    assert status.workloads[0].code == "StaleView"
    older = decided(snapshot(workload("db"), view_age=13.0))
    assert fold(status, older, at=LATER) == status


def test_that_a_silence_has_grown_longer_is_no_news() -> None:
    status = fold(IncidentStatus(), decided(snapshot(of=lost(seconds=40))))
    assert fold(status, decided(snapshot(of=lost(seconds=45))), at=LATER) == status


def test_that_another_volume_is_uncovered_is_news() -> None:
    one = workload("db")
    other = msgspec.structs.replace(
        one, volumes=(msgspec.structs.replace(one.volumes[0], claim="disk-2"),)
    )
    status = fold(IncidentStatus(), decided(snapshot(one)))
    assert "disk-2" in fold(status, decided(snapshot(other))).workloads[0].sentence


def test_evidence_is_told_once_with_who_gave_it() -> None:
    decision = decided(snapshot(workload("db"), confirmed=True))
    status = fold(fold(IncidentStatus(), decision), decided(snapshot(confirmed=True), now=60.0))
    assert [(e.kind, e.source) for e in status.evidence] == [
        ("OperatorConfirmed", "ann@example.com")
    ]
    assert codes(status).count("DeathConfirmed") == 1


def test_what_happens_to_many_workloads_at_once_is_one_line() -> None:
    many = [workload(f"vm-{number}") for number in range(100)]
    status = fold(IncidentStatus(), decided(snapshot(*many)))
    assert codes(status) == ["NodeLost", "ProofMissing"]
    assert status.timeline[1].sentence.endswith("(99 more like it.)")
    assert status.held == 100


def test_what_is_left_alone_is_on_the_list_but_not_in_the_timeline() -> None:
    status = fold(IncidentStatus(), decided(snapshot(workload("job", kind=WorkloadKind.OTHER))))
    assert status.workloads[0].progress is Progress.LEFT
    assert codes(status) == ["NodeLost"]


def test_a_workload_that_left_the_node_stays_as_it_was_told_last() -> None:
    due = decided(snapshot(workload("db"), confirmed=True))
    status = fold(IncidentStatus(), due)
    assert status.workloads[0].progress is Progress.DUE
    key = workload("db").key
    status = fold(status, decided(snapshot(confirmed=True)), advances={key: released("db")})
    status = fold(status, decided(snapshot(confirmed=True)), at=LATER)
    assert [record.progress for record in status.workloads] == [Progress.RELEASED]
    assert codes(status)[-1] == "Released"


def test_a_view_that_lags_behind_does_not_hold_again_what_was_released() -> None:
    held = decided(snapshot(workload("db")))
    status = fold(IncidentStatus(), held)
    status = fold(status, decided(snapshot()), advances={workload("db").key: released("db")})
    assert fold(status, held, at=LATER) == status


def test_what_had_ended_when_the_rest_was_released_does_not_undo_that() -> None:
    status = fold(
        IncidentStatus(), decided(snapshot()), advances={workload("db").key: released("db")}
    )
    ended = msgspec.structs.replace(workload("db"), ended=True)
    assert fold(status, decided(snapshot(ended)), at=LATER) == status


def test_the_same_name_on_new_pods_is_told_anew() -> None:
    status = fold(
        IncidentStatus(), decided(snapshot()), advances={workload("db").key: released("db")}
    )
    status = fold(status, decided(snapshot(workload("db"))))
    assert status.workloads[0].progress is Progress.HELD


def test_what_is_marked_is_told_to_be_marked() -> None:
    status = fold(IncidentStatus(), decided(snapshot(workload("db", marked=True), confirmed=True)))
    assert status.workloads[0].progress is Progress.MARKED


def test_further_moments_are_put_into_the_timeline_in_order() -> None:
    barrier = Reason.BarrierRaised.because(node="n1", count=1)
    holds = Reason.ProofHolds.because(node="n1", because="it was looked at again")
    status = told(
        IncidentStatus(), life=lost(), decision=decided(snapshot()), now_text=NOON,
        mode=Mode.ARMED, epoch=1, moments=(barrier, holds),
    )  # fmt: skip
    assert codes(status) == ["NodeLost", "BarrierRaised", "ProofHolds"]


def test_the_recovered_are_counted() -> None:
    why = Reason.Recovered.because(workload=workload("db"), target="n2")
    advance = {workload("db").key: Advance(Progress.RECOVERED, why)}
    status = fold(IncidentStatus(), decided(snapshot()), advances=advance)
    assert (status.recovered, status.held) == (1, 0)


PHASES = (PhaseTime("Scheduling", NOON), PhaseTime("Running", LATER))


def moved(status: IncidentStatus, *advances: Advance) -> IncidentStatus:
    for advance in advances:
        status = fold(status, decided(snapshot()), advances={workload("db").key: advance})
    return status


def test_to_be_ready_is_a_moment_of_its_own_after_the_recovery() -> None:
    runs = Reason.Recovered.because(workload=workload("db"), target="n2")
    ready = Reason.ReadyAgain.because(workload=workload("db"), target="n2")
    status = moved(
        fold(IncidentStatus(), decided(snapshot(workload("db")))),
        msgspec.structs.replace(released("db"), after=53.4),
        Advance(Progress.RECOVERED, runs, 58.1, phases=PHASES),
    )
    assert (status.recovered, status.workloads[0].ready) == (1, False)
    status = moved(status, Advance(Progress.RECOVERED, ready, 61.0, ready=True))
    assert (status.recovered, codes(status)[-2:]) == (1, ["Recovered", "ReadyAgain"])
    [record] = status.workloads
    assert (record.released_after, record.running_after, record.ready_after) == (53.4, 58.1, 61.0)
    assert (record.ready, record.phases, record.uids) == (True, PHASES, ("uid-db",))
    again = moved(status, msgspec.structs.replace(released("db"), after=99.0)).workloads[0]
    assert (again.released_after, again.running_after, again.ready) == (99.0, None, False)


def test_a_stage_is_told_once_as_it_was_measured_first() -> None:
    status = IncidentStatus()
    for stages in ([("detect", 40.0)], [("detect", 1.0), ("prove", 5.0)], [("prove", 9.0)], []):
        status = told(
            status, life=lost(), decision=decided(snapshot()), now_text=NOON, mode=Mode.ARMED,
            epoch=1, stages=[StageTime(*each) for each in stages],
        )  # fmt: skip
    assert status.stages == (StageTime("detect", 40.0), StageTime("prove", 5.0))


def test_where_there_is_no_room_the_phases_go_before_any_word_or_workload() -> None:
    records = tuple(
        WorkloadRecord(f"Pod/shop/{n}", Progress.RECOVERED, "c", "s" * 200, phases=PHASES * 4)
        for n in range(900)
    )
    status = telling.bounded(IncidentStatus(workloads=records))
    assert len(msgspec.json.encode(status)) <= MOST_BYTES
    assert [(record.sentence, record.phases) for record in status.workloads] == [
        ("s" * 200, ()) for _ in records
    ]


def test_a_deposed_leaders_epoch_does_not_lower_the_recorded_one() -> None:
    status = fold(IncidentStatus(), decided(snapshot()), epoch=7)
    assert fold(status, decided(snapshot()), epoch=3).epoch == 7


def test_a_closed_incident_says_when_and_why() -> None:
    status = fold(IncidentStatus(), decided(snapshot()))
    status = telling.closed(status, Reason.NodeReturned.because(node="n1"), now_text=LATER)
    assert (status.closed_at, status.code) == (LATER, "NodeReturned")
    assert codes(status)[-1] == "NodeReturned"


# Intents


def intent(*, epoch: int = 3, pods: int = 1) -> Intent:
    return Intent(Step.BARRIER, epoch, tuple(f"shop/p{n}/u{n}" for n in range(pods)), NOON)


def test_an_intent_is_unsettled_until_its_outcome_is_known() -> None:
    status = telling.intended(IncidentStatus(), intent())
    assert telling.unsettled(status) == intent()
    assert telling.unsettled(telling.settled(status, "1 of 1 marked")) is None


def test_no_second_intent_hides_one_that_was_cut_off() -> None:
    status = telling.intended(IncidentStatus(), intent())
    with pytest.raises(ValueError, match="no outcome yet"):
        telling.intended(status, intent())


def test_an_intent_raises_the_recorded_epoch() -> None:
    assert telling.intended(IncidentStatus(epoch=2), intent(epoch=5)).epoch == 5


def test_an_intent_that_could_not_name_all_its_pods_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 500 pods"):
        telling.intended(IncidentStatus(), intent(pods=501))


# Bounds


def moments(count: int) -> tuple[Moment, ...]:
    return tuple(Moment(f"t{number}", "NodeLost", f"moment {number}") for number in range(count))


def test_of_too_many_moments_the_oldest_middle_is_left_out_and_that_is_said() -> None:
    timeline = telling.bounded(IncidentStatus(timeline=moments(500))).timeline
    assert len(timeline) == MOST_MOMENTS
    assert (timeline[0].at, timeline[19].at, timeline[-1].at) == ("t0", "t19", "t499")
    assert (timeline[20].code, timeline[20].at) == ("TimelineShortened", "t20")


def test_a_gap_in_the_timeline_is_said_once_and_keeps_its_beginning() -> None:
    status = telling.bounded(IncidentStatus(timeline=moments(500)))
    grown = msgspec.structs.replace(status, timeline=status.timeline + moments(50))
    timeline = telling.bounded(grown).timeline
    assert codes(IncidentStatus(timeline=timeline)).count("TimelineShortened") == 1
    assert timeline[20].at == "t20"


def test_words_of_any_length_fit() -> None:
    why = Why("NodeLost", "long " * 10_000)
    status = fold(IncidentStatus(), judged(why, [(workload("db"), Action.HOLD, why)]))
    assert len(status.sentence) <= 1024
    assert len(status.workloads[0].sentence) <= 1024
    assert fold(status, judged(why, [(workload("db"), Action.HOLD, why)]), at=LATER) == status


def test_very_many_workloads_lose_their_words_before_any_is_left_out() -> None:
    why = Why("ProofMissing", "x" * 500, "y" * 500)
    many = [(workload(f"vm-{number}"), Action.HOLD, why) for number in range(800)]
    status = fold(IncidentStatus(), judged(why, many))
    assert len(status.workloads) == 800
    assert fold(status, judged(why, many), at=LATER) == status


WORDS = st.text(max_size=20).map(lambda text: text * 80)
REASONS = st.builds(Why, st.sampled_from(["NodeLost", "ProofMissing", "StaleView"]), WORDS, WORDS)
VERDICTS = st.lists(
    st.tuples(
        st.builds(workload, st.sampled_from("abcdef"), marked=st.booleans()),
        st.sampled_from(Action),
        REASONS,
    ),
    max_size=6,
    unique_by=lambda verdict: verdict[0].key,
)
ADVANCES = st.dictionaries(
    st.sampled_from([workload(name).key for name in "abcdef"]),
    st.builds(Advance, st.sampled_from(Progress), REASONS),
    max_size=3,
)
STEPS = st.lists(
    st.tuples(st.builds(judged, REASONS, VERDICTS), ADVANCES, st.integers(0, 9)), max_size=12
)
DONE = {Progress.RELEASED, Progress.RECOVERED, Progress.STAYS_DOWN}


@given(STEPS)
@settings(max_examples=100)
def test_whatever_is_told_fits_adds_up_and_is_not_told_twice(
    steps: list[tuple[Decision, Mapping[str, Advance], int]],
) -> None:
    status = IncidentStatus()
    for number, (decision, advances, epoch) in enumerate(steps):
        before = status
        status = fold(before, decision, at=str(number), advances=advances, epoch=epoch)
        assert len(msgspec.json.encode(status)) <= MOST_BYTES
        assert len(status.timeline) <= MOST_MOMENTS
        assert status.held == sum(r.progress is Progress.HELD for r in status.workloads)
        assert status.epoch >= before.epoch
        assert {r.workload for r in before.workloads} <= {r.workload for r in status.workloads}
        assert fold(status, decision, at="again", advances=advances, epoch=epoch) == status
        for record in before.workloads:
            if record.progress in DONE and record.workload not in advances and record.uids:
                assert record in status.workloads


@given(st.integers(0, 400), WORDS, st.integers(0, 300), st.integers(0, 500))
@settings(max_examples=60)
def test_any_status_can_be_made_to_fit(lines: int, words: str, workloads: int, pods: int) -> None:
    why = Why("ProofMissing", words, words)
    verdicts = [(workload(f"{'n' * 200}-{n}"), Action.HOLD, why) for n in range(workloads)]
    longest = tuple(f"{'s' * 63}/{'p' * 253}/{n:036}" for n in range(pods))
    status = IncidentStatus(
        timeline=tuple(Moment("t", str(n), words[:500]) for n in range(lines)),
        intent=Intent(Step.REMOVAL, 1, longest, NOON, "done"),
    )
    status = told(
        status, life=life(Life.LOST, why), decision=judged(why, verdicts), now_text=NOON,
        mode=Mode.ARMED, epoch=1,
    )  # fmt: skip
    assert len(msgspec.json.encode(status)) <= MOST_BYTES
    assert status.intent is not None
    assert len(status.intent.pods) == pods


def test_how_much_of_a_time_has_passed_is_no_news() -> None:
    early, late = (
        Reason.ProofMissing.because(
            workload="db", node="n1", risk="write", missing=f" (for only {seconds} of 45 s)"
        )
        for seconds in (3, 18)
    )
    assert telling.same_why(early, late)
