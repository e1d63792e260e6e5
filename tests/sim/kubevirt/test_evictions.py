"""Evictions of guests' pods: virt-api's answers, and what follows from them.

The words and the order are those that a real virt-api and virt-controller 1.9 were seen to use.
"""

import asyncio

import pytest

from backstay.kube.errors import TooManyRequests
from backstay.kube.resource import PODS
from backstay.sim.kubevirt import Copying
from backstay.sim.kubevirt.names import EVACUATION, MIGRATION_JOB, MIGRATIONS, VMIS
from backstay.sim.kubevirt.objects import has_condition
from tests.sim.kubevirt.rig import VM, Json, Rig, in_memory

WEBHOOK = 'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: '
TRIGGERED = 'Eviction triggered evacuation of VMI "default/vm"'
IN_PROGRESS = f"Evacuation in progress: {TRIGGERED}"
STUCK = "VMI vm is configured with an eviction strategy but is not live-migratable"

ANSWERS = {
    ("LiveMigrate", True): TRIGGERED,
    ("LiveMigrate", False): STUCK,
    ("LiveMigrateIfPossible", True): TRIGGERED,
    ("LiveMigrateIfPossible", False): "",
    ("External", True): TRIGGERED,
    ("None", True): "",
    (None, True): "",
}
LONG = Copying(seconds=30.0)


async def start(rig: Rig, strategy: str | None, *, migratable: bool = True) -> Json:
    await rig.create_claim("disk", "ReadWriteMany" if migratable else "ReadWriteOnce")
    return await rig.start_vm(claims=["disk"], eviction_strategy=strategy)


async def evict(rig: Rig, pod: Json, *, dry_run: bool = False) -> str:
    """KubeVirt's refusal; empty if the pod may go."""
    refusal = await refused(rig, pod, dry_run=dry_run)
    return "" if refusal is None else refusal.status.message.removeprefix(WEBHOOK)


async def refused(rig: Rig, pod: Json, *, dry_run: bool = False) -> TooManyRequests | None:
    name = pod["metadata"]["name"]
    try:
        await rig.client.evict(name, namespace=rig.namespace, dry_run=dry_run)
    except TooManyRequests as refusal:
        return refusal
    return None


async def first_migration(rig: Rig) -> Json:
    async with asyncio.timeout(60):
        while not (found := await rig.listed(MIGRATIONS)):  # noqa: ASYNC110 - it has no name yet
            await asyncio.sleep(0.1)
    return found[0]


@pytest.mark.parametrize(("strategy", "migratable"), ANSWERS)
def test_the_answer_is_a_matter_of_the_strategy(strategy: str | None, migratable: bool) -> None:
    async def scenario(rig: Rig) -> None:
        await start(rig, strategy, migratable=migratable)
        assert await evict(rig, await rig.launcher()) == ANSWERS[strategy, migratable]

    in_memory(scenario)


def test_a_refusal_has_nothing_of_a_budgets() -> None:
    async def scenario(rig: Rig) -> None:
        await start(rig, "LiveMigrate")
        refusal = await refused(rig, await rig.launcher())
        assert refusal is not None
        assert (refusal.reason, refusal.retry_after, refusal.causes) == ("", None, ())

    in_memory(scenario)


@pytest.mark.parametrize(("strategy", "migratable"), ANSWERS)
def test_a_dry_run_gets_the_same_answer_and_nothing_else(
    strategy: str | None, migratable: bool
) -> None:
    async def scenario(rig: Rig) -> None:
        before = await start(rig, strategy, migratable=migratable)
        pod = await rig.launcher()
        assert await evict(rig, pod, dry_run=True) == ANSWERS[strategy, migratable]
        await asyncio.sleep(30)
        assert (await rig.read(VMIS))["status"] == before["status"]
        assert (await rig.launcher())["metadata"] == pod["metadata"]
        assert await rig.listed(MIGRATIONS) == []

    in_memory(scenario)


def test_a_guest_that_is_not_to_be_evicted_is_moved() -> None:
    async def scenario(rig: Rig) -> None:
        before = await start(rig, "LiveMigrate")
        node = before["status"]["nodeName"]
        await evict(rig, await rig.launcher())
        marked = await rig.until(
            VMIS, lambda vmi: has_condition(vmi, "EvictionRequested", "True", "EvictionRequested")
        )
        assert marked["status"]["evacuationNodeName"] == node
        move = await first_migration(rig)
        assert move["metadata"]["name"].startswith("kubevirt-evacuation-")
        assert move["metadata"]["annotations"][EVACUATION] == node
        assert move["spec"]["priority"] == "system-critical"
        after = await rig.until(
            VMIS,
            lambda vmi: (
                vmi["status"]["nodeName"] != node
                and "evacuationNodeName" not in vmi["status"]
                and not has_condition(vmi, "EvictionRequested", "True")
            ),
        )
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        await asyncio.sleep(60)
        assert len(await rig.listed(MIGRATIONS)) == 1, "once is enough"

    in_memory(scenario)


