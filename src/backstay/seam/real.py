"""The real seams, joined: what the composition root opens when it runs on a machine.

Programs start with ``run``, which puts them on ``system.SuspendAwareLoop``: time during which
the machine was suspended counts for every deadline and lease.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from backstay.seam import Seams
from backstay.seam.aiohttp_serve import AiohttpServe
from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.disk import DiskFiles
from backstay.seam.processes import SubprocessExec
from backstay.seam.system import SuspendAwareLoop, SystemClock, SystemRng

T = TypeVar("T")


@asynccontextmanager
async def open_seams() -> AsyncIterator[Seams]:
    """The world, until the end of the block. Listeners are their openers' to close."""
    transport, files = AiohttpTransport(), DiskFiles()
    try:
        yield Seams(
            transport=transport,
            serve=AiohttpServe(),
            exec=SubprocessExec(),
            files=files,
            wall=SystemClock(),
            rng=SystemRng(),
        )
    finally:
        files.close()
        await transport.close()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a program to its end; like ``asyncio.run``, Ctrl-C cancels it and lets it clean up."""
    with asyncio.Runner(loop_factory=SuspendAwareLoop) as runner:
        return runner.run(main)
