"""The reflector on a scripted API, in virtual time: what it asks, and what becomes of it."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

import pytest

from backstay.kube import errors, watch
from backstay.kube.cache import Cache
from backstay.kube.projection import Projection
from backstay.kube.reflector import Reflector
from backstay.seam.serve import Answer, Inbound
from backstay.seam.tasks import Tasks
from tests.support.dice import HIGHEST, LOWEST
from tests.support.scripted import Step, refusal, world
from tests.support.scripted_api import (
    PICTURE,
    SHORTEST_WAIT,
    THINGS,
    Feed,
    Scene,
    Thing,
    ThingRow,
    added,
    bookmark,
    deleted,
    end_of_initial_events,
    error,
    modified,
    page,
    reflecting,
    row,
    stream,
    thing,
    thing_row,
)
from tests.support.virtual import virtual_time

# A full picture


@virtual_time
async def test_a_picture_is_streamed_and_then_watched_from_its_version() -> None:
    async with reflecting(PICTURE, Feed()) as scene:
        assert scene.rows == [row("a", 3), row("b", 4)]
        first, second = scene.asked
        assert first.verb == second.verb == "watch"
        assert first.since is None
        assert first.query["sendInitialEvents"] == "true"
        assert first.query["resourceVersionMatch"] == "NotOlderThan"
        assert first.query["allowWatchBookmarks"] == "true"
        assert second.since == "5"
        assert "sendInitialEvents" not in second.query
        assert second.query["allowWatchBookmarks"] == "true"
        assert scene.reflector.pictures == 1
        assert scene.reflector.state == watch.Watching("5")


@virtual_time
async def test_nothing_is_visible_before_the_picture_is_complete() -> None:
    feed = Feed()
    async with reflecting(feed, Feed()) as scene:
        feed.say(added("a", 3), added("b", 4))
        await scene.turn()
        assert (scene.rows, scene.told, scene.cache.synced, scene.age) == ([], [], False, math.inf)
        feed.say(end_of_initial_events(5))
        await scene.turn()
        assert len(scene.rows) == 2
        assert scene.told == [(None, row("a", 3)), (None, row("b", 4))]
        assert scene.cache.synced


@virtual_time
async def test_changes_among_the_initial_events_count() -> None:
    initial = stream(
        added("a", 3), added("b", 3), added("c", 3, size="?"), added("d", 3, size="?"),
        modified("a", 6, size=2), deleted("b", 7), deleted("c", 8, size="?"),
        modified("d", 9), modified("a", 10, size="?"), end_of_initial_events(10),
    )  # fmt: skip
    async with reflecting(initial, Feed()) as scene:
        assert scene.rows == [row("a", 6, size=2), row("d", 9)]
        assert set(scene.cache.quarantine) == {"a"}


@virtual_time
async def test_a_picture_is_paged_where_streaming_is_not_wanted() -> None:
    pages = (
        page(thing("a", 3), thing("b", 4), version=5, token="t1"),
        page(thing("c", 2), version=5, token="t2"),
        page(version=5),
    )
    async with reflecting(*pages, Feed(), streaming=False, page_size=2) as scene:
        assert [each.key for each in scene.rows] == ["a", "b", "c"]
        assert [(each.verb, each.query.get("continue")) for each in scene.asked] == [
            ("list", None), ("list", "t1"), ("list", "t2"), ("watch", None),
        ]  # fmt: skip
        assert {each.query.get("limit") for each in scene.asked[:3]} == {"2"}
        # A quorum read: what it shows was true when it was asked for.
        assert {each.since for each in scene.asked[:3]} == {None}
        assert scene.asked[3].since == "5"
        assert scene.reflector.pictures == 1


@virtual_time
async def test_whoever_compares_versions_is_told_of_lists_that_show_what_is() -> None:
    """A page that continues another one shows what was."""
    told: list[str] = []
    pages = (page(thing("a", 3), version=5, token="t1"), page(thing("b", 4), version=5))
    async with reflecting(*pages, Feed(), streaming=False, compare=lambda: told.append):
        assert told == ["5"]


@virtual_time
async def test_every_request_is_narrowed_in_the_same_way() -> None:
    steps = (refusal(400), page(version=5), stream(ends=True), page(version=5), Feed())
    async with reflecting(
        *steps, namespace="shop", labels="app=db", fields="spec.nodeName=n1"
    ) as scene:
        await asyncio.sleep(1.0)
        assert [each.verb for each in scene.asked] == ["watch", "list", "watch", "list", "watch"]
        for sent, each in zip(scene.world.sent(), scene.asked, strict=True):
            assert "/namespaces/shop/things?" in sent.url
            assert each.query["labelSelector"] == "app=db"
            assert each.query["fieldSelector"] == "spec.nodeName=n1"


@virtual_time
async def test_a_refusal_to_stream_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    async with reflecting(refusal(422), Feed()) as scene:
        assert scene.asked[-1].verb == "list"
        assert scene.reflector.trouble is None
        assert caplog.messages == []


@pytest.mark.parametrize("code", [400, 422])
@virtual_time
async def test_a_server_that_refuses_to_stream_is_asked_for_pages_from_then_on(code: int) -> None:
    gone = stream(error(410, "Expired"))
    paged = page(thing("a", 3), version=5)
    async with reflecting(refusal(code), paged, gone, paged, Feed()) as scene:
        assert scene.rows == [row("a", 3)]
        assert [(each.at, each.verb) for each in scene.asked[:3]] == [
            (0.0, "watch"), (0.0, "list"), (0.0, "watch"),
        ]  # fmt: skip
        await asyncio.sleep(1.0)
        assert [each.verb for each in scene.asked[3:]] == ["list", "watch"]
        assert scene.reflector.pictures == 2


async def _cut(scene: Scene, _: Feed) -> None:
    scene.world.link().cut()


async def _end(_: Scene, feed: Feed) -> None:
    feed.end()


async def _fail(_: Scene, feed: Feed) -> None:
    feed.say(error(500))


async def _mumble(_: Scene, feed: Feed) -> None:
    feed.say(b"{]\n")


async def _bookmark(_: Scene, feed: Feed) -> None:
    # As a server does that knows nothing of streaming lists and simply begins to watch.
    feed.say(bookmark(5))


async def _fall_silent(_: Scene, __: Feed) -> None:
    await asyncio.sleep(90.0)


@pytest.mark.parametrize("breaks", [_cut, _end, _fail, _mumble, _bookmark, _fall_silent])
@virtual_time
async def test_a_picture_that_breaks_off_half_way_is_read_again_in_pages(breaks: Any) -> None:
    feed = Feed()
    async with reflecting(feed, page(thing("b", 4), version=6), Feed()) as scene:
        feed.say(added("a", 3))
        await scene.turn()
        await breaks(scene, feed)
        await scene.turn()
        assert not scene.cache.synced
        await asyncio.sleep(SHORTEST_WAIT)
        # Nothing of the half picture is left.
        assert scene.rows == [row("b", 4)]
        assert scene.told == [(None, row("b", 4))]
        assert [each.verb for each in scene.asked] == ["watch", "list", "watch"]


@virtual_time
async def test_a_page_that_fails_is_read_again_and_the_others_are_not() -> None:
    steps = (
        page(thing("a", 3), version=5, token="t1"),
        refusal(500),
        page(thing("b", 4), version=5),
        Feed(),
    )
    async with reflecting(*steps, streaming=False) as scene:
        await asyncio.sleep(SHORTEST_WAIT)
        assert [each.query.get("continue") for each in scene.asked[:3]] == [None, "t1", "t1"]
        assert [each.key for each in scene.rows] == ["a", "b"]


@virtual_time
async def test_a_token_that_expires_in_the_middle_starts_the_picture_again() -> None:
    feed = Feed()
    once = page(thing("a", 3), thing("b", 4), version=5)
    async with reflecting(once, feed, streaming=False) as scene:
        scene.then(
            page(thing("a", 8), version=9, token="t1"),
            refusal(410, reason="Expired"),
            page(thing("a", 9), version=12, token="t2"),
            page(thing("c", 10), version=12),
            Feed(),
        )
        scene.told.clear()
        feed.say(error(410, "Expired"))
        await asyncio.sleep(1.5 * SHORTEST_WAIT)
        assert [each.query.get("continue") for each in scene.asked[2:]] == [None, "t1"]
        # Until then the old picture stays as it was.
        assert scene.rows == [row("a", 3), row("b", 4)]
        assert scene.told == []
        await asyncio.sleep(SHORTEST_WAIT)
        assert scene.rows == [row("a", 9), row("c", 10)]
        assert [each.query.get("continue") for each in scene.asked[4:6]] == [None, "t2"]


@virtual_time
async def test_a_page_that_leads_to_itself_is_not_followed_for_ever() -> None:
    circle = page(thing("a", 3), version=5, token="t1")
    async with reflecting(circle, streaming=False, rng=HIGHEST) as scene:
        await asyncio.sleep(60.0)
        assert len(scene.asked) < 40
        assert not scene.cache.synced


@virtual_time
async def test_an_answer_that_is_no_list_does_not_look_as_if_everything_were_gone() -> None:
    feed = Feed()
    async with reflecting(page(thing("a", 3), version=5), feed, streaming=False) as scene:
        no_list = Answer(body=b'{"kind":"Status","metadata":{},"status":"Success"}')
        scene.then(no_list)
        feed.say(error(410, "Expired"))
        await asyncio.sleep(30.0)
        assert scene.rows == [row("a", 3)]
        assert isinstance(scene.reflector.trouble, errors.Undecodable)
        assert scene.reflector.pictures == 1


# Changes


@virtual_time
async def test_changes_are_followed() -> None:
    feed = Feed()
    async with reflecting(PICTURE, feed) as scene:
        scene.told.clear()
        feed.say(added("c", 6), modified("a", 7, size=2))
        feed.say(deleted("b", 8))
        await scene.turn()
        assert scene.rows == [row("a", 7, size=2), row("c", 6)]
        assert scene.cache.by_index("size", "2") == [row("a", 7, size=2)]
        assert scene.told == [
            (None, row("c", 6)), (row("a", 3), row("a", 7, size=2)), (row("b", 4), None),
        ]  # fmt: skip
        assert scene.cache.version == "8"


@virtual_time
async def test_a_watch_that_was_cut_is_resumed_from_the_last_version() -> None:
    feed = Feed()
    async with reflecting(PICTURE, feed) as scene:
        feed.say(modified("a", 8))
        await asyncio.sleep(60.0)
        scene.then(page(thing("a", 8), version=12), stream(modified("b", 11)))
        scene.world.link().cut()
        await asyncio.sleep(2 * SHORTEST_WAIT)
        resumed = scene.asked[2:]
        assert [(each.verb, each.since) for each in resumed] == [("list", None), ("watch", "8")]
        assert {round(each.at, 3) for each in resumed} == {60.0 + SHORTEST_WAIT}
        assert resumed[0].query["limit"] == "1"
        assert scene.rows == [row("a", 8), row("b", 11)]
        assert scene.reflector.pictures == 1


@virtual_time
async def test_bookmarks_move_the_point_from_which_a_watch_is_resumed() -> None:
    feed = Feed()
    async with reflecting(PICTURE, feed, page(version=99), Feed()) as scene:
        feed.say(modified("a", 8))
        feed.say(bookmark(40))
        await scene.turn()
        assert scene.cache.version == "40"
        scene.world.link().cut()
        await asyncio.sleep(1.0)
        assert scene.asked[-1].since == "40"


@virtual_time
async def test_a_watch_that_ended_in_its_time_is_resumed_without_delay() -> None:
    feed = Feed()
    async with reflecting(PICTURE, feed, Feed()) as scene:
        feed.say(bookmark(7))
        await asyncio.sleep(60.0)
        feed.end()
        await scene.turn()
        assert [(each.verb, each.since) for each in scene.asked[2:]] == [("watch", "7")]
        assert scene.asked[2].at == pytest.approx(60.0, abs=0.01)
        assert scene.reflector.trouble is None


@virtual_time
async def test_an_event_that_comes_again_after_a_reconnect_is_not_told_again() -> None:
    feed = Feed()
    async with reflecting(PICTURE, feed, page(version=9), Feed()) as scene:
        feed.say(modified("a", 8), deleted("b", 9))
        await scene.turn()
        scene.then(page(version=9), stream(deleted("b", 9), added("c", 10)))
        scene.told.clear()
        scene.world.link().cut()
        await asyncio.sleep(1.0)
        assert scene.told == [(None, row("c", 10))]


@virtual_time
async def test_what_came_before_an_error_in_the_same_breath_is_not_taken_twice() -> None:
    feed = Feed()
    async with reflecting(PICTURE, feed) as scene:
        scene.told.clear()
        scene.then(page(version=9), Feed())
        feed.say(modified("a", 8), deleted("b", 9), error(500), modified("a", 10))
        await asyncio.sleep(1.0)
        assert scene.told == [(row("a", 3), row("a", 8)), (row("b", 4), None)]
        assert scene.asked[-1].since == "9"


@virtual_time
async def test_an_object_that_cannot_be_read_is_set_aside_and_the_rest_goes_on() -> None:
    feed = Feed()
    async with reflecting(PICTURE, feed) as scene:
        feed.say(modified("a", 8, size="large"), modified("b", 9, size=1))
        await scene.turn()
        assert scene.rows == [row("a", 3), row("b", 9, size=1)]
        assert set(scene.cache.quarantine) == {"a"}
        assert scene.cache.version == "9"
        assert scene.reflector.trouble is None
        assert len(scene.asked) == 2
        feed.say(deleted("a", 10, size="large"))
        await scene.turn()
        assert scene.rows == [row("b", 9, size=1)]
        assert not scene.cache.quarantine


@virtual_time
async def test_a_page_with_an_object_that_cannot_be_read_is_a_page() -> None:
    paged = page(thing("a", 3), thing("b", 4, size="large"), thing("c", 5), version=5)
    async with reflecting(paged, Feed(), streaming=False) as scene:
        assert [each.key for each in scene.rows] == ["a", "c"]
        assert set(scene.cache.quarantine) == {"b"}


@virtual_time
async def test_a_line_that_cannot_be_read_at_all_leads_to_a_new_picture() -> None:
    feed = Feed()
    async with reflecting(PICTURE, feed) as scene:
        scene.told.clear()
        scene.then(stream(added("a", 3), added("b", 9), end_of_initial_events(9)), Feed())
        feed.say(b'{"type":"MODIFIED","object":{"metadata":{}}}\n')
        await asyncio.sleep(1.0)
        assert scene.told == [(row("b", 4), row("b", 9))]
        assert scene.reflector.pictures == 2
        assert scene.asked[-1].since == "9"


# 410


@pytest.mark.parametrize(
    "gone",
    [refusal(410, reason="Expired"), stream(error(410, "Gone")), stream(error(410, "Expired"))],
    ids=["at the start", "as an event: Gone", "as an event: Expired"],
)
@virtual_time
async def test_a_version_that_is_gone_leads_to_a_new_picture(gone: Step) -> None:
    anew = stream(added("a", 3), added("c", 30), end_of_initial_events(40))
    async with reflecting(PICTURE, gone, anew, Feed()) as scene:
        await asyncio.sleep(1.0)
        assert scene.rows == [row("a", 3), row("c", 30)]
        # Only the difference is told.
        assert scene.told[2:] == [(None, row("c", 30)), (row("b", 4), None)]
        assert [each.since for each in scene.asked] == [None, "5", None, "40"]
        assert (scene.reflector.pictures, scene.reflector.rewinds) == (2, 0)


@virtual_time
async def test_pictures_that_are_gone_at_once_again_and_again_are_not_read_all_the_time() -> None:
    async with reflecting(PICTURE, rng=HIGHEST) as scene:

        async def gone_or_picture(inbound: Inbound) -> Answer:
            step = PICTURE if "sendInitialEvents" in inbound.query else stream(error(410, "Gone"))
            return await step(inbound)

        scene.then(gone_or_picture)
        await asyncio.sleep(600.0)
        assert scene.reflector.pictures < 70


# Turns for others


class Pace:
    """How many pieces of work are done, at most, between two turns of the loop."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self.most = 0
        self.turns = 0
        self._this_turn = 0
        self.cache: Cache[ThingRow] = Cache({"counted": self._indexed})
        self.cache.subscribe(lambda _old, _new: self._count("told"))
        self.projection = Projection(Thing, self._decoded)

    def _decoded(self, thing: Thing) -> ThingRow:
        self._count("decoded")
        return thing_row(thing)

    def _indexed(self, _: ThingRow) -> tuple[str, ...]:
        self._count("indexed")
        return ()

    def _count(self, what: str) -> None:
        self.total[what] += 1
        self._this_turn += 1
        self.most = max(self.most, self._this_turn)

    async def of(self, *script: Step, **options: Any) -> None:
        """Takes part in every turn, until the picture is complete. Time stands still."""
        w = await world()
        w.server().script = list(script)
        reflector = Reflector(w.client, THINGS, self.projection, self.cache, rng=LOWEST, **options)
        async with Tasks("reflector") as tasks:
            tasks.spawn(reflector.run(), name="run")
            while True:
                self._this_turn = 0
                self.turns += 1
                await asyncio.sleep(0)
                if isinstance(reflector.state, watch.Watching):
                    return


