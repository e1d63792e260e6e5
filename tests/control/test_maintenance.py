"""A node goes into maintenance and comes back, on an embedded cluster under virtual time."""

import asyncio
from typing import Any

import pytest

from backstay.apis.backstay import CONFIG_NAME, CONFIGS
from backstay.apis.drains import BUDGETS
from backstay.apis.kubevirt import INSTANCES
from backstay.apis.maintenance import NODE_MAINTENANCES
from backstay.apis.storage import CLAIMS
from backstay.kube.resource import NODES, PODS
from backstay.model.labels import DRAIN_TAINT, MAINTENANCE, MAINTENANCE_FINALIZER
from backstay.sim.api.store import Commit, Stored
from backstay.sim.process import Process
from tests.control.rig import Scene, play, until_lost
from tests.control.rig_maintenance import (
    ALL,
    NONE,
    budget,
    claim,
    end,
    events,
    maintain,
    maintenance,
    marks_on,
    running,
    serve_maintenances,
    start_deployment,
    until_gone,
    until_told,
)

ROLE = "node-role.kubernetes.io/control-plane"


async def set_up(s: Scene, *, armed: bool = True, **spec: Any) -> Process:
    await s.boot("n1", "n2", "n3")
    await serve_maintenances(s)
    controller = s.start_controller()
    if armed:
        await s.arm(**spec)
    await asyncio.sleep(30)
    return controller


async def cordon(s: Scene, node: str, *, cordoned: bool) -> None:
    spec = {"unschedulable": True if cordoned else None}
    await s.client.merge_patch(NODES, node, {"spec": spec})


async def configure(s: Scene, **spec: Any) -> None:
    await s.client.merge_patch(CONFIGS, CONFIG_NAME, {"spec": spec})


def touched(s: Scene) -> list[str]:
    """The names of pods that somebody evicted."""
    names: list[str] = []

    def heard(commit: Commit) -> None:
        conditions = (commit.after.object.get("status") or {}).get("conditions") or ()
        if commit.storage == PODS.label and any(
            each["type"] == "DisruptionTarget" for each in conditions
        ):
            names.append(commit.after.key[1])

    s.cluster.api.operations.store.follow_each([PODS.label, NODES.label], heard)
    return names


def test_a_node_is_cordoned_and_drained_and_given_back() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await start_deployment(s, "web", 6)
        await s.start_vms("a", eviction_strategy="LiveMigrate")
        await maintain(s, "n1")
        row = await until_told(s, "maintain-n1", "Drained")
        status = row.status
        assert (status.phase, status.drain_progress) == ("Succeeded", 100)
        assert status.pending_pods == ()
        assert await marks_on(s, "n1") == ALL
        assert "n1" not in await running(s, "web")
        assert s.copies("a") not in ([], ["n1"])
        await end(s, "n1")
        await until_gone(s, "maintain-n1")
        assert await marks_on(s, "n1") == NONE
        assert {"BeginMaintenance", "SucceedMaintenance", "RemovedMaintenance"} <= {
            *await events(s, "maintain-n1")
        }
        assert "UncordonNode" in await events(s, "n1")

    play(scene)


def test_what_was_cordoned_before_stays_cordoned() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await cordon(s, "n1", cordoned=True)
        await maintain(s, "n1")
        await until_told(s, "maintain-n1", "Drained")
        await end(s, "n1")
        await until_gone(s, "maintain-n1")
        assert await marks_on(s, "n1") == (True, False, False, False)

    play(scene)


def test_whoever_uncordons_it_meanwhile_finds_it_cordoned_again_and_is_told_once() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await maintain(s, "n1")
        await until_told(s, "maintain-n1", "Drained")
        await cordon(s, "n1", cordoned=False)
        await asyncio.sleep(5)
        assert await marks_on(s, "n1") == ALL
        await asyncio.sleep(300)
        assert (await events(s, "n1")).count("CordonedAgain") == 1

    play(scene)


