"""The flight recorder: what each decision rested on, kept on disk so that it can be made again.

A frame (``frames.py``) is written whenever the decision about a node changes; ``replay.py``
decides it once more.

* It never gets in the way. ``note`` only puts a frame into a queue; when the disk is full or
  hangs, frames are lost and counted, and that is said once.
* Files are lines of JSON, the first of which says what the file is. They are appended to and
  synced, so a crash costs at most a part of the last line. Every start, and every failure, begins
  a new file: what is half written stays at the end of its own.
* The number and the size of the files are bounded; the oldest are removed.
"""

import asyncio
import logging
import posixpath
from collections import deque
from collections.abc import Sequence

import msgspec

from backstay.model.moments import time_text
from backstay.record.frames import FORMAT, VERSION, Frame, Header
from backstay.seam.clock import Rng, WallClock
from backstay.seam.files import Files

_PREFIX = "flight-"
_SUFFIX = ".jsonl"
_MOST_WAITING = 1000
_BATCH = 50
"""So many frames share one sync of the disk."""
_PAUSE = 30.0

_log = logging.getLogger("backstay.recorder")


class Limits(msgspec.Struct, frozen=True):
    file_bytes: int = 8_000_000
    files: int = 8


class FlightRecorder:
    """See the module. ``run`` writes; ``kept`` and ``lost`` count frames."""

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        program: str,
        wall: WallClock,
        rng: Rng,
        limits: Limits | None = None,
    ) -> None:
        self.kept = 0
        self.lost = 0
        self.trouble = ""
        self._files = files
        self._directory = directory
        self._program = program
        self._wall = wall
        self._rng = rng
        self._limits = limits or Limits()
        self._waiting: deque[Frame] = deque()
        self._came = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._path = ""
        self._size = 0

    def note(self, frame: Frame) -> None:
        """A decision was made that is to be kept."""
        if len(self._waiting) >= _MOST_WAITING:
            self._lose(1, f"it is behind by {_MOST_WAITING} frames")
            return
        self._waiting.append(frame)
        self._idle.clear()
        self._came.set()

    async def run(self) -> None:
        """Write what is noted, until cancelled."""
        while True:
            self._came.clear()
            if not self._waiting:
                self._idle.set()
                await self._came.wait()
            await self._write_waiting()

    async def flush(self, timeout: float) -> bool:
        """Wait until all is on the disk while ``run`` writes; False if it took too long."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _write_waiting(self) -> None:
        while self._waiting:
            frames = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            try:
                await self._append(frames)
            except OSError as error:
                self._path = ""
                self._lose(len(frames), f"{self._directory}: {error.strerror or error}")
                await asyncio.sleep(_PAUSE)
            else:
                self.kept += len(frames)
                self.trouble = ""

    async def _append(self, frames: Sequence[Frame]) -> None:
        if not self._path or self._size >= self._limits.file_bytes:
            await self._begin_file()
        await self._add(b"".join(msgspec.json.encode(frame) + b"\n" for frame in frames))

    async def _begin_file(self) -> None:
        now = self._wall.now()
        name = f"{_PREFIX}{now:%Y%m%dT%H%M%SZ}-{self._rng.token(5)}{_SUFFIX}"
        self._path, self._size = posixpath.join(self._directory, name), 0
        header = Header(FORMAT, VERSION, self._program, time_text(now))
        await self._add(msgspec.json.encode(header) + b"\n")
        await self._remove_oldest(but=name)

    async def _add(self, lines: bytes) -> None:
        await self._files.append(self._path, lines)
        self._size += len(lines)

    async def _remove_oldest(self, *, but: str) -> None:
        names = await self._files.names(self._directory)
        ours = [n for n in names if n.startswith(_PREFIX) and n.endswith(_SUFFIX) and n != but]
        # By name they are in order of time, unless the clock was set back.
        for name in ours[: max(0, len(ours) - self._limits.files + 1)]:
            await self._files.remove(posixpath.join(self._directory, name))

    def _lose(self, frames: int, why: str) -> None:
        self.lost += frames
        if not self.trouble:
            _log.warning("the flight recorder loses decisions: %s", why)
        self.trouble = why
