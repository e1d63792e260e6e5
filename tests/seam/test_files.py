"""Every implementation of ``Files``, held to the contract, and what only a disk can do."""

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from backstay.seam.disk import DiskFiles
from backstay.seam.files import Files
from backstay.sim.files import MemoryFiles
from tests.seam.files_contract import FilesContract


@pytest.fixture(params=["disk", "memory"])
def files(request: pytest.FixtureRequest) -> Iterator[Files]:
    if request.param == "memory":
        yield MemoryFiles()
        return
    made = DiskFiles()
    yield made
    made.close()


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "root")


class TestFiles(FilesContract):
    """The contract."""


@pytest.fixture
def disk() -> Iterator[DiskFiles]:
    made = DiskFiles()
    yield made
    made.close()


@pytest.fixture
def strict_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("strict_umask")
@pytest.mark.parametrize("mode", [0o600, 0o644])
async def test_the_mode_is_the_one_asked_for(disk: DiskFiles, tmp_path: Path, mode: int) -> None:
    await disk.write(str(tmp_path / "written"), b"x", mode=mode)
    await disk.append(str(tmp_path / "appended"), b"x", mode=mode)
    for name in ("written", "appended"):
        assert (tmp_path / name).stat().st_mode & 0o777 == mode


async def test_a_write_that_fails_leaves_the_old_content_and_no_litter(
    disk: DiskFiles, tmp_path: Path
) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        await disk.write(str(tmp_path / "taken"), b"new")
    assert os.listdir(tmp_path) == ["taken"]


async def test_a_file_in_the_making_is_not_among_the_names(disk: DiskFiles, tmp_path: Path) -> None:
    seen: list[list[str]] = []
    stop = asyncio.Event()

    async def look() -> None:
        while not stop.is_set():
            seen.append(await disk.names(str(tmp_path)))

    async with asyncio.TaskGroup() as group:
        group.create_task(look())
        for _ in range(30):
            await disk.write(str(tmp_path / "only"), bytes(500_000))
        stop.set()
    assert {tuple(names) for names in seen} <= {(), ("only",)}
    (tmp_path / ".backstay-unfinished-abc").touch()
    assert await disk.names(str(tmp_path)) == ["only"]


async def test_a_reader_sees_the_old_or_the_new_and_nothing_between(
    disk: DiskFiles, tmp_path: Path
) -> None:
    path = str(tmp_path / "token")
    contents = [bytes([n]) * 300_000 for n in range(20)]
    await disk.write(path, contents[0])
    async with asyncio.TaskGroup() as group:
        reads = [group.create_task(disk.read(path)) for _ in range(40)]
        for content in contents:
            await disk.write(path, content)
    assert {read.result() for read in reads} <= set(contents)


async def test_a_replaced_symbolic_link_shows(disk: DiskFiles, tmp_path: Path) -> None:
    """As kubelet replaces a mounted Secret."""
    for name in ("old", "new"):
        (tmp_path / name).write_text("same size")
    link = tmp_path / "token"
    link.symlink_to("old")
    before = await disk.info(str(link))
    (tmp_path / "next").symlink_to("new")
    (tmp_path / "next").rename(link)
    assert await disk.info(str(link)) != before


class SteppingExecutor(Executor):
    """Does its work only when told to, one piece at a time, as a disk that hangs would."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self.waiting.append(lambda: future.set_result(fn(*args, **kwargs)))
        return future

    async def step(self) -> None:
        self.waiting.pop(0)()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_a_write_that_was_given_up_does_not_undo_a_later_one(tmp_path: Path) -> None:
    executor = SteppingExecutor()
    disk = DiskFiles(executor)
    path = tmp_path / "state"
    async with asyncio.TaskGroup() as group:
        old = group.create_task(disk.write(str(path), b"old"))
        await asyncio.sleep(0)
        old.cancel()
        group.create_task(disk.write(str(path), b"new"))
        group.create_task(disk.write(str(tmp_path / "elsewhere"), b"at once"))
        await asyncio.sleep(0.01)
        assert len(executor.waiting) == 2, "the old one and the one elsewhere"
        await executor.step()
        assert path.read_bytes() == b"old"
        await executor.step()
        await executor.step()
    assert path.read_bytes() == b"new"


async def test_a_disk_that_hangs_does_not_hold_up_others(disk: DiskFiles, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    async with asyncio.TaskGroup() as group:
        stuck = group.create_task(disk.read(str(fifo)))
        await disk.write(str(tmp_path / "other"), b"x")
        assert await disk.read(str(tmp_path / "other")) == b"x"
        assert not stuck.done()
        fifo.write_bytes(b"unstuck")
    assert stuck.result() == b"unstuck"
