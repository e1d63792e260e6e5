"""The fate of single requests: scripted or drawn, and shared with whoever wraps a handler."""

import asyncio
from collections import Counter

import pytest

from backstay.seam.errors import (
    BadAnswer,
    ConnectFailed,
    ConnectionLost,
    Refused,
    TimedOut,
    TransportError,
)
from backstay.seam.serve import Answer, Handler, Inbound
from backstay.seam.transport import Request
from backstay.sim.chance import Chance
from backstay.sim.fate import ALL_WELL, Attempt, Fate, Weather, current_fate
from backstay.sim.network import Network
from tests.support.virtual import virtual_time

URL = "http://api"


def now() -> float:
    return asyncio.get_running_loop().time()


def get(path: str = "/", *, timeout: float = 10.0) -> Request:
    return Request(method="GET", url=URL + path, timeout=timeout)


class Server:
    def __init__(self) -> None:
        self.seen: list[float] = []

    async def __call__(self, _: Inbound) -> Answer:
        self.seen.append(now())
        return Answer(body=b"done")


async def meet(fate: Fate) -> tuple[str, list[float], float]:
    """What becomes of a request, when its handler saw it, and when it was over."""
    network, server = Network(fate=lambda _: fate), Server()
    await network.serve.listen(server, host="api", port=80)
    try:
        response = await network.transport.request(get())
        result = response.body.decode()
    except TransportError as error:
        result = type(error).__name__
    ended = now()
    await asyncio.sleep(60.0)
    return result, server.seen, ended


@pytest.mark.parametrize(
    ("fate", "outcome"),
    [
        (ALL_WELL, ("done", [0.0], 0.0)),
        (Fate(refuse=True), ("Refused", [], 0.0)),
        (Fate(connect_delay=3.0), ("done", [3.0], 3.0)),
        (Fate(connect_delay=11.0), ("ConnectFailed", [], 10.0)),
        (Fate(delay=2.0), ("done", [2.0], 4.0)),
        (Fate(delay=6.0), ("TimedOut", [6.0], 10.0)),
        (Fate(lose_request="reset"), ("ConnectionLost", [], 0.0)),
        (Fate(lose_request="silence"), ("TimedOut", [], 10.0)),
        (Fate(lose_answer="reset"), ("ConnectionLost", [0.0], 0.0)),
        (Fate(lose_answer="silence"), ("TimedOut", [0.0], 10.0)),
        (Fate(delay=2.0, cut_after=3.0), ("ConnectionLost", [2.0], 3.0)),
        (Fate(delay=2.0, cut_after=1.0), ("ConnectionLost", [], 1.0)),
        (Fate(delay=2.0, cut_after=5.0), ("done", [2.0], 4.0)),
        (Fate(drip=(1, 0.5)), ("done", [0.0], 3.0)),
        (Fate(drip=(2, 4.0)), ("TimedOut", [0.0], 10.0)),
    ],
)
@virtual_time
async def test_a_request_meets_its_fate(
    fate: Fate, outcome: tuple[str, list[float], float]
) -> None:
    assert await meet(fate) == outcome


@virtual_time
async def test_an_answer_that_drips_comes_in_small_pieces_and_whole() -> None:
    async def handler(_: Inbound) -> Answer:
        return Answer(body=bytes(range(100)))

    network = Network(fate=lambda _: Fate(drip=(7, 0.1)))
    await network.serve.listen(handler, host="api", port=80)
    pieces = []
    async with network.transport.stream(get()) as stream:
        while piece := await stream.read(1.0):
            pieces.append(piece)
    assert b"".join(pieces) == bytes(range(100))
    assert {len(piece) for piece in pieces} == {7, 2}
    assert now() > 1.0


@virtual_time
async def test_a_script_sees_each_attempt_with_its_number() -> None:
    attempts: list[Attempt] = []

    def script(attempt: Attempt) -> Fate:
        attempts.append(attempt)
        return Fate(refuse=attempt.number == 2)

    network = Network(fate=script)
    await network.serve.listen(Server(), host="api", port=80)
    outcomes = [await _outcome(network, get(f"/{n}")) for n in range(3)]
    assert outcomes == [200, Refused, 200]
    assert [(each.number, each.caller, each.address) for each in attempts] == [
        (1, "world", "http://api:80"),
        (2, "world", "http://api:80"),
        (3, "world", "http://api:80"),
    ]
    assert [each.request.url for each in attempts] == [f"{URL}/{n}" for n in range(3)]


class Overloaded(Fate, frozen=True, kw_only=True):
    """As whoever wraps a handler adds to what can become of a request."""

    retry_after: int


def shedding(handler: Handler) -> Handler:
    async def wrapped(inbound: Inbound) -> Answer:
        fate = current_fate()
        if isinstance(fate, Overloaded):
            return Answer(status=429, headers={"Retry-After": str(fate.retry_after)})
        return await handler(inbound)

    return wrapped


@virtual_time
async def test_a_wrapper_of_a_handler_shares_the_fate_of_the_request() -> None:
    fates = [Overloaded(retry_after=7, delay=1.0), ALL_WELL]
    network, server = Network(fate=lambda _: fates.pop(0)), Server()
    await network.serve.listen(shedding(server), host="api", port=80)
    first = await network.transport.request(get())
    assert (first.status, first.headers["retry-after"], now()) == (429, "7", 2.0)
    assert server.seen == []
    assert (await network.transport.request(get())).status == 200


@virtual_time
async def test_outside_of_a_request_all_is_well() -> None:
    assert current_fate() is ALL_WELL


def test_the_weather_draws_each_trouble_as_often_as_it_says() -> None:
    weather = Weather(
        refuse=0.05, late=0.05, slow=0.05, lose_request=0.05, lose_answer=0.05, cut=0.05, drip=0.05
    )
    chance = Chance(1, "faults")
    drawn = [weather.draw(chance) for _ in range(20_000)]
    troubles = Counter(
        field
        for fate in drawn
        for field in fate.__struct_fields__
        if getattr(fate, field) != getattr(ALL_WELL, field)
    )
    assert set(troubles) == set(Fate.__struct_fields__)
    assert all(800 < count < 1200 for count in troubles.values())
    assert 12_500 < drawn.count(ALL_WELL) < 13_500


def test_the_same_dice_draw_the_same_weather() -> None:
    attempt = Attempt(1, "a", "http://api:80", get())
    one, two = (
        Weather(slow=0.5, cut=0.5).fates(Chance(5, "faults")),
        Weather(slow=0.5, cut=0.5).fates(Chance(5, "faults")),
    )
    assert [one(attempt) for _ in range(50)] == [two(attempt) for _ in range(50)]


def test_fair_weather_is_all_well() -> None:
    assert Weather().draw(Chance(1, "faults")) is ALL_WELL


async def _outcome(network: Network, request: Request) -> type[Exception] | int:
    try:
        return (await network.transport.request(request)).status
    except (ConnectionLost, ConnectFailed, TimedOut, BadAnswer) as error:
        return type(error)
