"""The embedded API's faults: each does what a real server can do, and nothing else."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from backstay.kube import errors
from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.projection import Meta, Projection
from backstay.kube.reflector import Reflector
from backstay.kube.resource import NODES
from backstay.seam.serve import Inbound
from backstay.seam.system import SystemRng
from backstay.seam.tasks import Tasks
from backstay.sim.api.faults import Again, Behind, Busy, Fault, FaultyServer, Forgot, GaveUp
from backstay.sim.api.server import ApiServer
from backstay.sim.clock import LoopClock
from backstay.sim.network import Network
from tests.support.scripted import Badges
from tests.support.virtual import virtual_time

URL = "http://api:80"


class World:
    """An API with faults in a queue: the next request that one fits gets it."""

    def __init__(self) -> None:
        self.server = ApiServer(wall=LoopClock(), rng=SystemRng(1))
        self.faults: list[Fault] = []
        self.network = Network()
        self.client = KubeClient(self.network.transport, Badges(URL, "t"))

    async def open(self) -> None:
        await self.network.serve.listen(
            FaultyServer(self.server, self._next).handle, host="api", port=80
        )

    def _next(self, inbound: Inbound) -> Fault | None:
        for_watches = bool(self.faults) and isinstance(self.faults[0], Forgot | Again)
        if not self.faults or (for_watches and "watch=true" not in inbound.query):
            return None
        return self.faults.pop(0)

    async def node(self, name: str) -> None:
        await self.client.create(NODES, {"metadata": {"name": name}})

    async def label(self, name: str, value: str) -> None:
        patch = {"metadata": {"labels": {"v": value}}}
        await self.client.merge_patch(NODES, name, patch)


async def world() -> World:
    made = World()
    await made.open()
    return made


@virtual_time
async def test_a_busy_server_has_done_nothing() -> None:
    w = await world()
    w.faults.append(Busy(503, None))
    with pytest.raises(errors.ServiceUnavailable):
        await w.node("n1")
    with pytest.raises(errors.NotFound):
        await w.client.get(NODES, "n1")


@virtual_time
async def test_a_server_that_gave_up_has_done_it_all_the_same() -> None:
    w = await world()
    w.faults.append(GaveUp())
    with pytest.raises(errors.ServerTimeout):
        await w.node("n1")
    assert (await w.client.get(NODES, "n1")).json()["metadata"]["name"] == "n1"


@virtual_time
async def test_only_who_accepts_any_version_is_served_an_old_one() -> None:
    w = await world()
    await w.node("n1")
    await w.label("n1", "old")
    await w.label("n1", "new")
    for version, expected in (("0", "old"), (None, "new")):
        w.faults.append(Behind(1))
        found = (await w.client.get(NODES, "n1", resource_version=version)).json()
        assert found["metadata"]["labels"]["v"] == expected
        w.faults.append(Behind(1))
        listed = (await w.client.list(NODES, resource_version=version)).json()
        assert listed["items"][0]["metadata"]["labels"]["v"] == expected


class Named(msgspec.Struct, frozen=True):
    metadata: Meta


class NamedRow(msgspec.Struct, frozen=True):
    key: str
    uid: str
    version: str


def _row(named: Named) -> NamedRow:
    meta = named.metadata
    return NamedRow(meta.key, meta.uid, meta.resource_version)


async def follow(w: World) -> AsyncIterator[tuple[Reflector[Named, NamedRow], list[str]]]:
    cache: Cache[NamedRow] = Cache()
    told: list[str] = []
    cache.subscribe(lambda old, new: told.append((new or old or NamedRow("", "", "")).version))
    reflector = Reflector(
        w.client, NODES, Projection(Named, _row), cache, rng=SystemRng(1), streaming=False
    )
    async with Tasks("test") as tasks:
        tasks.spawn(reflector.run(), name="reflector")
        await asyncio.sleep(1)
        yield reflector, told


@virtual_time
async def test_a_watch_that_was_forgotten_is_followed_by_a_new_picture() -> None:
    w = await world()
    await w.node("n1")
    async for reflector, _ in follow(w):
        w.faults.append(Forgot())
        w.network.link(URL).cut()
        await asyncio.sleep(60)
        await w.node("n2")
        await asyncio.sleep(1)
        assert reflector.pictures == 2
        assert {row.key for row in reflector.cache} == {"n1", "n2"}


@virtual_time
async def test_what_a_resumed_watch_tells_again_is_no_news() -> None:
    w = await world()
    await w.node("n1")
    async for reflector, told in follow(w):
        await w.label("n1", "a")
        await asyncio.sleep(1)
        known = list(told)
        w.faults.append(Again(1))
        w.network.link(URL).cut()
        await asyncio.sleep(60)
        assert reflector.pictures == 1
        assert told == known
