"""LINSTOR controllers in memory that say what a test says, and a client that asks them.

A ``Controller`` answers a path with what stands in ``answers`` for it, and each subscription to its
events with the next step of ``streams``; the last one stays. ``Feed`` and ``says`` are such steps.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from backstay.drivers.linstor.access import access_from
from backstay.drivers.linstor.client import Linstor
from backstay.seam.serve import Answer, Inbound, ServerTls
from backstay.sim.files import MemoryFiles
from backstay.sim.network import Link, Network

EVENTS = "/v1/events/drbd/promotion"
VERSION = "/v1/controller/version"
PROPERTIES = "/v1/controller/properties"
NEVER = 1e9
"""A ``connect_delay`` that nobody lives to see: packets go in and nothing comes out."""

Json = dict[str, Any]
Step = Answer | Callable[[Inbound], Awaitable[Answer]]


def json(body: Any, *, status: int = 200) -> Answer:
    return Answer(status=status, body=msgspec.json.encode(body))


def not_found(what: str = "Resource definition 'x' not found.") -> Answer:
    return json([{"ret_code": -4611686018427387603, "message": what}], status=404)


class Controller:
    def __init__(self) -> None:
        self.answers: dict[str, Step] = {VERSION: json({"version": "1.33.3"})}
        self.everything: Step | None = None
        """What it answers whatever it is asked, events too."""
        self.streams: list[Step] = []
        self.seen: list[Inbound] = []

    async def __call__(self, inbound: Inbound) -> Answer:
        self.seen.append(inbound)
        step = self.everything or self._step(inbound.path)
        return step if isinstance(step, Answer) else await step(inbound)

    def _step(self, path: str) -> Step:
        if path == EVENTS and self.streams:
            return self.streams.pop(0) if len(self.streams) > 1 else self.streams[0]
        if path.endswith("-connections"):
            return self.answers.get(path, json([]))
        return self.answers.get(path, not_found())

    def asked(self, path: str) -> int:
        return sum(inbound.path == path for inbound in self.seen)


class Scene:
    """Made by ``scene``."""

    def __init__(self, *hosts: str, **environment: str) -> None:
        self.network = Network()
        self.files = MemoryFiles()
        self.hosts = {host: Controller() for host in hosts}
        access = access_from({"LS_CONTROLLERS": ",".join(hosts), **environment})
        self.linstor = Linstor(self.network.transport, self.files, access)

    def __getitem__(self, host: str) -> Controller:
        return self.hosts[host]

    def link(self, host: str = "a") -> Link:
        (url,) = (url for url in self.linstor.controllers if f"//{host}:" in url)
        return self.network.link(url)


async def scene(*hosts: str, **environment: str) -> Scene:
    made = Scene(*(hosts or ("a",)), **environment)
    for url, controller in zip(made.linstor.controllers, made.hosts.values(), strict=True):
        scheme, _, place = url.partition("://")
        host, _, port = place.rpartition(":")
        tls = ServerTls(cert=b"", key=b"") if scheme == "https" else None
        await made.network.serve.listen(controller, host=host, port=int(port), tls=tls)
    return made


# Events


def event(resource: str, node: str, may_promote: bool | None = True) -> bytes:
    data: Json = {"resource_name": resource, "node_name": node}
    if may_promote is not None:
        data["may_promote"] = may_promote
    return b"event: may-promote-change\ndata: " + msgspec.json.encode(data) + b"\n\n"


def sending(body: bytes | AsyncIterator[bytes]) -> Answer:
    return Answer(headers={"Content-Type": "text/event-stream"}, body=body)


def says(*pieces: bytes, ends: bool = False) -> Step:
    """To each who asks; then it ends, or stays open in silence."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        if not ends:
            await asyncio.Event().wait()

    async def step(_: Inbound) -> Answer:
        return sending(body())

    return step


class Feed:
    """A stream that a test speaks into. ``late``: its head comes with the first thing said."""

    def __init__(self, *, late: bool = False) -> None:
        self._late = late
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._begins = asyncio.Event()

    async def __call__(self, _: Inbound) -> Answer:
        if self._late:
            await self._begins.wait()
        return sending(self._body())

    def say(self, *pieces: bytes) -> None:
        self._begins.set()
        for piece in pieces:
            self._queue.put_nowait(piece)

    def end(self) -> None:
        self._queue.put_nowait(None)

    async def _body(self) -> AsyncIterator[bytes]:
        while (piece := await self._queue.get()) is not None:
            yield piece
