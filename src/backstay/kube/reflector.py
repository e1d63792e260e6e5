"""Reflector: keeps a cache in step with the API, for ever.

It is the shell around ``watch.step``: it performs what the state says, reports what happened,
and waits as told. It never gives up and never dies of an answer; ``trouble`` says what is wrong
at the moment, for people, and the cache's ``age`` says how old its picture has become.

* Work is done in slices with a turn for others in between, so that the loop that also renews
  our lease is never held up by a large list or a burst of events.
* Silence proves nothing, neither that all is well nor that something is wrong: where nothing
  changes, an API server sends no bookmarks for minutes. After silence it is asked.
* Only what shows that the server is up to date makes the cache younger: an event, a bookmark,
  the moment at which a full picture was *begun*. That a watch was accepted does not.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, NoReturn, assert_never, cast

from backstay.kube import watch
from backstay.kube.cache import Cache, Replacement
from backstay.kube.calls import TIMEOUT
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError, OutcomeUnknown, Undecodable
from backstay.kube.limits import Backoff
from backstay.kube.lines import Lines
from backstay.kube.projection import Change, Page, Projection, R, W
from backstay.kube.resource import Resource
from backstay.kube.versions import is_older
from backstay.seam.clock import Rng
from backstay.seam.errors import TimedOut

_log = logging.getLogger("backstay.reflector")

# How many events are taken, at most, before others have their turn; and as how many it counts to
# have read the bytes of some.
_SLICE = 250
_READING = 25

# A stream that did not last as long as this was no success, whatever it brought.
_LASTING = 1.0

# How long a watch lasts, spread so that those of a fleet do not all end in the same second.
_SHORTEST_WATCH, _LONGEST_WATCH = 240, 480

# How long the server may take to give one page of a full picture.
_PAGE_TIMEOUT = 30.0

# How long the server may take to stream a full picture; a tenth of it is plenty as a rule.
_PICTURE_SECONDS = 600

# A server may ask us to wait, but not to be blind for hours.
_LONGEST_WAIT = 60.0

Compare = Callable[[], Callable[[str], None]]


class Reflector(Generic[W, R]):
    """One kind of object, in one namespace or all, narrowed by selectors if given.

    ``idle`` is how long a stream may be silent before it is given up. ``compare`` is called before
    each list that shows what is, and what it returns is told the version that the list showed. A
    reflector that was cancelled is not run again: its listeners may have missed the end of a full
    picture.
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
        compare: Compare | None = None,
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
        self._compare = compare
        self._staged: Replacement[R] = cache.replacement()
        self._begun_at = 0.0
        self._reached = ""
        self._read_at = 0.0
        self._backoff = Backoff(base=0.5, cap=10.0, rng=rng)
        self._long = Backoff(base=20.0, cap=60.0, rng=rng)

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            try:
                happening = await self._performance()
            except KubeError as error:
                happening = watch.Failed(error)
            turn = watch.step(self.state, happening)
            # What needs no wait, a refusal to stream, is no trouble.
            if isinstance(happening, watch.Failed) and turn.wait is not watch.Wait.NOT:
                self._note(happening.error)
            self.state = turn.state
            await self._pause(turn)

    def _performance(self) -> Awaitable[watch.Happening]:
        """Of what the state says."""
        match self.state:
            case watch.Begin():
                return self._begin()
            case watch.Paging(token):
                return self._read_page(token)
            case watch.Streaming():
                return self._read_stream()
            case watch.Watching(version):
                return self._follow(version)
            case watch.Resuming(version):
                return self._ask_where_it_stands(version)
            case _:
                assert_never(self.state)

    async def _pause(self, turn: watch.Next) -> None:
        if turn.wait is watch.Wait.NOT:
            return
        backoff = self._backoff if turn.wait is watch.Wait.BACKOFF else self._long
        await asyncio.sleep(max(backoff.next(), min(turn.at_least, _LONGEST_WAIT)))

    def _note(self, error: KubeError) -> None:
        # Once per trouble, not once per attempt: the same sentence every half second helps nobody.
        if self.trouble is None or str(self.trouble) != str(error):
            _log.warning("%s", error)
        self.trouble = error

    # A full picture

    async def _begin(self) -> watch.Happening:
        self._staged = self.cache.replacement()
        self._begun_at = asyncio.get_running_loop().time()
        return watch.Started()

    async def _read_page(self, token: str | None) -> watch.Happening:
        page = await self._list(limit=self._page_size, token=token, timeout=_PAGE_TIMEOUT)
        await _give_way()
        self._staged.add(page.rows, page.unreadable)
        await _give_way()
        if page.token is None:
            await self._complete(page.version)
        return watch.PageRead(page.version, page.token)

    async def _read_stream(self) -> watch.Happening:
        """Up to the bookmark that ends the initial events; what follows is the next watch's."""
        async with self._watch(None, seconds=_PICTURE_SECONDS) as lines:
            last = await self._absorb(lines, self._stage)
        if last is None:
            return watch.Ended(productive=False)
        await asyncio.sleep(0)
        await self._complete(last.version)
        return watch.PictureComplete(last.version)

    def _stage(self, change: Change[R]) -> bool:
        if change.kind == "BOOKMARK" and not change.complete:
            raise Undecodable(f"{self._resource.label}: a bookmark among the initial events")
        if change.kind == "DELETED":
            self._staged.drop(change.key)
        elif change.row is not None:
            self._staged.add((change.row,))
        elif change.unreadable is not None:
            self._staged.add((), (change.unreadable,))
        return change.complete

    async def _complete(self, version: str) -> None:
        """The picture is whole: swap it in, slice by slice."""
        if is_older(version, self.cache.version):
            self.rewinds += 1
            _log.error("%s: %s", self._resource.label, _went_back(version, self.cache.version))
        for _ in self._staged.settle(version=version, as_of=self._begun_at):
            await asyncio.sleep(0)
        self._staged = self.cache.replacement()
        self.pictures += 1

    # Changes

    async def _follow(self, version: str) -> watch.Happening:
        """One watch, from its request to its end."""
        loop = asyncio.get_running_loop()
        spread = _LONGEST_WATCH - _SHORTEST_WATCH
        seconds = _SHORTEST_WATCH + int(self._rng.random() * spread)
        async with self._watch(version, seconds=seconds) as lines:
            self.trouble = None
            self.resumptions += 1
            opened_at = loop.time()
            self._reached = version
            try:
                await self._absorb(lines, self._take)
            except OutcomeUnknown as error:
                if not isinstance(error.__cause__, TimedOut):
                    raise
                return watch.Ended(productive=False)
            finally:
                self.state = watch.step(self.state, watch.Advanced(self._reached)).state
                lasted = loop.time() - opened_at >= _LASTING
                if lasted:
                    self._backoff.reset()
                    self._long.reset()
        return watch.Ended(productive=lasted and self._reached != version)

    def _take(self, change: Change[R]) -> bool:
        if is_older(change.version, self._reached):
            raise self._rolled_back(change.version, self._reached)
        if change.kind == "DELETED":
            self.cache.drop(change.key)
        elif change.row is not None:
            self.cache.put(change.row)
        elif change.unreadable is not None:
            self.cache.set_aside(change.unreadable)
        # At once, because an error may follow: what was taken must not be taken again.
        self._reached = change.version
        self.cache.heard(self._read_at, change.version)
        return False

    async def _ask_where_it_stands(self, version: str) -> watch.Happening:
        page = await self._list(limit=1, token=None, timeout=TIMEOUT)
        if is_older(page.version, version):
            raise self._rolled_back(page.version, version)
        if page.version == version:
            self.cache.heard(asyncio.get_running_loop().time())
        return watch.PageRead(page.version, page.token)

    def _rolled_back(self, version: str, seen: str) -> Undecodable:
        return Undecodable(f"{self._resource.label}: {_went_back(version, seen)}")

    # The API

    async def _list(self, *, limit: int, token: str | None, timeout: float) -> Page[R]:
        # A page that continues another one is as old as that.
        told = self._compare() if self._compare is not None and token is None else None
        reply = await self._client.list(
            self._resource,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            limit=limit,
            token=token,
            timeout=timeout,
        )
        # To have read a page was work already, and to decode it is the longest slice there is.
        await _give_way()
        slices = self._projection.page_in_slices(reply.body, call=reply.call)
        while True:
            try:
                next(slices)
            except StopIteration as end:
                page = cast("Page[R]", end.value)
                if told is not None:
                    told(page.version)
                return page
            await _give_way()

    def _watch(self, version: str | None, *, seconds: int) -> AbstractAsyncContextManager[Lines]:
        return self._client.watch(
            self._resource,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            resource_version=version,
            initial_events=version is None,
            seconds=seconds,
        )

    async def _absorb(self, lines: Lines, take: Callable[[Change[R]], bool]) -> Change[R] | None:
        """Hands over what comes, until ``take`` has had enough; None if it ended before."""
        loop, done = asyncio.get_running_loop(), 0
        while (batch := await lines.read(self._idle)) is not None:
            self._read_at = loop.time()
            # Over all batches: where bytes have arrived already, to read is not to wait.
            done += _READING
            for line in batch:
                change = self._projection.change(line, call=lines.call)
                if take(change):
                    return change
                done += 1
                if done >= _SLICE:
                    done = 0
                    await asyncio.sleep(0)
        return None


async def _give_way() -> None:
    """Lets everybody else go first, also a task whose timer has just become due: one turn for the
    loop to see that, one for the timer to wake the task, and one in which the task runs."""
    for _ in range(3):
        await asyncio.sleep(0)


def _went_back(version: str, seen: str) -> str:
    return f"the API is at version {version}, but we have seen {seen}: it was rolled back"
