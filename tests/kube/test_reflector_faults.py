"""The reflector and an API that is silent, down, forbidden, or back in time; and how old it says
its knowledge is meanwhile."""

import asyncio
import logging

import msgspec
import pytest

from backstay.kube import errors, watch
from backstay.seam.clock import Rng
from backstay.seam.serve import Answer, Inbound
from tests.support.dice import HIGHEST, LOWEST
from tests.support.scripted import now, refusal
from tests.support.scripted_api import (
    PICTURE,
    SHORTEST_WAIT,
    Feed,
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
)
from tests.support.virtual import virtual_time

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
async def test_a_watch_that_ended_in_its_time_but_brought_nothing_is_doubtful_too() -> None:
    feed = Feed()
    async with reflecting(PICTURE, feed, page(version=30), Feed(), idle=1000.0) as scene:
        await asyncio.sleep(300.0)
        feed.end()
        await asyncio.sleep(1.0)
        assert [(each.verb, each.since) for each in scene.asked[2:]] == [
            ("list", None), ("watch", "5"),
        ]  # fmt: skip


@virtual_time
async def test_a_cut_is_worth_a_line_in_the_log_and_silence_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "backstay.reflector"):
        async with reflecting(PICTURE, Feed(), page(version=30), Feed(), idle=90.0) as scene:
            await asyncio.sleep(100.0)
            assert len(scene.asked) == 4
            assert caplog.messages == []
            scene.world.link().cut()
            await scene.turn()
            assert isinstance(scene.reflector.trouble, errors.OutcomeUnknown)
            assert caplog.messages == [str(scene.reflector.trouble)]


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

    async def one_event(inbound: Inbound) -> Answer:
        nonlocal version
        if "limit" in inbound.query:
            return page(version=version)
        version += 1
        return Answer(body=modified("a", version))

    async with reflecting(PICTURE, one_event, rng=HIGHEST) as scene:
        await asyncio.sleep(120.0)
        before = len(scene.asked)
        await asyncio.sleep(60.0)
        assert len(scene.asked) - before <= 14
        assert scene.rows[0] == row("a", version)


@virtual_time
async def test_after_a_good_time_the_waits_are_short_again() -> None:
    feed = Feed()
    async with reflecting(PICTURE, Feed(), rng=HIGHEST) as scene:
        scene.then(refusal(500))
        scene.world.link().cut()
        await asyncio.sleep(600.0)
        scene.then(page(version=5), feed)
        await asyncio.sleep(60.0)
        scene.then(page(version=5), Feed())
        cut_at = now()
        scene.world.link().cut()
        await asyncio.sleep(60.0)
        assert scene.asked[-1].at - cut_at == pytest.approx(0.5)


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
