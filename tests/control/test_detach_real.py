"""Volumes for one node at a time follow what was released, on a real control plane."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from backstay.apis.backstay import CONFIG_NAME, CONFIGS
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.model.labels import OUT_OF_SERVICE, OUT_OF_SERVICE_OURS
from backstay.seam.tasks import Tasks
from tests.control.rig_real import RealScene, real_scene
from tests.support.attacher import Attacher
from tests.support.installed import Installed

pytestmark = pytest.mark.real

Json = dict[str, Any]


@pytest.fixture
async def scene(
    client: KubeClient, installed: Installed, namespace: str
) -> AsyncIterator[RealScene]:
    async with real_scene(client, installed, namespace) as built:
        built.driver = f"{namespace}.example"
        await built.boot(3)
        yield built


async def taints(scene: RealScene, node: str) -> set[str]:
    live = (await scene.client.get(NODES, node)).json()
    return {taint["key"] for taint in live["spec"].get("taints") or ()}


async def test_their_attachments_are_deleted_and_they_are_attached_elsewhere(
    scene: RealScene,
) -> None:
    async with Tasks("attacher") as tasks:
        attacher = Attacher(scene.client, scene.driver, tasks)
        pods = await scene.start_pods(2)
        controller = await scene.start_controller()
        await scene.arm()
        victim = scene.victim.name
        assert len(attacher.has(victim)) == 2
        scene.victim.kill()
        await controller.looks(2)
        await scene.confirm_dead(victim)
        await scene.until_elsewhere(pods)
        gone = [step for step in attacher.steps if step[0] == victim and step[2] == "gone"]
        assert len(gone) == 2
        assert attacher.has(victim) == set()
        told = await scene.until_incident(lambda row: row.status.recovered == 2)
        assert "VolumeDetached" in {moment.code for moment in told.status.timeline}
        assert scene.most_copies(pods) == 1
        assert OUT_OF_SERVICE not in await taints(scene, victim)


async def test_by_the_out_of_service_taint_which_is_taken_off_when_the_node_is_back(
    scene: RealScene,
) -> None:
    async with Tasks("attacher") as tasks:
        attacher = Attacher(scene.client, scene.driver, tasks)
        pods = await scene.start_pods(1)
        controller = await scene.start_controller()
        await scene.arm()
        prefers = {"spec": {"defaults": {"detach": "OutOfServiceTaint"}}}
        await scene.client.merge_patch(CONFIGS, CONFIG_NAME, prefers)
        victim = scene.victim.name
        scene.victim.kill()
        await controller.looks(2)
        await scene.confirm_dead(victim)
        await scene.until_elsewhere(pods)
        assert OUT_OF_SERVICE in await taints(scene, victim)
        # Kubernetes has detached it: nothing of ours did.
        assert attacher.has(victim) == set()
        assert not any("volumeattachments" in request.url for request in controller.wire.writes)
        scene.victim.reboot()
        await scene.until_incident(lambda row: not row.open)
        live = (await scene.client.get(NODES, victim)).json()
        assert OUT_OF_SERVICE not in {each["key"] for each in live["spec"].get("taints") or ()}
        assert OUT_OF_SERVICE_OURS not in (live["metadata"].get("annotations") or {})
        assert scene.most_copies(pods) == 1
