"""Live migration: the ordinary one, and those of which one end dies."""

import asyncio

import pytest

from backstay.kube.resource import PODS
from backstay.sim.kubevirt import Copying
from backstay.sim.kubevirt.names import MIGRATION_JOB, MIGRATIONS, VMIS, VMS
from tests.sim.kubevirt.rig import Json, Rig, in_memory

DISK = "disk"
LONG = Copying(seconds=30.0)
BEHIND = Copying(seconds=5.0, behind=30.0)


async def start(rig: Rig) -> Json:
    await rig.create_claim(DISK)
    return await rig.start_vm(claims=[DISK])


async def until_phase(rig: Rig, migration: str, phase: str) -> Json:
    return await rig.until(
        MIGRATIONS, lambda each: (each.get("status") or {}).get("phase") == phase, migration
    )


async def until_copied(rig: Rig, migration: str) -> Json:
    """Until the source has begun; the VMI."""
    await until_phase(rig, migration, "Running")
    return await rig.read(VMIS)


async def ends(rig: Rig) -> dict[str, Json]:
    """The launchers, by whether they are the source or the target of a migration."""
    pods = await rig.listed(PODS, "kubevirt.io=virt-launcher")
    return {
        "target" if MIGRATION_JOB in pod["metadata"]["labels"] else "source": pod for pod in pods
    }


async def remove(rig: Rig, pod: Json) -> None:
    name = pod["metadata"]["name"]
    await rig.client.delete(PODS, name, namespace=rig.namespace, conditions={"grace": 0})


def writers(rig: Rig) -> list[str]:
    """The nodes from which something can be written to the disk."""
    (volume,) = {volume for run in rig.truth.running() for volume in run.volumes}
    return [run.node for run in rig.truth.writers(volume)]


def test_a_guest_is_moved_to_another_node() -> None:
    async def scenario(rig: Rig) -> None:
        before = await start(rig)
        source = before["status"]["nodeName"]
        await until_phase(rig, await rig.migrate(), "Succeeded")
        after = await rig.until(VMIS, lambda vmi: vmi["status"]["nodeName"] != source)
        assert after["metadata"]["uid"] == before["metadata"]["uid"], "it was not started anew"
        assert after["status"]["phase"] == "Running"
        await rig.until(VMIS, lambda vmi: MIGRATION_JOB not in vmi["metadata"]["labels"])
        assert writers(rig) == [after["status"]["nodeName"]]
        await rig.truth.until(lambda: rig.copies() == [after["status"]["nodeName"]])

    in_memory(scenario)


def test_a_migration_goes_through_its_phases() -> None:
    async def scenario(rig: Rig) -> None:
        await start(rig)
        done = await until_phase(rig, await rig.migrate(), "Succeeded")
        entered = [each["phase"] for each in done["status"]["phaseTransitionTimestamps"]]
        assert entered == [
            "Pending",
            "Scheduling",
            "Scheduled",
            "PreparingTarget",
            "TargetReady",
            "Running",
            "Succeeded",
        ]

    in_memory(scenario)


def test_the_launcher_that_was_left_stays_as_one_that_is_over() -> None:
    async def scenario(rig: Rig) -> None:
        await start(rig)
        await until_phase(rig, await rig.migrate(), "Succeeded")
        old = (await ends(rig))["source"]["metadata"]
        over = await rig.until(PODS, lambda pod: pod["status"]["phase"] == "Succeeded", old["name"])
        vmi = await rig.read(VMIS)
        assert over["metadata"]["uid"] in vmi["status"]["activePods"]
        assert len(vmi["status"]["activePods"]) == 2

    in_memory(scenario)


def test_at_no_moment_does_a_guest_write_from_both_ends() -> None:
    async def scenario(rig: Rig) -> None:
        await start(rig)
        most = 0

        def count(_: object) -> None:
            nonlocal most
            most = max(most, len(writers(rig)))

        rig.truth.follow(count)
        await until_phase(rig, await rig.migrate(), "Succeeded")
        await asyncio.sleep(10)
        assert most == 1

    in_memory(scenario)


