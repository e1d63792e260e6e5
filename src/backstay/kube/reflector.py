"""Reflector: keeps a cache in step with the API, for ever.

It is the shell around ``watch.step``: it performs what the state says, reports what happened,
and waits as told. It never gives up and never dies of an answer; ``trouble`` says what is wrong
at the moment, for people, and the cache's ``age`` says how old its picture has become.

Work is done in slices with a turn for others in between, so that the loop that also renews our
lease is never held up by a large list or a burst of events.
"""

import asyncio
import logging
from typing import Generic, NoReturn, assert_never

from backstay.kube import watch
from backstay.kube.cache import Cache, Replacement
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError
from backstay.kube.limits import Backoff
from backstay.kube.projection import Change, Projection, R, W
from backstay.kube.resource import Resource
from backstay.seam.clock import Rng

_log = logging.getLogger("backstay.reflector")

_SLICE = 250
_PRODUCTIVE_AFTER = 5.0


class Reflector(Generic[W, R]):
    """One kind of object, in one namespace or all, narrowed by selectors if given.

    ``idle`` is how long a watch may be silent: the server sends a bookmark about every minute,
    so longer silence means that the connection leads nowhere.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        projection: Projection[W, R],
        cache: Cache[R],
        *,
        rng: Rng,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        streaming: bool = True,
        page_size: int = 500,
        idle: float = 90.0,
    ) -> None:
        self.cache = cache
        self.state: watch.State = watch.Begin(streaming)
        self.trouble: KubeError | None = None
        self.pictures = 0
        self.resumptions = 0
        self.rewinds = 0
        self._client = client
        self._resource = resource
        self._projection = projection
        self._rng = rng
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._page_size = page_size
        self._idle = idle
        self._staged: Replacement[R] = cache.replacement()
        self._backoff = Backoff(base=0.5, cap=30.0, rng=rng)
        self._long = Backoff(base=20.0, cap=60.0, rng=rng)

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            try:
                happening = await self._perform()
            except KubeError as error:
                happening = watch.Failed(error)
                self._note(error)
            turn = watch.step(self.state, happening)
            self.state = turn.state
            await self._pause(turn)

    async def _perform(self) -> watch.Happening:
        match self.state:
            case watch.Begin():
                self._staged = self.cache.replacement()
                return watch.Started()
            case watch.Paging(token):
                return await self._read_page(token)
            case watch.Streaming():
                return await self._follow(None)
            case watch.Watching(version):
                self.resumptions += 1
                return await self._follow(version)
            case _:
                assert_never(self.state)

    async def _pause(self, turn: watch.Next) -> None:
        if turn.wait is watch.Wait.NOT:
            return
        backoff = self._backoff if turn.wait is watch.Wait.BACKOFF else self._long
        await asyncio.sleep(max(backoff.next(), turn.at_least))

    def _note(self, error: KubeError) -> None:
        # Once per trouble, not once per attempt: the same sentence every half second helps nobody.
        if self.trouble is None or str(self.trouble) != str(error):
            _log.warning("%s: %s", self._resource.label, error)
        self.trouble = error

    def _fine(self) -> None:
        self.trouble = None
        self._backoff.reset()
        self._long.reset()

    async def _read_page(self, token: str | None) -> watch.Happening:
        reply = await self._client.list(
            self._resource,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            limit=self._page_size,
            token=token,
        )
        page = self._projection.page(reply.body, call=reply.call)
        self._fine()
        self._staged.add(page.rows, page.unreadable)
        await asyncio.sleep(0)
        if page.token is None:
            await self._complete(page.version)
        return watch.PageRead(page.version, page.token)

    async def _complete(self, version: str) -> None:
        """The picture is whole: swap it in, slice by slice."""
        if _is_older(version, self.cache.version):
            self.rewinds += 1
            _log.error(
                "%s: the API is at version %s, but we have seen %s: it was rolled back",
                self._resource.label, version, self.cache.version,
            )  # fmt: skip
        now = asyncio.get_running_loop().time()
        for _ in self._staged.settle(version=version, now=now):
            await asyncio.sleep(0)
        self._staged = self.cache.replacement()
        self.pictures += 1

    async def _follow(self, version: str | None) -> watch.Happening:
        """One watch, from its request to its end."""
        loop = asyncio.get_running_loop()
        opened_at = loop.time()
        productive = False
        async with self._client.watch(
            self._resource,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            resource_version=version,
            initial_events=version is None,
            # Spread, so that the watches of a fleet do not all end in the same second.
            seconds=240 + int(self._rng.random() * 240),
        ) as lines:
            while (batch := await lines.read(self._idle)) is not None:
                productive = True
                self._fine()
                await self._absorb(batch, lines.call)
        lasted = loop.time() - opened_at >= _PRODUCTIVE_AFTER
        return watch.Ended(productive or lasted)

    async def _absorb(self, batch: list[bytes], call: str) -> None:
        for start in range(0, len(batch), _SLICE):
            version = ""
            try:
                for line in batch[start : start + _SLICE]:
                    change = self._projection.change(line, call=call)
                    await self._take(change)
                    version = change.version
            finally:
                # Also when a line in the middle was an error: what came before it was taken,
                # and must not be taken again.
                self._advance(version)
            await asyncio.sleep(0)

    async def _take(self, change: Change[R]) -> None:
        if not isinstance(self.state, watch.Streaming):
            self._apply(change)
        elif not change.complete:
            self._stage(change)
        else:
            await self._complete(change.version)
            self.state = watch.step(self.state, watch.PictureComplete(change.version)).state

    def _advance(self, version: str) -> None:
        # An unfinished picture says nothing about the one that the cache holds.
        if version and isinstance(self.state, watch.Watching):
            self.cache.heard(asyncio.get_running_loop().time(), version)
            self.state = watch.step(self.state, watch.Advanced(version)).state

    def _stage(self, change: Change[R]) -> None:
        if change.row is not None and change.kind != "DELETED":
            self._staged.add((change.row,))
        elif change.row is not None:
            self._staged.drop(change.row.key)
        elif change.unreadable is not None:
            self._staged.add((), (change.unreadable,))

    def _apply(self, change: Change[R]) -> None:
        if change.row is not None and change.kind != "DELETED":
            self.cache.put(change.row)
        elif change.row is not None:
            self.cache.drop(change.row.key)
        elif change.unreadable is not None and change.kind == "DELETED":
            self.cache.drop(change.unreadable.key)
        elif change.unreadable is not None:
            self.cache.set_aside(change.unreadable)


def _is_older(version: str, seen: str) -> bool:
    """Versions are decimal numbers of any length; one that is not says nothing."""
    if not (version.isdecimal() and seen.isdecimal()):
        return False
    return int(version) < int(seen)
