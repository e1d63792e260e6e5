"""One failover, the whole way through, on an embedded cluster under virtual time."""

import asyncio
from typing import Any

import pytest

from backstay.apis.backstay import CONFIG_NAME, CONFIGS, CONFIRMATIONS
from backstay.decide import failover
from backstay.decide.failover import CHAIN, Check
from backstay.kube.resource import NODES, PODS
from backstay.model.incident import Progress
from backstay.model.labels import EXEMPT, PROTECT
from backstay.record.metrics import Stage
from backstay.sim.api.store import Commit, Stored
from tests.control.rig import FOUR, Scene, play, set_up, until_lost


def node_of(pod: Stored) -> str | None:
    spec: dict[str, Any] = pod.object["spec"]
    return spec.get("nodeName")


def without(*checks: Check) -> tuple[Check, ...]:
    return tuple(check for check in CHAIN if check not in checks)


def test_without_proof_nothing_is_deleted_and_everything_is_said() -> None:
    async def scene(s: Scene) -> None:
        victim = await set_up(s, *FOUR)
        s.cluster.nodes[victim].kill()
        before = await s.pods_on(victim)
        await asyncio.sleep(900)
        assert await s.pods_on(victim) == before
        assert not await s.is_tainted(victim)
        status = (await s.incident()).status
        assert (status.state, status.held) == ("Lost", 4)
        assert {record.code for record in status.workloads} == {"ProofMissing"}
        assert (
            status.next == f"make sure that {victim} is off, then: backstay confirm-dead {victim}"
        )

    play(scene)


def test_a_confirmed_death_brings_every_vm_and_replica_up_elsewhere() -> None:
    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        await s.start_stateful_set("db", 3)
        await s.start_vms(*FOUR)
        s.start_controller()
        await s.arm()
        await asyncio.sleep(30)
        victim = s.copies("a")[0]
        replicas = [n for n in range(3) if s.truth.copies("default", f"db-{n}") == [victim]]
        s.cluster.nodes[victim].kill()
        await until_lost(s, victim)
        await s.confirm_dead(victim)
        await s.until(
            lambda: (
                all(len(s.copies(vm)) == 1 for vm in FOUR)
                and all(len(s.truth.copies("default", f"db-{n}")) == 1 for n in replicas)
            ),
            timeout=420,
        )
        assert replicas
        assert victim not in {node for vm in FOUR for node in s.copies(vm)}
        await asyncio.sleep(10)
        status = (await s.incident()).status
        assert status.state == "Recovered"
        assert {record.progress for record in status.workloads} == {Progress.RECOVERED}

    assert play(scene).doubles == []


def test_a_confirmation_right_after_the_death_puts_nothing_back_on_the_dead_node() -> None:
    """Kubernetes has not noticed yet: its scheduler still takes the node for a good one."""

    async def scene(s: Scene) -> None:
        victim = await set_up(s, *FOUR)
        put_back: list[str] = []

        def look(commit: Commit) -> None:
            here = commit.storage == "pods" and node_of(commit.after) == victim
            if here and (commit.before is None or node_of(commit.before) != victim):
                put_back.append(str(commit.after.key))

        s.cluster.nodes[victim].kill()
        await asyncio.sleep(5)
        s.cluster.api.store.follow(None, look)
        await s.confirm_dead(victim)
        await s.until(lambda: all(len(s.copies(vm)) == 1 for vm in FOUR), timeout=40)
        live = (await s.client.get(NODES, victim)).json()
        ready = [c["status"] for c in live["status"]["conditions"] if c["type"] == "Ready"]
        assert ready == ["True"]
        assert put_back == []

    assert play(scene).doubles == []


def test_a_cut_off_node_that_heals_after_a_wrong_confirmation_keeps_everything() -> None:
    async def scene(s: Scene) -> None:
        victim = await set_up(s, *FOUR)
        node = s.cluster.nodes[victim]
        node.cut_off()
        await asyncio.sleep(8)
        before = await s.pods_on(victim)
        await s.confirm_dead(victim)
        node.heal()
        await asyncio.sleep(300)
        assert await s.pods_on(victim) == before
        assert not await s.is_tainted(victim)
        assert s.copies("a") == [victim]

    assert play(scene).doubles == []