def test_a_vm_says_that_it_is_being_moved() -> None:
    async def scenario(rig: Rig) -> None:
        await start(rig)
        await rig.migrate()
        await rig.until(VMS, lambda vm: vm["status"]["printableStatus"] == "Migrating")
        await rig.until(VMS, lambda vm: vm["status"]["printableStatus"] == "Running")

    in_memory(scenario)


def test_two_migrations_of_one_guest_do_not_run_at_once() -> None:
    async def scenario(rig: Rig) -> None:
        await start(rig)
        first = await rig.migrate()
        await until_copied(rig, first)
        await until_phase(rig, await rig.migrate(), "Failed")
        await until_phase(rig, first, "Succeeded")

    in_memory(scenario, copying=LONG)


def test_no_more_than_two_guests_leave_a_node_at_once() -> None:
    async def scenario(rig: Rig) -> None:
        names = ["a", "b", "c"]
        for name in names:
            await rig.create_claim(name)
        for node in ("n2", "n3"):
            await rig.keep_scheduler_away(node)
        for name in names:
            await rig.start_vm(name, claims=[name])
        for node in ("n2", "n3"):
            await rig.let_scheduler_in(node)
        moves = [await rig.migrate(name) for name in names]
        # A target is ready after some 15 s, and its guest arrives half a minute later.
        await asyncio.sleep(30.0)
        phases = [(await rig.read(MIGRATIONS, move))["status"]["phase"] for move in moves]
        assert sorted(phases) == ["Pending", "Running", "Running"]
        for move in moves:
            await until_phase(rig, move, "Succeeded")

    in_memory(scenario, copying=LONG)


def test_a_guest_that_has_no_node_yet_is_moved_once_it_runs() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_claim(DISK)
        for node in ("n1", "n2", "n3"):
            await rig.keep_scheduler_away(node)
        await rig.create_vm(claims=[DISK])
        await rig.until(VMIS, lambda vmi: (vmi.get("status") or {}).get("phase") == "Scheduling")
        move = await rig.migrate()
        await asyncio.sleep(10.0)
        assert (await rig.read(MIGRATIONS, move))["status"]["phase"] == "Pending"
        for node in ("n1", "n2", "n3"):
            await rig.let_scheduler_in(node)
        await until_phase(rig, move, "Succeeded")

    in_memory(scenario)


# A dead source


def test_taking_the_launcher_from_a_dead_source_is_enough() -> None:
    async def scenario(rig: Rig) -> None:
        before = await start(rig)
        move = await rig.migrate()
        await until_copied(rig, move)
        pods = await ends(rig)
        await rig.keep_scheduler_away(before["status"]["nodeName"])
        rig.node_of(before).kill()
        await remove(rig, pods["source"])
        await until_phase(rig, move, "Failed")
        await rig.until_none(PODS, pods["target"]["metadata"]["name"])
        after = await rig.until_running(after=before["metadata"]["uid"])
        await rig.until_none(MIGRATIONS, move)
        assert writers(rig) == [after["status"]["nodeName"]]

    in_memory(scenario, copying=LONG)


def test_nothing_happens_by_itself_when_the_source_dies() -> None:
    """Kubernetes marks the launcher; it is there for ever, and the migration with it."""

    async def scenario(rig: Rig) -> None:
        before = await start(rig)
        move = await rig.migrate()
        await until_copied(rig, move)
        rig.node_of(before).kill()
        await asyncio.sleep(900)
        assert (await rig.read(VMIS))["status"]["phase"] == "Running"
        assert (await rig.read(MIGRATIONS, move))["status"]["phase"] == "Running"
        assert writers(rig) == [], "the guest never came to the target"

    in_memory(scenario, copying=LONG)


def test_a_source_that_dies_when_the_guest_has_gone_does_not_matter() -> None:
    async def scenario(rig: Rig) -> None:
        before = await start(rig)
        source = rig.node_of(before)
        target = (await until_copied(rig, await rig.migrate()))["status"]["migrationState"][
            "targetNode"
        ]
        await rig.truth.until(lambda: writers(rig) == [target], timeout=60)
        source.kill()
        after = await rig.until(VMIS, lambda vmi: vmi["status"]["nodeName"] == target)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]

    in_memory(scenario)


# A dead target


