"""Writing: CPU microseconds of the client for one guarded PATCH of a pod, 64 of them at a time.

Guarded means: it names the version and the uid that it is about, and the moment after which it may
not leave. Connections are open before the clock starts; they are TLS and stay open. The answer is
the whole pod, as an API server sends it. Ours and bare aiohttp do not decode it: whoever writes
needs to know that it worked.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from backstay.kube.calls import MERGE_PATCH
from backstay.kube.resource import PODS
from bench.connect import bare_session, our_client
from bench.worker import Job, Measure, in_loop

_AT_ONCE = 64
_NAMESPACE = "team-000"
_NAME = "api-0"
_PATCH = {
    "metadata": {
        "uid": "c3598f25-6217-45fb-a1bc-565eee3ba27d",
        "resourceVersion": "700000003",
        "annotations": {"backstay.io/incident": "worker-0001-7d6c2f0a"},
    }
}


def ours(job: Job) -> Measure:
    async def work() -> float:
        loop = asyncio.get_running_loop()
        async with our_client(job) as (_, client):

            async def patch() -> None:
                await client.merge_patch(
                    PODS, _NAME, _PATCH, namespace=_NAMESPACE, not_after=loop.time() + 5
                )

            return await _cpu_per_call(patch, job.amount)

    return in_loop(work)


def bare(job: Job) -> Measure:
    """The same bytes and the same headers, with nothing around them."""
    path = PODS.path(namespace=_NAMESPACE, name=_NAME)
    body = msgspec.json.encode(_PATCH)
    headers = {
        "accept": "application/json",
        "user-agent": "backstay",
        "authorization": "Bearer not-a-secret",
        "content-type": MERGE_PATCH,
    }

    async def work() -> float:
        async with bare_session(job) as session:

            async def patch() -> None:
                async with session.patch(path, data=body, headers=headers) as answer:
                    await answer.read()

            return await _cpu_per_call(patch, job.amount)

    return in_loop(work)


def kubernetes_asyncio(job: Job) -> Measure:
    from kubernetes_asyncio import client, config

    async def work() -> float:
        await config.load_kube_config(config_file=job.kubeconfig)
        async with client.ApiClient() as api:
            pods = client.CoreV1Api(api)

            async def patch() -> None:
                await pods.patch_namespaced_pod(
                    _NAME, _NAMESPACE, _PATCH, _content_type=MERGE_PATCH
                )

            return await _cpu_per_call(patch, job.amount)

    return in_loop(work)


async def _cpu_per_call(call: Callable[[], Awaitable[None]], amount: int) -> float:
    callers = min(_AT_ONCE, amount)
    each = amount // callers

    async def repeat(times: int) -> None:
        for _ in range(times):
            await call()

    async def all_at_once(times: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(repeat(times))

    await all_at_once(2)  # Now every caller has a connection to come back to.
    started = time.process_time()
    await all_at_once(each)
    return (time.process_time() - started) / (each * callers) * 1e6
