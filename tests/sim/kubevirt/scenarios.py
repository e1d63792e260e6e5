"""What was done in each recorded timeline, and where it ends. It runs against any ``Rig``.

A node with a running VM dies, after the scheduler was kept away from it. Then somebody does
something about it, at once: Kubernetes itself has not noticed yet.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from backstay.kube.resource import PODS
from backstay.sim.kubevirt.names import (
    ALWAYS,
    HALTED,
    MANUAL,
    MIGRATIONS,
    ONCE,
    RERUN_ON_FAILURE,
    VMIS,
    VMS,
)
from tests.sim.kubevirt.rig import VM, Json, Rig
from tests.sim.kubevirt.timeline import histories, milestones, recorded

A_WHILE = 1.5
"""Seconds in which whatever happens by itself has happened."""

ALWAYS_PASSING = (("Pod", "in 0 s"), ("VM", "False/GuestNotRunning"))
"""What is there for no longer than it takes to hear of it, and so may be missed."""

FORCED = (*ALWAYS_PASSING, ("VMI", "False/PodTerminating"), ("VM", "False/PodTerminating"))
"""The same for a pod that is gone as soon as it is told to go."""

STARTED_AT_ONCE = (*ALWAYS_PASSING, ("VM", "Stopped"))
"""The same where a VMI is replaced once it is gone. virt-controller makes the new one and says
``Starting`` as long as it has not heard of it. If it hears of it before it has come to the word, it
expects no start any more and sees no VMI either, and says ``Stopped`` for a moment. It does so half
of the time; neither in the recording nor in our stand-in does it."""

ENDED = (
    *FORCED,
    ("Pod", "in 40 s"),
    ("VM", "Stopping"),
    *(
        (kind, f"False/{why}")
        for kind in ("VM", "VMI")
        for why in ("GuestNotRunning", "PodNotExists")
    ),
)
"""The same on a node that lives. Guests there take no time to shut down, so that what is seen of it
on the way, and which of the reasons for not being ready, is a matter of luck."""


async def on_a_dead_node(rig: Rig, run_strategy: str, *, is_dead: bool = True) -> Json:
    """A VM whose node has just lost its power, or only its network; its VMI."""
    vmi = await _running(rig, run_strategy)
    node = rig.node_of(vmi)
    await rig.keep_scheduler_away(node.name)
    if is_dead:
        node.kill()
    else:
        node.cut_off()
    rig.recorder.begin()
    return vmi


def assert_as_recorded(
    rig: Rig, name: str, *, passing: tuple[tuple[str, str], ...] = ALWAYS_PASSING
) -> None:
    rows, truth = rig.recorder.rows, recorded(name)
    assert histories(rows, passing=passing) == histories(truth, passing=passing)
    assert milestones(rows) == milestones(truth)


def assert_as_recorded_on_a_living_node(rig: Rig, name: str) -> None:
    """Whether a pod or the word of how its guest ended is gone first, is luck there too."""
    rows, truth = rig.recorder.rows, recorded(name)
    assert histories(rows, passing=ENDED) == histories(truth, passing=ENDED)
    seen, known = (
        [each for each in milestones(some) if each != "Pod 1 gone"] for some in (rows, truth)
    )
    assert seen == known


async def assert_runs_elsewhere(rig: Rig, before: Json) -> None:
    vmi = await rig.until_running(after=before["metadata"]["uid"])
    assert vmi["status"]["nodeName"] != before["status"]["nodeName"]
    assert rig.copies() == [vmi["status"]["nodeName"]]


async def always_forced(rig: Rig) -> None:
    before = await on_a_dead_node(rig, ALWAYS)
    await rig.delete_pod(grace=0)
    await assert_runs_elsewhere(rig, before)
    await asyncio.sleep(A_WHILE)
    assert_as_recorded(rig, "always_forced", passing=FORCED)


async def always_terminating_then_forced(rig: Rig) -> None:
    before = await on_a_dead_node(rig, ALWAYS)
    await rig.delete_pod()
    await asyncio.sleep(A_WHILE)
    assert (await rig.read(VMIS))["status"]["phase"] == "Running"
    await rig.delete_pod(grace=0)
    await assert_runs_elsewhere(rig, before)
    await asyncio.sleep(A_WHILE)
    assert_as_recorded(rig, "always_terminating_then_forced")


async def rerun_on_failure_forced(rig: Rig) -> None:
    before = await on_a_dead_node(rig, RERUN_ON_FAILURE)
    await rig.delete_pod(grace=0)
    await assert_runs_elsewhere(rig, before)
    await asyncio.sleep(A_WHILE)
    assert_as_recorded(rig, "rerun_on_failure_forced", passing=FORCED)


async def rerun_on_failure_instance_deleted_first(rig: Rig) -> None:
    await on_a_dead_node(rig, RERUN_ON_FAILURE)
    await rig.delete_instance()
    await asyncio.sleep(A_WHILE)
    await rig.delete_pod(grace=0)
    await rig.until(VMS, lambda vm: not vm["status"].get("created"))
    await asyncio.sleep(A_WHILE)
    assert_as_recorded(rig, "rerun_on_failure_instance_deleted_first")
    assert (await rig.read(VMS))["status"]["printableStatus"] == "Stopped"
    assert rig.copies() == []


async def manual_forced(rig: Rig) -> None:
    await _stays_failed(rig, MANUAL, "manual_forced")


async def once_forced(rig: Rig) -> None:
    await _stays_failed(rig, ONCE, "once_forced")


async def _stays_failed(rig: Rig, run_strategy: str, name: str) -> None:
    before = await on_a_dead_node(rig, run_strategy)
    await rig.delete_pod(grace=0)
    await rig.until(VMIS, lambda vmi: not vmi["metadata"].get("finalizers"))
    await asyncio.sleep(A_WHILE)
    assert_as_recorded(rig, name, passing=FORCED)
    left = await rig.read(VMIS)
    assert left["metadata"]["uid"] == before["metadata"]["uid"]
    assert left["status"]["phase"] == "Failed"
    assert rig.copies() == []


async def always_instance_deleted(rig: Rig) -> None:
    await on_a_dead_node(rig, ALWAYS)
    await rig.delete_instance()
    await asyncio.sleep(A_WHILE)
    assert_as_recorded(rig, "always_instance_deleted")
    assert (await rig.read(VMS))["status"]["printableStatus"] == "Stopping"
    assert (await rig.launcher())["metadata"]["deletionGracePeriodSeconds"] == 40


async def always_finalizers_stripped(rig: Rig) -> None:
    before = await on_a_dead_node(rig, ALWAYS, is_dead=False)
    await rig.delete_instance()
    await asyncio.sleep(A_WHILE)
    await rig.strip_finalizers()
    after = await rig.until_running(after=before["metadata"]["uid"])
    await asyncio.sleep(A_WHILE)
    assert_as_recorded(rig, "always_finalizers_stripped", passing=STARTED_AT_ONCE)
    nodes = [vmi["status"]["nodeName"] for vmi in (before, after)]
    assert rig.copies() == sorted(nodes), "this is how a guest comes to run twice"
    assert len(await rig.listed(PODS)) == 2


# On nodes that live


async def always_guest_shut_down(rig: Rig) -> None:
    before = await _running(rig, ALWAYS)
    await rig.end_guest(code=0)
    await rig.until_running(after=before["metadata"]["uid"])
    await asyncio.sleep(A_WHILE)
    assert_as_recorded_on_a_living_node(rig, "always_guest_shut_down")


async def rerun_on_failure_guest_shut_down(rig: Rig) -> None:
    await _running(rig, RERUN_ON_FAILURE)
    await rig.end_guest(code=0)
    await rig.until(VMS, lambda vm: not vm["status"].get("created"))
    await asyncio.sleep(A_WHILE)
    assert_as_recorded_on_a_living_node(rig, "rerun_on_failure_guest_shut_down")


async def rerun_on_failure_guest_crashed(rig: Rig) -> None:
    before = await _running(rig, RERUN_ON_FAILURE)
    await rig.end_guest(code=1)
    await rig.until_running(after=before["metadata"]["uid"])
    await asyncio.sleep(A_WHILE)
    assert_as_recorded_on_a_living_node(rig, "rerun_on_failure_guest_crashed")


async def manual_guest_shut_down(rig: Rig) -> None:
    await _running(rig, MANUAL)
    await rig.end_guest(code=0)
    await rig.until(VMIS, lambda vmi: vmi["status"]["phase"] == "Succeeded")
    await asyncio.sleep(A_WHILE)
    assert_as_recorded_on_a_living_node(rig, "manual_guest_shut_down")


async def manual_started_again(rig: Rig) -> None:
    before = await on_a_dead_node(rig, MANUAL)
    await rig.delete_pod(grace=0)
    failed = await rig.until(VMIS, lambda vmi: not vmi["metadata"].get("finalizers"))
    await asyncio.sleep(A_WHILE)
    await rig.ask_for_start(failed)
    await assert_runs_elsewhere(rig, before)
    await asyncio.sleep(A_WHILE)
    assert_as_recorded(rig, "manual_started_again", passing=FORCED)


async def always_halted(rig: Rig) -> None:
    await _running(rig, ALWAYS)
    await rig.change_vm({"spec": {"runStrategy": HALTED}})
    await rig.until(VMS, lambda vm: not vm["status"].get("created"))
    await asyncio.sleep(A_WHILE)
    assert_as_recorded_on_a_living_node(rig, "always_halted")
    assert rig.copies() == []


async def always_instance_deleted_on_a_living_node(rig: Rig) -> None:
    before = await _running(rig, ALWAYS)
    await rig.delete_instance()
    await rig.until_running(after=before["metadata"]["uid"])
    await asyncio.sleep(A_WHILE)
    assert_as_recorded_on_a_living_node(rig, "always_instance_deleted_on_a_living_node")


async def vm_deleted(rig: Rig) -> None:
    await _running(rig, ALWAYS)
    await rig.client.delete(VMS, VM, namespace=rig.namespace)
    await rig.until_none(VMS)
    await asyncio.sleep(A_WHILE)
    assert_as_recorded_on_a_living_node(rig, "vm_deleted")
    assert await rig.listed(VMIS) == []
    assert await rig.listed(PODS) == []
    assert rig.copies() == []


async def never_ran(rig: Rig) -> None:
    """A VMI that ended without having run makes the next start wait."""
    for node in rig.nodes:
        await rig.keep_scheduler_away(node)
    await rig.create_vm(run_strategy=ALWAYS)
    await rig.until(VMIS, lambda vmi: (vmi.get("status") or {}).get("phase") == "Scheduling")
    await rig.delete_pod(grace=0)
    vm = await rig.until(VMS, lambda vm: "startFailure" in vm["status"])
    failure = vm["status"]["startFailure"]
    assert failure["consecutiveFailCount"] == 1
    await rig.until(VMS, lambda vm: vm["status"]["printableStatus"] == "CrashLoopBackOff")
    for node in rig.nodes:
        await rig.let_scheduler_in(node)
    vmi = await rig.until_running(after=failure["lastFailedVMIUID"])
    assert vmi["metadata"]["creationTimestamp"] >= failure["retryAfterTimestamp"]
    assert "startFailure" not in (await rig.read(VMS))["status"]


async def migrated(rig: Rig) -> None:
    before = await _running(rig, ALWAYS)
    move = await rig.migrate()
    done = await rig.until(MIGRATIONS, lambda each: _phase(each) == "Succeeded", move)
    entered = [each["phase"] for each in done["status"]["phaseTransitionTimestamps"]]
    assert entered == [
        "Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running",
        "Succeeded",
    ]  # fmt: skip
    after = await rig.read(VMIS)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["nodeName"] != before["status"]["nodeName"]
    await rig.truth.until(lambda: rig.copies() == [after["status"]["nodeName"]])


async def source_of_a_migration_dies(rig: Rig) -> None:
    """To take its launcher away is enough: KubeVirt ends the other one itself, and begins anew."""
    before = await _running(rig, ALWAYS)
    source = await rig.launcher()
    move = await rig.migrate()
    await rig.until(MIGRATIONS, lambda each: _phase(each) == "Running", move)
    await rig.keep_scheduler_away(before["status"]["nodeName"])
    rig.node_of(before).kill()
    target = (await rig.read(VMIS))["status"]["migrationState"]["targetPod"]
    await rig.remove_pod(source["metadata"]["name"])
    await rig.until_none(PODS, target)
    await rig.until_running(after=before["metadata"]["uid"])
    await rig.until_none(MIGRATIONS, move)
    assert len(rig.copies()) == 1


async def target_of_a_migration_dies(rig: Rig) -> None:
    """The guest runs on where it was."""
    before = await _running(rig, ALWAYS)
    move = await rig.migrate()
    await rig.until(MIGRATIONS, lambda each: _phase(each) == "Running", move)
    state = (await rig.read(VMIS))["status"]["migrationState"]
    rig.nodes[state["targetNode"]].kill()
    await rig.remove_pod(state["targetPod"])
    await rig.until(MIGRATIONS, lambda each: _phase(each) == "Failed", move)
    after = await rig.until(VMIS, lambda vmi: vmi["status"]["migrationState"].get("failed"))
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["nodeName"] == before["status"]["nodeName"]
    assert rig.copies() == [before["status"]["nodeName"]]


def _phase(obj: Json) -> str:
    return str((obj.get("status") or {}).get("phase") or "")


async def _running(rig: Rig, run_strategy: str) -> Json:
    await rig.create_vm(run_strategy=run_strategy)
    if run_strategy == MANUAL:
        await rig.ask_for_start()
    vmi = await rig.until_running()
    await asyncio.sleep(A_WHILE)
    rig.recorder.begin()
    return vmi


Scenario: TypeAlias = Callable[[Rig], Coroutine[Any, Any, None]]

SCENARIOS: tuple[Scenario, ...] = (
    always_forced,
    always_terminating_then_forced,
    rerun_on_failure_forced,
    rerun_on_failure_instance_deleted_first,
    manual_forced,
    once_forced,
    always_instance_deleted,
    always_finalizers_stripped,
    always_guest_shut_down,
    rerun_on_failure_guest_shut_down,
    rerun_on_failure_guest_crashed,
    manual_guest_shut_down,
    manual_started_again,
    always_halted,
    always_instance_deleted_on_a_living_node,
    vm_deleted,
    never_ran,
    migrated,
    source_of_a_migration_dies,
    target_of_a_migration_dies,
)
