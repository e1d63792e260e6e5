"""The real seams, joined: what the composition root opens when it runs on a machine.

A program that holds leases runs on ``system.SuspendAwareLoop``
(``asyncio.Runner(loop_factory=SuspendAwareLoop)``), so that time during which the machine was
suspended counts.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from backstay.seam import Seams
from backstay.seam.aiohttp_serve import AiohttpServe
from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.disk import DiskFiles
from backstay.seam.processes import SubprocessExec
from backstay.seam.system import SystemClock, SystemRng


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
