"""The files of a simulated machine: the contract again, and disks that are slow, hang or crash."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from backstay.seam import Seams
from backstay.seam.files import Files
from backstay.sim.chance import Chance
from backstay.sim.files import MemoryFiles
from backstay.sim.world import World
from tests.seam.files_contract import FilesContract
from tests.support.in_world import held_to
from tests.support.virtual import virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


async def idle(_: Seams) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def disk_of_a_process(world: World) -> AsyncIterator[Files]:
    yield world.start("a", idle).files


@asynccontextmanager
async def root(_: World) -> AsyncIterator[str]:
    yield "/root"


@held_to(FilesContract, files=disk_of_a_process, root=root)
class TestFiles:
    """The contract, on a disk that takes its time."""


def slow() -> MemoryFiles:
    return MemoryFiles(lambda: 1.0)


@virtual_time
async def test_a_change_is_not_seen_before_it_is_on_the_disk() -> None:
    files = slow()
    await files.write("/a", b"old")
    async with asyncio.TaskGroup() as group:
        group.create_task(files.write("/a", b"new"))
        await asyncio.sleep(0.5)
        assert await files.read("/a") == b"old"
    assert (await files.read("/a"), now()) == (b"new", 2.0)


@virtual_time
async def test_changes_of_one_path_happen_in_the_order_in_which_they_were_asked_for() -> None:
    latencies = [3.0, 1.0, 2.0]
    files = MemoryFiles(lambda: latencies.pop(0))
    async with asyncio.TaskGroup() as group:
        for line in (b"one ", b"two ", b"three "):
            group.create_task(files.append("/log", line))
    assert (await files.read("/log"), now()) == (b"one two three ", 3.0)


@virtual_time
async def test_a_change_that_nobody_waits_for_any_more_happens_all_the_same() -> None:
    files = slow()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(files.write("/a", b"new"))
        await asyncio.sleep(0.5)
        task.cancel()
    await asyncio.sleep(1.0)
    assert await files.read("/a") == b"new"


@virtual_time
async def test_a_disk_that_hangs_holds_up_everything_until_it_goes_on() -> None:
    files = MemoryFiles()
    await files.write("/a", b"old")
    files.hangs = True
    finished: list[tuple[str, float]] = []

    async def read() -> None:
        await files.read("/a")
        finished.append(("read", now()))

    async def write() -> None:
        await files.write("/a", b"new")
        finished.append(("write", now()))

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        group.create_task(read())
        await asyncio.sleep(60.0)
        assert finished == []
        files.hangs = False
    assert sorted(finished) == [("read", 60.0), ("write", 60.0)]
    assert await files.read("/a") == b"new"


async def what_a_crash_leaves(seed: int) -> tuple[bytes, bytes]:
    """A file that was being replaced, and one that was being added to, twice."""
    files = slow()
    await files.write("/replaced", b"old")
    await files.append("/log", b"synced|")
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(files.write("/replaced", b"new")),
            group.create_task(files.append("/log", b"first|")),
            group.create_task(files.append("/log", b"second|")),
        ]
        await asyncio.sleep(0.5)
        files.crash(Chance(seed, "crash"))
        for task in tasks:
            task.cancel()
    await asyncio.sleep(10.0)
    return await files.read("/replaced"), await files.read("/log")


@virtual_time
async def test_a_crash_leaves_what_was_synced_and_some_of_what_was_not() -> None:
    left = [await what_a_crash_leaves(seed) for seed in range(100)]
    assert {replaced for replaced, _ in left} == {b"old", b"new"}
    whole = b"synced|first|"
    assert {log for _, log in left} == {whole[:length] for length in range(7, 14)}


@virtual_time
async def test_after_a_crash_the_disk_works() -> None:
    files = slow()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(files.write("/a", b"lost"))
        await asyncio.sleep(0.5)
        files.crash(Chance(1, "crash"))
        task.cancel()
    await files.write("/a", b"new")
    assert await files.read("/a") == b"new"


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_process_finds_its_file_old_or_new_but_whole(seed: int) -> None:
    found: list[bytes] = []

    async def main(seams: Seams) -> None:
        try:
            found.append(await seams.files.read("/state"))
        except FileNotFoundError:
            found.append(b"nothing")
        while True:
            for content in (b"first", b"second"):
                await seams.files.write("/state", content)

    async def scenario() -> None:
        process = world.start("a", main)
        for _ in range(5):
            await asyncio.sleep(world.chance.exponential(0.05))
            process.restart()
        await asyncio.sleep(0.1)

    with World(seed) as world:
        world.run(scenario())
    assert found[0] == b"nothing"
    assert set(found[1:]) <= {b"nothing", b"first", b"second"}


def test_what_a_killed_process_was_adding_may_be_cut_short() -> None:
    async def main(seams: Seams) -> None:
        while True:
            await seams.files.append("/log", b"x" * 1000)

    async def scenario(world: World) -> int:
        process = world.start("a", main)
        await asyncio.sleep(1.0)
        process.kill()
        await asyncio.sleep(1.0)
        return len(await process.files.read("/log"))

    lengths = []
    for seed in range(10):
        with World(seed) as world:
            lengths.append(world.run(scenario(world)))
    assert any(length % 1000 for length in lengths)