def test_taking_the_launcher_from_a_dead_target_fails_the_migration_at_once() -> None:
    async def scenario(rig: Rig) -> None:
        before = await start(rig)
        move = await rig.migrate()
        await until_copied(rig, move)
        pod = (await ends(rig))["target"]
        # So that nobody but the API has anything to say about it.
        rig.nodes[pod["spec"]["nodeName"]].freeze()
        await remove(rig, pod)
        await until_phase(rig, move, "Failed")
        vmi = await rig.until(VMIS, lambda vmi: vmi["status"]["migrationState"].get("failed"))
        assert vmi["status"]["migrationState"]["failureReason"] == "Target pod is down"
        assert vmi["status"]["nodeName"] == before["status"]["nodeName"]
        assert writers(rig) == [before["status"]["nodeName"]]

    in_memory(scenario, copying=LONG)


@pytest.mark.parametrize("fault", ["kill", "cut_off"])
def test_a_guest_whose_target_is_lost_runs_on(fault: str) -> None:
    async def scenario(rig: Rig) -> None:
        before = await start(rig)
        move = await rig.migrate()
        state = (await until_copied(rig, move))["status"]["migrationState"]
        getattr(rig.nodes[state["targetNode"]], fault)()
        await until_phase(rig, move, "Failed")
        vmi = await rig.read(VMIS)
        assert "connection" in vmi["status"]["migrationState"]["failureReason"]
        assert vmi["status"]["nodeName"] == before["status"]["nodeName"]
        await asyncio.sleep(60)
        assert writers(rig) == [before["status"]["nodeName"]]

    in_memory(scenario, copying=LONG)


# Post-copy


def test_a_guest_can_go_over_before_its_memory() -> None:
    async def scenario(rig: Rig) -> None:
        before = await start(rig)
        move = await rig.migrate()
        moving = await rig.until(
            VMIS, lambda vmi: (vmi["status"].get("migrationState") or {}).get("mode") == "PostCopy"
        )
        target = moving["status"]["migrationState"]["targetNode"]
        assert moving["status"]["nodeName"] == before["status"]["nodeName"]
        assert writers(rig) == [target]
        await until_phase(rig, move, "Succeeded")
        assert (await rig.read(VMIS))["status"]["nodeName"] == target

    in_memory(scenario, copying=BEHIND)


@pytest.mark.parametrize("lost", ["sourceNode", "targetNode"])
def test_half_a_guest_is_lost_with_either_end(lost: str) -> None:
    async def scenario(rig: Rig) -> None:
        await start(rig)
        await rig.migrate()
        moving = await rig.until(
            VMIS, lambda vmi: (vmi["status"].get("migrationState") or {}).get("mode") == "PostCopy"
        )
        rig.nodes[moving["status"]["migrationState"][lost]].kill()
        await rig.truth.until(lambda: rig.copies() == [], timeout=60)
        assert all(not run.volumes for run in rig.truth.running())

    in_memory(scenario, copying=BEHIND)


def test_a_vm_whose_target_was_lost_behind_its_guest_starts_anew() -> None:
    async def scenario(rig: Rig) -> None:
        before = await start(rig)
        await rig.migrate()
        moving = await rig.until(
            VMIS, lambda vmi: (vmi["status"].get("migrationState") or {}).get("mode") == "PostCopy"
        )
        target = moving["status"]["migrationState"]["targetNode"]
        await rig.keep_scheduler_away(target)
        rig.nodes[target].kill()
        await rig.until(VMIS, lambda vmi: vmi["status"].get("phase") == "Failed")
        # The target pod on the dead node is what the VMI waits for.
        await remove(rig, (await ends(rig))["target"])
        after = await rig.until_running(after=before["metadata"]["uid"])
        assert writers(rig) == [after["status"]["nodeName"]]

    in_memory(scenario, copying=BEHIND)


def test_a_migration_that_is_given_up_leaves_the_guest_where_it_is() -> None:
    async def scenario(rig: Rig) -> None:
        for node in ("n2", "n3"):
            await rig.keep_scheduler_away(node)
        before = await start(rig)
        move = await rig.migrate()
        await until_phase(rig, move, "Scheduling")
        await rig.client.delete(MIGRATIONS, move, namespace=rig.namespace)
        await rig.until_none(MIGRATIONS, move)
        assert (await rig.read(VMIS))["status"]["nodeName"] == before["status"]["nodeName"]

    in_memory(scenario)
