"""Drains and maintenance on a real control plane, with the rights that the controller has."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from backstay.apis.drains import BUDGETS
from backstay.apis.maintenance import NODE_MAINTENANCES
from backstay.apis.maintenance_definition import maintenance_definition
from backstay.control.drain import Drain
from backstay.control.foresight import foresee, preflight
from backstay.kube.client import KubeClient
from backstay.kube.errors import NotFound
from backstay.kube.resource import NODES, PODS, Resource
from backstay.model.drain import MAINTENANCE_OPTIONS, Fate
from backstay.seam.system import SystemClock, SystemRng
from harness.cluster import ControlPlane
from tests.control.rig_maintenance import ALL, NONE, end, maintain, marks_on, until_gone, until_told
from tests.control.rig_real import PATIENCE, RealScene, real_scene
from tests.support.installed import Installed
from tests.support.small_cluster import run

pytestmark = pytest.mark.real

Json = dict[str, Any]
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False,
)  # fmt: skip
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
CLOCK = SystemClock()


class Scene(RealScene):
    async def eventually(self, holds: Any, *, within: float = PATIENCE) -> None:
        async with asyncio.timeout(within):
            while not await holds():  # noqa: ASYNC110 - the API tells nobody else
                await asyncio.sleep(0.1)


@pytest.fixture
async def scene(client: KubeClient, installed: Installed, namespace: str) -> AsyncIterator[Scene]:
    async with real_scene(client, installed, namespace) as built:
        built.__class__ = Scene
        assert isinstance(built, Scene)
        await built.boot(3)
        yield built


@pytest.fixture
async def kind(client: KubeClient) -> AsyncIterator[None]:
    """That of NodeMaintenance, served."""
    definition = maintenance_definition()
    await client.create(DEFINITIONS, definition)
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(NotFound):
                await client.list(NODE_MAINTENANCES)
                break
            await asyncio.sleep(0.1)
    yield
    await client.delete(DEFINITIONS, definition["metadata"]["name"])


async def protect(scene: Scene, **spec: Any) -> None:
    body = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}, **spec},
    }  # fmt: skip
    await scene.client.create(BUDGETS, body, namespace=scene.namespace)

    async def counted() -> bool:
        """Kubernetes may have heard of the pods, and not yet that they are ready."""
        live = (await scene.client.get(BUDGETS, "db", namespace=scene.namespace)).json()
        status = live.get("status") or {}
        return bool(status.get("expectedPods")) and (
            status.get("currentHealthy") == status["expectedPods"]
        )

    await scene.eventually(counted)


async def test_pods_that_share_a_budget_leave_one_after_the_other_and_none_is_asked_in_a_loop(
    scene: Scene,
) -> None:
    pods = await scene.start_pods(3)
    await protect(scene, maxUnavailable=1)
    node = scene.victim.name
    await scene.client.merge_patch(NODES, node, {"spec": {"unschedulable": True}})
    drain = Drain(scene.client, node, MAINTENANCE_OPTIONS, rng=SystemRng(), wall=CLOCK)
    async with asyncio.timeout(3 * PATIENCE):
        state = await drain.run()
    assert state.drained
    assert state.most == 3
    assert drain.requests <= 6
    await scene.until_elsewhere(pods)
    assert scene.most_copies(pods) == 1


async def test_a_budget_that_allows_nothing_is_named_as_the_api_names_it(scene: Scene) -> None:
    await scene.start_pods(1)
    await protect(scene, minAvailable=1)
    node = scene.victim.name
    plan = await preflight(scene.client, node, MAINTENANCE_OPTIONS, wall=CLOCK)
    (planned,) = plan.leaving
    assert (planned.fate, planned.why.code) == (Fate.BLOCKED, "BudgetExhausted")
    assert "needs 1 healthy pods and has 1 currently" in planned.why.sentence
    assert planned.budget == f"{scene.namespace}/db"
    assert scene.copies("db-0") == [node]


async def test_a_maintenance_from_its_beginning_to_its_end(
    scene: Scene, kind: None, control_plane: ControlPlane
) -> None:
    pods = await scene.start_pods(2)
    await protect(scene, maxUnavailable=1)
    await scene.start_controller()
    await scene.arm()
    first, second = list(scene.fleet.nodes)[:2]
    await scene.client.merge_patch(NODES, second, {"spec": {"unschedulable": True}})
    for node in (first, second):
        await maintain(scene, node)
    row = await until_told(scene, f"maintain-{first}", "Drained", within=3 * PATIENCE)
    assert (row.status.phase, row.status.drain_progress) == ("Succeeded", 100)
    await until_told(scene, f"maintain-{second}", "Drained", within=PATIENCE)
    assert await marks_on(scene, first) == ALL
    said = await run(control_plane.kubeconfig, "status", "-o", "json")
    told = {each["node"]: each for each in json.loads(said.out)["maintenances"]}
    assert [told[node]["code"] for node in (first, second)] == ["Drained", "Drained"]
    await scene.until_elsewhere(pods)
    for node in (first, second):
        await end(scene, node)
        await until_gone(scene, f"maintain-{node}", within=PATIENCE)
    assert await marks_on(scene, first) == NONE
    assert await marks_on(scene, second) == (True, False, False, False)
    assert scene.most_copies(pods) == 1


async def test_what_kubectl_would_evict_is_what_we_would(
    scene: Scene, control_plane: ControlPlane
) -> None:
    await scene.start_pods(2)
    node, namespace = scene.victim.name, scene.namespace
    for name, volumes in (("alone", []), ("scratch", [{"name": "tmp", "emptyDir": {}}])):
        spec = {
            "nodeName": node, "containers": [{"name": "main", "image": "none"}], "volumes": volumes,
        }  # fmt: skip
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        await scene.client.create(PODS, body, namespace=namespace)
    labels = {"app": "agent"}
    daemon = {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{"name": "main", "image": "none"}],
                    "nodeSelector": {"test": namespace},
                },
            },
        },
    }  # fmt: skip
    await scene.client.create(DAEMON_SETS, daemon, namespace=namespace)

    async def all_there() -> bool:
        reply = await scene.client.list(PODS, fields=f"spec.nodeName={node}")
        return len(reply.json()["items"]) == 5

    await scene.eventually(all_there)
    said = await control_plane.kubectl(
        "drain", node, "--dry-run=client", "--force", "--ignore-daemonsets",
        "--delete-emptydir-data",
    )  # fmt: skip
    theirs = {
        line.removeprefix("evicting pod ").removesuffix(" (dry run)")
        for line in said.splitlines()
        if line.startswith("evicting pod ")
    }
    plan = await foresee(scene.client, node, MAINTENANCE_OPTIONS, wall=CLOCK)
    ours = {each.pod.key for each in plan.leaving}
    assert ours == theirs
    assert len(ours) == 4
    asked = await preflight(scene.client, node, MAINTENANCE_OPTIONS, wall=CLOCK)
    assert {each.pod.key for each in asked.of(Fate.EVICT)} == ours
    reply = await scene.client.list(PODS, fields=f"spec.nodeName={node}")
    left = [each["metadata"].get("deletionTimestamp") for each in reply.json()["items"]]
    assert left == [None] * 5, "it was only asked"