def test_while_it_is_moved_both_of_its_pods_stay() -> None:
    async def scenario(rig: Rig) -> None:
        await start(rig, "LiveMigrate")
        await evict(rig, await rig.launcher())
        move = (await first_migration(rig))["metadata"]["name"]
        await rig.until(MIGRATIONS, lambda each: each["status"]["phase"] == "Running", move)
        pods = await rig.listed(PODS, "kubevirt.io=virt-launcher")
        assert [await evict(rig, pod) for pod in pods] == [IN_PROGRESS] * 2

    in_memory(scenario, copying=LONG)


def test_the_target_of_a_migration_by_hand_is_not_evicted() -> None:
    async def scenario(rig: Rig) -> None:
        await start(rig, "LiveMigrate")
        move = await rig.migrate()
        await rig.until(MIGRATIONS, lambda each: each.get("status", {}).get("phase") == "Running",
                        move)  # fmt: skip
        (target,) = await rig.listed(PODS, MIGRATION_JOB)
        assert await evict(rig, target) == "Eviction request for target Pod"

    in_memory(scenario, copying=LONG)


def test_what_others_are_to_move_is_only_marked() -> None:
    async def scenario(rig: Rig) -> None:
        before = await start(rig, "External")
        await evict(rig, await rig.launcher())
        await rig.until(VMIS, lambda vmi: has_condition(vmi, "EvictionRequested", "True"))
        await asyncio.sleep(60)
        assert await rig.listed(MIGRATIONS) == []
        assert await evict(rig, await rig.launcher()) == IN_PROGRESS
        assert (await rig.read(VMIS))["status"]["nodeName"] == before["status"]["nodeName"]

    in_memory(scenario)


def test_a_guest_that_may_go_is_stopped_and_started_again() -> None:
    async def scenario(rig: Rig) -> None:
        before = await start(rig, "None")
        assert await evict(rig, await rig.launcher()) == ""
        after = await rig.until_running(after=before["metadata"]["uid"])
        assert len(rig.copies()) == 1
        assert after["metadata"]["uid"] != before["metadata"]["uid"]

    in_memory(scenario)


def test_a_launcher_that_is_over_may_go() -> None:
    async def scenario(rig: Rig) -> None:
        before = await start(rig, "LiveMigrate")
        old = (await rig.launcher())["metadata"]["name"]
        await evict(rig, await rig.launcher())
        await rig.until(VMIS, lambda vmi: vmi["status"]["nodeName"] != before["status"]["nodeName"])
        over = await rig.until(PODS, lambda pod: pod["status"]["phase"] == "Succeeded", old)
        assert await evict(rig, over) == ""
        await rig.until_none(PODS, old)

    in_memory(scenario)


def test_a_pod_with_plugged_volumes_of_a_guest_is_not_evicted() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_claim("extra")
        await rig.start_vm(hotplug=["extra"])
        await rig.until(VMIS, lambda vmi: vmi["status"]["volumeStatus"][0].get("phase") == "Ready")
        (pod,) = await rig.listed(PODS, "kubevirt.io=hotplug-disk")
        name = pod["metadata"]["name"]
        assert await evict(rig, pod) == (
            'admission webhook "hotplug-pod-eviction-interceptor.kubevirt.io" denied the request: '
            f"cannot evict hotplug pod: {name} associated with running vmi: {VM} in namespace "
            "default"
        )

    in_memory(scenario)


def test_after_a_failure_the_next_evacuation_waits_twenty_seconds() -> None:
    async def scenario(rig: Rig) -> None:
        before = await start(rig, "LiveMigrate")
        await evict(rig, await rig.launcher())
        first = (await first_migration(rig))["metadata"]["name"]
        await rig.until(MIGRATIONS, lambda each: each["status"]["phase"] == "Running", first)
        (target,) = await rig.listed(PODS, MIGRATION_JOB)
        await rig.keep_scheduler_away(target["spec"]["nodeName"])
        rig.nodes[target["spec"]["nodeName"]].freeze()
        loop = asyncio.get_running_loop()
        removed = loop.time()
        await rig.client.delete(
            PODS, target["metadata"]["name"], namespace=rig.namespace, conditions={"grace": 0}
        )
        await rig.until(MIGRATIONS, lambda each: each["status"]["phase"] == "Failed", first)
        await asyncio.sleep(1)
        (second,) = [m for m in await rig.listed(MIGRATIONS) if m["metadata"]["name"] != first]
        assert second["status"]["phase"] == "Pending", "it is made at once"
        await rig.until(
            MIGRATIONS,
            lambda each: each["status"]["phase"] == "Scheduling",
            second["metadata"]["name"],
        )
        assert 18 < loop.time() - removed < 22
        vmi = await rig.until(
            VMIS, lambda vmi: vmi["status"]["nodeName"] != before["status"]["nodeName"]
        )
        assert vmi["metadata"]["uid"] == before["metadata"]["uid"]

    in_memory(scenario, copying=Copying(seconds=3.0))


def test_the_taint_of_a_drain_moves_all_that_can_be_moved() -> None:
    async def scenario(rig: Rig) -> None:
        before = await start(rig, "LiveMigrate")
        node = before["status"]["nodeName"]
        taint = {"key": "kubevirt.io/drain", "effect": "NoSchedule"}
        await rig.taint(node, taint)
        await rig.until(VMIS, lambda vmi: vmi["status"]["nodeName"] != node)

    in_memory(scenario)
