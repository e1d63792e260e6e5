"""MemoryFiles: ``Files`` without a disk.

Paths are names and directories are implied by them. Each change gets a new inode or a later
modification time, so that readers who compare ``FileInfo`` notice it.

A change takes its ``latency`` to reach the disk, and gets there whether or not the one who asked
for it still waits, one after the other for each path. Until then readers see the old content.
``hangs`` stops the disk, for readers too. ``crash`` is the end of the process or of its machine:
a write that was under way has happened or not, and of an addition any part may be there.
"""

import asyncio
import posixpath
from collections.abc import Callable
from contextvars import Context
from typing import Literal

import msgspec

from backstay.seam.clock import Rng
from backstay.seam.files import FileInfo
from backstay.sim.wire import true_time


class _File(msgspec.Struct, frozen=True):
    data: bytes
    mtime_ns: int
    inode: int


class _Change:
    """One change under way."""

    def __init__(self, kind: Literal["write", "append", "remove"], path: str, data: bytes) -> None:
        self.kind = kind
        self.path = posixpath.normpath(path)
        self.data = data
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class MemoryFiles:
    """Files of one simulated machine."""

    def __init__(self, latency: Callable[[], float] = lambda: 0.0) -> None:
        self._latency = latency
        self._files: dict[str, _File] = {}
        self._directories: set[str] = set()
        self._changes = 0
        self._under_way: dict[_Change, float] = {}
        self._hangs = False
        self._goes_on = asyncio.Event()

    @property
    def hangs(self) -> bool:
        return self._hangs

    @hangs.setter
    def hangs(self, hangs: bool) -> None:
        self._hangs = hangs
        if not hangs:
            goes_on, self._goes_on = self._goes_on, asyncio.Event()
            goes_on.set()
            self._finish_what_is_due()

    async def read(self, path: str) -> bytes:
        await self._until_it_goes_on()
        return self._find(path).data

    async def info(self, path: str) -> FileInfo:
        await self._until_it_goes_on()
        found = self._find(path)
        return FileInfo(size=len(found.data), mtime_ns=found.mtime_ns, inode=found.inode)

    async def write(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        await self._begin(_Change("write", path, data))

    async def append(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        await self._begin(_Change("append", path, data))

    async def names(self, directory: str) -> list[str]:
        await self._until_it_goes_on()
        directory = posixpath.normpath(directory)
        if directory not in self._directories:
            raise FileNotFoundError(f"there is no directory {directory!r}")
        entries = self._files.keys() | self._directories
        return sorted(
            posixpath.basename(entry)
            for entry in entries
            if posixpath.dirname(entry) == directory and entry != directory
        )

    async def remove(self, path: str) -> None:
        await self._begin(_Change("remove", path, b""))

    def crash(self, chance: Rng) -> None:
        """What was under way stops halfway, or before, or after."""
        touched = set()
        for change in self._under_way:
            # The second change of a file had not begun: it waits for the first.
            if change.path not in touched:
                touched.add(change.path)
                if change.kind == "append":
                    change.data = change.data[: int(chance.random() * (len(change.data) + 1))]
                    self._apply(change)
                elif chance.random() < 0.5:
                    self._apply(change)
        self._under_way.clear()

    async def _until_it_goes_on(self) -> None:
        while self._hangs:
            await self._goes_on.wait()

    async def _begin(self, change: _Change) -> None:
        loop = asyncio.get_running_loop()
        now = true_time()
        before = [at for other, at in self._under_way.items() if other.path == change.path]
        due = max(now + self._latency(), *before, now)
        self._under_way[change] = due
        if due > now:
            # In no process: the disk goes on when the one who asked is stopped.
            loop.call_at(due, self._finish_what_is_due, context=Context())
        else:
            self._finish_what_is_due()
        await change.done

    def _finish_what_is_due(self) -> None:
        now = true_time()
        if self._hangs:
            return
        for change in [change for change, due in self._under_way.items() if due <= now]:
            del self._under_way[change]
            self._apply(change)
            if not change.done.done():
                change.done.set_result(None)

    def _apply(self, change: _Change) -> None:
        found = self._files.get(change.path)
        if change.kind == "remove":
            self._files.pop(change.path, None)
        elif change.kind == "append" and found is not None:
            self._put(change.path, found.data + change.data, inode=found.inode)
        else:
            self._put(change.path, change.data, inode=None)

    def _find(self, path: str) -> _File:
        found = self._files.get(posixpath.normpath(path))
        if found is None:
            raise FileNotFoundError(f"there is no file {path!r}")
        return found

    def _put(self, path: str, data: bytes, *, inode: int | None) -> None:
        self._changes += 1
        self._files[path] = _File(data, self._changes, inode or self._changes)
        while (parent := posixpath.dirname(path)) not in ("", path):
            self._directories.add(parent)
            path = parent
