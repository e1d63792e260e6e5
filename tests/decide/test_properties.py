"""What holds for every snapshot, however odd."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.decide.failover import CHAIN, Action, Snapshot, decide, examine
from backstay.decide.life import step
from backstay.decide.readiness import readiness
from backstay.model.node import Life, NodeFacts, NodeLife
from backstay.model.policy import Mode
from backstay.model.workload import Volume, Workload, WorkloadKind
from tests.decide.cases import (
    CONFIRMED,
    FACTS,
    HEARD,
    LIFE,
    NOW,
    READY,
    SUSPECTED,
    TIMES,
    VM,
    WORD,
)

replace = msgspec.structs.replace

# Few values, so that they meet: most interesting cases are equalities and neighbours.
MOMENTS = (
    None, 10.0, HEARD, SUSPECTED - 1, SUSPECTED, SUSPECTED + 1, CONFIRMED - 1, CONFIRMED,
    CONFIRMED + 1, NOW,
)  # fmt: skip
SOME_MOMENTS = MOMENTS[1:]

FACTS_TO_CHANGE: dict[str, Sequence[Any]] = {
    "boot_id": ["b2"],
    "uid": ["u2"],
    "looked_at": SOME_MOMENTS,
    "lease_seen_at": MOMENTS,
    "lease_changed_at": MOMENTS,
    "heartbeat_changed_at": MOMENTS,
    "exempt": [True],
    "tainted": [True],
}
LIVES_TO_CHANGE: dict[str, Sequence[Any]] = {
    "boot_id": ["b2"],
    "state": list(Life),
    "suspected_at": MOMENTS,
}
POLICIES_TO_CHANGE: dict[str, Sequence[Any]] = {
    "mode": list(Mode),
    "virtual_machines": [False],
    "stateful_sets": [False],
}
WORDS_TO_CHANGE: dict[str, Sequence[Any]] = {
    "boot_id": ["b2"],
    "node_uid": ["u2"],
    "seen_at": SOME_MOMENTS,
}
WORKLOADS_TO_CHANGE: dict[str, Sequence[Any]] = {
    "kind": list(WorkloadKind),
    "label": [True, False],
    "run_strategy": ["Manual", ""],
    "restarts": [False],
    "leaving": [True],
    "pinned_by": ["a device"],
    "ended": [True],
    "priority": [7],
    "runs_on": ["n2"],
    "unread": ["forbidden"],
    "volumes": [(), (Volume(claim="data", only_on="n1"),)],
}

T = TypeVar("T", bound=msgspec.Struct)


def variants(base: T, fields: dict[str, Sequence[Any]], most: int) -> st.SearchStrategy[T]:
    """The base with up to so many fields changed: near enough to a release for one of them to be
    what prevents it."""
    change = st.sampled_from([(field, value) for field, vs in fields.items() for value in vs])
    return st.lists(change, max_size=most).map(lambda made: replace(base, **dict(made)))


facts = variants(FACTS, FACTS_TO_CHANGE, 2)
lives = variants(LIFE, LIVES_TO_CHANGE, 2)
workloads = variants(VM, WORKLOADS_TO_CHANGE, 2)
flags = st.booleans()


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    several = draw(st.lists(workloads, min_size=1, max_size=3))
    named = [replace(each, name=name) for each, name in zip(several, "abc", strict=False)]
    return Snapshot(
        facts=draw(variants(FACTS, FACTS_TO_CHANGE, 1)),
        life=draw(variants(LIFE, LIVES_TO_CHANGE, 1)),
        policy=draw(variants(READY.policy, POLICIES_TO_CHANGE, 1)),
        workloads=tuple(named),
        confirmations=tuple(draw(st.lists(variants(WORD, WORDS_TO_CHANGE, 1), max_size=2))),
        view_age=draw(st.sampled_from([0.0, 0.0, 0.0, 0.0, 10.0, 11.0, float("inf")])),
    )


def released(snapshot: Snapshot) -> list[Workload]:
    decision = decide(snapshot, NOW, times=TIMES, chain=CHAIN)
    return [verdict.workload for verdict in decision.releases]


def signs_after(snapshot: Snapshot, moment: float) -> bool:
    seen = (snapshot.facts.lease_changed_at, snapshot.facts.heartbeat_changed_at)
    return any(sign is not None and sign > moment for sign in seen)


def test_the_snapshots_are_near_enough_to_a_release_to_tell() -> None:
    """A search that hardly ever came upon a release would prove nothing."""
    found = []

    @given(snapshots())
    @settings(max_examples=300)
    def search(snapshot: Snapshot) -> None:
        found.append(bool(released(snapshot)))

    search()
    assert sum(found) > len(found) / 20


@given(snapshots())
@settings(max_examples=300)
def test_nothing_is_released_without_a_confirmation_of_this_very_boot(snapshot: Snapshot) -> None:
    about = (snapshot.facts.uid, snapshot.facts.boot_id)
    if not any((word.node_uid, word.boot_id) == about for word in snapshot.confirmations):
        assert released(snapshot) == []


@given(snapshots())
@settings(max_examples=300)
def test_nothing_is_released_after_a_sign_of_life_that_followed_the_confirmation(
    snapshot: Snapshot,
) -> None:
    about = (snapshot.facts.uid, snapshot.facts.boot_id)
    for word in snapshot.confirmations:
        if (word.node_uid, word.boot_id) == about and signs_after(snapshot, word.seen_at):
            assert released(snapshot) == []


@given(snapshots())
@settings(max_examples=300)
def test_nothing_is_released_after_a_sign_of_life_that_followed_the_suspicion(
    snapshot: Snapshot,
) -> None:
    suspected = snapshot.life.suspected_at
    if suspected is not None and signs_after(snapshot, suspected):
        assert released(snapshot) == []


@given(snapshots())
@settings(max_examples=300)
def test_nothing_is_released_unless_armed_on_a_fresh_view_of_a_node_that_is_down(
    snapshot: Snapshot,
) -> None:
    down = snapshot.life.state in (Life.LOST, Life.PROVEN, Life.RECOVERED)
    fresh = snapshot.view_age <= TIMES.fresh
    armed = snapshot.policy.mode is Mode.ARMED
    if not (down and fresh and armed) or snapshot.facts.exempt:
        assert released(snapshot) == []


@given(snapshots())
@settings(max_examples=300)
def test_what_is_released_is_protected_known_and_can_run_elsewhere(snapshot: Snapshot) -> None:
    for workload in released(snapshot):
        assert workload.label is not False
        assert workload.label or workload.kind is not WorkloadKind.OTHER
        assert workload.label or workload.restarts or workload.leaving
        assert not workload.ended
        assert not workload.unread
        bound = any(volume.only_on for volume in workload.volumes)
        assert workload.leaving or not (workload.pinned_by or bound)


@given(snapshots())
def test_what_its_owner_does_not_want_protected_is_left_or_not_known(snapshot: Snapshot) -> None:
    decision = decide(snapshot, NOW, times=TIMES, chain=CHAIN)
    for verdict in decision.verdicts:
        if verdict.workload.label is False and not verdict.workload.unread:
            assert verdict.action is Action.LEAVE


@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_in_which_things_are_listed_does_not_matter(
    snapshot: Snapshot, dice: Any
) -> None:
    shuffled = list(snapshot.workloads)
    dice.shuffle(shuffled)
    words = list(snapshot.confirmations)
    dice.shuffle(words)
    other = replace(snapshot, workloads=tuple(shuffled), confirmations=tuple(words))
    mine = decide(snapshot, NOW, times=TIMES, chain=CHAIN)
    its = decide(other, NOW, times=TIMES, chain=CHAIN)
    assert mine.verdicts == its.verdicts
    assert bool(mine.evidence) == bool(its.evidence)


@given(snapshots())
def test_the_verdict_is_the_first_objection_of_the_chain(snapshot: Snapshot) -> None:
    decision = decide(snapshot, NOW, times=TIMES, chain=CHAIN)
    for verdict in decision.verdicts:
        answers = examine(snapshot, verdict.workload, NOW, times=TIMES, chain=CHAIN)
        objections = [answer.objection for answer in answers if answer.objection]
        if objections:
            assert (verdict.action, verdict.why) == (objections[0].action, objections[0].why)
        else:
            assert verdict.action is Action.RELEASE


@given(snapshots())
def test_every_verdict_has_a_sentence_for_people(snapshot: Snapshot) -> None:
    decision = decide(snapshot, NOW, times=TIMES, chain=CHAIN)
    assert len(decision.verdicts) == len(snapshot.workloads)
    assert all(verdict.why.sentence for verdict in decision.verdicts)


@given(snapshots())
def test_readiness_answers_for_every_workload(snapshot: Snapshot) -> None:
    found = readiness(snapshot, times=TIMES, chain=CHAIN)
    answered = sorted(outlook.workload.key for outlook in found.outlooks)
    assert answered == sorted(workload.key for workload in snapshot.workloads)


@given(lives, facts, flags, flags, flags, flags)
def test_any_facts_in_any_state_lead_somewhere(
    life: NodeLife, seen: NodeFacts, confirmed: bool, proven: bool, recovered: bool, clean: bool
) -> None:
    then = step(
        life, seen, NOW, times=TIMES, confirmed=confirmed, proven=proven, recovered=recovered,
        clean=clean,
    )  # fmt: skip
    assert (then.node_uid, then.boot_id) == (seen.uid, seen.boot_id)


@given(lives, facts, flags, flags)
def test_no_life_is_lost_without_silence(
    life: NodeLife, seen: NodeFacts, confirmed: bool, proven: bool
) -> None:
    """Only what was seen silent long enough becomes lost, and only what was lost is proven."""
    then = step(life, seen, NOW, times=TIMES, confirmed=confirmed, proven=proven)
    if then.state is Life.LOST and life.state is not Life.LOST:
        assert life.state is Life.SUSPECT
        assert seen.lease_seen_at is not None
        needed = TIMES.confirmed if confirmed else TIMES.lost
        assert seen.looked_at - (seen.lease_changed_at or 0.0) >= needed
    if then.state is Life.PROVEN and life.state is not Life.PROVEN:
        assert life.state is Life.LOST
        assert proven
