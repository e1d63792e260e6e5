"""One kind of object on a scripted API, and a reflector that looks at it.

``page``, ``stream`` and ``Feed`` are steps of the script. ``stream`` says what it has to say to
everyone who asks; a ``Feed`` is a stream that the test speaks into while it is being read.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from backstay.kube.cache import Cache
from backstay.kube.projection import Meta, Projection
from backstay.kube.reflector import Reflector
from backstay.kube.resource import Resource
from backstay.seam.clock import Rng
from backstay.seam.serve import Answer, Inbound
from backstay.seam.tasks import Tasks
from backstay.sim.network import Sent
from tests.support.dice import LOWEST
from tests.support.scripted import Step, World, json, now, world

Json = dict[str, Any]

THINGS = Resource("example.org", "v1", "things", "Thing")


class Thing(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta
    size: int = 0


class ThingRow(msgspec.Struct, frozen=True, gc=False):
    key: str
    uid: str
    version: str
    size: int


def thing_row(thing: Thing) -> ThingRow:
    meta = thing.metadata
    return ThingRow(meta.key, meta.uid, meta.resource_version, thing.size)


PROJECTION: Projection[Thing, ThingRow] = Projection(Thing, thing_row)


def thing(name: str, version: int, *, uid: str = "", size: Any = 0) -> Json:
    meta = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": meta, "size": size}


def row(name: str, version: int, *, uid: str = "", size: int = 0) -> ThingRow:
    return ThingRow(name, uid or f"uid-{name}", str(version), size)


# Lines


def line(kind: str, body: Json) -> bytes:
    return msgspec.json.encode({"type": kind, "object": body}) + b"\n"


def added(name: str, version: int, **more: Any) -> bytes:
    return line("ADDED", thing(name, version, **more))


def modified(name: str, version: int, **more: Any) -> bytes:
    return line("MODIFIED", thing(name, version, **more))


def deleted(name: str, version: int, **more: Any) -> bytes:
    return line("DELETED", thing(name, version, **more))


def bookmark(version: int) -> bytes:
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def end_of_initial_events(version: int) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"}
    meta = {"resourceVersion": str(version), "annotations": annotations}
    return line("BOOKMARK", {"metadata": meta})


def error(code: int, reason: str = "") -> bytes:
    return line("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": "because"})


# Steps


def page(*objects: Json, version: int, token: str = "") -> Answer:
    meta = {"resourceVersion": str(version), "continue": token}
    return json({"kind": "ThingList", "metadata": meta, "items": objects})


def stream(*lines: bytes, ends: bool = False) -> Callable[[Inbound], Awaitable[Answer]]:
    """Says all of it in one breath, to each who asks; then it ends, or stays open in silence."""

    async def body() -> AsyncIterator[bytes]:
        if lines:
            yield b"".join(lines)
        if not ends:
            await asyncio.Event().wait()

    async def step(_: Inbound) -> Answer:
        return Answer(body=body())

    return step


PICTURE = stream(added("a", 3), added("b", 4), end_of_initial_events(5))
"""A full picture at version 5."""


class Feed:
    """A stream that a test speaks into."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def __call__(self, _: Inbound) -> Answer:
        return Answer(body=self._body())

    def say(self, *lines: bytes) -> None:
        """In one piece, as lines that follow each other closely arrive."""
        self._queue.put_nowait(b"".join(lines))

    def end(self) -> None:
        self._queue.put_nowait(None)

    async def _body(self) -> AsyncIterator[bytes]:
        while (piece := await self._queue.get()) is not None:
            yield piece


# What was asked


class Asked(msgspec.Struct, frozen=True):
    """One request: when, whether a watch or a list, and its query."""

    at: float
    verb: str
    query: dict[str, str]

    @property
    def since(self) -> str | None:
        return self.query.get("resourceVersion")


def asked(sent: Sent) -> Asked:
    query = dict(parse_qsl(urlsplit(sent.request.url).query))
    return Asked(sent.at, "watch" if query.get("watch") == "true" else "list", query)


# The reflector

Told = tuple[ThingRow | None, ThingRow | None]

SHORTEST_WAIT = 0.25
"""What a reflector with ``LOWEST`` dice waits after a failure."""


class Scene:
    """A reflector at work, and all that can be seen of it."""

    def __init__(self, w: World, tasks: Tasks, rng: Rng, options: dict[str, Any]) -> None:
        self.world = w
        self.cache: Cache[ThingRow] = Cache({"size": lambda row: (str(row.size),)})
        self.told: list[Told] = []
        self.cache.subscribe(lambda old, new: self.told.append((old, new)))
        self.reflector = Reflector(w.client, THINGS, PROJECTION, self.cache, rng=rng, **options)
        self.running = tasks.spawn(self.reflector.run(), name="run")

    @property
    def asked(self) -> list[Asked]:
        return [asked(sent) for sent in self.world.link().sent]

    @property
    def rows(self) -> list[ThingRow]:
        return sorted(self.cache, key=lambda row: row.key)

    @property
    def age(self) -> float:
        return self.cache.age(now())

    def then(self, *steps: Step) -> None:
        """From the next request on, this is the script."""
        self.world.server().script = list(steps)

    async def turn(self) -> None:
        """Lets everything happen that can happen before time has to pass."""
        await asyncio.sleep(1e-6)


@asynccontextmanager
async def reflecting(*script: Step, rng: Rng = LOWEST, **options: Any) -> AsyncIterator[Scene]:
    w = await world()
    w.server().script = list(script)
    async with Tasks("reflector") as tasks:
        scene = Scene(w, tasks, rng, options)
        await scene.turn()
        yield scene