def test_life_after_the_confirmation_contradicts_it_and_stops_everything() -> None:
    async def scene(s: Scene) -> None:
        victim = await set_up(s, *FOUR, armed=False)
        node = s.cluster.nodes[victim]
        node.cut_off()
        await until_lost(s, victim)
        before = await s.pods_on(victim)
        await s.confirm_dead(victim)
        await asyncio.sleep(5)
        node.heal()
        await asyncio.sleep(15)
        await s.arm()
        await asyncio.sleep(60)
        status = (await s.incident()).status
        assert status.code == "EvidenceContradicted"
        assert status.next == (
            f"backstay confirm-dead {victim} --withdraw, "
            f"and once it is off: backstay confirm-dead {victim}"
        )
        assert await s.pods_on(victim) == before

    assert play(scene).doubles == []


def test_a_reboot_between_evidence_and_removal_makes_no_second_copy() -> None:
    """The barrier: what is marked is never started again, whatever boots there."""

    async def scene(s: Scene) -> None:
        victim = await set_up(s, *FOUR)
        node = s.cluster.nodes[victim]
        rebooted: list[float] = []

        def at_the_first_mark(commit: Commit) -> None:
            marked = "deletionTimestamp" in commit.after.object["metadata"]
            if commit.storage == "pods" and marked and not rebooted:
                rebooted.append(s.world.now)
                node.reboot()

        node.kill()
        await until_lost(s, victim)
        s.cluster.api.store.follow(None, at_the_first_mark)
        await s.confirm_dead(victim)
        await s.until(lambda: all(len(s.copies(vm)) == 1 for vm in FOUR), timeout=200)
        assert rebooted

    for seed in range(1, 9):
        assert play(scene, seed=seed).doubles == []


def test_while_observing_everything_is_said_and_nothing_is_changed() -> None:
    async def scene(s: Scene) -> None:
        victim = await set_up(s, *FOUR, armed=False)
        s.cluster.nodes[victim].kill()
        await until_lost(s, victim)
        before = await s.pods_on(victim)
        await s.confirm_dead(victim)
        await asyncio.sleep(120)
        assert await s.pods_on(victim) == before
        assert not await s.is_tainted(victim)
        status = (await s.incident()).status
        assert {record.code for record in status.workloads} == {"Observing"}

    play(scene)


def test_a_disarmed_controller_holds_until_it_is_armed_again() -> None:
    async def scene(s: Scene) -> None:
        victim = await set_up(s, "a", armed=False)
        await s.arm(disarmed={"until": "2040-01-01T00:00:00Z", "reason": "moving racks"})
        s.cluster.nodes[victim].kill()
        await until_lost(s, victim)
        await s.confirm_dead(victim)
        await asyncio.sleep(60)
        assert s.copies("a") == []
        [record] = (await s.incident()).status.workloads
        assert (record.code, "moving racks" in record.sentence) == ("Disarmed", True)
        await s.client.merge_patch(CONFIGS, CONFIG_NAME, {"spec": {"disarmed": None}})
        await s.until(lambda: len(s.copies("a")) == 1, timeout=30)

    play(scene)


def test_a_withdrawn_confirmation_no_longer_counts() -> None:
    async def scene(s: Scene) -> None:
        victim = await set_up(s, "a", armed=False)
        s.cluster.nodes[victim].kill()
        await until_lost(s, victim)
        await s.confirm_dead(victim)
        await asyncio.sleep(10)
        await s.client.delete(CONFIRMATIONS, victim)
        await s.arm()
        await asyncio.sleep(60)
        assert s.copies("a") == []
        [record] = (await s.incident()).status.workloads
        assert record.code == "ProofMissing"

    play(scene)


def test_a_kubelet_that_died_alone_costs_no_guest_anything() -> None:
    """Virt-handler lives: whoever says that the node is dead is wrong."""

    async def scene(s: Scene) -> None:
        victim = await set_up(s, *FOUR)
        s.cluster.nodes[victim].kill_kubelet()
        await until_lost(s, victim)
        before = await s.pods_on(victim)
        # Long enough for virt-handler's heartbeat, which comes once in one or two minutes.
        await asyncio.sleep(150)
        await s.confirm_dead(victim)
        await asyncio.sleep(200)
        assert await s.pods_on(victim) == before
        assert s.copies("a") == [victim]
        codes = {record.code for record in (await s.incident()).status.workloads}
        assert codes <= {"GuestAliveKubeletDead", "EvidenceContradicted"}

    assert play(scene).doubles == []


