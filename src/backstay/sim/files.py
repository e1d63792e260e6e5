"""MemoryFiles: ``Files`` without a disk.

Paths are names and directories are implied by them. Each change gets a new inode or a later
modification time, so that readers who compare ``FileInfo`` notice it.
"""

import posixpath

import msgspec

from backstay.seam.files import FileInfo


class _File(msgspec.Struct, frozen=True):
    data: bytes
    mtime_ns: int
    inode: int


class MemoryFiles:
    """Files of one simulated machine."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._directories: set[str] = set()
        self._changes = 0

    async def read(self, path: str) -> bytes:
        return self._find(path).data

    async def info(self, path: str) -> FileInfo:
        found = self._find(path)
        return FileInfo(size=len(found.data), mtime_ns=found.mtime_ns, inode=found.inode)

    async def write(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        self._put(path, data, inode=None)

    async def append(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        found = self._files.get(posixpath.normpath(path))
        self._put(path, (found.data if found else b"") + data, inode=found.inode if found else None)

    async def names(self, directory: str) -> list[str]:
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
        self._files.pop(posixpath.normpath(path), None)

    def _find(self, path: str) -> _File:
        found = self._files.get(posixpath.normpath(path))
        if found is None:
            raise FileNotFoundError(f"there is no file {path!r}")
        return found

    def _put(self, path: str, data: bytes, *, inode: int | None) -> None:
        self._changes += 1
        path = posixpath.normpath(path)
        self._files[path] = _File(data, self._changes, inode or self._changes)
        while (parent := posixpath.dirname(path)) not in ("", path):
            self._directories.add(parent)
            path = parent
