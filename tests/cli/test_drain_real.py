"""``backstay drain`` on a real control plane, beside kubectl."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from backstay.apis.drains import BUDGETS
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from harness.cluster import ControlPlane
from tests.control.rig_real import PATIENCE, RealScene, real_scene
from tests.support.installed import Installed
from tests.support.small_cluster import run

pytestmark = pytest.mark.real

ALL = ("--force", "--ignore-daemonsets", "--delete-emptydir-data")


@pytest.fixture
async def scene(
    client: KubeClient, installed: Installed, namespace: str
) -> AsyncIterator[RealScene]:
    async with real_scene(client, installed, namespace) as built:
        await built.boot(3)
        yield built


async def protect(scene: RealScene, **spec: object) -> None:
    body = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}, **spec},
    }  # fmt: skip
    await scene.client.create(BUDGETS, body, namespace=scene.namespace)
    async with asyncio.timeout(PATIENCE):
        while True:
            live = (await scene.client.get(BUDGETS, "db", namespace=scene.namespace)).json()
            if (live.get("status") or {}).get("currentHealthy"):
                return
            await asyncio.sleep(0.1)


async def test_pods_leave_within_their_budget(
    scene: RealScene, control_plane: ControlPlane
) -> None:
    pods, node = await scene.start_pods(2), scene.victim.name
    await protect(scene, maxUnavailable=1)
    said = await run(control_plane.kubeconfig, "drain", node, *ALL, "--timeout=60s", "-o", "json")
    assert said.code == 0, said.err
    (outcome,) = json.loads(said.out)
    assert (outcome["result"], outcome["cordoned"]) == ("drained", True)
    await scene.until_elsewhere(pods)
    assert scene.most_copies(pods) == 1
    live = (await scene.client.get(NODES, node)).json()
    assert live["spec"]["unschedulable"]


async def test_the_preflight_says_what_the_budget_says_and_nothing_happens(
    scene: RealScene, control_plane: ControlPlane
) -> None:
    (pod,), node = await scene.start_pods(1), scene.victim.name
    await protect(scene, minAvailable=1)
    said = await run(control_plane.kubeconfig, "drain", node, *ALL, "--dry-run=server")
    assert said.code == 1, said.err
    words = " ".join(said.out.split())
    assert "needs 1 healthy pods and has 1 currently" in words
    assert scene.copies(pod) == [node]
    live = (await scene.client.get(NODES, node)).json()
    assert not live["spec"].get("unschedulable")
