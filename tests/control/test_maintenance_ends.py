"""Maintenances that are ended, interrupted or taken over, under virtual time."""

import asyncio
from typing import Any

import pytest

from backstay.apis.drains import BUDGETS
from backstay.apis.kubevirt import INSTANCES
from backstay.apis.maintenance import NODE_MAINTENANCES
from backstay.apis.storage import CLAIMS
from backstay.kube.resource import NODES
from backstay.model.labels import DRAIN_TAINT, MAINTENANCE, MAINTENANCE_FINALIZER
from backstay.sim.api.store import Commit, Stored
from tests.control.rig import Scene, play, until_lost
from tests.control.rig_maintenance import (
    ALL,
    NONE,
    budget,
    claim,
    configure,
    cordon,
    end,
    events,
    maintain,
    marks_on,
    set_up,
    start_deployment,
    until_gone,
    until_told,
)


def test_what_the_node_maintenance_operator_has_begun_is_finished_by_us() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s, owners={"maintenance": "Foreign"})
        body = {
            "metadata": {"name": "old", "finalizers": [MAINTENANCE_FINALIZER]},
            "spec": {"nodeName": "n1"},
        }
        await s.client.create(NODE_MAINTENANCES, body)
        taints = [{"key": DRAIN_TAINT, "effect": "NoSchedule"}]
        await s.client.merge_patch(NODES, "n1", {"spec": {"unschedulable": True, "taints": taints}})
        await asyncio.sleep(30)
        await configure(s, owners={"maintenance": "Ours"})
        await until_told(s, "old", "Drained")
        await end(s, "", name="old")
        await until_gone(s, "old")
        assert await marks_on(s, "n1") == NONE

    play(scene)


def test_whoever_takes_the_finalizer_off_finds_it_again_so_that_nothing_is_left_behind() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await maintain(s, "n1")
        await until_told(s, "maintain-n1", "Drained")
        body = {"metadata": {"finalizers": None}}
        await s.client.merge_patch(NODE_MAINTENANCES, "maintain-n1", body)
        await asyncio.sleep(5)
        live = (await s.client.get(NODE_MAINTENANCES, "maintain-n1")).json()
        assert live["metadata"]["finalizers"] == [MAINTENANCE_FINALIZER]

    play(scene)


def test_what_has_not_begun_to_move_stays_when_the_maintenance_is_ended() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        vms = tuple("abcdefgh")
        await s.start_vms(*vms, eviction_strategy="LiveMigrate")
        (node,) = {s.copies(vm)[0] for vm in vms}
        await maintain(s, node)
        row = await until_told(s, f"maintain-{node}", "Draining")
        drain = s.apps["backstay-1"].maintenance.running[row.uid].drain

        async def all_asked() -> bool:
            return len(drain.state.evacuated) == len(vms)

        await s.eventually(all_asked)
        await end(s, node)
        await until_gone(s, f"maintain-{node}")
        await asyncio.sleep(60)
        stayed = [vm for vm in vms if s.copies(vm) == [node]]
        assert 0 < len(stayed) < len(vms)
        for vm in stayed:
            live = (await s.client.get(INSTANCES, vm, namespace="default")).json()
            assert not live["status"].get("evacuationNodeName")
        told = await events(s, f"maintain-{node}")
        assert {"EvacuationCancelled", "EvacuationGoesOn"} <= {*told}
        assert await marks_on(s, node) == NONE

    play(scene)


def test_a_successor_goes_on_where_a_leader_died() -> None:
    async def scene(s: Scene) -> None:
        leader = await set_up(s)
        await start_deployment(s, "web", 6)
        await budget(s, "web", minAvailable=6)
        await asyncio.sleep(5)
        await cordon(s, "n1", cordoned=True)
        await maintain(s, "n1")
        await until_told(s, "maintain-n1", "DrainBlocked")
        s.start_controller("backstay-2")
        await asyncio.sleep(5)
        leader.kill()
        await s.client.merge_patch(
            BUDGETS, "web", {"spec": {"minAvailable": 4}}, namespace="default"
        )
        await until_told(s, "maintain-n1", "Drained")
        await end(s, "n1")
        await until_gone(s, "maintain-n1")
        assert await marks_on(s, "n1") == (True, False, False, False)

    play(scene)