def test_a_pod_that_comes_later_is_asked_to_leave_as_well() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await maintain(s, "n1")
        await until_told(s, "maintain-n1", "Drained")
        pod = {
            "metadata": {"name": "late"},
            "spec": {
                "nodeName": "n1",
                "containers": [{"name": "main", "image": "example/late"}],
                "tolerations": [{"operator": "Exists"}],
            },
        }
        await s.client.create(PODS, pod, namespace="default")
        await asyncio.sleep(60)
        assert "late" not in await s.pods_on("n1")
        row = await maintenance(s, "maintain-n1")
        assert row is not None
        assert row.status.code == "Drained"

    play(scene)


def test_a_budget_that_allows_nothing_is_named_and_waited_for() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await start_deployment(s, "web", 3)
        await budget(s, "web", minAvailable=3)
        await asyncio.sleep(5)
        requests = touched(s)
        await maintain(s, "n1")
        row = await until_told(s, "maintain-n1", "DrainBlocked")
        (blocker,) = row.status.blockers
        assert blocker.code == "BudgetExhausted"
        assert "default/web" in blocker.sentence
        assert blocker.next == "kubectl describe pdb web -n default"
        assert row.status.pending_pods
        await asyncio.sleep(300)
        assert not requests
        asked = s.apps["backstay-1"].maintenance.running[row.uid].drain.requests
        assert asked <= 11, "once in half a minute, and not in a loop"
        await s.client.merge_patch(
            BUDGETS, "web", {"spec": {"minAvailable": 2}}, namespace="default"
        )
        began = asyncio.get_running_loop().time()
        await until_told(s, "maintain-n1", "Drained", within=20)
        assert asyncio.get_running_loop().time() - began < 10, "it was told when the budget moved"

    play(scene)


def test_pods_of_one_budget_go_one_after_the_other() -> None:
    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        await serve_maintenances(s)
        await cordon(s, "n2", cordoned=True)
        await cordon(s, "n3", cordoned=True)
        await start_deployment(s, "web", 4)
        await cordon(s, "n2", cordoned=False)
        await cordon(s, "n3", cordoned=False)
        await budget(s, "web", maxUnavailable=1)
        s.start_controller()
        await s.arm()
        await asyncio.sleep(30)
        fewest = [4]

        async def count() -> None:
            while True:
                fewest.append(len(await running(s, "web")))
                await asyncio.sleep(0.1)

        counting = asyncio.get_running_loop().create_task(count())
        await maintain(s, "n1")
        row = await until_told(s, "maintain-n1", "Drained", within=600)
        counting.cancel()
        assert min(fewest) >= 3
        assert row.status.eviction_pods == 4
        asked = s.apps["backstay-1"].maintenance.running[row.uid].drain.requests
        assert asked <= 8

    play(scene)


def test_a_guest_that_may_only_be_migrated_and_cannot_be_is_named() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await s.client.create(CLAIMS, claim("disk"), namespace="default")
        await s.start_vms("a", eviction_strategy="LiveMigrate", claims=["disk"])
        node = s.copies("a")[0]
        await maintain(s, node)
        row = await until_told(s, f"maintain-{node}", "DrainBlocked")
        (blocker,) = row.status.blockers
        assert blocker.code == "NotLiveMigratable"
        assert "default/a cannot leave" in blocker.sentence
        await asyncio.sleep(300)
        assert s.copies("a") == [node]

    play(scene)


def test_who_only_observes_says_what_it_would_do_and_touches_nothing() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s, armed=False)
        await start_deployment(s, "web", 3)
        await budget(s, "web", minAvailable=3)
        await asyncio.sleep(5)
        await maintain(s, "n1")
        row = await until_told(s, "maintain-n1", "WouldDrain")
        assert "would cordon n1 and ask 1 pods to leave; 1 of them could not" in row.status.sentence
        assert [each.code for each in row.status.blockers] == ["BudgetExhausted"]
        await asyncio.sleep(300)
        assert await marks_on(s, "n1") == NONE
        assert not row.finalizers
        assert len(await running(s, "web")) == 3
        await end(s, "n1")
        await until_gone(s, "maintain-n1")

    play(scene)


