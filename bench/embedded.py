"""The embedded API, in memory, on one core: how many requests or events in a CPU second.

20,000 objects of 3.5 KB are there. Everybody else in these rows does the bare JSON work of the
same request, without an API around it: nobody can do with less than that.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec

from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.limits import RateLimit, VerbLimits
from backstay.kube.resource import Resource
from backstay.seam.serve import Answer, Inbound
from backstay.seam.system import SystemClock, SystemRng
from backstay.sim import loop
from backstay.sim.api.server import ApiServer
from backstay.sim.network import Network
from bench.worker import Job, Measure, in_loop

OBJECTS = 20_000
WATCHERS = 50
_PATH = "/api/v1/namespaces/bench/configmaps"
_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"

_UNLIMITED = VerbLimits(RateLimit(1e9, 1_000_000), RateLimit(1e9, 1_000_000))

Object = dict[str, Any]


def _object(name: str, keys: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": name[-2:], "tier": "bench"}},
        "data": {f"key-{key}": "v" * 80 for key in range(keys)},
    }


class _Api:
    """An API server with its objects, and a way to ask it something."""

    def __init__(self) -> None:
        self.server = ApiServer(wall=SystemClock(), rng=SystemRng(1))

    async def fill(self) -> None:
        await self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
        for number in range(OBJECTS):
            await self.ask("POST", _PATH, _object(f"c{number:05}", 30))

    async def ask(
        self, method: str, path: str, body: object = None, *, kind: str = "", query: str = ""
    ) -> Answer:
        headers = {"user-agent": "bench", "content-type": kind or "application/json"}
        sent = msgspec.json.encode(body) if body is not None else b""
        answer = await self.server.handle(
            Inbound(method=method, path=path, query=query, headers=headers, body=sent)
        )
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path} was answered with {answer.status}")
        return answer

    async def watch(self, counts: list[int]) -> None:
        place = len(counts)
        counts.append(0)
        version = self.server.store.version
        answer = await self.ask("GET", _PATH, query=f"watch=true&resourceVersion={version}")
        assert not isinstance(answer.body, bytes)
        async for lines in answer.body:
            counts[place] += lines.count(b"\n")


def _filled() -> _Api:
    api = _Api()
    asyncio.run(api.fill())
    return api


def gets(job: Job) -> Measure:
    api = _filled()

    async def work() -> float:
        started = time.process_time()
        for number in range(job.amount):
            await api.ask("GET", f"{_PATH}/c{number % OBJECTS:05}")
        return job.amount / (time.process_time() - started)

    return in_loop(work)


def _patches(job: Job, *, watchers: int, figure: Callable[[int, int], int]) -> Measure:
    api = _filled()
    rounds = iter(range(1_000_000))

    async def work() -> float:
        value, counts = next(rounds), list[int]()
        async with asyncio.TaskGroup() as group:
            watching = [group.create_task(api.watch(counts)) for _ in range(watchers)]
            await asyncio.sleep(0)
            started = time.process_time()
            for number in range(job.amount):
                patch = {"data": {"key-1": f"{value}-{number}"}}
                await api.ask("PATCH", f"{_PATH}/c{number % OBJECTS:05}", patch, kind=_MERGE)
                if number % 50 == 0:
                    await asyncio.sleep(0)
            while sum(counts) < watchers * job.amount:  # noqa: ASYNC110 - watchers tell nobody
                await asyncio.sleep(0)
            took = time.process_time() - started
            for task in watching:
                task.cancel()
        return figure(job.amount, watchers) / took

    return in_loop(work)


def merge_patches(job: Job) -> Measure:
    return _patches(job, watchers=3, figure=lambda patches, _: patches)


def events(job: Job) -> Measure:
    return _patches(job, watchers=WATCHERS, figure=lambda patches, watchers: patches * watchers)


def applies(job: Job) -> Measure:
    """8 KB each; in every round, each object has one field changed."""
    api = _filled()
    bodies = [_object(f"big{number:05}", 88) for number in range(job.amount)]
    rounds = iter(range(1_000_000))

    async def work() -> float:
        value = str(next(rounds))
        for body in bodies:
            body["data"]["key-1"] = value
        started = time.process_time()
        for body in bodies:
            path = f"{_PATH}/{body['metadata']['name']}"
            await api.ask("PATCH", path, body, kind=_APPLY, query="fieldManager=bench&force=true")
        return job.amount / (time.process_time() - started)

    return in_loop(work)


def simulated_calls(job: Job) -> Measure:
    """Whole calls of the real client, over the simulated network, under virtual time."""

    async def work() -> float:
        api, network = _Api(), Network()
        await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
        await api.ask("POST", _PATH, _object("c00000", 30))
        await network.serve.listen(api.server.handle, host="api", port=80)
        client = KubeClient(
            network.transport, GivenAccess("http://api:80", Grant()), limits=_UNLIMITED
        )
        configmaps = Resource("", "v1", "configmaps", "ConfigMap")
        started = time.process_time()
        for _ in range(job.amount):
            await client.get(configmaps, "c00000", namespace="bench")
        return job.amount / (time.process_time() - started)

    return lambda: loop.run(work())


def handled_calls(job: Job) -> Measure:
    """The same calls, made by calling the handler."""

    async def work() -> float:
        api = _Api()
        await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
        await api.ask("POST", _PATH, _object("c00000", 30))
        started = time.process_time()
        for _ in range(job.amount):
            await api.ask("GET", f"{_PATH}/c00000")
        return job.amount / (time.process_time() - started)

    return lambda: loop.run(work())


def bare_json(job: Job) -> Measure:
    """Decode a change, decode an object of 3.5 KB, change it, encode it."""
    stored = msgspec.json.encode(_object("c", 30))
    patch = msgspec.json.encode({"data": {"key-1": "changed"}})

    def work() -> float:
        started = time.process_time()
        for _ in range(job.amount):
            obj = msgspec.json.decode(stored)
            obj["data"].update(msgspec.json.decode(patch)["data"])
            msgspec.json.encode(obj)
        return job.amount / (time.process_time() - started)

    return work
