"""A node goes into maintenance and comes back, on an embedded cluster under virtual time."""

import asyncio

from backstay.apis.drains import BUDGETS
from backstay.apis.maintenance_definition import maintenance_definition
from backstay.apis.storage import CLAIMS
from backstay.kube.resource import NODES, PODS
from backstay.sim.api.store import Commit
from tests.control.rig import DEFINITIONS, Scene, play
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
    maintenance,
    marks_on,
    running,
    serve_maintenances,
    set_up,
    start_deployment,
    until_gone,
    until_told,
)

ROLE = "node-role.kubernetes.io/control-plane"


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
        said = await events(s, "maintain-n1")
        for each in ("BeginMaintenance", "SucceedMaintenance", "RemovedMaintenance"):
            assert said.count(each) == 1
        told = await events(s, "n1")
        assert "UncordonNode" in told
        assert told.count("MaintenanceBegun") == told.count("MaintenanceEnded") == 1

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


def test_whoever_takes_its_taint_alone_finds_it_there_again_and_is_not_told_of_a_cordon() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await maintain(s, "n1")
        await until_told(s, "maintain-n1", "Drained")
        await s.client.merge_patch(NODES, "n1", {"spec": {"taints": None}})
        await asyncio.sleep(5)
        assert await marks_on(s, "n1") == ALL
        assert "CordonedAgain" not in await events(s, "n1")

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
        assert "SucceedMaintenance" not in await events(s, "maintain-n1")
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
        told = [code for code in await events(s, "maintain-n1") if code.startswith("Drain")]
        assert len(told) <= 5, "not each pod that leaves is news"
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
        assert "would cordon and drain n1 (pods that have to leave: 1, of which cannot: 1)" in (
            row.status.sentence
        )
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
        # The API tells ages in whole seconds.
        await asyncio.sleep(1)
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


def test_a_control_plane_node_stays_while_another_is_down() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        for node in ("n1", "n2"):
            await s.client.merge_patch(NODES, node, {"metadata": {"labels": {ROLE: ""}}})
        s.cluster.nodes["n2"].kill()
        await asyncio.sleep(60)
        await maintain(s, "n1")
        row = await until_told(s, "maintain-n1", "ControlPlaneQuorum")
        assert "and n2 is" in row.status.sentence
        assert await marks_on(s, "n1") == NONE
        s.cluster.nodes["n2"].reboot()
        await until_told(s, "maintain-n1", "Drained")

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


def test_one_that_is_stuck_holds_up_no_other() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await start_deployment(s, "web", 3)
        await budget(s, "web", minAvailable=3)
        await asyncio.sleep(5)
        await maintain(s, "n1")
        await until_told(s, "maintain-n1", "DrainBlocked")
        for name in ("m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9"):
            s.cluster.add_node(name)
        await asyncio.sleep(30)
        for number in range(1, 10):
            await maintain(s, f"m{number}")
        for number in range(1, 10):
            await until_told(s, f"maintain-m{number}", "Drained", within=30)
        await end(s, "m9")
        await until_gone(s, "maintain-m9", within=10)

    play(scene)


def test_the_operators_own_definition_will_do_and_nothing_is_written_in_a_loop() -> None:
    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        theirs = maintenance_definition()
        (version,) = theirs["spec"]["versions"]
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        for ours in ("code", "sentence", "next", "blockers", "evacuated", "observedGeneration"):
            del status[ours]
        await s.client.create(DEFINITIONS, theirs)
        s.start_controller()
        await s.arm()
        await start_deployment(s, "web", 3)
        await budget(s, "web", minAvailable=3)
        await asyncio.sleep(30)
        await maintain(s, "n1")
        await asyncio.sleep(30)
        row = await maintenance(s, "maintain-n1")
        assert row is not None
        assert (row.status.phase, row.status.code) == ("Running", "")
        assert "its disruption budget default/web" in row.status.last_error
        assert "DrainBlocked" in await events(s, "maintain-n1")
        before = s.apps["backstay-1"].maintenance.book.writes
        await asyncio.sleep(300)
        assert s.apps["backstay-1"].maintenance.book.writes == before

    play(scene)


def test_while_somebody_keeps_uncordoning_nobody_is_evicted_to_come_back() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        await start_deployment(s, "web", 6)
        back: list[str] = []

        def heard(commit: Commit) -> None:
            spec = commit.after.object["spec"]
            if commit.before is not None and not commit.before.object["spec"].get("nodeName"):
                back.append(spec.get("nodeName", ""))

        await maintain(s, "n1")
        s.cluster.api.operations.store.follow_each([PODS.label], heard)
        for _ in range(10):
            await cordon(s, "n1", cordoned=False)
            await asyncio.sleep(0.5)
        await until_told(s, "maintain-n1", "Drained")
        assert back.count("n1") <= 1

    play(scene)


def test_the_pods_of_plugged_volumes_go_with_their_guest() -> None:
    async def scene(s: Scene) -> None:
        await set_up(s)
        for name in ("disk", "plugged"):
            await s.client.create(CLAIMS, claim(name, "ReadWriteMany"), namespace="default")
        await s.start_vms(
            "a", eviction_strategy="LiveMigrate", claims=["disk"], hotplug=["plugged"]
        )
        (node,) = s.copies("a")

        async def plugged() -> bool:
            return any(name.startswith("hp-volume") for name in await s.pods_on(node))

        await s.eventually(plugged)
        await maintain(s, node)
        row = await until_told(s, f"maintain-{node}", "Drained", within=300)
        assert s.copies("a") not in ([], [node])
        drain = s.apps["backstay-1"].maintenance.running[row.uid].drain
        assert drain.requests <= 4

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
