"""Bugs that clients are known for, planted on purpose: each target exposes each (pytest.mark.real).

Every check passes for the sound client and fails for the one with the bug. Whatever goes wrong is
the API's own doing: its conflicts, bookmarks and preconditions, and its 410 for a version that it
was made to forget.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Unpack
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from backstay.kube import watch
from backstay.kube.cache import Cache
from backstay.kube.calls import Preconditions, Reply, WriteOptions
from backstay.kube.client import KubeClient
from backstay.kube.errors import Conflict, Gone
from backstay.kube.projection import Change, Projection
from backstay.kube.reflector import Reflector
from backstay.kube.resource import EVENTS, Resource
from backstay.seam.system import SystemRng
from backstay.seam.tasks import Tasks
from backstay.seam.transport import Request, Response, Stream, Transport
from tests.conformance.objects import config, event, named
from tests.conformance.targets import TIMEOUT, Api, Json

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")


class Row(msgspec.Struct, frozen=True):
    key: str
    uid: str
    version: str


def row(body: Json) -> Row:
    meta = body["metadata"]
    return Row(meta["name"], meta["uid"], meta["resourceVersion"])


class Attentive(Cache[Row]):
    """Says when it has heard something."""

    def __init__(self) -> None:
        super().__init__()
        self.news = asyncio.Event()

    def heard(self, now: float, version: str = "") -> None:
        super().heard(now, version)
        self.news.set()

    async def until_it_has(self, key: str) -> None:
        async with asyncio.timeout(TIMEOUT):
            while key not in {each.key for each in self}:
                self.news.clear()
                await self.news.wait()


class Interposed:
    """Notes from where watches resume; ``before`` is called first."""

    def __init__(self, inner: Transport) -> None:
        self.resumed: list[str] = []
        self.before: Callable[[], Awaitable[None]] | None = None
        self._inner = inner

    async def request(self, request: Request) -> Response:
        return await self._inner.request(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: Request) -> AsyncIterator[Stream]:
        version = parse_qs(urlsplit(request.url).query).get("resourceVersion")
        if version:
            self.resumed += version
            if self.before is not None:
                await self.before()
        async with self._inner.stream(request) as stream:
            yield stream


class IgnoresGone(Reflector[Any, Row]):
    """Goes on from now, without a new picture."""

    def _performance(self) -> Awaitable[watch.Happening]:
        return self._unconcerned(super()._performance())

    async def _unconcerned(self, performance: Awaitable[watch.Happening]) -> watch.Happening:
        try:
            return await performance
        except Gone:
            page = await self._list(limit=1, token=None, timeout=TIMEOUT)
            self.state = watch.Watching(page.version)
            return watch.Advanced(page.version)


class ForgetsBookmarks(Reflector[Any, Row]):
    """Remembers the versions of objects only."""

    _seen = ""

    def _stage(self, change: Change[Row]) -> bool:
        if change.kind != "BOOKMARK":
            self._seen = change.version
        return super()._stage(change)

    async def _read_stream(self) -> watch.Happening:
        happening = await super()._read_stream()
        if isinstance(happening, watch.PictureComplete):
            return watch.PictureComplete(self._seen)
        return happening


class DropsPreconditions(KubeClient):
    """Deletes whatever is there by now."""

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        conditions: Preconditions | None = None,
        **options: Unpack[WriteOptions],
    ) -> Reply:
        return await super().delete(resource, name, namespace=namespace, **options)


@asynccontextmanager
async def reflecting(
    api: Api, kind: type[Reflector[Any, Row]], resource: Resource
) -> AsyncIterator[tuple[Interposed, Attentive, Callable[[], None]]]:
    """The way there, the cache, and what starts the reflector that fills it."""
    way, cache = Interposed(api.transport), Attentive()
    client = KubeClient(way, api.client.access)
    reflector = kind(
        client, resource, Projection(dict, row), cache, rng=SystemRng(), namespace=api.namespace
    )
    async with Tasks("reflecting") as tasks:
        yield way, cache, lambda: void(tasks.spawn(reflector.run(), name="reflector"))


def void(_: object) -> None:
    """For those who start something and do not wait for it."""


# The checks


async def check_that_nothing_stays_that_went_unseen(
    api: Api, kind: type[Reflector[Any, Row]]
) -> None:
    """What was deleted while a version was forgotten must leave the cache."""
    path = api.at("events")
    await api.make(path, event("a", api.namespace))

    async def forget_once() -> None:
        if len(way.resumed) == 1:
            await api.delete(path + "/a")
            await api.make(path, event("b", api.namespace))
            await api.forget()

    async with reflecting(api, kind, EVENTS) as (way, cache, start):
        way.before = forget_once
        start()
        async with asyncio.timeout(TIMEOUT):
            while len(way.resumed) < 2:  # noqa: ASYNC110 - what is waited for is a mistake
                await asyncio.sleep(0.01)
        await api.make(path, event("c", api.namespace))
        await cache.until_it_has("c")
        assert {each.key for each in cache} == {"b", "c"}


async def check_that_a_watch_goes_on_where_the_picture_was(
    api: Api, kind: type[Reflector[Any, Row]]
) -> None:
    """Otherwise a quiet kind is asked for versions that are long forgotten."""
    await api.make(api.at("secrets"), named("a"))
    await api.make(api.at("configmaps"), config("later"))
    version = int((await api.read(api.at("secrets")))["metadata"]["resourceVersion"])
    async with reflecting(api, kind, SECRETS) as (way, _, start):
        start()
        async with asyncio.timeout(TIMEOUT):
            while not way.resumed:  # noqa: ASYNC110 - what is waited for is a mistake
                await asyncio.sleep(0.01)
        assert int(way.resumed[0]) >= version


async def check_that_no_increment_is_lost(api: Api, *, blindly: bool) -> None:
    """Two who read the same number, and write one after the other."""
    await api.make(api.at("configmaps"), config("a", n="0"))

    async def read() -> Json:
        return (await api.client.get(CONFIG_MAPS, "a", namespace=api.namespace)).json()

    async def write(seen: Json) -> None:
        mine = {**seen, "data": {"n": str(int(seen["data"]["n"]) + 1)}}
        try:
            await api.client.replace(CONFIG_MAPS, "a", mine, namespace=api.namespace)
        except Conflict:
            fresh = await read()
            await write({**fresh, "data": seen["data"]} if blindly else fresh)

    first, second = await read(), await read()
    await write(first)
    await write(second)
    assert (await read())["data"] == {"n": "2"}


async def check_that_a_successor_is_spared(api: Api, client: KubeClient) -> None:
    """A deletion that means one object must not hit the next one of its name."""
    path = api.at("secrets")
    uid = (await api.make(path, named("a")))["metadata"]["uid"]
    await api.delete(path + "/a")
    successor = await api.make(path, named("a"))
    try:
        await client.delete(SECRETS, "a", namespace=api.namespace, conditions={"uid": uid})
    except Conflict:
        refused = True
    else:
        refused = False
    assert refused
    assert await api.read(path + "/a") == successor


# The sound ones, and the bugs


async def test_a_sound_reflector_takes_a_new_picture_when_it_must(api: Api) -> None:
    await check_that_nothing_stays_that_went_unseen(api, Reflector)


async def test_a_reflector_that_ignores_410_is_caught(api: Api) -> None:
    with pytest.raises(AssertionError, match="'a'"):
        await check_that_nothing_stays_that_went_unseen(api, IgnoresGone)


async def test_a_sound_reflector_goes_on_from_the_bookmark(api: Api) -> None:
    await check_that_a_watch_goes_on_where_the_picture_was(api, Reflector)


async def test_a_reflector_that_forgets_bookmarks_is_caught(api: Api) -> None:
    with pytest.raises(AssertionError):
        await check_that_a_watch_goes_on_where_the_picture_was(api, ForgetsBookmarks)


async def test_a_sound_writer_begins_again_after_a_conflict(api: Api) -> None:
    await check_that_no_increment_is_lost(api, blindly=False)


async def test_a_writer_that_repeats_itself_after_a_conflict_is_caught(api: Api) -> None:
    with pytest.raises(AssertionError):
        await check_that_no_increment_is_lost(api, blindly=True)


async def test_a_sound_client_deletes_only_what_it_means(api: Api) -> None:
    await check_that_a_successor_is_spared(api, api.client)


async def test_a_client_that_drops_preconditions_is_caught(api: Api) -> None:
    client = DropsPreconditions(api.transport, api.client.access)
    with pytest.raises(AssertionError):
        await check_that_a_successor_is_spared(api, client)
