"""Watching: events per CPU second of the client, over TLS and HTTP, decoded and kept.

Ours is the reflector with its cache and indexes. The peer's is its watch alone: it hands out
objects and keeps nothing. Connecting and the (empty) LIST are in both figures.
"""

import asyncio
import time

from backstay.apis.core import POD_PROJECTION, PodRow
from backstay.kube.reflector import Reflector
from backstay.kube.resource import PODS
from backstay.seam.tasks import Tasks
from bench.connect import our_client
from bench.decode import new_cache
from bench.worker import Job, Measure, in_loop


class _Count:
    """A listener of the cache that says when enough changes have come."""

    def __init__(self, enough: int) -> None:
        self.reached = asyncio.Event()
        self._left = enough

    def __call__(self, old: PodRow | None, new: PodRow | None) -> None:
        self._left -= 1
        if not self._left:
            self.reached.set()


def ours(job: Job) -> Measure:
    async def work() -> float:
        cache = new_cache()
        count = _Count(job.amount)
        cache.subscribe(count)
        async with our_client(job) as (seams, client), Tasks("bench") as tasks:
            reflector = Reflector(
                client, PODS, POD_PROJECTION, cache, rng=seams.rng, streaming=False
            )
            started = time.process_time()
            tasks.spawn(reflector.run(), name="pods")
            await count.reached.wait()
            return job.amount / (time.process_time() - started)

    return in_loop(work)


def kubernetes_asyncio(job: Job) -> Measure:
    from kubernetes_asyncio import client, config, watch

    async def work() -> float:
        await config.load_kube_config(config_file=job.kubeconfig)
        async with client.ApiClient() as api, watch.Watch() as watching:
            started = time.process_time()
            left = job.amount
            pods = client.CoreV1Api(api)
            await pods.list_pod_for_all_namespaces(limit=500)
            async for _ in watching.stream(
                pods.list_pod_for_all_namespaces, resource_version="1", timeout_seconds=300
            ):
                left -= 1
                if not left:
                    break
            return job.amount / (time.process_time() - started)

    return in_loop(work)