def test_what_is_not_to_be_touched_is_left_alone() -> None:
    async def scene(s: Scene) -> None:
        victim = await set_up(s, "a", "b")
        label = {"metadata": {"labels": {PROTECT: "false"}}}
        [pod] = [name for name in await s.pods_on(victim) if "-b-" in name]
        await s.client.merge_patch(PODS, pod, label, namespace="default")
        s.cluster.nodes[victim].kill()
        await until_lost(s, victim)
        await s.confirm_dead(victim)
        await s.until(lambda: len(s.copies("a")) == 1, timeout=30)
        await asyncio.sleep(30)
        assert await s.pods_on(victim) == [pod]

    play(scene)


def test_an_exempt_node_is_left_to_its_owner() -> None:
    async def scene(s: Scene) -> None:
        victim = await set_up(s, "a")
        await s.client.merge_patch(NODES, victim, {"metadata": {"labels": {EXEMPT: "true"}}})
        s.cluster.nodes[victim].kill()
        await until_lost(s, victim)
        await s.confirm_dead(victim)
        await asyncio.sleep(60)
        assert s.copies("a") == []
        assert not await s.is_tainted(victim)

    play(scene)


@pytest.mark.parametrize(
    ("strategy", "helps"),
    [("Manual", "virtctl start x -n default"), ("Once", "kubectl delete vmi x -n default")],
)
def test_a_vm_that_nobody_starts_again_is_said_to_stay_down(strategy: str, helps: str) -> None:
    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        await s.start_vms("always")
        await s.start_vm_by_hand("x", run_strategy=strategy)
        s.start_controller()
        await s.arm()
        await asyncio.sleep(30)
        victim = s.copies("x")[0]
        s.cluster.nodes[victim].kill()
        await until_lost(s, victim)
        await s.confirm_dead(victim)
        await asyncio.sleep(30)
        [record] = [r for r in (await s.incident()).status.workloads if r.workload.endswith("/x")]
        assert record.progress is Progress.STAYS_DOWN
        assert record.next == helps

    play(scene)


def test_our_taint_goes_when_the_node_is_back_and_other_taints_stay() -> None:
    async def scene(s: Scene) -> None:
        victim = await set_up(s, "a")
        theirs = {"key": "example.com/theirs", "effect": "NoSchedule", "value": "kept"}
        await s.client.merge_patch(NODES, victim, {"spec": {"taints": [theirs]}})
        s.cluster.nodes[victim].kill()
        await until_lost(s, victim)
        await s.confirm_dead(victim)
        await s.until(lambda: len(s.copies("a")) == 1, timeout=30)
        assert await s.is_tainted(victim)
        s.cluster.nodes[victim].reboot()
        await asyncio.sleep(60)
        assert not await s.is_tainted(victim)
        live = (await s.client.get(NODES, victim)).json()
        assert live["spec"]["taints"] == [theirs]
        assert (await s.incident()).status.closed_at

    play(scene)


def test_a_node_that_returns_in_the_same_boot_keeps_our_taint_for_a_while() -> None:
    async def scene(s: Scene) -> None:
        victim = await set_up(s, "a")
        node = s.cluster.nodes[victim]
        node.cut_off()
        await until_lost(s, victim)
        await s.confirm_dead(victim)
        await s.until(lambda: len(s.copies("a")) == 2, timeout=30)  # the wrong word of a person
        node.heal()
        await asyncio.sleep(20)
        assert await s.is_tainted(victim)
        assert len(s.copies("a")) == 1
        await asyncio.sleep(60)
        assert not await s.is_tainted(victim)

    play(scene)


def test_a_silent_api_is_no_dead_node() -> None:
    """When the API was away, every lease is old. Nobody is suspected for it."""

    async def scene(s: Scene) -> None:
        await set_up(s, *FOUR)
        s.cluster.control_plane.kill("api")
        await asyncio.sleep(120)
        s.cluster.control_plane.start("api")
        await asyncio.sleep(60)
        assert await s.incidents() == 0

    play(scene)


def test_a_controller_that_sees_nobody_renew_trusts_itself_least() -> None:
    """Most nodes silent at once: it is we who are deaf, until shown otherwise."""

    async def scene(s: Scene) -> None:
        victim = await set_up(s, *FOUR)
        for node in s.cluster.nodes.values():
            node.cut_off()
        await until_lost_any(s)
        await s.confirm_dead(victim)
        await asyncio.sleep(60)
        assert not await s.is_tainted(victim)

    assert play(scene).doubles == []


