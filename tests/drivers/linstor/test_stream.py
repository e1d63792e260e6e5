"""The stream of promotions: it goes on whatever LINSTOR, the network or a proxy does to it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from backstay.drivers.linstor.stream import Promotions
from backstay.drivers.linstor.wire import Promotion
from backstay.seam.clock import Rng
from backstay.seam.serve import Answer, Inbound
from backstay.seam.tasks import Tasks
from tests.drivers.linstor.controllers import (
    EVENTS,
    NEVER,
    VERSION,
    Controller,
    Feed,
    Scene,
    event,
    json,
    says,
    scene,
)
from tests.support.dice import HIGHEST, LOWEST
from tests.support.virtual import virtual_time

RESOURCES = [f"pvc-{number}" for number in range(3)]
BURST = b"".join(event(name, "node-b") for name in RESOURCES)


def now() -> float:
    return asyncio.get_running_loop().time()


class Listening:
    """A stream at work, and all that it told."""

    def __init__(self, s: Scene, promotions: Promotions) -> None:
        self.s = s
        self.promotions = promotions
        self.heard: list[Promotion] = []
        self.renewed_at: list[float] = []
        self.told = asyncio.Event()

    def hear(self, promotion: Promotion) -> None:
        self.heard.append(promotion)
        self.told.set()

    def connected(self) -> bool:
        return self.promotions.connected

    def __getitem__(self, host: str) -> Controller:
        return self.s[host]

    def renewed(self) -> None:
        self.renewed_at.append(now())

    def opened(self, host: str = "a") -> int:
        return self.s[host].asked(EVENTS)

    def then(self, *steps: object, host: str = "a") -> None:
        """From the next subscription on, this is what it is answered with."""
        self.s[host].streams = list(steps)  # type: ignore[arg-type]

    async def hears(self, name: str = "sign-of-life", host: str = "a", *, within: float) -> None:
        """Fails unless what a new stream says first is told within so many seconds."""
        self.then(says(event(name, "node-b")), host=host)
        self.told.clear()
        async with asyncio.timeout(within):
            while self.heard[-1:] != [Promotion(name, "node-b", True)]:
                await self.told.wait()
                self.told.clear()


@asynccontextmanager
async def listening(
    *steps: object, hosts: tuple[str, ...] = ("a",), rng: Rng = LOWEST, renew_every: float = 60.0
) -> AsyncIterator[Listening]:
    s = await scene(*hosts)
    made = Listening(s, Promotions(s.linstor, rng=rng, renew_every=renew_every))
    made.then(*steps)
    async with Tasks("test") as tasks:
        tasks.spawn(made.promotions.run(made.hear, made.renewed), name="run")
        await asyncio.sleep(1e-6)
        yield made


# What is told


@virtual_time
async def test_the_state_of_everything_is_asked_for_and_told_and_then_what_changes() -> None:
    feed = Feed()
    async with listening(feed) as it:
        feed.say(BURST)
        await asyncio.sleep(5.0)
        feed.say(event("PVC-1", "Node-A", False), event("pvc-1", "node-c", None))
        await asyncio.sleep(1.0)
        assert it.heard == [
            *(Promotion(name, "node-b", True) for name in RESOURCES),
            Promotion("pvc-1", "node-a", False),
            Promotion("pvc-1", "node-c", None),
        ]
        (inbound,) = it["a"].seen
        assert inbound.headers["last-event-id"] == "current"
        assert inbound.headers["accept"] == "text/event-stream"
        assert inbound.headers["cache-control"] == "no-cache"
        assert it.connected()
        assert it.promotions.connects == 1
        assert it.promotions.last_heard == pytest.approx(5.0)


@virtual_time
async def test_pieces_of_any_size_make_whole_events() -> None:
    pieces = [BURST[at : at + 1] for at in range(len(BURST))]
    async with listening(says(*pieces)) as it:
        await asyncio.sleep(1.0)
        assert [each.resource for each in it.heard] == RESOURCES


@virtual_time
async def test_what_is_unknown_or_unreadable_is_left_out_and_the_rest_is_told() -> None:
    odd = (
        b": a comment\n\nid: 7\nretry: 1\n\nevent: something-new\ndata: {}\n\n"
        b"data: {}\n\n"
        b"event: may-promote-change\ndata: <html>\n\n"
        b'event: may-promote-change\ndata: {"resource_name":7}\n\n'
        b"event: may-promote-change\ndata: " + b"x" * 2**17 + b"\n\n"
    )
    async with listening(says(odd + BURST)) as it:
        await asyncio.sleep(1.0)
        assert [each.resource for each in it.heard] == RESOURCES
        assert it.promotions.unreadable == 3
        assert it.promotions.events == 3
        assert it.connected()


@virtual_time
async def test_a_burst_of_five_thousand_is_told_whole_and_others_have_their_turn() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    burst = b"".join(event(f"pvc-{number}", "node-b") for number in range(5000))
    feed = Feed()
    async with listening(feed) as it, Tasks("others") as tasks:
        tasks.spawn(others(), name="turns")
        feed.say(burst)
        async with asyncio.timeout(1.0):
            while len(it.heard) < 5000:
                await it.told.wait()
                it.told.clear()
        assert len({each.resource for each in it.heard}) == 5000
        assert turns >= 5000 / 250


# Renewal


@virtual_time
async def test_the_end_of_the_burst_is_told_once_it_is_quiet() -> None:
    async with listening(says(BURST)) as it:
        await asyncio.sleep(0.9)
        assert it.renewed_at == []
        await asyncio.sleep(0.2)
        assert it.renewed_at == [pytest.approx(1.0)]
        assert it.promotions.last_renewed == pytest.approx(1.0)
        assert len(it.heard) == len(RESOURCES)


@virtual_time
async def test_a_burst_that_does_not_end_counts_as_over_some_time() -> None:
    feed = Feed()
    async with listening(feed) as it:
        for _ in range(120):
            feed.say(BURST)
            await asyncio.sleep(0.1)
        assert it.renewed_at == [pytest.approx(10.0, abs=0.2)]


@virtual_time
async def test_a_silent_stream_is_opened_anew_and_its_burst_told_again() -> None:
    async with listening(says(BURST)) as it:
        await asyncio.sleep(60.9)
        assert it.opened() == 1
        await asyncio.sleep(1.5)
        assert it.opened() == 2
        assert it.renewed_at == [pytest.approx(1.0), pytest.approx(62.0)]
        assert len(it.heard) == 2 * len(RESOURCES)
        # Silence is no trouble, and neither is what is done about it.
        assert it.connected()
        assert it.promotions.trouble == ""


@virtual_time
async def test_a_stream_that_is_not_silent_is_opened_anew_half_as_often() -> None:
    feed = Feed()
    async with listening(feed) as it:
        for number in range(60):
            feed.say(event(f"live-{number}", "node-b"))
            await asyncio.sleep(10.0)
        assert it.renewed_at == [pytest.approx(1.0 + 120.0 * n, abs=0.1) for n in range(5)]
        assert len({each.resource for each in it.heard}) == 60
        assert it.promotions.trouble == ""


@virtual_time
async def test_no_stream_stays_open_on_the_other_side_when_it_was_replaced() -> None:
    async with listening(says(BURST)) as it:
        await asyncio.sleep(3600.0)
        assert it.opened() > 50
        assert len(it.s.link().exchanges) == 1


@virtual_time
async def test_a_half_open_connection_is_found_out_and_left() -> None:
    async with listening(says(BURST), hosts=("a", "b")) as it:
        await asyncio.sleep(10.0)
        it.s.link("a").silent = True
        # A minute of silence, five seconds until it is knocked at, and three for that.
        await it.hears(host="b", within=75.0)
        assert it.connected()
        assert it.s.linstor.order()[0] == "http://b:3370"


# Late heads


@virtual_time
async def test_a_head_that_comes_with_the_first_event_is_waited_for() -> None:
    feed = Feed(late=True)
    async with listening(feed) as it:
        await asyncio.sleep(50.0)
        assert it.opened() == 1
        feed.say(BURST)
        await asyncio.sleep(0.1)
        assert len(it.heard) == len(RESOURCES)
        assert it.promotions.connects == 1


@virtual_time
async def test_a_controller_that_lives_and_has_nothing_to_tell_is_connected_and_renewed() -> None:
    async with listening(Feed(late=True)) as it:
        assert not it.connected()
        await asyncio.sleep(5.1)
        assert it.connected()
        assert it.renewed_at == []
        await asyncio.sleep(600.0)
        assert it.connected()
        assert it.promotions.trouble == ""
        assert it.opened() == 11
        assert it.renewed_at == [pytest.approx(60.0 * n, abs=0.1) for n in range(1, 11)]


@virtual_time
async def test_a_controller_that_accepts_and_is_dead_is_left_for_the_next() -> None:
    async with listening(Feed(late=True), hosts=("a", "b")) as it:
        it["a"].answers[VERSION] = Feed(late=True)
        await it.hears(host="b", within=12.0)
        assert it.connected()


@virtual_time
async def test_a_controller_that_dies_while_its_head_is_awaited_is_trouble() -> None:
    async with listening(Feed(late=True)) as it:
        await asyncio.sleep(20.0)
        assert it.connected()
        it.s.link().silent = True
        await asyncio.sleep(15.0)
        assert not it.connected()
        assert "http://a:3370" in it.promotions.trouble


@virtual_time
async def test_a_head_that_did_not_come_before_the_next_was_due_proves_nothing_by_itself() -> None:
    async with listening(Feed(late=True), renew_every=3.0) as it:
        it["a"].answers[VERSION] = Answer(status=503)
        await asyncio.sleep(3.1)
        assert not it.connected()
        assert it.renewed_at == []


# Trouble


def refuse(it: Listening, how: str) -> None:
    link = it.s.link()
    if how == "refuses":
        link.refuse = True
    elif how == "gives no connection":
        link.connect_delay = NEVER
    elif how == "resets":
        link.lose_answer = "reset"
    elif how == "redirects":
        it.then(Answer(status=302, headers={"Location": "https://a:3371/v1/events"}))
    elif how == "sends HTML":
        it.then(Answer(headers={"Content-Type": "text/html"}, body=b"<html>"))
    elif how == "ends":
        it.then(says(BURST, ends=True))
    elif how == "error event":
        it.then(says(b'event: error\ndata: [{"ret_code":-1,"message":"No."}]\n\n'))
    else:
        it.then(Answer(status=int(how), body=b"<html>"))


TROUBLES = [
    "refuses", "gives no connection", "resets", "redirects", "sends HTML", "ends", "error event",
    "401", "403", "404", "500", "503",
]  # fmt: skip


@pytest.mark.parametrize("how", TROUBLES)
@virtual_time
async def test_an_hour_of_trouble_is_tried_now_and_then_and_over_within_half_a_minute(
    how: str,
) -> None:
    async with listening(says(BURST), rng=HIGHEST) as it:
        await asyncio.sleep(1.5)
        refuse(it, how)
        it.s.link().cut()
        before = len(it.s.link().sent)
        await asyncio.sleep(3600.0)
        assert not it.connected()
        assert "http://a:3370" in it.promotions.trouble
        assert len(it.s.link().sent) - before <= 3600 / 30 + 8
        link = it.s.link()
        link.refuse, link.connect_delay, link.lose_answer = False, 0.0, None
        await it.hears(within=35.0)
        assert it.connected()
        assert it.promotions.trouble == ""


@pytest.mark.parametrize("how", TROUBLES)
@virtual_time
async def test_where_one_controller_is_in_trouble_the_next_one_is_listened_to_at_once(
    how: str,
) -> None:
    async with listening(says(BURST), hosts=("a", "b")) as it:
        await asyncio.sleep(5.0)
        refuse(it, how)
        it.s.link().cut()
        await it.hears(host="b", within=3.0)
        assert it.connected()


@virtual_time
async def test_a_page_that_never_ends_is_no_stream_of_events() -> None:
    async def body() -> AsyncIterator[bytes]:
        while True:
            yield b"<p>Please wait.</p>"
            await asyncio.sleep(1.0)

    async def page(_: Inbound) -> Answer:
        return Answer(headers={"Content-Type": "text/html"}, body=body())

    async with listening(page) as it:
        await asyncio.sleep(10.0)
        assert not it.connected()
        assert it.promotions.trouble.endswith("does not answer as LINSTOR does: it sends no events")


@virtual_time
async def test_an_error_event_is_told_in_linstors_words() -> None:
    said = b'event: error\ndata: [{"ret_code":-1,"message":"Not\\nnow."}]\n\n'
    async with listening(says(said)) as it:
        assert it.promotions.trouble == (
            "LINSTOR at http://a:3370 ends its stream of events with an error: Not now"
        )


@virtual_time
async def test_a_refusal_is_told_in_linstors_words() -> None:
    async with listening(json([{"ret_code": -1, "message": "Sign in."}], status=401)) as it:
        assert "(HTTP 401): Sign in: check LS_USERNAME" in it.promotions.trouble


@virtual_time
async def test_waits_grow_to_half_a_minute_and_are_short_again_after_a_stream_that_lasted() -> None:
    async with listening(Answer(status=503), rng=HIGHEST) as it:
        await asyncio.sleep(300.0)
        moments = [sent.at for sent in it.s.link().sent]
        waits = [after - before for before, after in pairwise(moments)]
        assert waits[:7] == [pytest.approx(each) for each in (1, 2, 4, 8, 16, 30, 30)]
        await it.hears(within=31.0)
        await asyncio.sleep(20.0)
        cut_at = now()
        it.s.link().cut()
        await it.hears("again", within=5.0)
        assert it.s.link().sent[-1].at - cut_at == pytest.approx(1.0)


@virtual_time
async def test_a_stream_that_ends_as_soon_as_it_began_does_not_shorten_the_waits() -> None:
    async with listening(says(BURST, ends=True), rng=HIGHEST) as it:
        await asyncio.sleep(3600.0)
        assert it.opened() <= 3600 / 30 + 8


@virtual_time
async def test_after_a_thousand_cuts_it_still_listens() -> None:
    async with listening(says(BURST)) as it:
        for _ in range(1000):
            it.s.link().cut()
            await asyncio.sleep(31.0)
            assert it.connected()
        assert it.promotions.connects == 1001
        await it.hears("at-last", within=62.0)
        assert len(it.s.link().exchanges) == 1


@virtual_time
async def test_a_trouble_is_worth_one_line_in_the_log_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "backstay.linstor"):
        async with listening(Answer(status=503), hosts=("a", "b")) as it:
            await asyncio.sleep(60.0)
            refused, unknown = caplog.messages
            assert "HTTP 503" in refused
            assert "HTTP 404" in unknown
            await it.hears(within=31.0)
            assert caplog.messages[-1] == "LINSTOR's events come from http://a:3370"


@virtual_time
async def test_a_token_that_was_replaced_is_used_by_the_next_attempt() -> None:
    s = await scene(LS_BEARER_TOKEN_FILE="/token")
    await s.files.write("/token", b"old")
    feed = Feed()

    async def subscribe(inbound: Inbound) -> Answer:
        good = inbound.headers["authorization"] == "Bearer new"
        return await feed(inbound) if good else Answer(status=401)

    s["a"].streams = [subscribe]
    promotions = Promotions(s.linstor, rng=LOWEST)
    async with Tasks("test") as tasks:
        tasks.spawn(promotions.run(lambda _: None, lambda: None), name="run")
        await asyncio.sleep(5.0)
        assert "HTTP 401" in promotions.trouble
        await s.files.write("/token", b"new")
        await asyncio.sleep(5.0)
        assert promotions.connected


@virtual_time
async def test_to_stop_it_ends_its_stream() -> None:
    async with listening(says(BURST)) as it:
        await asyncio.sleep(1.0)
    await asyncio.sleep(1e-6)
    assert len(it.s.link().exchanges) == 0
    async with listening(Feed(late=True)) as it:
        await asyncio.sleep(7.0)
    await asyncio.sleep(1e-6)
    assert len(it.s.link().exchanges) == 0