@virtual_time
async def test_a_hundred_thousand_objects_in_pages_never_hold_up_the_loop() -> None:
    many = 100_000

    async def next_page(inbound: Inbound) -> Answer:
        start = int(dict(parse_qsl(inbound.query)).get("continue", 0))
        objects = (thing(str(n), 3) for n in range(start, start + 500))
        token = str(start + 500) if start + 500 < many else ""
        return page(*objects, version=5, token=token)

    pace = Pace()
    await pace.of(next_page, streaming=False)
    assert len(pace.cache) == many
    assert pace.total == {"decoded": many, "indexed": many, "told": many}
    assert pace.most == 500


@virtual_time
async def test_a_long_stream_in_one_breath_never_holds_up_the_loop() -> None:
    many = 20_000
    pace = Pace()
    initial = (added(str(n), 3) for n in range(many))
    await pace.of(stream(*initial, end_of_initial_events(5)), Feed())
    assert pace.total == {"decoded": many, "indexed": many, "told": many}
    # 250 are decoded and indexed in one go.
    assert pace.most == 500


@virtual_time
async def test_a_burst_of_small_chunks_never_holds_up_the_loop() -> None:
    # As bytes that have arrived already: reading them does not wait for anything.
    async def chunks() -> AsyncIterator[bytes]:
        for n in range(100):
            yield added(str(n), 3)
        yield end_of_initial_events(5)

    pace = Pace()
    await pace.of(Answer(body=chunks()), Feed())
    assert pace.total == {"decoded": 100, "indexed": 100, "told": 100}
    # In the end, all of them are told in one go. Until then, ten chunks are taken in one.
    assert pace.most == 100
    assert pace.turns >= 100 / 10


# Cancellation


def picture(*names: str, version: int) -> Step:
    return stream(*(added(name, 3) for name in names), end_of_initial_events(version))


@pytest.mark.parametrize("after", range(8))
@virtual_time
async def test_cancellation_leaves_a_cache_that_is_consistent(after: int) -> None:
    feed = Feed()
    old = [f"old-{n}" for n in range(2000)]
    async with reflecting(picture(*old, version=5), feed) as scene:
        new = [f"new-{n}" for n in range(1000)]
        scene.then(picture(*new, version=9), Feed())
        feed.say(error(410, "Expired"))
        await asyncio.sleep(SHORTEST_WAIT)
        for _ in range(after):
            await asyncio.sleep(0)
        scene.running.cancel()
        await asyncio.wait({scene.running})
        keys = {each.key for each in scene.cache}
        assert keys in (set(old), set(new))
        assert scene.cache.counts("size") == {"0": len(keys)}
        assert all(scene.cache.by_uid(each.uid) is each for each in scene.cache)
