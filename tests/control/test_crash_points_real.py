"""A controller that is killed after each of its writes, or stands still, on a real control plane.

Each incident has a node of its own with one virtual machine. Its controller is a process that
SIGKILLs itself as soon as the API has answered its first, its second, its third write about that
node, and so on, until there is none left after which it could be killed. The writes are:

* the incident is opened,
* the intent is announced,
* the node is tainted,
* the launcher is marked,
* the launcher is removed,
* the outcome is told,
* the VM is told to run again, and whatever else is told of the incident.

The next process takes over when the lease has run out. It ends what was begun, and dies on another
node's account. A VM bears its node's name, so that all that is written about the one or the other
has that word in it. In the end one more process is stopped (SIGSTOP) with the proof in hand, and
goes on when its successor is done. (StatefulSets are in ``tests/lab/test_crash_points.py`` and in
``test_processes_real.py``.)
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from backstay.apis.backstay import INCIDENTS, Incident
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.seam.system import boot_time
from backstay.sim.kubevirt import VirtHandler, virtual_machine
from backstay.sim.kubevirt.names import SCHEDULABLE, VMIS, VMS
from backstay.sim.nodes.truth import What
from harness.connect import until
from harness.processes import Child
from tests.control.rig_real import Json, RealScene, eventually, real_scene
from tests.sim.kubevirt.rig import HANDLER
from tests.support import controller_program
from tests.support.controller_program import Note
from tests.support.installed import Installed
from tests.support.kubevirt_at_large import kubevirt_at_large

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

_MOST = 12
_FEWEST = 6
_LIVING = 4
_ENOUGH = 30.0


class _Incidents(msgspec.Struct, frozen=True):
    items: tuple[Incident, ...] = ()


@dataclass
class Point:
    """One incident: its node, which has a VM of that name, and the process that was to be
    killed."""

    number: int
    node: str
    child: Child
    journal: Path

    @property
    def notes(self) -> list[Note]:
        lines = self.journal.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=Note) for line in lines]

    @property
    def last_write(self) -> str:
        """The one after which it died."""
        return _kind_of([note for note in self.notes if self.node in note.path or _opens(note)][-1])

    @property
    def stopped(self) -> bool:
        seen = os.waitid(
            os.P_PID, self.child.pid or 0, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
        )
        return seen is not None and seen.si_code == os.CLD_STOPPED


@dataclass
class Stage:
    scene: RealScene
    directory: Path
    victims: list[str]
    points: list[Point] = field(default_factory=list)

    def start(self, node: str, *options: str) -> Point:
        number = len(self.points) + 1
        name = f"life-{number}"
        journal = self.directory / f"{name}.journal"
        argv = [
            sys.executable, str(controller_program.__file__), name,
            str(self.scene.installed.kubeconfig("controller")), str(journal), "--hurried", *options,
        ]  # fmt: skip
        child = Child(name, argv, log=self.directory / f"{name}.log")
        self.points.append(Point(number, node, child, journal))
        child.start()
        return self.points[-1]

    def start_to_be_killed(self, node: str) -> Point:
        """After one write more than the last one."""
        return self.start(node, "--killed-after", str(len(self.points) + 1), "--about", node)

    async def dies(self, node: str) -> None:
        self.scene.fleet.nodes[node].kill()
        await self.scene.confirm_dead(node)

    def copies(self, guest: str) -> list[str]:
        """The nodes on which it really runs. Its launcher has another name each time."""
        return [each.node for each in self.scene.fleet.ground.running() if _is_of(guest, each.name)]

    def most_copies(self, guest: str) -> int:
        count = most = 0
        for entry in self.scene.fleet.ground.log:
            if _is_of(guest, entry.name):
                count += {What.STARTED: 1, What.STOPPED: -1}.get(entry.what, 0)
                most = max(most, count)
        return most

    def is_elsewhere(self, guest: str) -> bool:
        copies = self.copies(guest)
        return len(copies) == 1 and copies != [guest]

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
    async with (
        real_scene(client, installed, namespace) as scene,
        kubevirt_at_large(client, namespace),
    ):
        nodes = await scene.boot(_LIVING + _MOST + 1, agents={HANDLER: VirtHandler()})
        victims = nodes[_LIVING:]
        await until(client, NODES, lambda found: takes_guests(found, nodes), timeout=_ENOUGH)
        for node in victims:
            await client.create(VMS, _virtual_machine(scene, node), namespace=namespace)
        built = Stage(scene, tmp_path, victims)
        await until(client, VMIS, all_run, namespace=namespace, timeout=_ENOUGH)
        assert [built.copies(node) for node in victims] == [[node] for node in victims]
        for node in victims:
            # What is released goes to those that live on, and is hit by one death alone.
            await client.merge_patch(NODES, node, {"spec": {"unschedulable": True}})
        await scene.arm()
        try:
            yield built
        finally:
            await built.close()
            # Nobody would let go of them later.
            await client.delete_collection(VMS, namespace=namespace)
            await until(client, VMS, lambda found: not found, namespace=namespace, timeout=_ENOUGH)


async def test_an_incident_survives_a_crash_after_each_write_and_a_leader_that_stands_still(
    stage: Stage,
) -> None:
    *victims, last = stage.victims
    for node in victims:
        await stage.dies(node)
        if not await is_killed(stage, stage.start_to_be_killed(node)):
            break
    survivor = stage.points[-1]
    assert survivor.child.alive, "there are more writes than nodes to die for them"
    guests = [point.node for point in stage.points]
    await eventually(lambda: all(map(stage.is_elsewhere, guests)), within=_ENOUGH)
    died_after = [point.last_write for point in stage.points[:-1]]
    assert len(died_after) >= _FEWEST
    assert {"open", "tell", "taint", "delete"} <= set(died_after)
    await survivor.child.stop(patience=5.0)
    await stands_still(stage, last)
    assert {stage.most_copies(guest) for guest in (*guests, last)} == {1}


async def stands_still(stage: Stage, node: str) -> None:
    """A leader is stopped with the proof in hand. When it goes on, its successor is done, and
    nothing that it had in mind is done any more."""
    first = stage.start(node, "--at-removal", "SIGSTOP")
    await stage.dies(node)
    await eventually(lambda: first.stopped, within=_ENOUGH)
    stage.start(node)
    await eventually(lambda: stage.is_elsewhere(node), within=_ENOUGH)
    continued = boot_time()
    first.child.send(signal.SIGCONT)
    await eventually(lambda: any(note.refused == "TooLate" for note in first.notes))
    landed = [n.path for n in first.notes if n.at > continued and 200 <= n.status < 300]
    # Events only tell what was, and may come late; a renewal, and what is told of other nodes'
    # incidents, may have been on its way when it was stopped, and is answered now.
    assert [path for path in landed if not _was_on_its_way(path, node)] == []


def _was_on_its_way(path: str, node: str) -> bool:
    others = "/incidents/" in path and f"/{node}-" not in path
    return others or "/events" in path or "/leases/" in path


async def is_killed(stage: Stage, point: Point) -> bool:
    """Whether it dies before there is nothing left to write about its node."""
    async with asyncio.timeout(_ENOUGH):
        while point.child.alive:
            if await stage.is_recovered(point.node):
                # What is told after that is told within a moment.
                await asyncio.sleep(3.0)
                return not point.child.alive
            await asyncio.sleep(0.1)
    return True


def takes_guests(found: list[Json], names: list[str]) -> bool:
    ready = {
        each["metadata"]["name"]
        for each in found
        if each["metadata"]["labels"].get(SCHEDULABLE) == "true"
    }
    return ready.issuperset(names)


def all_run(instances: list[Json]) -> bool:
    phases = [(each.get("status") or {}).get("phase") for each in instances]
    return phases == ["Running"] * (_MOST + 1)


def _is_of(guest: str, pod: str) -> bool:
    return pod.startswith(f"virt-launcher-{guest}-")


def _opens(note: Note) -> bool:
    return note.method == "POST" and "/incidents" in note.path


def _kind_of(note: Note) -> str:
    if "/incidents" in note.path:
        return "open" if _opens(note) else "tell"
    return {"PATCH": "taint", "DELETE": "delete"}[note.method]


def _virtual_machine(scene: RealScene, node: str) -> Json:
    home = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    wish = {"weight": 100, "preference": {"matchExpressions": [home]}}
    vm = virtual_machine(node, namespace=scene.namespace, node_selector={"test": scene.namespace})
    vm["spec"]["template"]["spec"]["affinity"] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}
    }
    return vm