async def until_lost_any(scene: Scene) -> None:
    async def some() -> bool:
        return await scene.incidents() >= 3

    await scene.eventually(some)


# Each check is needed: without it, the disaster that it is there for happens


def test_without_the_check_for_proof_a_cut_off_node_is_robbed() -> None:
    """The chain alone is not all: the guard removes nothing for which there is no evidence."""

    async def scene(s: Scene) -> None:
        victim = await set_up(s, "a", chain=without(failover.is_it_proven))
        s.cluster.nodes[victim].cut_off()
        await until_lost(s, victim)
        await asyncio.sleep(60)
        marked = (await s.client.list(PODS, fields=f"spec.nodeName={victim}")).json()["items"]
        assert [bool(pod["metadata"].get("deletionTimestamp")) for pod in marked] == [True]
        assert s.copies("a") == [victim]

    play(scene)


def test_without_the_check_for_a_living_guest_it_is_marked_although_it_runs() -> None:
    async def scene(s: Scene) -> None:
        checks = (
            failover.is_guest_alive,
            failover.does_node_answer,
            failover.is_evidence_contradicted,
            failover.is_it_proven,
        )
        victim = await set_up(s, "a", chain=without(*checks))
        s.cluster.nodes[victim].kill_kubelet()
        await until_lost(s, victim)

        async def is_marked() -> bool:
            [pod] = (await s.client.list(PODS, fields=f"spec.nodeName={victim}")).json()["items"]
            return "deletionTimestamp" in pod["metadata"]

        await s.eventually(is_marked)
        assert s.copies("a") == [victim]

    play(scene)


def test_the_stages_of_a_failover_are_measured() -> None:
    async def scene(s: Scene) -> None:
        victim = await set_up(s, *FOUR)
        s.cluster.nodes[victim].kill()
        await until_lost(s, victim)
        await s.confirm_dead(victim)
        await s.until(lambda: all(len(s.copies(vm)) == 1 for vm in FOUR), timeout=30)
        await asyncio.sleep(5)
        stages = s.apps["backstay-1"].measured.stages
        assert [stages.count(stage.value) for stage in Stage] == [1, 1, 1, 1, 4, 4]
        status = (await s.incident()).status
        assert [each.stage for each in status.stages] == ["detect", "prove", "barrier", "removal"]
        until_released = sum(each.seconds for each in status.stages)
        for record in status.workloads:
            assert record.ready
            assert record.released_after == pytest.approx(until_released, abs=0.3)
            assert record.released_after is not None
            assert record.running_after is not None
            assert record.ready_after is not None
            assert record.released_after < record.running_after <= record.ready_after
            assert [each.phase for each in record.phases][-1] == "Running"
        codes = [moment.code for moment in status.timeline]
        assert codes.index("Recovered") < codes.index("ReadyAgain")

    play(scene)


def test_a_second_incident_does_not_inherit_the_seconds_of_the_first() -> None:
    async def scene(s: Scene) -> None:
        victim = await set_up(s, "a")
        node = s.cluster.nodes[victim]
        node.cut_off()
        await until_lost(s, victim)
        await s.confirm_dead(victim)
        await s.until(lambda: len(s.copies("a")) == 2, timeout=60)
        node.heal()

        async def is_over() -> bool:
            return bool((await s.incident()).status.closed_at)

        await s.eventually(is_over)
        assert len((await s.incident()).status.stages) == 4
        node.kill()

        async def is_another() -> bool:
            return await s.incidents() == 2

        await s.eventually(is_another)
        await asyncio.sleep(5)
        [stage] = (await s.incident()).status.stages
        assert stage.stage == "detect"

    play(scene)


def test_a_virt_handler_that_outlived_its_kubelet_and_then_died_holds_nobody_for_ever() -> None:
    async def scene(s: Scene) -> None:
        victim = await set_up(s, *FOUR)
        node = s.cluster.nodes[victim]
        node.kill_kubelet()
        await until_lost(s, victim)
        await asyncio.sleep(150)
        node.kill()
        await s.confirm_dead(victim)
        await asyncio.sleep(20)
        codes = {record.code for record in (await s.incident()).status.workloads}
        assert codes == {"GuestAliveKubeletDead"}
        await s.until(lambda: all(len(s.copies(vm)) == 1 for vm in FOUR), timeout=180)

    assert play(scene).doubles == []
