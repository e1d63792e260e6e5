"""DiskFiles: the real ``Files``.

The work is done by a few threads of its own, so that a disk that hangs stops neither the event
loop nor name resolution, which uses asyncio's own threads. Changes to one path happen in the
order in which they were asked for, also when the one who asked has given up waiting: the thread
goes on, and a late old write must not undo a new one.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakValueDictionary

from backstay.seam.files import FileInfo

T = TypeVar("T")

_THREADS = 4
_UNFINISHED = ".backstay-unfinished-"


class DiskFiles:
    """Files on this machine."""

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor or ThreadPoolExecutor(_THREADS, thread_name_prefix="files")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def read(self, path: str) -> bytes:
        return await self._in_thread(lambda: _read(path))

    async def info(self, path: str) -> FileInfo:
        return await self._in_thread(lambda: _info(path))

    async def write(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        await self._in_turn(path, lambda: _write(path, data, mode))

    async def append(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        await self._in_turn(path, lambda: _append(path, data, mode))

    async def names(self, directory: str) -> list[str]:
        return await self._in_thread(lambda: _names(directory))

    async def remove(self, path: str) -> None:
        await self._in_turn(path, lambda: _remove(path))

    def close(self) -> None:
        """Take no more work. What a thread is doing now is not waited for."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def _in_turn(self, path: str, work: Callable[[], None]) -> None:
        turn = self._turns.setdefault(path, asyncio.Lock())
        await turn.acquire()
        future = asyncio.get_running_loop().run_in_executor(self._executor, work)

        def done(future: asyncio.Future[None]) -> None:
            turn.release()
            if not future.cancelled():
                # Looked at, so that the failure of a write that nobody waits for stays quiet.
                future.exception()

        future.add_done_callback(done)
        # Cancelling the wait must not end the turn: the thread is still at work.
        await asyncio.shield(future)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _info(path: str) -> FileInfo:
    found = os.stat(path)
    return FileInfo(size=found.st_size, mtime_ns=found.st_mtime_ns, inode=found.st_ino)


def _write(path: str, data: bytes, mode: int) -> None:
    directory = _make_directory_of(path)
    descriptor, unfinished = tempfile.mkstemp(prefix=_UNFINISHED, dir=directory)
    try:
        _fill(descriptor, data, mode)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise
    _sync_directory(directory)


def _append(path: str, data: bytes, mode: int) -> None:
    directory = _make_directory_of(path)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        _fill(os.open(path, os.O_WRONLY | os.O_APPEND), data, None)
    else:
        _fill(descriptor, data, mode)
        _sync_directory(directory)


def _fill(descriptor: int, data: bytes, mode: int | None) -> None:
    with open(descriptor, "wb") as file:
        if mode is not None:
            os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _names(directory: str) -> list[str]:
    return sorted(name for name in os.listdir(directory) if not name.startswith(_UNFINISHED))


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    _sync_directory(os.path.dirname(path) or ".")


def _make_directory_of(path: str) -> str:
    directory = os.path.dirname(path) or "."
    if not os.path.isdir(directory):
        above = _make_directory_of(directory)
        os.makedirs(directory, exist_ok=True)
        _sync_directory(above)
    return directory


def _sync_directory(directory: str) -> None:
    """A new name survives a power loss only once its directory is on the disk too."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
