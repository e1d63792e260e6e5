"""What was decided is done only while people say what they said when it was decided."""

import msgspec
import pytest

from backstay.apis.backstay import CONFIG_NAME, CONFIGS
from backstay.control.guard import Leave
from backstay.decide.failover import Snapshot
from backstay.kube.errors import TooLate
from backstay.kube.lease import Term
from backstay.model.policy import Mode, Policy
from backstay.sim.chance import Chance
from backstay.sim.clock import LoopClock
from backstay.sim.files import MemoryFiles
from backstay.sources.operator import OperatorSource
from backstay.sources.past import Past
from tests.control.rig import Scene, play


async def looking(s: Scene) -> tuple[OperatorSource, Policy]:
    """One who reads, and watches nothing; and what it has read about a node."""
    await s.boot("n1", "n2")
    await s.arm()
    rng = Chance(1, "test")
    past = Past(s.client, MemoryFiles(), "", rng=rng)
    source = OperatorSource(s.client, rng=rng, wall=LoopClock(), past=past)
    policy, _ = await source.look_closely("n1")
    assert policy.mode is Mode.ARMED
    return source, policy


async def disarm(s: Scene) -> None:
    await s.client.merge_patch(CONFIGS, CONFIG_NAME, {"spec": {"mode": "Observe"}})


def test_what_a_look_at_another_node_reads_of_the_configuration_counts_for_all() -> None:
    async def scene(s: Scene) -> None:
        source, policy = await looking(s)
        await source.look_closely("n2")
        assert not source.is_outdated(policy)
        await disarm(s)
        assert not source.is_outdated(policy), "nobody knows of it yet"
        await source.look_closely("n2")
        assert source.is_outdated(policy)

    play(scene)


def test_a_configuration_that_is_deleted_is_another_one() -> None:
    async def scene(s: Scene) -> None:
        source, policy = await looking(s)
        await s.client.delete(CONFIGS, CONFIG_NAME)
        await source.look_closely("n2")
        assert source.is_outdated(policy)

    play(scene)


def test_a_watch_that_lags_behind_a_look_is_no_news() -> None:
    async def scene(s: Scene) -> None:
        source, before = await looking(s)
        old = await source._read_config()
        assert old is not None
        await disarm(s)
        policy, _ = await source.look_closely("n1")
        source.configs.put(old)
        assert not source.is_outdated(policy)
        source.configs.put(msgspec.structs.replace(old, version=f"{policy.version}0"))
        assert source.is_outdated(policy)
        assert source.is_outdated(before)

    play(scene)


def test_leave_ends_with_the_configuration_as_with_the_term() -> None:
    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        await s.arm()
        s.start_controller()
        await s.until(lambda: any(app.loop.queue is not None for app in s.apps.values()))
        observer, term = s.apps["backstay-1"].observer, Term(1, 1e9)
        seen = await observer.look_closely("n1")
        assert isinstance(seen, Snapshot)
        leave = Leave(term, observer, seen)
        assert leave.require() == 1e9
        await disarm(s)
        await observer.look_closely("n2")
        with pytest.raises(TooLate, match="configuration has changed"):
            leave.require()
        again = await observer.look_closely("n1")
        assert isinstance(again, Snapshot)
        term.end()
        with pytest.raises(TooLate, match="no longer leads"):
            Leave(term, observer, again).require()

    play(scene)
