"""Controllers as processes, stopped or killed between proof and removal, and a standby beside them.

The one that comes to harm does so when its first removal is about to leave: every pod is marked,
and the proof is in hand (``tests/support/controller_program.py``).
"""

import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from backstay.kube.client import KubeClient
from backstay.kube.resource import LEASES
from backstay.seam.system import boot_time
from harness.connect import until
from harness.processes import Child
from tests.control.rig_real import PATIENCE, RealScene, eventually, real_scene
from tests.support import controller_program
from tests.support.controller_program import Note
from tests.support.installed import Installed

pytestmark = pytest.mark.real


@dataclass(frozen=True)
class Program:
    """A controller that runs in a process of its own."""

    child: Child
    journal: Path

    @property
    def notes(self) -> list[Note]:
        lines = self.journal.read_bytes().splitlines() if self.journal.exists() else []
        return [msgspec.json.decode(line, type=Note) for line in lines]

    @property
    def stopped(self) -> bool:
        seen = os.waitid(
            os.P_PID, self.child.pid or 0, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
        )
        return seen is not None and seen.si_code == os.CLD_STOPPED

    def refused(self, why: str) -> list[Note]:
        """What its transport did not send, for this reason."""
        return [note for note in self.notes if note.refused == why]

    def changed(self, *, since: float) -> list[Note]:
        """What the API has carried out for it. Events only tell what was, and may come late."""
        landed = [note for note in self.notes if note.at > since and 200 <= note.status < 300]
        return [note for note in landed if not note.path.endswith("/events")]


class Stage:
    """A scene whose controllers are processes."""

    def __init__(self, scene: RealScene, directory: Path) -> None:
        self.scene = scene
        self._directory = directory
        self._programs: list[Program] = []

    def start(self, name: str, *options: str) -> Program:
        journal = self._directory / f"{name}.journal"
        kubeconfig = self.scene.installed.kubeconfig("controller")
        argv = [sys.executable, str(controller_program.__file__), name]
        child = Child(
            name, [*argv, str(kubeconfig), str(journal), *options],
            log=self._directory / f"{name}.log",
        )  # fmt: skip
        program = Program(child, journal)
        self._programs.append(program)
        child.start()
        return program

    async def until_leads(self, name: str) -> None:
        await until(
            self.scene.client, LEASES,
            lambda found: any(each["spec"].get("holderIdentity") == name for each in found),
            namespace="backstay-system", name="backstay-controller", timeout=PATIENCE,
        )  # fmt: skip

    async def close(self) -> None:
        for program in self._programs:
            await program.child.stop(patience=5.0)


@pytest.fixture
async def stage(
    client: KubeClient, installed: Installed, namespace: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    async with real_scene(client, installed, namespace) as scene:
        await scene.boot(3)
        built = Stage(scene, tmp_path)
        try:
            yield built
        finally:
            await built.close()


async def harmed_at_the_removal(stage: Stage, wish: str) -> tuple[list[str], Program]:
    """A death is confirmed, and the leader comes to harm with all the proof in hand."""
    scene = stage.scene
    await scene.arm()
    first = stage.start("first", "--at-removal", wish)
    await stage.until_leads("first")
    stage.start("second")
    pods = await scene.start_pods(4)
    scene.victim.kill()
    await scene.until_given_up(scene.victim.name)
    await scene.confirm_dead(scene.victim.name)
    return pods, first


async def test_a_leader_that_was_stopped_before_the_removal_sends_nothing_when_it_goes_on(
    stage: Stage,
) -> None:
    pods, first = await harmed_at_the_removal(stage, "SIGSTOP")
    await eventually(lambda: first.stopped)
    await stage.until_leads("second")
    told = await stage.scene.until_incident(lambda row: row.status.recovered == len(pods))
    continued = boot_time()
    first.child.send(signal.SIGCONT)
    await eventually(lambda: bool(first.refused("TooLate")))
    assert first.changed(since=continued) == []
    assert told.status.epoch > 1
    assert stage.scene.most_copies(pods) == 1


async def test_a_standby_finishes_what_a_killed_leader_had_begun(stage: Stage) -> None:
    pods, first = await harmed_at_the_removal(stage, "SIGKILL")
    await eventually(lambda: not first.child.alive)
    await stage.scene.until_elsewhere(pods)
    told = await stage.scene.until_incident(lambda row: row.status.recovered == len(pods))
    assert told.status.intent is not None
    assert stage.scene.most_copies(pods) == 1
