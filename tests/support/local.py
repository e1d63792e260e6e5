"""Real files and real programs for tests under virtual time: no thread, no time passes.

The work is done on the spot, in the middle of the loop's turn, which virtual time does not
notice. Each keeps count of what it was asked for.
"""

import asyncio
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from backstay.seam import Seams
from backstay.seam.clock import Rng
from backstay.seam.errors import ExecNotFound
from backstay.seam.exec import Command, Completed
from backstay.seam.files import FileInfo
from tests.support.dice import LOWEST

NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)


class LocalFiles:
    """The files below ``root``; ``stuck`` ones never answer, as on a server that went away."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        self.reads: Counter[str] = Counter()
        self.looks: Counter[str] = Counter()
        self.stuck: set[str] = set()

    async def read(self, path: str) -> bytes:
        self.reads[path] += 1
        return (await self._at(path)).read_bytes()

    async def info(self, path: str) -> FileInfo:
        self.looks[path] += 1
        stat = (await self._at(path)).stat()
        return FileInfo(stat.st_size, stat.st_mtime_ns, stat.st_ino)

    async def write(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        raise NotImplementedError

    async def append(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        raise NotImplementedError

    async def names(self, directory: str) -> list[str]:
        raise NotImplementedError

    async def remove(self, path: str) -> None:
        raise NotImplementedError

    async def _at(self, path: str) -> Path:
        # One turn of the loop passes, as it does with a disk, so that callers can interleave.
        await asyncio.sleep(0)
        if path in self.stuck:
            await asyncio.sleep(1e9)
        return self._root / path.lstrip("/") if self._root else Path(path)


class LocalExec:
    """Runs the program at once; ``takes`` is how long it pretends to have taken."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.takes = 0.0

    async def run(self, command: Command) -> Completed:
        self.commands.append(command)
        await asyncio.sleep(self.takes)
        return _run(command)


def _run(command: Command) -> Completed:
    try:
        done = subprocess.run(
            command.argv, env=command.env, input=command.stdin, capture_output=True, check=False
        )
    except (FileNotFoundError, PermissionError) as error:
        raise ExecNotFound(str(error)) from error
    return Completed(done.returncode, done.stdout, done.stderr)


class LocalClock:
    """The time of day, which follows the loop's time until somebody turns it (``ahead``)."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return NEW_YEAR + self.ahead + timedelta(seconds=asyncio.get_running_loop().time())


class LocalSeams(Seams):
    """Seams without a network; the parts keep their own types, for the tests to look into."""

    files: LocalFiles
    exec: LocalExec
    wall: LocalClock

    def __init__(self, root: Path | None = None, *, rng: Rng = LOWEST) -> None:
        nothing: Any = None
        super().__init__(nothing, nothing, LocalExec(), LocalFiles(root), LocalClock(), rng)
