"""Failing over: milliseconds from a proven death to the last of its pods being gone from the API.

A node of a real control plane is silent, and an armed controller holds its 100 pods. Then somebody
confirms the death. Ours is the whole controller as it runs in production, from the moment at which
it sees the confirmation: it decides, looks closely, says what it intends, raises the barrier (a
taint, and a graceful deletion of each pod), looks again, and removes each pod.

The floor is what nobody can do without: the same two deletions of each pod, with the same
preconditions and as many at once, sent by bare aiohttp with nothing between them.
"""

import asyncio
import itertools
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

from backstay.apis.backstay import CONFIGS, CONFIRMATIONS, INCIDENTS, ConfirmationRow
from backstay.app import App, build
from backstay.kube.access import Access
from backstay.kube.client import KubeClient
from backstay.kube.find_access import find_access
from backstay.kube.resource import LEASES, NODES, PODS
from backstay.model.labels import LEASE_NAMESPACE, PROTECT
from backstay.model.policy import Times
from backstay.seam.real import open_seams
from backstay.seam.tasks import Tasks
from backstay.seam.transport import Request, Response, Stream, Transport
from backstay.settings import Settings
from bench import plane
from bench.worker import Job, Measure, in_loop

AT_ONCE = 16
"""As many as the guard has under way."""

_CONTEXT = "admin-token"
_TIMES = Times(suspect=1.2, lost=2.0, confirmed=1.0, fresh=10.0)
_PATIENCE = 60.0


class _Dying:
    """A node that has fallen silent, with its pods; a new one for each round."""

    def __init__(self, client: KubeClient, name: str, amount: int) -> None:
        self.name = name
        self._client = client
        self._amount = amount

    async def create(self) -> None:
        await self._client.create(NODES, plane.node(self.name))
        await self._client.create(LEASES, plane.lease(self.name), namespace=LEASE_NAMESPACE)
        for number in range(self._amount):
            await self._client.create(PODS, self._pod(number), namespace=plane.NAMESPACE)

    async def confirm(self) -> None:
        live = (await self._client.get(NODES, self.name)).json()
        lease = (await self._client.get(LEASES, self.name, namespace=LEASE_NAMESPACE)).json()
        spec = {
            "node": self.name,
            "nodeUID": live["metadata"]["uid"],
            "bootID": live["status"]["nodeInfo"]["bootID"],
            "lastRenewal": lease["spec"]["renewTime"],
            "by": "the benchmark",
            "reason": "it was never there",
        }
        body = {
            "apiVersion": CONFIRMATIONS.api_version,
            "kind": CONFIRMATIONS.kind,
            "metadata": {"name": self.name},
            "spec": spec,
        }
        await self._client.create(CONFIRMATIONS, body)

    async def pods(self) -> list[dict[str, Any]]:
        reply = await self._client.list(PODS, fields=f"spec.nodeName={self.name}")
        found: list[dict[str, Any]] = reply.json()["items"]
        return found

    async def remove(self) -> None:
        assert await self.pods() == []
        await self._client.delete(NODES, self.name)
        await self._client.delete(LEASES, self.name, namespace=LEASE_NAMESPACE)

    def _pod(self, number: int) -> dict[str, Any]:
        """Labelled for protection and owned by nobody, so that no other controller has work."""
        name = f"{self.name}-{number}"
        variables = [{"name": f"SETTING_{n}", "value": "v" * 40} for n in range(20)]
        container = {
            "name": "main",
            "image": "registry.example/team/app:1",
            "env": variables,
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        }
        return {
            "metadata": {"name": name, "labels": {"app": name, PROTECT: "true"}},
            "spec": {"nodeName": self.name, "containers": [container]},
        }


# Ours


class _Stopwatch:
    """A transport that notes when the last answer to a removal came."""

    def __init__(self, inner: Transport) -> None:
        self.removals = 0
        self.removed_at = 0.0
        self.news = asyncio.Event()
        self._inner = inner

    async def request(self, request: Request) -> Response:
        response = await self._inner.request(request)
        if request.method == "DELETE" and b'"gracePeriodSeconds":0' in request.body:
            self.removals += 1
            self.removed_at = time.perf_counter()
            self.news.set()
        return response

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._inner.stream(request)

    async def until(self, removals: int) -> None:
        while self.removals < removals:
            await self.news.wait()
            self.news.clear()


