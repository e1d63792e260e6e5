"""A controller is killed after each single write of a whole incident, and started again.

Whatever it had just done, the incident comes to the same end and nothing is broken on the way.
"""

from collections.abc import Iterator
from itertools import count, pairwise

import msgspec
import pytest

from backstay.lab import cases, drain_cases
from backstay.lab.linstor_spec import LinstorSpec
from backstay.lab.play import Played, play
from backstay.lab.power_spec import BmcsSpec
from backstay.lab.scenario import (
    LEADER,
    After,
    Claim,
    Do,
    PolicySpec,
    Scenario,
    StatefulSet,
    Step,
    Workloads,
)
from backstay.lab.settled import Settled
from backstay.model.policy import Mode

_FEWEST = 10
"""Writes of an incident: opened, announced, tainted, two marked, two removed, and what is told."""

_CONTROLLER = "backstay-1"

_DEATH = (Step(at=5, do=Do.KILL, node="n2"), Step(at=55, do=Do.CONFIRM, node="n2"))
_RETURN = (Step(at=110, do=Do.BOOT, node="n2"),)
_RETURNED = 200.0


def _killed_after(writes: int, story: Scenario) -> Scenario:
    killed = Step(at=0, do=Do.KILL_CONTROLLER, controller=_CONTROLLER, after_writes=writes)
    # Somebody starts it again within ten seconds, as a kubelet would; while it runs, this is none.
    starts = (
        Step(at=float(at), do=Do.START_CONTROLLER, controller=_CONTROLLER)
        for at in range(10, int(story.until), 10)
    )
    return msgspec.structs.replace(story, steps=(*story.steps, killed, *starts))


def _was_killed(played: Played) -> bool:
    return any("killed" in line.what for line in played.timeline)


def _assert_all_is_well(played: Played) -> None:
    assert played.breaches == ()
    assert played.accepted == ()
    assert set(played.recovered) == {"till", "db-0"}
    assert played.down == ()


def _assert_it_is_over(played: Played) -> None:
    assert played.taints == ()
    assert played.open == ()


def _killed_after_each_write(
    story: Scenario, *, first: int = 1, step: int = 1, fewest: int = _FEWEST
) -> Iterator[Played]:
    """Until there is no further write after which anybody could be killed."""
    with Settled(story) as settled:
        for writes in count(first, step):
            played = settled.play(_killed_after(writes, story))
            yield played
            if not _was_killed(played):
                assert writes > fewest
                return


def test_a_recovery_survives_a_crash_after_each_write() -> None:
    story = msgspec.structs.replace(cases.DEATH, steps=(*_DEATH, *_RETURN), until=_RETURNED)
    for played in _killed_after_each_write(story):
        _assert_all_is_well(played)
        _assert_it_is_over(played)


def test_an_arming_survives_a_crash_after_each_write() -> None:
    story = msgspec.structs.replace(
        cases.DEATH,
        policy=PolicySpec(mode=Mode.OBSERVE),
        steps=(*_DEATH, Step(at=70, do=Do.ARM)),
        until=135,
    )
    for played in _killed_after_each_write(story):
        _assert_all_is_well(played)


def test_a_word_that_an_answer_has_refuted_stays_void_after_a_crash_at_each_write() -> None:
    """The node answers until it is cut off; what was written by then is all that is left."""
    ours = (Do.KILL_CONTROLLER, Do.START_CONTROLLER)
    steps = tuple(step for step in cases.ANSWERED_EARLY.steps if step.do not in ours)
    story = msgspec.structs.replace(cases.ANSWERED_EARLY, steps=steps, until=110.0)
    for played in _killed_after_each_write(story, fewest=3):
        assert (played.breaches, played.accepted) == ((), ())
        assert set(played.held) == {"till", "db-0"}
        assert (played.down, played.taints) == ((), ())


