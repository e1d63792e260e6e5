"""Failover on a real control plane: real scheduler, real controllers, and the truth beside them."""

from collections.abc import AsyncIterator

import pytest

from backstay.kube.client import KubeClient
from backstay.model.incident import Progress
from backstay.model.node import Life
from tests.control.rig_real import RealScene, eventually, is_about, marks, real_scene
from tests.support.controller_program import is_deletion, removes
from tests.support.installed import Installed
from tests.support.small_cluster import run

pytestmark = pytest.mark.real


@pytest.fixture
async def scene(
    client: KubeClient, installed: Installed, namespace: str
) -> AsyncIterator[RealScene]:
    async with real_scene(client, installed, namespace) as built:
        await built.boot(3)
        yield built


async def test_without_proof_nothing_is_deleted_and_it_is_said_what_would_settle_it(
    scene: RealScene,
) -> None:
    pods = await scene.start_pods(2)
    controller = await scene.start_controller()
    await scene.arm()
    victim = scene.victim.name
    scene.victim.kill()
    told = (await scene.until_incident(lambda row: row.status.held == 2)).status
    assert told.state == Life.LOST
    assert {record.code for record in told.workloads} == {"ProofMissing"}
    assert all(f"confirm-dead {victim}" in record.next for record in told.workloads)
    assert all("data-db" in record.sentence for record in told.workloads)
    # Also when Kubernetes has given the node up, and for a while after.
    await scene.until_given_up(victim)
    await controller.looks(8)
    assert controller.deletions == []
    assert [scene.copies(pod) for pod in pods] == [[], []]
    assert not await scene.is_tainted(victim)


async def test_a_confirmed_death_brings_every_pod_up_elsewhere_and_once(scene: RealScene) -> None:
    pods = await scene.start_pods(6)
    controller = await scene.start_controller()
    await scene.arm()
    victim = scene.victim.name
    scene.victim.kill()
    await scene.until_given_up(victim)
    said = await run(
        scene.installed.kubeconfig("confirmer"), "confirm-dead", victim, "--watch=1.5",
        f"--yes={victim}", "--reason", "its plug is in my hand",
    )  # fmt: skip
    assert said.code == 0, said.err
    await scene.until_elsewhere(pods)
    incident = await scene.until_incident(lambda row: row.status.recovered == len(pods))
    told = incident.status
    assert {record.progress for record in told.workloads} == {Progress.RECOVERED}
    assert sorted(controller.removals) == pods
    assert scene.most_copies(pods) == 1
    said = await run(scene.installed.kubeconfig("replayer"), "replay", "--incident", incident.key)
    assert said.code == 0, said.err
    assert "Today's rules decide the same." in said.out


async def test_nothing_is_put_back_on_a_dead_node_that_kubernetes_still_holds_for_ready(
    scene: RealScene,
) -> None:
    pods = await scene.start_pods(6)
    controller = await scene.start_controller()
    await scene.arm()
    victim = scene.victim.name
    before = scene.bound_to(victim)
    scene.victim.kill()
    # It must have seen the last sign of life, or it would take it for one that came later.
    await controller.looks(2)
    await scene.confirm_dead(victim)
    await eventually(lambda: len(controller.removals) == len(pods))
    assert await scene.says_ready(victim) == "True"
    await scene.until_elsewhere(pods)
    assert len(before) == len(pods)
    assert scene.bound_to(victim) == before
    assert scene.most_copies(pods) == 1


async def test_a_node_that_lives_is_not_touched_whatever_is_confirmed(scene: RealScene) -> None:
    pods = await scene.start_pods(2)
    controller = await scene.start_controller()
    await scene.arm()
    victim = scene.victim.name
    await scene.confirm_dead(victim)
    for _ in range(4):
        await scene.until_renewed(victim)
    await controller.looks(2)
    assert controller.deletions == []
    assert not await scene.is_tainted(victim)
    assert [scene.copies(pod) for pod in pods] == [[victim], [victim]]


async def test_life_that_shows_after_the_confirmation_stops_everything(scene: RealScene) -> None:
    pods = await scene.start_pods(2)
    controller = await scene.start_controller()
    await scene.arm()
    victim = scene.victim.name

    async def come_back() -> None:
        scene.victim.heal()
        await scene.until_renewed(victim)

    scene.victim.cut_off()
    await scene.until_incident(lambda row: row.status.held == 2)
    controller.just_before(is_deletion, come_back)
    await scene.confirm_dead(victim)
    told = await scene.until_incident(lambda row: row.status.code == "EvidenceContradicted")
    await controller.looks(4)
    assert controller.removals == []
    assert {moment.code for moment in told.status.timeline} >= {"BarrierRaised", "ProofExpired"}
    assert scene.most_copies(pods) == 1


async def test_a_node_that_reboots_between_proof_and_removal_starts_nothing_a_second_time(
    scene: RealScene,
) -> None:
    """What the barrier is for: the removal lands although the node is back, and does no harm."""
    pods = await scene.start_pods(4)
    controller = await scene.start_controller()
    await scene.arm()
    victim, ground = scene.victim.name, scene.fleet.ground
    uids = scene.bound_to(victim)

    async def reboot() -> None:
        scene.victim.reboot()
        await ground.until(lambda: scene.dealt_with_by(scene.victim) >= uids)

    controller.just_before(removes, reboot)
    scene.victim.kill()
    # Right away: Kubernetes itself marks the pods of a node that it has given up.
    await controller.looks(2)
    await scene.confirm_dead(victim)
    await scene.until_incident(lambda row: not row.open)
    # Not elsewhere: the node is given back as soon as it is clean, and those that the scheduler
    # has not placed by then may go there.
    await eventually(lambda: all(len(scene.copies(pod)) == 1 for pod in pods))
    assert sorted(controller.removals) == pods
    assert not uids & {each.uid for each in scene.fleet.truth()}
    assert scene.most_copies(pods) == 1
    assert not await scene.is_tainted(victim)


async def test_a_node_that_reboots_while_its_pods_are_being_marked_keeps_what_it_started(
    scene: RealScene,
) -> None:
    """One pod is marked, and then the node is back and starts the others: proof is over."""
    pods = await scene.start_pods(4)
    controller = await scene.start_controller()
    await scene.arm()
    victim, ground = scene.victim.name, scene.fleet.ground
    uids = scene.bound_to(victim)

    async def reboot() -> None:
        await eventually(lambda: any(pod.marked for pod in scene.sightings))
        scene.victim.reboot()
        await ground.until(lambda: scene.dealt_with_by(scene.victim) >= uids)

    controller.just_before(lambda request: marks(request) and not is_about("db-0", request), reboot)
    scene.victim.kill()
    await controller.looks(2)
    await scene.confirm_dead(victim)
    await scene.until_incident(lambda row: not row.open)
    await eventually(lambda: all(len(scene.copies(pod)) == 1 for pod in pods))
    assert controller.removals == []
    assert scene.most_copies(pods) == 1