def ours(job: Job) -> Measure:
    names = _names("ours")

    async def work() -> float:
        async with _connected(job) as client, _controller(job) as (app, stopwatch):
            dying = _Dying(client, next(names), job.amount)
            await dying.create()
            async with asyncio.timeout(_PATIENCE):
                await _until_held(app, dying.name, job.amount)
                await app.events.flush(_PATIENCE)
                seen = _moment_of(app, dying.name)
                await dying.confirm()
                await stopwatch.until(job.amount)
                took = stopwatch.removed_at - seen[0]
            await client.delete(CONFIRMATIONS, dying.name)
            await dying.remove()
            return took * 1e3

    return in_loop(work)


@asynccontextmanager
async def _controller(job: Job) -> AsyncIterator[tuple[App, _Stopwatch]]:
    """One that leads and is armed; only its times of silence are short."""
    async with open_seams() as seams, Tasks("controller") as tasks:
        access = await _access(job)
        stopwatch = _Stopwatch(seams.transport)
        client = KubeClient(stopwatch, access)
        await _arm(client)
        settings = Settings(identity="bench", times=_TIMES, poll_leases=0.25)
        app = build(settings, replace(seams, transport=stopwatch), client)
        running = tasks.spawn(app.run(), name="controller")
        yield app, stopwatch
        running.cancel()
        await asyncio.wait({running})
        await client.delete_collection(INCIDENTS)
        await client.delete_collection(CONFIGS)


async def _arm(client: KubeClient) -> None:
    body = {
        "apiVersion": CONFIGS.api_version,
        "kind": CONFIGS.kind,
        "metadata": {"name": "cluster"},
        "spec": {"mode": "Armed"},
    }
    await client.create(CONFIGS, body)


async def _until_held(app: App, node: str, amount: int) -> None:
    """Until all is known and told that there is, but for the proof."""
    while True:
        incident = app.loop.incidents.get(node)
        if incident is not None and incident.row.status.held == amount:
            return
        await asyncio.sleep(0.05)


def _moment_of(app: App, node: str) -> list[float]:
    """Filled in when the controller sees that the death is confirmed."""
    seen: list[float] = []

    def note(old: ConfirmationRow | None, new: ConfirmationRow | None) -> None:
        if new is not None and new.node == node:
            seen.append(time.perf_counter())

    app.operator.confirmed.subscribe(note)
    return seen


# The floor


def bare(job: Job) -> Measure:
    names, token = _names("bare"), _token(job)

    async def work() -> float:
        async with _connected(job) as client, _session(job, token) as session:
            dying = _Dying(client, next(names), job.amount)
            await dying.create()
            pods = await dying.pods()
            started = time.perf_counter()
            marked = await _all_of_them(session, pods, {})
            await _all_of_them(session, marked, {"gracePeriodSeconds": 0})
            took = time.perf_counter() - started
            await dying.remove()
            return took * 1e3

    return in_loop(work)


async def _all_of_them(
    session: aiohttp.ClientSession, pods: list[dict[str, Any]], options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Deletes each; the pods as the API answered."""
    left = iter(pods)

    async def work_off() -> list[dict[str, Any]]:
        return [await _delete(session, pod["metadata"], options) for pod in left]

    answers = await asyncio.gather(*(work_off() for _ in range(AT_ONCE)))
    return [answer for each in answers for answer in each]


async def _delete(
    session: aiohttp.ClientSession, meta: dict[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    exactly = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": exactly, **options}
    path = PODS.path(namespace=plane.NAMESPACE, name=meta["name"])
    async with session.delete(path, data=msgspec.json.encode(body)) as answer:
        content = await answer.read()
        assert answer.status == 200, content
        answered: dict[str, Any] = msgspec.json.decode(content)
        return answered


# What both have


def _names(prefix: str) -> Iterator[str]:
    return (f"{prefix}-{number}" for number in itertools.count())


async def _access(job: Job) -> Access:
    async with open_seams() as seams:
        return await find_access(seams, environ={}, kubeconfig=job.kubeconfig, context=_CONTEXT)


@asynccontextmanager
async def _connected(job: Job) -> AsyncIterator[KubeClient]:
    """For what is set up and cleared away."""
    async with open_seams() as seams:
        yield KubeClient(seams.transport, await _access(job))


def _token(job: Job) -> str:
    users = yaml.safe_load(Path(job.kubeconfig).read_text())["users"]
    (token,) = [each["user"]["token"] for each in users if each["name"] == _CONTEXT]
    return str(token)


@asynccontextmanager
async def _session(job: Job, token: str) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    context = ssl.create_default_context(cafile=job.authority)
    connector = aiohttp.TCPConnector(limit=0, ssl=context)
    async with aiohttp.ClientSession(job.server, connector=connector, headers=headers) as session:
        yield session
