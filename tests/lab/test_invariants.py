"""Every invariant is broken by a controller with a deliberate bug, and by no other."""

import asyncio
from collections.abc import Sequence

import pytest

from backstay.control.guard import Guard
from backstay.decide.failover import CHAIN, Check
from backstay.lab.bugs import BUGS, Bug
from backstay.lab.cluster import LabCluster
from backstay.lab.invariants import INVARIANTS
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.world import World


async def _disaster(
    cluster: LabCluster,
    *,
    cut: bool,
    confirmed: bool,
    armed: bool,
    chain: Sequence[Check] = CHAIN,
    guard: type[Guard] = Guard,
) -> None:
    """One of three nodes falls silent, and what people do about it."""
    await cluster.boot("n1", "n2", "n3")
    await cluster.start_workloads(vms=["a", "b", "c"], stateful_sets={"db": 2})
    cluster.start_backstay("backstay-1", chain=chain, guard=guard)
    if armed:
        await cluster.arm()
    await asyncio.sleep(20)
    node = cluster.nodes["n2"]
    node.cut_off() if cut else node.kill()
    await asyncio.sleep(50)
    if confirmed:
        await cluster.confirm_dead("n2", by="alice", reason="its power is off")
    await asyncio.sleep(40)


def _played(bug: Bug) -> LabCluster:
    with World(1) as world:

        async def scenario() -> LabCluster:
            cluster = LabCluster(WorldGround(world))
            await _disaster(
                cluster,
                cut=bug.cut,
                confirmed=bug.confirmed,
                armed=bug.armed,
                chain=bug.chain,
                guard=bug.guard,
            )
            return cluster

        return world.run(scenario())


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "_"))
def test_a_deliberate_bug_breaks_what_it_should(bug: Bug) -> None:
    assert _played(bug).inspector.names_broken >= bug.caught_by


def test_every_invariant_has_a_bug_that_it_catches() -> None:
    caught = {name for bug in BUGS for name in bug.caught_by}
    assert caught <= {invariant.name for invariant in INVARIANTS}


@pytest.mark.parametrize("armed", [True, False])
@pytest.mark.parametrize("confirmed", [True, False])
def test_without_a_bug_nothing_is_broken_by_a_death(*, confirmed: bool, armed: bool) -> None:
    cluster = _played(Bug("none", frozenset(), confirmed=confirmed, armed=armed))
    assert cluster.inspector.broken == []
    assert cluster.inspector.checked > 100
    assert bool(cluster.down) is not (confirmed and armed)


def test_without_a_bug_a_node_that_is_cut_off_keeps_all_that_it_runs() -> None:
    cluster = _played(Bug("none", frozenset(), cut=True, confirmed=False))
    assert cluster.inspector.broken == []
    assert cluster.down == set()


def test_a_wrong_confirmation_of_a_node_that_cannot_object_is_an_accepted_risk() -> None:
    """Of whoever confirms: nobody could see that the node lives."""
    cluster = _played(Bug("none", frozenset(), cut=True))
    assert cluster.inspector.broken == []
    assert cluster.inspector.accepted != []
