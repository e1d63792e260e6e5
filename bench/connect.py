"""How contenders reach the measuring server: ours as a command or a controller does it, the bare
ones with nothing but aiohttp."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from backstay.kube.client import KubeClient
from backstay.kube.find_access import find_access
from backstay.kube.limits import RateLimit, VerbLimits
from backstay.seam import Seams
from backstay.seam.real import open_seams
from bench.worker import Job

_NO_LIMIT = 1_000_000


@asynccontextmanager
async def our_client(job: Job) -> AsyncIterator[tuple[Seams, KubeClient]]:
    """The real seams and the real way in; only the rate limit, which would wait, is too high."""
    async with open_seams() as seams:
        access = await find_access(seams, environ={}, kubeconfig=job.kubeconfig)
        limits = VerbLimits(RateLimit(_NO_LIMIT, _NO_LIMIT), RateLimit(_NO_LIMIT, _NO_LIMIT))
        yield seams, KubeClient(seams.transport, access, limits=limits)


@asynccontextmanager
async def bare_session(job: Job) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cafile=job.authority)
    connector = aiohttp.TCPConnector(limit=0, ssl=context)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        job.server, connector=connector, timeout=timeout, read_bufsize=2**21
    ) as session:
        yield session
