"""The real seams, joined: what the composition root opens when it runs on a machine.

Programs start with ``run``, which puts them on ``system.SuspendAwareLoop``: time during which
the machine was suspended counts for every deadline and lease.
"""

import asyncio
import gc
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
    _keep_collections_short()
    with asyncio.Runner(loop_factory=SuspendAwareLoop) as runner:
        return runner.run(main)


def _keep_collections_short() -> None:
    """Takes what the imports made out of the garbage collector's sight, once per process.

    It is there to stay, and to go through it stops the loop for 30 ms or more, which a lease
    renewal would wait for. What caches keep is not the collector's business in the first place.
    """
    if not gc.get_freeze_count():
        gc.freeze()
