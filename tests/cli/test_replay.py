"""``backstay replay``, as a person runs it."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backstay.decide.failover import Snapshot
from backstay.model.workload import WorkloadKind
from backstay.record.blackbox import pack
from backstay.record.recorder import FlightRecorder
from backstay.seam.disk import DiskFiles
from backstay.seam.system import SystemClock, SystemRng
from backstay.seam.tasks import Tasks
from tests.record.samples import frame_of, snapshot, workload
from tests.support.small_cluster import SmallCluster

BACKSTAY = Path(sys.executable).parent / "backstay"


def replay(*args: str | Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    command = [BACKSTAY, "replay", *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)


def record(directory: Path, *about: Snapshot) -> Path:
    """A file that the flight recorder wrote on this disk."""

    async def fly() -> None:
        files = DiskFiles()
        recorder = FlightRecorder(
            files, str(directory), program="backstay 0.1.0", wall=SystemClock(), rng=SystemRng(1)
        )
        async with Tasks("test") as tasks:
            tasks.spawn(recorder.run(), name="recorder")
            for each in about:
                recorder.note(frame_of(each))
            assert await recorder.flush(5.0)
        files.close()

    asyncio.run(fly())
    (path,) = directory.iterdir()
    return path


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return record(
        tmp_path, snapshot(workload("db")), snapshot(workload("db", kind=WorkloadKind.OTHER))
    )


def change(recording: Path) -> None:
    """As if the rules had been others then."""
    recording.write_bytes(recording.read_bytes().replace(b'"action":"Hold"', b'"action":"Release"'))


def test_decisions_that_are_the_same_today_end_with_0(recording: Path) -> None:
    said = replay(recording)
    assert said.returncode == 0, said.stderr
    assert "2 decisions" in said.stdout
    assert "Today's rules decide the same." in said.stdout


def test_a_decision_that_differs_is_shown_and_ends_with_4(recording: Path) -> None:
    change(recording)
    said = replay(recording)
    assert said.returncode == 4
    assert "VirtualMachine/shop/db" in said.stdout
    assert "recorded  Release: ProofMissing" in said.stdout
    assert "today     Hold: ProofMissing" in said.stdout
    assert max(map(len, said.stdout.splitlines()[1:])) <= 80


def test_programs_get_the_same_as_json(recording: Path) -> None:
    change(recording)
    said = replay(recording, "--output", "json")
    (report,) = json.loads(said.stdout)
    assert report["decisions"] == 2
    assert [each["subject"] for each in report["differences"]] == ["VirtualMachine/shop/db"]


def test_a_recording_that_a_crash_cut_off_is_replayed_as_far_as_it_goes(recording: Path) -> None:
    recording.write_bytes(recording.read_bytes()[:-30])
    said = replay(recording)
    assert said.returncode == 0
    assert "1 decision," in said.stdout
    assert "cut off" in said.stdout


def test_one_file_that_is_none_of_ours_leaves_nothing_half_done(
    recording: Path, tmp_path: Path
) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("dear ann\n")
    said = replay(recording, letter)
    assert said.returncode == 1
    assert said.stdout == ""
    assert said.stderr.startswith(f"Error: {letter} is not a recording of Backstay")
    assert said.stderr.count("\n") == 1


def test_a_file_that_is_not_there_is_one_sentence() -> None:
    said = replay("/nonexistent/flight.jsonl")
    assert said.returncode == 1
    assert said.stderr == (
        "Error: /nonexistent/flight.jsonl cannot be read: No such file or directory.\n"
    )


def test_a_directory_is_one_sentence(tmp_path: Path) -> None:
    said = replay(tmp_path)
    assert said.returncode == 1
    assert "Is a directory" in said.stderr
    assert "Traceback" not in said.stderr


async def test_an_incident_is_replayed_from_the_cluster_by_who_may(cluster: SmallCluster) -> None:
    frames = [
        frame_of(each)
        for each in (snapshot(workload("db")), snapshot(workload("db"), confirmed=True))
    ]
    header = {"format": "backstay-flight", "version": 1, "program": "backstay 0.1.0", "at": "t"}
    await cluster.put({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "frames-n1-a", "namespace": "backstay-system"},
        "data": {"header.json": json.dumps(header)},
        "binaryData": {f"{n:08}": pack(frame) for n, frame in enumerate(frames)},
    })  # fmt: skip
    said = await cluster.run("replayer", "replay", "--incident", "n1-a")
    assert said.code == 0, said.err
    assert "n1-a: 2 decisions, recorded by backstay 0.1.0" in said.out
    assert "Today's rules decide the same." in said.out
    said = await cluster.run("viewer", "replay", "--incident", "n1-a")
    assert (said.code, said.out) == (1, "")
    assert 'cannot get resource "configmaps"' in said.err
    for name, words in (
        ("n1-b", "No decisions of an incident 'n1-b'"),
        ("../x", "is not the name"),
    ):
        said = await cluster.run("replayer", "replay", "--incident", name)
        assert (said.code, said.out) == (1, "")
        assert words in said.err


def test_without_anything_to_replay_it_says_what_to_name() -> None:
    said = replay()
    assert said.returncode == 1
    assert "Name the files to replay, or an incident with --incident." in said.stderr
