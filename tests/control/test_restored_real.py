"""The store of a real control plane is restored from a backup, which knows of another day."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from backstay.apis.backstay import CONFIG_NAME, CONFIGS, CONFIRMATIONS
from backstay.app import App
from backstay.app import run as run_controller
from backstay.kube.client import KubeClient
from backstay.kube.resource import LEASES, NAMESPACES, NODES
from backstay.model.labels import ARMED
from backstay.seam import Seams
from backstay.seam.real import open_seams
from backstay.seam.tasks import Tasks
from harness.build import ensure_binaries
from harness.cluster import FAST, ControlPlane
from harness.connect import connect, until
from tests.control.rig_real import PATIENCE, RealScene, eventually, real_scene
from tests.support.controller_program import settings
from tests.support.installed import Installed, install

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

NAMESPACE = "restored"
RAISED = 1_000_000_000
"""By so many the manual of etcd has versions raised."""
RAISED_A_LITTLE = 1_000_000
"""An API could have written that by itself."""


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    """One of its own: the others would not like it."""
    async with ControlPlane(ensure_binaries(), timers=FAST) as plane:
        yield plane


async def arms_again(installed: Installed) -> None:
    """Somebody does, as ``backstay arm`` would."""
    metadata = {"name": CONFIG_NAME, "annotations": {ARMED: "2026-11-19T12:00:00Z by olaf"}}
    about = {"apiVersion": CONFIGS.api_version, "kind": CONFIGS.kind}
    body = {**about, "metadata": metadata, "spec": {"mode": "Armed"}}
    async with installed.client("operator") as operator:
        await operator.create(CONFIGS, body)


async def leads(tasks: Tasks, seams: Seams, rights: KubeClient) -> list[App]:
    """A controller does; all that are made in its place are there as well."""
    apps: list[App] = []
    controller = KubeClient(seams.transport, rights.access, user_agent="backstay-1")
    tasks.spawn(
        run_controller(settings("backstay-1"), seams, controller, made=apps.append),
        name="backstay-1",
    )
    await eventually(lambda: bool(apps) and apps[0].loop.queue is not None)
    return apps


async def version_of_our_lease(client: KubeClient) -> int:
    ours = settings("backstay-1")
    reply = await client.get(LEASES, ours.lease, namespace=ours.namespace)
    return int(reply.into(dict)["metadata"]["resourceVersion"])


async def a_day_passes(client: KubeClient) -> None:
    """More happens than an API server writes by itself when it starts."""
    for number in range(150):
        note = {"metadata": {"annotations": {"day": str(number)}}}
        await client.merge_patch(NAMESPACES, NAMESPACE, note)


async def boots_again(scene: RealScene, pods: list[str]) -> None:
    """And runs what the API lists for it; the API knows of it."""
    before = scene.victim.boot_id
    scene.victim.reboot()
    assert scene.victim.boot_id != before
    await until(
        scene.client, NODES,
        lambda found: any(
            each["status"]["nodeInfo"]["bootID"] == scene.victim.boot_id for each in found
        ),
        name=scene.victim.name, timeout=PATIENCE,
    )  # fmt: skip
    where = [scene.victim.name]
    await eventually(lambda: all(scene.copies(pod) == where for pod in pods))


async def test_a_word_that_came_back_with_a_backup_lets_nothing_run_twice(
    plane: ControlPlane,
) -> None:
    installed = await install(plane, running=False)
    async with (
        connect(plane) as client,
        open_seams() as seams,
        installed.client("controller") as rights,
        Tasks("test") as tasks,
    ):
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        async with real_scene(client, installed, NAMESPACE) as scene:
            await scene.boot(3)
            pods = await scene.start_pods(2)
            apps = await leads(tasks, seams, rights)
            victim = scene.victim.name
            scene.victim.kill()
            await scene.confirm_dead(victim)
            await plane.back_up()
            await boots_again(scene, pods)
            await a_day_passes(client)
            scene.victim.cut_off()
            await plane.restore()
            await eventually(lambda: len(apps) == 2 and bool(apps[1].past.words))
            await until(
                client, CONFIRMATIONS,
                lambda found: any(each.get("status", {}).get("lapsedAt") for each in found),
                name=victim, timeout=PATIENCE,
            )  # fmt: skip
            await arms_again(installed)
            held = await scene.until_incident(
                lambda row: {each.code for each in row.status.workloads} == {"ConfirmationRefused"}
            )
            assert "restored from a backup" in held.status.workloads[0].sentence
            assert not await scene.is_tainted(victim)
            assert [scene.copies(pod) for pod in pods] == [[victim]] * len(pods)
            # Somebody looks, and says it again.
            scene.victim.kill()
            await client.delete(CONFIRMATIONS, victim)
            await scene.confirm_dead(victim)
            # (Kubernetes' own programs would have to be restarted after that, to be relied upon.)
            told = await scene.until_incident(lambda row: bool(row.status.evidence))
            assert {each.kind for each in told.status.evidence} == {"OperatorConfirmed"}
            assert scene.most_copies(pods) == 1


@pytest.mark.parametrize(
    ("raised", "shows"),
    [(RAISED, "and leapt to"), (RAISED_A_LITTLE, "the version of our lease was")],
)
async def test_a_store_whose_versions_count_on_from_a_higher_one_is_found_out(
    plane: ControlPlane, raised: int, shows: str
) -> None:
    installed = await install(plane, running=False)
    async with (
        connect(plane) as client,
        open_seams() as seams,
        installed.client("controller") as rights,
        Tasks("test") as tasks,
    ):
        await arms_again(installed)
        apps = await leads(tasks, seams, rights)
        await plane.back_up()
        before = await version_of_our_lease(client)
        while await version_of_our_lease(client) == before:  # noqa: ASYNC110 - by a read
            await asyncio.sleep(0.1)
        await plane.restore(raised=raised)
        reply = await client.list(CONFIGS, limit=1)
        assert int(reply.into(dict)["metadata"]["resourceVersion"]) > before + raised
        await eventually(lambda: len(apps) == 2 and bool(apps[1].past.words))
        assert shows in apps[1].past.words
