"""Stalls: the longest that the event loop works without coming round, while all pods come in.

A timer is set for every millisecond; the figure is the most that the loop's thread worked between
two of them. A lease renewal is such a timer, which is why it matters. It is CPU time, because wall
time would also show how long the machine let somebody else run, and say little about us. The floor
is the same pages, read by bare aiohttp and thrown away.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from backstay.apis.core import POD_PROJECTION
from backstay.kube.reflector import Reflector
from backstay.kube.resource import PODS
from backstay.seam.tasks import Tasks
from bench.connect import bare_session, our_client
from bench.decode import new_cache
from bench.worker import Job, Measure, in_loop

_BEAT = 0.001
_LOOK_EVERY = 0.02


class _Heartbeat:
    """The most work between two beats, in milliseconds."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(_BEAT)
            now = time.thread_time()
            self.longest = max(self.longest, (now - before) * 1e3)
            before = now


@asynccontextmanager
async def _heartbeat(tasks: Tasks) -> AsyncIterator[_Heartbeat]:
    heartbeat = _Heartbeat()
    beating = tasks.spawn(heartbeat.run(), name="heartbeat")
    try:
        yield heartbeat
    finally:
        beating.cancel()


def ours(job: Job) -> Measure:
    async def work() -> float:
        cache = new_cache()
        async with our_client(job) as (seams, client), Tasks("bench") as tasks:
            reflector = Reflector(
                client, PODS, POD_PROJECTION, cache, rng=seams.rng, streaming=False
            )
            async with _heartbeat(tasks) as heartbeat:
                tasks.spawn(reflector.run(), name="pods")
                while not reflector.pictures:  # noqa: ASYNC110 - it has no event for this
                    await asyncio.sleep(_LOOK_EVERY)
        assert len(cache) == job.amount
        return heartbeat.longest

    return in_loop(work)


def bare(job: Job) -> Measure:
    async def work() -> float:
        async with (
            bare_session(job) as session,
            Tasks("bench") as tasks,
            _heartbeat(tasks) as heartbeat,
        ):
            for first in range(0, job.amount, 500):
                query = {"limit": "500", "continue": str(first)}
                async with session.get("/api/v1/pods", params=query) as answer:
                    await answer.read()
        return heartbeat.longest

    return in_loop(work)
