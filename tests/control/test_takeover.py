"""What the next leader makes of what it finds: begun, measured, refuted, left behind, deleted."""

import asyncio

import pytest

from backstay.apis.backstay import INCIDENTS
from backstay.kube.resource import NODES
from backstay.model.labels import TAINT
from backstay.record.metrics import Stage
from backstay.sim.api.store import Commit
from tests.control.rig import FOUR, Scene, play, set_up, until_lost


@pytest.mark.parametrize("writes", [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20])
def test_a_leader_that_dies_after_any_write_is_followed_by_one_that_finishes(writes: int) -> None:
    async def scene(s: Scene) -> None:
        victim = await set_up(s, *FOUR)
        leader = s.world.processes["backstay-1"]
        s.start_controller("backstay-2")
        await asyncio.sleep(10)
        s.cluster.nodes[victim].kill()
        await until_lost(s, victim)
        there, left = len(await s.pods_on(victim)), [writes]

        def count(_: Commit) -> None:
            left[0] -= 1
            if left[0] == 0:
                leader.kill()

        await s.confirm_dead(victim)
        s.cluster.api.store.follow(None, count)
        await s.until(lambda: all(len(s.copies(vm)) == 1 for vm in FOUR), timeout=120)
        await asyncio.sleep(90)
        assert s.apps["backstay-2"].status().leading
        assert await s.pods_on(victim) == []
        status = (await s.incident()).status
        assert (status.state, status.recovered) == ("Recovered", there)

    assert play(scene, seed=writes).doubles == []


def test_what_another_leader_saw_is_not_guessed() -> None:
    """It began to look when the node was dead already: there is nothing to count from."""

    async def scene(s: Scene) -> None:
        victim = await set_up(s, "a")
        s.cluster.nodes[victim].kill()
        await until_lost(s, victim)
        s.world.processes["backstay-1"].kill()
        s.start_controller("backstay-2")
        await asyncio.sleep(60)
        await s.confirm_dead(victim)
        await s.until(lambda: len(s.copies("a")) == 1, timeout=60)
        await asyncio.sleep(5)
        status = (await s.incident()).status
        [record] = status.workloads
        assert record.ready
        assert (record.released_after, record.running_after, record.ready_after) == (None,) * 3
        assert status.stages[0].stage == "detect"

    play(scene)


def test_a_confirmation_that_life_refuted_stays_void_for_a_controller_that_starts_anew() -> None:
    """It was given for a node that lived. When that node is cut off again later, in the same boot,
    a controller that saw nothing of it must not take the old word for a new one."""

    async def scene(s: Scene) -> None:
        victim = await set_up(s, *FOUR)
        node = s.cluster.nodes[victim]
        node.cut_off()
        await asyncio.sleep(8)
        await s.confirm_dead(victim)
        node.heal()
        await asyncio.sleep(30)
        s.world.processes["backstay-1"].kill()
        node.cut_off()
        s.start_controller("backstay-2")
        await until_lost(s, victim)
        await asyncio.sleep(120)
        assert s.copies("a") == [victim]
        assert not await s.is_tainted(victim)
        codes = {record.code for record in (await s.incident()).status.workloads}
        assert codes == {"EvidenceContradicted"}

    assert play(scene).doubles == []


def test_a_taint_that_was_left_behind_is_taken_off() -> None:
    """By a leader that died, and whose incident somebody deleted."""

    async def scene(s: Scene) -> None:
        await set_up(s, "a")
        ours = {"spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}}
        await s.client.merge_patch(NODES, "n3", ours)
        await asyncio.sleep(20)
        assert await s.is_tainted("n3")
        await asyncio.sleep(60)
        assert not await s.is_tainted("n3")

    play(scene)


def test_a_deleted_incident_is_written_again_at_the_next_look_and_once_for_each_look() -> None:
    """Though nothing is new: and only by the leader, and without measuring anything twice."""

    async def scene(s: Scene) -> None:
        victim = await set_up(s, "a")
        s.start_controller("backstay-2")
        s.cluster.nodes[victim].kill()
        await until_lost(s, victim)
        await asyncio.sleep(60)
        first = await s.incident()
        opened: list[str] = []

        def hear(commit: Commit) -> None:
            if commit.before is None:
                opened.append(commit.after.key[1])

        s.cluster.api.store.follow(INCIDENTS.label, hear)
        for seconds in range(10):
            for each in (await s.client.list(INCIDENTS)).json()["items"]:
                await s.client.delete(INCIDENTS, each["metadata"]["name"])
            await asyncio.sleep(seconds % 2)
        await asyncio.sleep(5)
        again = await s.incident()
        assert 1 <= len(opened) <= 4
        assert await s.incidents() == 1
        assert again.uid != first.uid
        assert again.status.workloads == first.status.workloads
        assert again.status.stages == first.status.stages
        leader, standby = s.apps["backstay-1"], s.apps["backstay-2"]
        assert leader.measured.stages.count(Stage.DETECT.value) == 1
        assert standby.book.writes == 0

    play(scene)


def test_an_incident_that_somebody_has_touched_is_closed_all_the_same() -> None:
    async def scene(s: Scene) -> None:
        victim = await set_up(s, "a")
        node = s.cluster.nodes[victim]
        node.cut_off()
        await until_lost(s, victim)
        name = (await s.incident()).key
        await asyncio.sleep(30)
        note = {"metadata": {"annotations": {"example.com/seen-by": "bob"}}}
        await s.client.merge_patch(INCIDENTS, name, note)
        node.heal()
        await asyncio.sleep(90)
        assert (await s.incident()).status.closed_at

    play(scene)
