"""``backstay run`` as a process of its own, for tests that talk to it from outside."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from backstay.seam.aiohttp_transport import AiohttpTransport

BACKSTAY = Path(sys.executable).parent / "backstay"
_PATIENCE = 30.0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@asynccontextmanager
async def transport() -> AsyncIterator[AiohttpTransport]:
    opened = AiohttpTransport()
    try:
        yield opened
    finally:
        await opened.close()


class Controller:
    """A running one. ``lines`` is what it has logged so far, as it stands."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def said(self, words: str) -> list[dict[str, Any]]:
        """The JSON lines whose message has these words."""
        lines = (json.loads(line) for line in self.lines if line.startswith("{"))
        return [line for line in lines if words in line["message"]]

    async def says(self, words: str) -> str:
        """Waits for a line with these words."""
        found = next((line for line in self.lines if words in line), None)
        assert self.process.stderr is not None
        async with asyncio.timeout(_PATIENCE):
            while found is None:
                line = (await self.process.stderr.readline()).decode()
                assert line, f"it ended without saying {words!r}:\n{self.text}"
                self.lines.append(line.rstrip("\n"))
                found = line.rstrip("\n") if words in line else None
        return found

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ends(self) -> int:
        """Its exit code; ``lines`` is complete then."""
        assert self.process.stderr is not None
        async with asyncio.timeout(_PATIENCE):
            rest = (await self.process.stderr.read()).decode()
            self.lines += rest.splitlines()
            return await self.process.wait()


@asynccontextmanager
async def running(*args: str, **environ: str) -> AsyncIterator[Controller]:
    """Until the end of the block, at the latest; it serves nothing unless told to."""
    if "--metrics-address" not in args:
        args = (*args, "--metrics-address", "off")
    process = await asyncio.create_subprocess_exec(
        str(BACKSTAY), "run", *args,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environ},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, limit=2**20,
    )  # fmt: skip
    try:
        yield Controller(process)
    finally:
        if process.returncode is None:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """In order if it can, so that it leaves no file behind."""
    process.terminate()
    try:
        async with asyncio.timeout(_PATIENCE):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
