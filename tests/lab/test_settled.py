"""One set-up for many plays: each as if it had been set up for itself."""

import msgspec
import pytest

from backstay.lab.inspector import ANYTHING
from backstay.lab.play import play
from backstay.lab.scenario import Do, Scenario, Step, Vm, Workloads
from backstay.lab.settled import CutShort, Settled

DIES = Scenario(
    name="dies",
    question="What becomes of the VM?",
    nodes=("n1", "n2", "n3"),
    workloads=Workloads(vms=(Vm(name="vm-1", node="n1"),)),
    steps=(Step(at=5, do=Do.KILL, node="n1"), Step(at=50, do=Do.CONFIRM, node="n1")),
    until=80,
)
STAYS_WELL = msgspec.structs.replace(DIES, name="stays-well", seed=7, steps=(), until=20)


def test_a_play_is_the_same_as_if_it_had_been_set_up_for_itself() -> None:
    with Settled(STAYS_WELL) as settled:
        played = settled.play(DIES)
    assert played == play(DIES)
    assert played.recovered


def test_nothing_that_happened_in_one_play_is_seen_in_the_next() -> None:
    with Settled(DIES) as settled:
        settled.play(DIES)
        well = settled.play(STAYS_WELL)
    assert well == play(STAYS_WELL)
    assert well.running == {"vm-1": ("n1",)}


def test_seeds_go_different_ways_from_one_beginning() -> None:
    other = msgspec.structs.replace(DIES, seed=2)
    with Settled(DIES) as settled:
        first, second = settled.play(DIES), settled.play(other)
    assert [line.what for line in first.timeline] != [] != [line.what for line in second.timeline]
    assert [line.at for line in first.timeline] != [line.at for line in second.timeline]


def test_it_ends_early_when_enough_is_broken() -> None:
    bug = msgspec.structs.replace(DIES, bug="silence-is-death", steps=DIES.steps[:1])
    with Settled(bug) as settled:
        whole = settled.play(bug)
        part = settled.play(bug, enough=("NoDeleteWithoutEvidence",))
        first = settled.play(bug, enough=ANYTHING)
    assert "NoDeleteWithoutEvidence" in part.broken
    assert {breach.at for breach in first.breaches} == {whole.breaches[0].at}
    assert first.checked <= part.checked < whole.checked


def test_what_ends_a_set_up_early_is_told_to_all_who_ask() -> None:
    unknown = msgspec.structs.replace(DIES, bug="nobody has written it")
    with Settled(unknown) as settled:
        with pytest.raises(CutShort, match="there is no bug") as told:
            settled.play(unknown)
        assert told.value.kind == "BadScenario"
        with pytest.raises(CutShort, match="has died"):
            settled.play(unknown)


def test_it_plays_nothing_that_begins_otherwise() -> None:
    other = msgspec.structs.replace(DIES, nodes=("n1", "n2"))
    with Settled(DIES) as settled, pytest.raises(ValueError, match="begins with something else"):
        settled.play(other)
