"""Decoding a LIST: CPU microseconds per pod, from the bytes of the pages to objects that are kept.

Ours ends in a cache with two indexes. The peers' ends as soon as they have objects: no cache, no
index. Everyone gets the same pages of 500.
"""

import io
import json
import time
from collections.abc import Callable

from backstay.apis.core import POD_PROJECTION, PodRow
from backstay.kube.cache import Cache
from bench import pods
from bench.worker import Job, Measure


def new_cache() -> Cache[PodRow]:
    """With the indexes that a controller of nodes and their workloads has."""
    return Cache({"node": lambda row: (row.node,), "owner": lambda row: (row.owner_uid,)})


def ours(job: Job) -> Measure:
    def decode(bodies: list[bytes]) -> object:
        cache = new_cache()
        staged = cache.replacement()
        for body in bodies:
            page = POD_PROJECTION.page(body, call="bench")
            staged.add(page.rows, page.unreadable)
        for _ in staged.settle(version="1", as_of=0.0):
            pass
        assert len(cache) == job.amount
        return cache

    return _measured(job, decode)


def stdlib_json(job: Job) -> Measure:
    return _measured(job, lambda bodies: [json.loads(body) for body in bodies])


def official(job: Job) -> Measure:
    """What the official client does with an answer once it has arrived, by its own functions."""
    import urllib3
    from kubernetes.client import ApiClient, Configuration
    from kubernetes.client.rest import RESTResponse

    client = ApiClient(Configuration())
    kinds = {"200": "V1PodList"}

    def decode(bodies: list[bytes]) -> object:
        kept = []
        for body in bodies:
            headers = {"content-type": "application/json"}
            answer = RESTResponse(
                urllib3.HTTPResponse(io.BytesIO(body), headers, status=200, preload_content=False)
            )
            answer.read()
            kept.append(client.response_deserialize(answer, kinds).data)
        assert sum(len(page.items) for page in kept) == job.amount
        return kept

    return _measured(job, decode)


def _measured(job: Job, decode: Callable[[list[bytes]], object]) -> Measure:
    bodies = list(pods.pages(job.amount))

    def measure() -> float:
        started = time.process_time()
        kept = decode(bodies)
        spent = time.process_time() - started
        del kept
        return spent / job.amount * 1e6

    return measure