def test_a_node_that_is_made_anew_is_cordoned_anew() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await maintain(s, "n1")
        await until_told(s, "maintain-n1", "Drained")
        s.cluster.nodes["n1"].kill()
        await s.client.delete(NODES, "n1")
        await until_told(s, "maintain-n1", "NodeMissing")
        s.cluster.nodes["n1"].reboot()
        await until_told(s, "maintain-n1", "Drained", within=300)
        assert await marks_on(s, "n1") == ALL

    play(scene)


@pytest.mark.parametrize("killed", [False, True])
def test_what_was_removed_with_its_finalizer_is_given_back_all_the_same(killed: bool) -> None:
    async def scene(s: Scene) -> None:
        leader = await set_up(s)
        await maintain(s, "n1")
        await until_told(s, "maintain-n1", "Drained")
        if killed:
            leader.kill()
        bare = {"metadata": {"finalizers": None}}
        await s.client.merge_patch(NODE_MAINTENANCES, "maintain-n1", bare)
        await end(s, "n1")
        await until_gone(s, "maintain-n1")
        if killed:
            s.start_controller("backstay-2")
        await asyncio.sleep(60)
        assert await marks_on(s, "n1") == NONE

    play(scene)


def part(stored: Stored) -> Any:
    """What only we write, once somebody has made a maintenance."""
    meta = stored.object["metadata"]
    spec = stored.object["spec"]
    if "nodeName" not in spec:
        return spec.get("unschedulable"), (meta.get("annotations") or {}).get(MAINTENANCE)
    return meta.get("finalizers"), stored.object.get("status")


@pytest.mark.parametrize("write", range(1, 7))
def test_a_controller_that_is_killed_after_any_write_leaves_nothing_behind(write: int) -> None:
    async def scene(s: Scene) -> None:
        leader = await set_up(s)
        await cordon(s, "n1", cordoned=True)
        await start_deployment(s, "web", 3)
        await cordon(s, "n1", cordoned=False)
        await start_deployment(s, "db", 3)
        ours: list[str] = []

        def heard(commit: Commit) -> None:
            if commit.before is not None and part(commit.before) != part(commit.after):
                ours.append(commit.storage)
                if len(ours) == write:
                    leader.kill()

        watched = [NODES.label, NODE_MAINTENANCES.label]
        s.cluster.api.operations.store.follow_each(watched, heard)
        await maintain(s, "n1")
        s.start_controller("backstay-2")
        await until_told(s, "maintain-n1", "Drained", within=300)
        assert await marks_on(s, "n1") == ALL
        await end(s, "n1")
        await until_gone(s, "maintain-n1", within=300)
        assert await marks_on(s, "n1") == NONE
        assert len(ours) >= write, "it was killed in time"

    play(scene)


def test_a_node_that_dies_while_it_is_drained_is_recovered_like_any_other() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await s.client.create(CLAIMS, claim("disk"), namespace="default")
        await s.start_vms("a", eviction_strategy="LiveMigrate", claims=["disk"])
        node = s.copies("a")[0]
        await maintain(s, node)
        await until_told(s, f"maintain-{node}", "DrainBlocked")
        s.cluster.nodes[node].kill()
        await until_lost(s, node)
        await s.confirm_dead(node)
        await s.until(lambda: s.copies("a") not in ([], [node]), timeout=300)
        await until_told(s, f"maintain-{node}", "Drained", within=300)

    play(scene)


def test_what_anybody_wrote_into_its_status_does_not_keep_it_from_ending() -> None:
    async def scene(s: Scene) -> None:
        leader = await set_up(s)
        await maintain(s, "n1")
        await until_told(s, "maintain-n1", "Drained")
        leader.kill()
        wrong = {"status": {"evacuated": ["", "a", "../x", "a/b/c", "a%2Fb/c", "default/nobody"]}}
        await s.client.merge_patch(NODE_MAINTENANCES, "maintain-n1", wrong, subresource="status")
        await end(s, "n1")
        s.start_controller("backstay-2")
        await until_gone(s, "maintain-n1")
        assert await marks_on(s, "n1") == NONE

    play(scene)
