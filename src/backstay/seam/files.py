"""Files: tokens and certificates that rotate, the flight recorder, the edge bus.

All calls are awaited, because a disk can hang and a hung disk must not stop a lease from being
renewed. ``write`` is all or nothing: a reader sees the old content or the new, also after a
power loss. Failures are Python's own ``OSError`` tree.
"""

from typing import Protocol

import msgspec


class FileInfo(msgspec.Struct, frozen=True):
    """Enough to tell that a file was replaced or written to since the last look."""

    size: int
    mtime_ns: int
    inode: int


class Files(Protocol):
    """Paths are absolute or relative to the process; directories are made where needed."""

    async def read(self, path: str) -> bytes: ...

    async def info(self, path: str) -> FileInfo:
        """Follows symbolic links: a mounted Secret is replaced by moving one."""
        ...

    async def write(self, path: str, data: bytes, *, mode: int = 0o600) -> None: ...

    async def append(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """Adds at the end and does not return before the bytes are on the disk."""
        ...

    async def names(self, directory: str) -> list[str]:
        """The entries of a directory, sorted, without files that ``write`` is still making."""
        ...

    async def remove(self, path: str) -> None:
        """Removes a file; one that is not there is already removed."""
        ...
