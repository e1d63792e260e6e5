"""A controller that is killed after each of its writes, on a real control plane.

Each incident has a node of its own with one pod of a StatefulSet. Its controller is a process that
SIGKILLs itself as soon as the API has answered its first, its second, its third write about that
node, and so on, until there is none left after which it could be killed. The writes are:

* the incident is opened,
* the intent is announced,
* the node is tainted,
* the pod is marked,
* the pod is removed,
* the outcome is told,
* the pod is told to run again, and whatever else is told of the incident.

The next process takes over when the lease has run out. It ends what was begun, and dies on another
node's account. A StatefulSet bears its node's name, so that all that is written about the one or
the other has that word in it. (Guests are not among them: the controllers that stand in for
KubeVirt work on the embedded API alone. ``tests/lab/test_crash_points.py`` has them.)
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from backstay.apis.apps import STATEFUL_SETS
from backstay.apis.backstay import INCIDENTS, Incident
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from harness.processes import Child
from tests.control.rig_real import Json, RealScene, eventually, real_scene
from tests.support import controller_program
from tests.support.controller_program import Note
from tests.support.installed import Installed

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

_MOST = 12
_FEWEST = 6
_LIVING = 4
_ENOUGH = 30.0


class _Incidents(msgspec.Struct, frozen=True):
    items: tuple[Incident, ...] = ()


@dataclass
class Point:
    """One incident: its node, the pod that it is about, and the process that was to be killed."""

    number: int
    node: str
    child: Child
    journal: Path

    @property
    def pod(self) -> str:
        return f"{self.node}-0"

    @property
    def last_write(self) -> str:
        """The one after which it died."""
        lines = self.journal.read_bytes().splitlines()
        notes = [msgspec.json.decode(line, type=Note) for line in lines]
        return _kind_of([note for note in notes if self.node in note.path or _opens(note)][-1])


@dataclass
class Stage:
    scene: RealScene
    directory: Path
    victims: list[str]
    points: list[Point] = field(default_factory=list)

    def start(self, node: str) -> Point:
        number = len(self.points) + 1
        name = f"life-{number}"
        journal = self.directory / f"{name}.journal"
        argv = [
            sys.executable, str(controller_program.__file__), name,
            str(self.scene.installed.kubeconfig("controller")), str(journal), "--hurried",
            "--killed-after", str(number), "--about", node,
        ]  # fmt: skip
        child = Child(name, argv, log=self.directory / f"{name}.log")
        self.points.append(Point(number, node, child, journal))
        child.start()
        return self.points[-1]

    async def is_recovered(self, node: str) -> bool:
        found = (await self.scene.client.list(INCIDENTS)).into(_Incidents).items
        return any(each.spec.node == node and each.status.recovered == 1 for each in found)

    async def close(self) -> None:
        for point in self.points:
            await point.child.stop(patience=5.0)


@pytest.fixture
async def stage(
    client: KubeClient, installed: Installed, namespace: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    async with real_scene(client, installed, namespace) as scene:
        nodes = await scene.boot(_LIVING + _MOST)
        victims = nodes[_LIVING:]
        for node in victims:
            await client.create(STATEFUL_SETS, _stateful_set(scene, node), namespace=namespace)
        await scene.fleet.ground.until(
            lambda: all(scene.copies(f"{node}-0") == [node] for node in victims),
            timeout=_ENOUGH,
        )
        for node in victims:
            # What is released goes to those that live on, and is hit by one death alone.
            await client.merge_patch(NODES, node, {"spec": {"unschedulable": True}})
        await scene.arm()
        built = Stage(scene, tmp_path, victims)
        try:
            yield built
        finally:
            await built.close()


async def test_an_incident_survives_a_crash_after_each_write(stage: Stage) -> None:
    scene = stage.scene
    for node in stage.victims:
        scene.fleet.nodes[node].kill()
        await scene.confirm_dead(node)
        point = stage.start(node)
        if not await dies(stage, point):
            break
    survivor = stage.points[-1]
    assert survivor.child.alive, "there are more writes than nodes to die for them"
    points = stage.points
    await eventually(lambda: all(is_elsewhere(scene, each) for each in points), within=_ENOUGH)
    died_after = [point.last_write for point in stage.points[:-1]]
    assert len(died_after) >= _FEWEST
    assert {"open", "tell", "taint", "delete"} <= set(died_after)
    assert scene.most_copies(point.pod for point in stage.points) == 1


async def dies(stage: Stage, point: Point) -> bool:
    """Whether it dies before there is nothing left to write about its node."""
    async with asyncio.timeout(_ENOUGH):
        while point.child.alive:
            if await stage.is_recovered(point.node):
                # What is told after that is told within a moment.
                await asyncio.sleep(3.0)
                return not point.child.alive
            await asyncio.sleep(0.1)
    return True


def is_elsewhere(scene: RealScene, point: Point) -> bool:
    copies = scene.copies(point.pod)
    return len(copies) == 1 and copies != [point.node]


def _opens(note: Note) -> bool:
    return note.method == "POST" and "/incidents" in note.path


def _kind_of(note: Note) -> str:
    if "/incidents" in note.path:
        return "open" if _opens(note) else "tell"
    return {"PATCH": "taint", "DELETE": "delete"}[note.method]


def _stateful_set(scene: RealScene, node: str) -> Json:
    labels = {"app": node}
    home = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    wish = {"weight": 100, "preference": {"matchExpressions": [home]}}
    spec = {
        "containers": [{"name": "main", "image": "none"}],
        "nodeSelector": {"test": scene.namespace},
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}},
    }
    return {
        "apiVersion": STATEFUL_SETS.api_version,
        "kind": STATEFUL_SETS.kind,
        "metadata": {"name": node},
        "spec": {
            "serviceName": node,
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
