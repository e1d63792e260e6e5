"""The reflector on a scripted API, in virtual time: what it asks, when, and what becomes of it."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest

from backstay.kube import errors, watch
from backstay.kube.cache import Cache
from backstay.kube.projection import Projection
from backstay.kube.reflector import Reflector
from backstay.seam.clock import Rng
from backstay.seam.serve import Answer, Inbound
from backstay.seam.tasks import Tasks
from tests.support.dice import HIGHEST, LOWEST
from tests.support.scripted import Step, World, now, refusal, world
from tests.support.scripted_api import (
    PROJECTION,
    THINGS,
    Asked,
    Feed,
    Thing,
    ThingRow,
    added,
    asked,
    bookmark,
    deleted,
    end_of_initial_events,
    error,
    modified,
    page,
    row,
    stream,
    thing,
    thing_row,
)
from tests.support.virtual import virtual_time

Told = tuple[ThingRow | None, ThingRow | None]

PICTURE = stream(added("a", 3), added("b", 4), end_of_initial_events(5))
"""A full picture at version 5."""

SHORTEST_WAIT = 0.25


class Scene:
    """A reflector at work, and all that can be seen of it."""

    def __init__(self, w: World, cache: Cache[ThingRow], reflector: Reflector[Any, ThingRow]):
        self.world = w
        self.cache = cache
        self.reflector = reflector
        self.told: list[Told] = []
        cache.subscribe(lambda old, new: self.told.append((old, new)))
        self.running: asyncio.Task[Any] | None = None

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
async def reflecting(
    *script: Step,
    rng: Rng = LOWEST,
    cache: Cache[ThingRow] | None = None,
    projection: Projection[Thing, ThingRow] = PROJECTION,
    **options: Any,
) -> AsyncIterator[Scene]:
    w = await world()
    cache = Cache({"size": lambda row: [str(row.size)]}) if cache is None else cache
    scene = Scene(w, cache, Reflector(w.client, THINGS, projection, cache, rng=rng, **options))
    scene.then(*script)
    async with Tasks("reflector") as tasks:
        scene.running = tasks.spawn(scene.reflector.run(), name="run")
        await scene.turn()
        yield scene


def picture(*names: str, version: int) -> Step:
    return stream(*(added(name, 3) for name in names), end_of_initial_events(version))


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


# Silence


@virtual_time
async def test_a_silent_watch_is_given_up_and_the_api_asked_where_it_stands() -> None:
    async with reflecting(PICTURE, Feed(), page(version=30), Feed(), idle=90.0) as scene:
        await asyncio.sleep(89.9)
        assert len(scene.asked) == 2
        await asyncio.sleep(1.0)
        assert [(each.verb, each.since) for each in scene.asked[2:]] == [
            ("list", None), ("watch", "5"),
        ]  # fmt: skip
        assert scene.asked[2].at == pytest.approx(90.0 + SHORTEST_WAIT)
        # Nothing may have changed for so long: silence is no trouble.
        assert scene.reflector.trouble is None
        assert scene.reflector.pictures == 1


@virtual_time
async def test_silence_makes_nothing_younger_but_the_news_that_nothing_changed_does() -> None:
    async with reflecting(PICTURE, Feed(), page(version=30), Feed(), idle=90.0) as scene:
        await asyncio.sleep(100.0)
        assert len(scene.asked) == 4
        # The API is at 30: something has changed, whether or not it concerns us.
        assert scene.age == pytest.approx(100.0, abs=0.01)
        scene.then(page(version=5), Feed())
        await asyncio.sleep(100.0)
        assert scene.age == pytest.approx(200.0 - 2 * (90.0 + SHORTEST_WAIT), abs=0.01)


@virtual_time
async def test_a_connection_that_leads_nowhere_is_left_and_what_was_missed_is_caught_up() -> None:
    feed = Feed()
    async with reflecting(PICTURE, feed, idle=30.0) as scene:
        scene.world.link().silent = True
        feed.say(modified("a", 8))
        await asyncio.sleep(29.0)
        assert scene.rows[0] == row("a", 3)
        scene.then(page(version=9), stream(modified("a", 8)))
        await asyncio.sleep(11.0)
        scene.world.link().silent = False
        await asyncio.sleep(11.0)
        assert scene.rows[0] == row("a", 8)
        assert scene.reflector.pictures == 1


# An API that went back in time


@virtual_time
async def test_an_api_that_was_restored_from_a_backup_is_noticed_before_it_is_watched() -> None:
    # It would accept a watch from a version that it has not reached again, and say nothing.
    feed = Feed()
    async with reflecting(PICTURE, feed) as scene:
        feed.say(modified("a", 80), added("c", 90))
        await scene.turn()
        anew = stream(added("a", 3), added("b", 4), end_of_initial_events(60))
        scene.then(page(version=60), anew, Feed())
        scene.world.link().cut()
        await asyncio.sleep(1.0)
        assert scene.rows == [row("a", 3), row("b", 4)]
        assert [each.since for each in scene.asked] == [None, "5", None, None, "60"]
        assert scene.reflector.rewinds == 1
        assert scene.cache.version == "60"


@pytest.mark.parametrize("past", [bookmark(60), modified("a", 60), deleted("b", 60)])
@virtual_time
async def test_an_event_from_the_past_is_not_believed(past: bytes) -> None:
    feed = Feed()
    async with reflecting(PICTURE, feed) as scene:
        feed.say(modified("a", 100), modified("b", 100))
        await scene.turn()
        scene.told.clear()
        anew = stream(added("a", 50), added("b", 40), end_of_initial_events(60))
        scene.then(anew, Feed())
        feed.say(past)
        await asyncio.sleep(1.0)
        assert scene.told == [(row("a", 100), row("a", 50)), (row("b", 100), row("b", 40))]
        assert scene.reflector.rewinds == 1
        assert scene.asked[-1].since == "60"


@virtual_time
async def test_events_that_a_server_repeats_are_neither_told_nor_taken_for_a_rollback() -> None:
    feed = Feed()
    async with reflecting(PICTURE, feed) as scene:
        feed.say(modified("a", 8), modified("a", 9))
        await scene.turn()
        scene.told.clear()
        scene.then(stream(added("a", 9), added("b", 4), end_of_initial_events(9)), Feed())
        feed.say(modified("a", 8), modified("a", 9))
        await asyncio.sleep(1.0)
        assert scene.told == []
        assert scene.reflector.rewinds == 0


@virtual_time
async def test_versions_that_are_no_numbers_say_nothing_about_the_past() -> None:
    def opaque(kind: str, version: str) -> bytes:
        meta = {"name": "a", "uid": "uid-a", "resourceVersion": version}
        return msgspec.json.encode({"type": kind, "object": {"metadata": meta}}) + b"\n"

    feed = Feed()
    async with reflecting(PICTURE, feed) as scene:
        feed.say(opaque("MODIFIED", "rev-b"), opaque("MODIFIED", "rev-a"))
        feed.say(opaque("MODIFIED", "9" * 5000), opaque("MODIFIED", "1" + "0" * 5000))
        await scene.turn()
        assert scene.cache.version == "1" + "0" * 5000
        assert len(scene.asked) == 2


# Trouble


@virtual_time
async def test_a_watch_that_ends_the_moment_it_began_is_not_resumed_all_the_time() -> None:
    async def nothing_new(inbound: Inbound) -> Answer:
        return page(version=5) if "limit" in inbound.query else Answer(body=b"")

    async with reflecting(PICTURE, nothing_new, rng=HIGHEST) as scene:
        await asyncio.sleep(60.0)
        first_minute = len(scene.asked)
        assert first_minute < 30
        await asyncio.sleep(60.0)
        # A wait of at most ten seconds, then one question and one watch.
        assert len(scene.asked) - first_minute <= 14


@virtual_time
async def test_nor_is_one_that_brings_something_each_time() -> None:
    version = 5

    async def one_event(_: Inbound) -> Answer:
        nonlocal version
        version += 1
        if version % 2:
            return page(version=version)
        return Answer(body=modified("a", version))

    async with reflecting(PICTURE, one_event, rng=HIGHEST) as scene:
        await asyncio.sleep(120.0)
        before = len(scene.asked)
        await asyncio.sleep(60.0)
        assert len(scene.asked) - before <= 14


@virtual_time
async def test_an_api_that_is_down_for_an_hour_is_asked_now_and_then() -> None:
    async with reflecting(PICTURE, Feed(), rng=HIGHEST) as scene:
        link = scene.world.link()
        # As a load balancer does when there is nothing behind it.
        link.lose_answer = "reset"
        link.cut()
        await asyncio.sleep(3600.0)
        attempts = scene.asked[2:]
        assert 3600 / 10 <= len(attempts) <= 3600 / 10 + 10
        assert {each.verb for each in attempts} == {"list"}
        assert attempts[-1].at - attempts[-2].at == pytest.approx(10.0)


@pytest.mark.parametrize("how", ["refuse", "silent"])
@virtual_time
async def test_an_api_that_was_down_for_an_hour_is_caught_up_with_in_seconds(how: str) -> None:
    async with reflecting(PICTURE, Feed(), rng=HIGHEST) as scene:
        link = scene.world.link()
        setattr(link, how, True)
        link.cut()
        await asyncio.sleep(3600.0)
        assert scene.age == pytest.approx(3600.0, abs=0.01)
        assert isinstance(scene.reflector.trouble, errors.Retryable)
        assert len(scene.rows) == 2
        scene.then(page(version=9), stream(modified("a", 8)))
        setattr(link, how, False)
        # The longest wait between two attempts.
        await asyncio.sleep(10.0)
        assert scene.rows[0] == row("a", 8)
        assert scene.age <= 10.0
        assert scene.reflector.pictures == 1


@virtual_time
async def test_trouble_is_over_when_the_api_answers() -> None:
    async with reflecting(PICTURE, Feed()) as scene:
        scene.then(refusal(500))
        scene.world.link().cut()
        await asyncio.sleep(60.0)
        assert isinstance(scene.reflector.trouble, errors.InternalError)
        scene.then(page(version=9), Feed())
        await asyncio.sleep(10.0)
        assert scene.reflector.trouble is None


@virtual_time
async def test_waits_are_spread_by_chance() -> None:
    async def asked_at(rng: Rng) -> list[float]:
        async with reflecting(refusal(500), rng=rng, streaming=False) as scene:
            await asyncio.sleep(20.0)
            return [round(each.at, 3) for each in scene.asked]

    assert (await asked_at(HIGHEST))[:6] == [0.0, 0.5, 1.5, 3.5, 7.5, 15.5]
    start = now()
    soonest = [round(at - start, 3) for at in await asked_at(LOWEST)]
    assert soonest[:4] == [0.0, 0.25, 0.5, 0.75]


@virtual_time
async def test_permission_that_comes_later_is_noticed() -> None:
    async with reflecting(refusal(403), rng=HIGHEST) as scene:
        await asyncio.sleep(600.0)
        assert isinstance(scene.reflector.trouble, errors.Forbidden)
        assert len(scene.asked) <= 13
        scene.then(PICTURE, Feed())
        await asyncio.sleep(60.0)
        assert len(scene.rows) == 2
        assert scene.reflector.trouble is None


@virtual_time
async def test_permission_that_is_taken_away_for_a_while_costs_no_new_picture() -> None:
    feed = Feed()
    async with reflecting(PICTURE, feed) as scene:
        scene.then(refusal(403))
        feed.say(error(403))
        await asyncio.sleep(300.0)
        scene.then(page(version=9), stream(modified("a", 8)))
        await asyncio.sleep(60.0)
        assert scene.rows[0] == row("a", 8)
        assert scene.reflector.pictures == 1


@virtual_time
async def test_a_watch_that_is_forbidden_while_the_list_is_not_stays_a_trouble() -> None:
    async def only_list(inbound: Inbound) -> Answer:
        return page(version=5) if "limit" in inbound.query else refusal(403)

    async with reflecting(PICTURE, only_list) as scene:
        for _ in range(50):
            await asyncio.sleep(1.9)
            assert isinstance(scene.reflector.trouble, errors.Forbidden)


@virtual_time
async def test_an_identity_that_was_refused_is_tried_again_soon() -> None:
    async with reflecting(PICTURE, refusal(401), page(version=5), Feed()) as scene:
        await asyncio.sleep(1.0)
        assert scene.asked[-1].since == "5"
        assert scene.reflector.trouble is None


@virtual_time
async def test_the_server_may_say_how_long_to_wait() -> None:
    async with reflecting(refusal(429, retry_after="7"), PICTURE, Feed()) as scene:
        await asyncio.sleep(6.9)
        assert len(scene.asked) == 1
        await asyncio.sleep(0.2)
        assert scene.cache.synced


@virtual_time
async def test_but_it_may_not_tell_us_to_be_blind_for_hours() -> None:
    async with reflecting(refusal(429, retry_after="86400"), PICTURE, Feed()) as scene:
        await asyncio.sleep(61.0)
        assert scene.cache.synced


@virtual_time
async def test_the_same_trouble_is_logged_once_and_is_over_when_the_api_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "backstay.reflector"):
        async with reflecting(refusal(500), streaming=False) as scene:
            await asyncio.sleep(60.0)
            assert len(scene.asked) > 5
            assert len(caplog.records) == 1
            assert str(scene.reflector.trouble) == caplog.messages[0]
            scene.then(page(version=5), Feed())
            await asyncio.sleep(10.0)
            assert scene.reflector.trouble is None
            assert len(caplog.records) == 1


# Age


@virtual_time
async def test_events_and_bookmarks_make_the_cache_young() -> None:
    feed = Feed()
    async with reflecting(PICTURE, feed) as scene:
        for say in (modified("a", 8), bookmark(9), modified("a", 10, size="large")):
            await asyncio.sleep(30.0)
            assert scene.age == pytest.approx(30.0, abs=0.01)
            feed.say(say)
            await scene.turn()
            assert scene.age == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("streaming", [True, False])
@virtual_time
async def test_a_second_picture_on_its_way_does_not_look_fresh(streaming: bool) -> None:
    watched, slow = Feed(), Feed()

    async def next_page(inbound: Inbound) -> Answer:
        await asyncio.sleep(20.0)
        done = "continue=t1" in inbound.query
        return page(thing("b" if done else "a", 9), version=9, token="" if done else "t1")

    paged = page(thing("a", 3), thing("b", 4), version=5)
    first = PICTURE if streaming else paged
    async with reflecting(first, watched, streaming=streaming) as scene:
        if streaming:
            scene.then(slow, Feed())
        else:
            scene.then(next_page, next_page, Feed())
        await asyncio.sleep(10.0)
        watched.say(error(410, "Expired"))
        await asyncio.sleep(20.0)
        slow.say(added("a", 9))
        await asyncio.sleep(19.0)
        assert scene.age == pytest.approx(49.0, abs=0.01)
        assert scene.rows == [row("a", 3), row("b", 4)]
        slow.say(added("b", 9), end_of_initial_events(9))
        await asyncio.sleep(2.0)
        assert scene.rows == [row("a", 9), row("b", 9)]
        # It shows the world as it was when it was asked for, not as it is now that it is here.
        assert scene.age == pytest.approx(41.0 - SHORTEST_WAIT, abs=0.01)


@virtual_time
async def test_a_watch_that_is_accepted_does_not_make_old_knowledge_young() -> None:
    async with reflecting(PICTURE, Feed()) as scene:
        scene.then(page(version=70), Feed())
        await asyncio.sleep(50.0)
        scene.world.link().cut()
        await asyncio.sleep(1.0)
        assert isinstance(scene.reflector.state, watch.Watching)
        assert scene.age == pytest.approx(51.0, abs=0.01)


# Turns for others


class Pace:
    """How many objects are worked on, at most, between two turns of the loop."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self._this_turn: Counter[str] = Counter()
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
        self._this_turn[what] += 1
        self.total[what] += 1
        self.most[what] = max(self.most[what], self._this_turn[what])

    async def of(self, *script: Step, **options: Any) -> None:
        """Takes part in every turn, until the picture is complete. Time stands still."""
        w = await world()
        w.server().script = list(script)
        reflector = Reflector(w.client, THINGS, self.projection, self.cache, rng=LOWEST, **options)
        async with Tasks("reflector") as tasks:
            tasks.spawn(reflector.run(), name="run")
            while True:
                self._this_turn.clear()
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
    assert pace.most == {"decoded": 500, "indexed": 500, "told": 500}


@virtual_time
async def test_a_long_stream_in_one_breath_never_holds_up_the_loop() -> None:
    many = 20_000
    pace = Pace()
    initial = (added(str(n), 3) for n in range(many))
    await pace.of(stream(*initial, end_of_initial_events(5)), Feed())
    assert pace.total == {"decoded": many, "indexed": many, "told": many}
    assert pace.most == {"decoded": 250, "indexed": 250, "told": 500}


@virtual_time
async def test_a_burst_of_small_chunks_never_holds_up_the_loop() -> None:
    # As bytes that have arrived already: reading them does not wait for anything.
    async def chunks() -> AsyncIterator[bytes]:
        for n in range(100):
            yield added(str(n), 3)
        yield end_of_initial_events(5)

    pace = Pace()
    await pace.of(Answer(body=chunks()), Feed())
    assert pace.total["decoded"] == 100
    assert pace.most["decoded"] == 1


# Cancellation


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
        assert scene.running is not None
        scene.running.cancel()
        await asyncio.wait({scene.running})
        keys = {each.key for each in scene.cache}
        assert keys in (set(old), set(new))
        assert scene.cache.counts("size") == {"0": len(keys)}
        assert all(scene.cache.by_uid(each.uid) is each for each in scene.cache)
