"""The flight recorder: what it keeps, that it gets in nobody's way, and how it is replayed."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from backstay.decide.failover import CHAIN, Snapshot, is_it_proven
from backstay.model.policy import Mode
from backstay.record.frames import Frame
from backstay.record.recorder import FlightRecorder, Limits
from backstay.record.replay import NotARecording, Recording, read_recording, replay
from backstay.seam.files import Files
from backstay.seam.system import SystemRng
from backstay.seam.tasks import Tasks
from backstay.sim.clock import LoopClock
from backstay.sim.files import MemoryFiles
from tests.record.samples import frame_of, snapshot, workload
from tests.support.virtual import virtual_time

DIRECTORY = "/var/lib/backstay"


def a_recorder(files: Files, limits: Limits | None = None) -> FlightRecorder:
    return FlightRecorder(
        files,
        DIRECTORY,
        program="backstay 0.1.0",
        wall=LoopClock(),
        rng=SystemRng(1),
        limits=limits,
    )


def note(recorder: FlightRecorder, about: Snapshot, now: float = 50.0) -> None:
    recorder.note(frame_of(about, now))


@asynccontextmanager
async def running(recorder: FlightRecorder) -> AsyncIterator[FlightRecorder]:
    async with Tasks("test") as tasks:
        tasks.spawn(recorder.run(), name="recorder")
        yield recorder


async def recordings(files: Files) -> list[Recording]:
    names = await files.names(DIRECTORY)
    return [read_recording(name, await files.read(f"{DIRECTORY}/{name}")) for name in names]


async def recorded(files: Files) -> list[Frame]:
    return [frame for recording in await recordings(files) for frame in recording.frames]


def number(count: int) -> Snapshot:
    """One that differs from any other."""
    return snapshot(workload(f"vm-{count}"))


# What it does to the disk


@virtual_time
async def test_files_are_bounded_in_size_and_number_and_the_newest_are_kept() -> None:
    files = MemoryFiles()
    async with running(a_recorder(files, Limits(file_bytes=4000, files=3))) as recorder:
        for count in range(40):
            note(recorder, number(count))
            assert await recorder.flush(1.0)
            await asyncio.sleep(1.0)
    kept = await recordings(files)
    assert len(kept) == 3
    assert recorder.kept == 40
    assert kept[-1].frames[-1].outcome.verdicts[0].workload.endswith("/vm-39")
    assert all(recording.frames for recording in kept)


@virtual_time
async def test_files_of_others_in_the_directory_are_left_alone() -> None:
    files = MemoryFiles()
    await files.write(f"{DIRECTORY}/a-letter.txt", b"dear ann")
    async with running(a_recorder(files, Limits(file_bytes=1, files=1))) as recorder:
        for count in range(3):
            note(recorder, number(count))
            assert await recorder.flush(1.0)
            await asyncio.sleep(1.0)
    names = await files.names(DIRECTORY)
    assert len(names) == 2
    assert "a-letter.txt" in names


class FullDisk(MemoryFiles):
    """Takes half of what it is given while it is full."""

    full = False

    async def append(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        if self.full:
            await super().append(path, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        await super().append(path, data)


@virtual_time
async def test_a_full_disk_costs_frames_is_said_once_and_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = FullDisk()
    async with running(a_recorder(files)) as recorder:
        note(recorder, number(0))
        assert await recorder.flush(1.0)
        files.full = True
        for count in (1, 2, 3):
            note(recorder, number(count))
            await asyncio.sleep(40.0)
        assert (recorder.kept, recorder.lost) == (1, 3)
        assert "No space left" in recorder.trouble
        files.full = False
        note(recorder, number(4))
        assert await recorder.flush(1.0)
    assert len(caplog.records) == 1
    assert (recorder.kept, recorder.trouble) == (2, "")
    first = f"{DIRECTORY}/{(await files.names(DIRECTORY))[0]}"
    assert read_recording(first, await files.read(first)).cut_off
    newest = (await files.names(DIRECTORY))[-1]
    frames = read_recording(newest, await files.read(f"{DIRECTORY}/{newest}")).frames
    assert [frame.outcome.verdicts[0].workload[-4:] for frame in frames] == ["vm-4"]


@virtual_time
async def test_a_disk_that_hangs_blocks_nobody_and_memory_stays_bounded() -> None:
    files = MemoryFiles()
    files.hangs = True
    async with running(a_recorder(files)) as recorder:
        for count in range(1300):
            note(recorder, number(count))
            if count == 0:
                await asyncio.sleep(0.1)
        assert not await recorder.flush(1.0)
        assert recorder.lost == 299
        files.hangs = False
        assert await recorder.flush(1.0)
    assert recorder.kept == 1001


# Replaying


async def one_recording(*about: Snapshot) -> bytes:
    files = MemoryFiles()
    async with running(a_recorder(files)) as recorder:
        for each in about:
            note(recorder, each)
        assert await recorder.flush(1.0)
    (name,) = await files.names(DIRECTORY)
    return await files.read(f"{DIRECTORY}/{name}")


@virtual_time
async def test_a_recorded_frame_replays_to_the_same_decision() -> None:
    data = await one_recording(
        snapshot(workload("db")),
        snapshot(workload("db"), confirmed=True),
        snapshot(workload("db"), confirmed=True, mode=Mode.OBSERVE),
        snapshot(workload("db"), view_age=12.25),
        snapshot(workload("db"), view_age=math.inf),
    )
    recording = read_recording("f", data)
    assert [frame.outcome.verdicts[0].why.code for frame in recording.frames] == [
        "ProofMissing", "MayBeReleased", "Observing", "StaleView", "StaleView",
    ]  # fmt: skip
    made = replay(recording, CHAIN)
    assert (made.frames, made.differences, made.rules) == (5, (), "")


@virtual_time
async def test_a_rule_that_changed_since_is_shown_with_what_it_would_decide() -> None:
    recording = read_recording("f", await one_recording(snapshot(workload("db"))))
    reckless = [check for check in CHAIN if check is not is_it_proven]
    made = replay(recording, reckless)
    assert made.rules == "the checks have changed (gone: is_it_proven)"
    (difference,) = made.differences
    assert difference.subject == "VirtualMachine/shop/db"
    assert difference.recorded.startswith("Hold: ProofMissing: VM shop/db is held")
    assert difference.today.startswith("Release: MayBeReleased")


@virtual_time
async def test_a_last_line_that_was_cut_off_is_said_and_left_out() -> None:
    data = await one_recording(snapshot(workload("db")), snapshot(workload("db"), confirmed=True))
    whole = read_recording("f", data)
    for missing in (1, 20, 200):
        cut = read_recording("f", data[:-missing])
        assert cut.cut_off
        assert cut.frames == whole.frames[:1]
    assert not whole.cut_off


@virtual_time
async def test_a_recording_that_was_cut_off_anywhere_is_read_or_refused_and_nothing_else() -> None:
    data = await one_recording(snapshot(workload("db")))
    for length in range(len(data)):
        try:
            recording = read_recording("f", data[:length])
        except NotARecording:
            assert b"\n" not in data[:length]
        else:
            assert recording.frames == ()


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"{}\n", b"[" * 5000, b"\xff\xfe\n", b'{"format":"other","version":1}\n'],
    ids=["empty", "a newline", "another object", "nested", "binary", "another format"],
)
def test_what_is_no_recording_is_one_sentence(data: bytes) -> None:
    with pytest.raises(NotARecording, match=r"^x\.txt is not a recording of Backstay: [^\n]*\.$"):
        read_recording("x.txt", data)


@virtual_time
async def test_a_damaged_line_in_the_middle_is_named() -> None:
    data = await one_recording(snapshot(workload("db")), snapshot(workload("db"), confirmed=True))
    lines = data.split(b"\n")
    lines[1] = lines[1].replace(b'"node":"n1"', b'"node":17')
    with pytest.raises(NotARecording, match="f is damaged: line 2 is no frame"):
        read_recording("f", b"\n".join(lines))


@virtual_time
async def test_a_recording_of_another_format_version_says_which_program_reads_it() -> None:
    data = await one_recording(snapshot(workload("db")))
    newer = msgspec.json.encode(
        {"format": "backstay-flight", "version": 2, "program": "backstay 9.0", "at": "t"}
    )
    with pytest.raises(NotARecording, match=r"replay it with backstay 9\.0"):
        read_recording("f", newer + data[data.index(b"\n") :])