def test_a_maintenance_survives_a_crash_after_each_write() -> None:
    """From its cordon to the last thing that is given back: a guest is moved, a set goes one by one
    as its budget lets it, and somebody ends it."""
    steps = (
        Step(at=5, do=Do.MAINTAIN, node="n2"), Step(at=110, do=Do.END_MAINTENANCE, node="n2"),
    )  # fmt: skip
    story = msgspec.structs.replace(drain_cases.DRAINED, steps=steps, until=150.0)
    for played in _killed_after_each_write(story):
        assert (played.breaches, played.accepted) == ((), ())
        assert set(played.recovered) == {"db-0", "db-1", "site"}
        assert (played.migrated, played.down) == (("till",), ())
        assert (played.maintained, played.cordoned) == ({}, ())
        assert "Drained" in played.says


def test_a_standby_goes_on_with_a_drain_of_a_leader_that_never_comes_back() -> None:
    killed = Step(at=0, do=Do.KILL_CONTROLLER, controller=LEADER, after=After.EVICTION)
    steps = (Step(at=5, do=Do.MAINTAIN, node="n2"), killed)
    played = play(
        msgspec.structs.replace(drain_cases.DRAINED, controllers=2, steps=steps, until=110.0)
    )
    assert _was_killed(played)
    assert (played.breaches, played.maintained) == ((), {"n2": "Succeeded"})


def test_a_standby_ends_what_a_leader_began_that_never_comes_back() -> None:
    killed = Step(at=0, do=Do.KILL_CONTROLLER, controller=LEADER, after=After.MARK)
    played = play(
        msgspec.structs.replace(
            cases.DEATH, controllers=2, steps=(*_DEATH, *_RETURN, killed), until=_RETURNED
        )
    )
    assert _was_killed(played)
    _assert_all_is_well(played)
    _assert_it_is_over(played)


@pytest.mark.parametrize("first", [1, 3])
def test_a_recovery_on_drbds_word_survives_a_crash_after_every_other_write(first: int) -> None:
    """LINSTOR's controller is on the dead node as well, and is replaced first."""
    story = Scenario(
        name="on-drbds-word",
        question="What if a node dies with LINSTOR's controller, and nobody confirms it?",
        nodes=("n1", "n2", "n3"),
        linstor=LinstorSpec(controller="n2"),
        workloads=Workloads(
            stateful_sets=(StatefulSet(name="db", node="n2", claims=(Claim.LINSTOR,)),)
        ),
        steps=(Step(at=5, do=Do.KILL, node="n2"),),
        until=260.0,
    )
    for played in _killed_after_each_write(story, first=first, step=4):
        assert (played.breaches, played.accepted) == ((), ())
        assert (set(played.recovered), played.down, played.taints) == ({"db-0"}, (), ("n2",))


_POWER = {"fencing": {"power": {"enabled": True}}}


@pytest.mark.parametrize(
    ("loss", "step"), [((Do.CUT,), 1), ((Do.CUT, Do.FREEZE), 4)], ids=["cut off", "hangs"]
)
def test_a_recovery_by_power_survives_a_crash_after_each_write_and_each_request_to_a_bmc(
    loss: tuple[Do, ...], step: int
) -> None:
    """The node is switched off and on again, whoever finds out what was asked of its BMC."""
    story = msgspec.structs.replace(
        cases.DEATH,
        bmcs=BmcsSpec(),
        policy=PolicySpec(config=_POWER),
        steps=(
            *(Step(at=5, do=each, node="n2") for each in loss),
            Step(at=5, do=Do.HEAL, node="n2", after=After.ON),
        ),
        until=290.0,
    )
    asked = 0
    for played in _killed_after_each_write(story, step=step):
        _assert_all_is_well(played)
        _assert_it_is_over(played)
        assert (played.powered_on, played.without_power) == (("n2",), ())
        asked += _was_killed_at_a_request(played)
    assert asked == 2 or step > 1


def _was_killed_at_a_request(played: Played) -> bool:
    """Whether it is the last that was heard of the controller before."""
    said = [line.what for line in played.timeline if line.who == _CONTROLLER]
    before = [what for what, then in pairwise(said) if then == "is killed"]
    return any(what.startswith("asks the BMC") for what in before)
