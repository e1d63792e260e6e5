"""DRBD's quorum as the only proof, on a real control plane: LINSTOR is asked over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from backstay import __version__
from backstay.cli import preflight
from backstay.cli.documents import as_yaml
from backstay.cli.manifests import beyond_piraeus
from backstay.cli.piraeus import PiraeusOption, flags_of, linstor_of
from backstay.cli.run import command as run
from backstay.drivers.linstor.access import access_from
from backstay.kube.client import KubeClient
from backstay.seam.real import open_seams
from backstay.seam.tasks import Tasks
from backstay.sim.linstor.served import Lab, Served, serving
from backstay.sources.linstor import LinstorTerms
from harness.cluster import ControlPlane
from tests.control.rig_real import RealScene, real_scene
from tests.support import piraeus
from tests.support.attacher import Attacher
from tests.support.installed import Installed

pytestmark = pytest.mark.real

GRACE = 3.0


@pytest.fixture
async def scene(
    client: KubeClient, installed: Installed, namespace: str
) -> AsyncIterator[RealScene]:
    async with real_scene(client, installed, namespace) as built:
        built.driver = LinstorTerms().driver
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


@pytest.fixture
async def drop_in(control_plane: ControlPlane, scene: RealScene) -> AsyncIterator[str]:
    """The manifest of the Piraeus HA controller, applied with our image and what we need beside
    it. Its pods run, as far as anything does on hollow nodes."""
    theirs = as_yaml(piraeus.manifest(f"backstay:{__version__}"))
    await control_plane.kubectl("create", "namespace", piraeus.ACCOUNT)
    ours = as_yaml(beyond_piraeus())
    await control_plane.kubectl("apply", "-f", "-", stdin=ours)
    await control_plane.kubectl("apply", "-f", "-", stdin=theirs)
    yield theirs
    everything = [*beyond_piraeus(), *piraeus.manifest("")]
    await control_plane.kubectl(
        "delete", "--wait=false", "--ignore-not-found", "-f", "-", stdin=as_yaml(everything)
    )


def from_its_manifest(served: Served) -> dict[str, Any]:
    """What its arguments and variables ask for, with a grace that a test can wait for. LINSTOR is
    where its service would lead."""
    arguments = [*piraeus.arguments(name="ha-1")]
    given = run.make_context("run", arguments).params
    theirs = {option.name for option in run.params if isinstance(option, PiraeusOption)}
    flags = flags_of({name: given[name] for name in given if name in theirs})
    return {
        "namespace": flags.namespace,
        "lease": flags.lease,
        "opt_in": flags.opt_in,
        "linstor": linstor_of({"LS_CONTROLLERS": served.url}, asked=flags.asked),
        "linstor_terms": msgspec.structs.replace(flags.terms, new_grace=GRACE, known_grace=GRACE),
    }


async def test_the_manifest_of_the_piraeus_ha_controller_runs_us_on_drbds_word(
    control_plane: ControlPlane,
    scene: RealScene,
    drbd: Lab,
    served: Served,
    attacher: Attacher,
    drop_in: str,
) -> None:
    pods = await scene.start_pods(2, labels={"linstor.csi.linbit.com/on-storage-lost": "remove"})
    controller = await scene.start_controller("ha-1", "drop-in", **from_its_manifest(served))
    victim = scene.victim.name
    scene.victim.kill()
    drbd.cut_off(victim)
    await scene.until_elsewhere(pods)
    told = await scene.until_incident(lambda row: row.status.recovered == 2)
    assert set(controller.deletions) == set(pods)
    assert attacher.has(victim) == set()
    assert scene.most_copies(pods) == 1
    codes = [moment.code for moment in told.status.timeline]
    assert codes.index("FenceHolds") < codes.index("VolumeDetached")
    for number, pod in enumerate(pods):
        [where] = scene.copies(pod)
        drbd.drbd.promote(f"{scene.namespace}-{number}", where)
        assert not drbd.drbd.can_write(f"{scene.namespace}-{number}", victim)
    again = await control_plane.kubectl("apply", "-f", "-", stdin=drop_in)
    assert {line.rpartition(" ")[2] for line in again.splitlines()} == {"unchanged"}
    async with scene.installed.client("drop-in") as account:
        await preflight.check(account, controller.app.settings, drop_in=True)


async def test_a_node_whose_kubelet_alone_is_dead_keeps_its_volumes(
    scene: RealScene, served: Served, attacher: Attacher
) -> None:
    pods = await scene.start_pods(2)
    assert len(attacher.has(scene.victim.name)) == 2
    await scene.arm()
    controller = await scene.start_controller(
        linstor=access_from({"LS_CONTROLLERS": served.url}),
        linstor_terms=LinstorTerms(driver=scene.driver, new_grace=GRACE, known_grace=GRACE),
    )
    scene.victim.kill_kubelet()
    told = await scene.until_incident(lambda row: row.status.held == 2)
    await asyncio.sleep(GRACE)
    assert controller.deletions == []
    [first, *_] = told.status.workloads
    assert first.code == "ProofMissing"
    assert f"{scene.victim.name} is still its primary" in first.sentence
    assert all(scene.copies(pod) == [scene.victim.name] for pod in pods)