def test_disarmed_nobody_is_asked_any_more_and_the_cordon_stays() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await start_deployment(s, "web", 3)
        await budget(s, "web", minAvailable=3)
        await asyncio.sleep(5)
        await maintain(s, "n1")
        await until_told(s, "maintain-n1", "DrainBlocked")
        await configure(s, disarmed={"until": "2040-01-01T00:00:00Z", "reason": "an audit"})
        await until_told(s, "maintain-n1", "MaintenanceDisarmed")
        await s.client.merge_patch(
            BUDGETS, "web", {"spec": {"minAvailable": 0}}, namespace="default"
        )
        evicted = touched(s)
        await asyncio.sleep(300)
        assert not evicted
        assert await marks_on(s, "n1") == ALL
        await configure(s, disarmed=None)
        await until_told(s, "maintain-n1", "Drained")

    play(scene)


def test_what_another_program_does_is_left_to_it() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s, owners={"maintenance": "Foreign"})
        await maintain(s, "n1")
        await asyncio.sleep(120)
        row = await maintenance(s, "maintain-n1")
        assert row is not None
        assert (row.status.phase, row.finalizers) == ("", ())
        assert await marks_on(s, "n1") == NONE

    play(scene)


def test_a_node_that_is_not_there_is_waited_for() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await maintain(s, "n9")
        row = await until_told(s, "maintain-n9", "NodeMissing")
        assert row.status.phase == "Running"
        s.cluster.add_node("n9")
        await until_told(s, "maintain-n9", "Drained")
        assert await marks_on(s, "n9") == ALL

    play(scene)


def test_of_two_for_one_node_the_older_counts_and_the_other_takes_its_place() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await maintain(s, "n1", name="first")
        await until_told(s, "first", "Drained")
        await maintain(s, "n1", name="second")
        row = await until_told(s, "second", "AnotherMaintenance")
        assert "on account of first" in row.status.sentence
        free: list[bool] = []

        def heard(commit: Commit) -> None:
            if commit.storage == NODES.label and commit.after.key[1] == "n1":
                free.append(not commit.after.object["spec"].get("unschedulable"))

        s.cluster.api.operations.store.follow_each([PODS.label, NODES.label], heard)
        await end(s, "", name="first")
        await until_told(s, "second", "Drained")
        assert await maintenance(s, "first") is None
        assert not any(free), "it stays cordoned from the one to the other"
        await end(s, "", name="second")
        await until_gone(s, "second")
        assert await marks_on(s, "n1") == NONE

    play(scene)


def test_of_two_control_plane_nodes_one_goes_at_a_time() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        for node in ("n1", "n2"):
            patch = {"metadata": {"labels": {ROLE: ""}}}
            await s.client.merge_patch(NODES, node, patch)
        await maintain(s, "n1")
        await maintain(s, "n2")
        await asyncio.sleep(30)
        rows = [await maintenance(s, f"maintain-{node}") for node in ("n1", "n2")]
        codes = sorted(row.status.code for row in rows if row is not None)
        assert codes == ["ControlPlaneQuorum", "Drained"]
        held = next(row.node for row in rows if row is not None and row.status.code != "Drained")
        assert await marks_on(s, held) == NONE
        other = "n1" if held == "n2" else "n2"
        await end(s, other)
        await until_told(s, f"maintain-{held}", "Drained")

    play(scene)


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


def test_without_the_kind_nothing_is_said_and_once_it_comes_it_is_served() -> None:
    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        s.start_controller()
        await s.arm()
        await asyncio.sleep(60)
        assert s.apps["backstay-1"].maintenance.trouble == ""
        await serve_maintenances(s)
        await maintain(s, "n1")
        await until_told(s, "maintain-n1", "Drained")

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


def test_the_numbers_say_how_maintenances_stand() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await start_deployment(s, "web", 3)
        await budget(s, "web", minAvailable=3)
        await asyncio.sleep(5)
        await maintain(s, "n1")
        await until_told(s, "maintain-n1", "DrainBlocked")
        app = s.apps["backstay-1"]
        page = app.metrics().decode()
        assert 'backstay_maintenances{code="DrainBlocked"} 1' in page
        assert 'backstay_drain_blockers{code="BudgetExhausted"} 1' in page
        assert any("n1; 1 cannot yet" in note for note in app.status().notes)
        await end(s, "n1")
        await until_gone(s, "maintain-n1")
        await asyncio.sleep(5)
        page = app.metrics().decode()
        assert "backstay_maintenances{" not in page
        assert "backstay_drain_blockers{" not in page

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
