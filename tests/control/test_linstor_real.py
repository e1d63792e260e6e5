"""DRBD's quorum as the only proof, on a real control plane: LINSTOR is asked over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from backstay.drivers.linstor.access import access_from
from backstay.kube.client import KubeClient
from backstay.seam.real import open_seams
from backstay.seam.tasks import Tasks
from backstay.sim.linstor.served import Lab, Served, serving
from backstay.sources.linstor import LinstorTerms
from tests.control.rig_real import Controller, RealScene, real_scene
from tests.support.attacher import Attacher
from tests.support.installed import Installed

pytestmark = pytest.mark.real

GRACE = 3.0


@pytest.fixture
async def scene(
    client: KubeClient, installed: Installed, namespace: str
) -> AsyncIterator[RealScene]:
    async with real_scene(client, installed, namespace) as built:
        built.driver = f"{namespace}.example"
        await built.boot(3)
        yield built


@pytest.fixture
async def drbd(scene: RealScene) -> AsyncIterator[Lab]:
    """On every node, with a replica of the volume of every pod there; the victim uses them."""
    lab = Lab(*scene.fleet.nodes)
    for number in range(2):
        lab.define(f"{scene.namespace}-{number}")
        lab.drbd.promote(f"{scene.namespace}-{number}", scene.victim.name)
    yield lab
    lab.close()


@pytest.fixture
async def served(drbd: Lab) -> AsyncIterator[Served]:
    async with open_seams() as seams, serving(seams.serve, drbd.controller()) as linstor:
        yield linstor


@pytest.fixture
async def attacher(scene: RealScene) -> AsyncIterator[Attacher]:
    async with Tasks("attacher") as tasks:
        yield Attacher(scene.client, scene.driver, tasks)


async def armed(scene: RealScene, served: Served) -> Controller:
    """A controller that has nobody to ask but LINSTOR."""
    await scene.arm()
    asked: dict[str, Any] = {
        "linstor": access_from({"LS_CONTROLLERS": served.url}),
        "linstor_terms": LinstorTerms(driver=scene.driver, new_grace=GRACE, known_grace=GRACE),
    }
    return await scene.start_controller(**asked)


async def test_what_drbd_shuts_out_comes_up_elsewhere_without_anybodys_word(
    scene: RealScene, drbd: Lab, served: Served, attacher: Attacher
) -> None:
    pods = await scene.start_pods(2)
    await armed(scene, served)
    victim = scene.victim.name
    scene.victim.kill()
    drbd.cut_off(victim)
    await scene.until_elsewhere(pods)
    told = await scene.until_incident(lambda row: row.status.recovered == 2)
    assert attacher.has(victim) == set()
    assert scene.most_copies(pods) == 1
    codes = [moment.code for moment in told.status.timeline]
    assert codes.index("FenceHolds") < codes.index("VolumeDetached")
    for number, pod in enumerate(pods):
        [where] = scene.copies(pod)
        drbd.drbd.promote(f"{scene.namespace}-{number}", where)
        assert not drbd.drbd.can_write(f"{scene.namespace}-{number}", victim)


async def test_a_node_whose_kubelet_alone_is_dead_keeps_its_volumes(
    scene: RealScene, served: Served, attacher: Attacher
) -> None:
    pods = await scene.start_pods(2)
    assert len(attacher.has(scene.victim.name)) == 2
    controller = await armed(scene, served)
    scene.victim.kill_kubelet()
    told = await scene.until_incident(lambda row: row.status.held == 2)
    await asyncio.sleep(GRACE)
    assert controller.deletions == []
    [first, *_] = told.status.workloads
    assert first.code == "ProofMissing"
    assert f"{scene.victim.name} is still its primary" in first.sentence
    assert all(scene.copies(pod) == [scene.victim.name] for pod in pods)
