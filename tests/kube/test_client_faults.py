"""What the client does when addresses fail: who is asked next, how often, and until when."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.kube import errors
from backstay.kube.addresses import CONNECT_BUDGET, REST
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.seam.errors import TlsFailed
from backstay.seam.serve import Answer
from backstay.seam.tasks import Tasks
from backstay.seam.transport import Request, Response, Stream, Tls, Transport
from backstay.sim.loop import run
from tests.support.scripted import NEVER, World, json, now, refusal, url, world
from tests.support.virtual import virtual_time


async def read(api: World, *, timeout: float = 10.0) -> None:
    await api.client.get(NODES, "n1", timeout=timeout)


async def change(api: World, *, timeout: float = 10.0) -> None:
    await api.client.merge_patch(NODES, "n1", {"spec": {}}, timeout=timeout)


async def follow(api: World, *, timeout: float = 10.0) -> None:
    async with api.client.watch(NODES, timeout=timeout):
        pass


ANY_CALL = pytest.mark.parametrize("call", [read, change, follow])
ANY_READ = pytest.mark.parametrize("call", [read, follow])
Calling = Callable[[World], Awaitable[None]]


# A write whose outcome is unknown


@virtual_time
async def test_a_write_that_is_met_with_silence_is_not_sent_again() -> None:
    api = await world("vip", "a")
    api.link().silent = True
    with pytest.raises(
        errors.OutcomeUnknown,
        match=r"^PATCH /api/v1/nodes/n1: the request to vip:6443 was not answered within 10 s$",
    ):
        await change(api)
    assert (now(), api.sent_to) == (10.0, ["vip"])


@pytest.mark.parametrize("how", ["reset", "silence"])
@virtual_time
async def test_a_write_whose_answer_is_lost_is_carried_out_once(how: str) -> None:
    api = await world("vip", "a")
    api.link().lose_answer = "reset" if how == "reset" else "silence"
    with pytest.raises(errors.OutcomeUnknown):
        await change(api)
    assert len(api.server("vip").seen) == 1
    assert api.sent_to == ["vip"]


@virtual_time
async def test_a_write_whose_connection_is_cut_is_not_sent_again() -> None:
    api = await world("vip", "a")
    api.link().delay = 1.0
    asyncio.get_running_loop().call_later(0.5, api.link().cut)
    with pytest.raises(errors.OutcomeUnknown):
        await change(api)
    assert (now(), api.sent_to) == (0.5, ["vip"])


@virtual_time
async def test_the_next_write_goes_to_another_address() -> None:
    api = await world("vip", "a")
    api.link().lose_answer = "reset"
    with pytest.raises(errors.OutcomeUnknown):
        await change(api)
    await change(api)
    assert api.sent_to == ["vip", "a"]


# Calls that certainly did not arrive


@ANY_CALL
@virtual_time
async def test_a_call_that_is_refused_a_connection_goes_to_the_next_address(call: Calling) -> None:
    api = await world("vip", "a", "b")
    api.link("vip").refuse = api.link("a").refuse = True
    await call(api)
    assert (now(), api.sent_to) == (0.0, ["b"])


@ANY_CALL
@pytest.mark.parametrize("learned", [1, 2, 3, 7])
@virtual_time
async def test_dead_addresses_are_passed_within_the_connect_budget(
    call: Calling, learned: int
) -> None:
    hosts = [f"h{n}" for n in range(learned)]
    api = await world("vip", *hosts)
    for host in ("vip", *hosts[:-1]):
        api.link(host).connect_delay = NEVER
    await call(api)
    assert api.sent_to == [hosts[-1]]
    assert now() == pytest.approx(CONNECT_BUDGET * learned / (learned + 1))


@ANY_CALL
@virtual_time
async def test_addresses_that_are_slow_to_connect_are_given_the_time_that_is_left(
    call: Calling,
) -> None:
    api = await world("vip", "a", "b", "c")
    for host in api.servers:
        api.link(host).connect_delay = 1.5
    await call(api)
    assert api.sent_to == ["vip"]
    assert now() == CONNECT_BUDGET + 1.5


@virtual_time
async def test_a_single_address_is_given_a_second_chance_to_connect() -> None:
    # Behind a service address every new connection may lead to another API server.
    api = await world()
    api.link().connect_delay = NEVER
    asyncio.get_running_loop().call_later(1.0, setattr, api.link(), "connect_delay", 0.0)
    await change(api)
    assert (now(), api.sent_to) == (CONNECT_BUDGET, ["vip"])


@ANY_CALL
@virtual_time
async def test_where_nobody_accepts_a_connection_each_address_is_named_once(call: Calling) -> None:
    api = await world("vip", "a", "b")
    api.link("vip").refuse = api.link("b").refuse = True
    api.link("a").connect_delay = NEVER
    with pytest.raises(errors.Unreachable) as caught:
        await call(api)
    sentence = str(caught.value)
    assert sentence.split(": ")[0].endswith(("/api/v1/nodes", "/api/v1/nodes/n1"))
    assert [sentence.count(host) for host in map(url, api.servers)] == [1, 1, 1]
    assert now() == 10.0
    assert api.sent_to == []


# Reads


@ANY_READ
@virtual_time
async def test_a_read_that_is_met_with_silence_is_sent_elsewhere_in_time(call: Calling) -> None:
    api = await world("vip", "a")
    api.link("vip").silent = True
    await call(api)
    assert (now(), api.sent_to) == (5.0, ["vip", "a"])


@ANY_READ
@virtual_time
async def test_a_read_whose_answer_is_lost_is_sent_elsewhere_at_once(call: Calling) -> None:
    api = await world("vip", "a")
    api.link("vip").lose_answer = "reset"
    await call(api)
    assert (now(), api.sent_to) == (0.0, ["vip", "a"])


@ANY_READ
@virtual_time
async def test_a_read_gives_up_at_its_deadline_when_all_are_silent(call: Calling) -> None:
    api = await world("vip", "a", "b", "c")
    for host in api.servers:
        api.link(host).silent = True
    with pytest.raises(errors.OutcomeUnknown):
        await call(api)
    assert (now(), api.sent_to) == (10.0, ["vip", "a", "b", "c"])


@virtual_time
async def test_a_read_at_the_only_address_has_the_whole_deadline() -> None:
    api = await world()
    api.link().delay = 4.9
    await read(api)
    assert now() == 9.8


# API servers that answer, but cannot serve


@pytest.mark.parametrize("code", [500, 502, 503, 504])
@ANY_READ
@virtual_time
async def test_a_read_that_an_api_server_cannot_serve_is_sent_to_another(
    call: Calling, code: int
) -> None:
    api = await world("vip", "a")
    api.server("vip").script = [refusal(code)]
    await call(api)
    assert (now(), api.sent_to) == (0.0, ["vip", "a"])


@pytest.mark.parametrize("code", [400, 403, 404, 409, 410, 422, 429])
@ANY_CALL
@virtual_time
async def test_an_answer_on_the_merits_is_not_asked_for_twice(call: Calling, code: int) -> None:
    api = await world("vip", "a")
    api.server("vip").script = [refusal(code)]
    for _ in range(2):
        with pytest.raises(errors.ApiError) as caught:
            await call(api)
        assert caught.value.status.code == code
    assert api.sent_to == ["vip", "vip"]


@virtual_time
async def test_a_write_that_an_api_server_cannot_serve_is_the_callers_to_repeat_elsewhere() -> None:
    api = await world("vip", "a")
    api.server("vip").script = [refusal(500)]
    with pytest.raises(errors.InternalError):
        await change(api)
    await change(api)
    assert api.sent_to == ["vip", "a"]


@ANY_READ
@virtual_time
async def test_an_answer_says_more_than_the_silence_of_the_others(call: Calling) -> None:
    api = await world("vip", "a", "b")
    api.server("a").script = [refusal(503, message="etcd is gone")]
    api.link("vip").refuse = api.link("b").refuse = True
    with pytest.raises(errors.ServiceUnavailable, match="etcd is gone"):
        await call(api)
    assert api.sent_to == ["a"]


@virtual_time
async def test_a_watch_lets_go_of_the_api_server_that_could_not_serve_it() -> None:
    let_go = asyncio.Event()

    async def flood() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 10_000
        finally:
            let_go.set()

    api = await world("vip", "a")
    api.server("vip").script = [Answer(status=503, body=flood())]
    async with api.client.watch(NODES):
        await let_go.wait()
    assert api.sent_to == ["vip", "a"]


@virtual_time
async def test_a_wait_that_an_api_server_asks_for_comes_after_all_others_were_asked() -> None:
    api = await world("vip", "a")
    api.server("vip").script = [refusal(503, retry_after="2"), json({})]
    api.server("a").script = [refusal(503, retry_after="2")]
    await read(api)
    assert (now(), api.sent_to) == (2.0, ["vip", "a", "vip"])


# Where calls go from then on


@virtual_time
async def test_the_client_stays_with_the_address_that_works() -> None:
    api = await world("vip", "a", "b")
    api.link("vip").refuse = True
    await read(api)
    api.link("vip").refuse = False
    for _ in range(3):
        await asyncio.sleep(REST)
        await change(api)
    assert api.sent_to == ["a"] * 4


@virtual_time
async def test_the_client_returns_to_a_failed_address_when_the_others_fail() -> None:
    api = await world("vip", "a")
    api.link("vip").lose_answer = "reset"
    await read(api)
    api.link("vip").lose_answer = None
    api.link("a").refuse = True
    await change(api)
    assert api.sent_to == ["vip", "a", "vip"]


@virtual_time
async def test_an_api_server_that_dies_costs_each_caller_at_most_one_call() -> None:
    api = await world("vip", "a")
    await read(api)
    api.link("vip").silent = True
    outcomes = []

    async def one() -> None:
        try:
            await change(api, timeout=2.0)
        except errors.OutcomeUnknown:
            outcomes.append(now())

    async with Tasks("callers") as tasks:
        await asyncio.wait([tasks.spawn(one(), name=str(n)) for n in range(3)])
    assert outcomes == [2.0] * 3
    await change(api)
    assert (now(), api.sent_to[-1]) == (2.0, "a")


# Trust


@virtual_time
async def test_learned_addresses_prove_that_they_are_the_configured_host() -> None:
    api = await world("vip", "a")
    api.access.tls = Tls(ca=b"the CA")
    api.link("vip").refuse = True
    await read(api)
    assert api.sent("a")[0].tls == Tls(ca=b"the CA", server_name="vip")


@virtual_time
async def test_the_configured_address_is_checked_against_its_own_name() -> None:
    api = await world("vip", "a")
    api.access.tls = Tls(ca=b"the CA")
    await read(api)
    assert api.sent("vip")[0].tls == Tls(ca=b"the CA")


@virtual_time
async def test_a_server_name_that_is_configured_holds_for_every_address() -> None:
    api = await world("vip", "a")
    api.access.tls = Tls(server_name="api.example")
    await read(api)
    api.link("vip").refuse = True
    await read(api)
    assert [api.sent(h)[0].tls for h in ("vip", "a")] == [Tls(server_name="api.example")] * 2


@virtual_time
async def test_a_learned_address_is_checked_even_where_no_trust_is_configured() -> None:
    api = await world("vip", "a")
    api.access.tls = None
    api.link("vip").refuse = True
    await read(api)
    assert api.sent("a")[0].tls == Tls(server_name="vip")


class Distrustful:
    """A transport to which some hosts cannot prove who they are."""

    def __init__(self, transport: Transport, *hosts: str) -> None:
        self._transport = transport
        self._hosts = hosts

    async def request(self, request: Request) -> Response:
        self._check(request)
        return await self._transport.request(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        self._check(request)
        async with self._transport.stream(request) as stream:
            yield stream

    def _check(self, request: Request) -> None:
        for host in self._hosts:
            if request.url.startswith(url(host)):
                raise TlsFailed(f"the certificate of {url(host)} cannot be trusted: expired")


def distrust(api: World, *hosts: str) -> None:
    known = api.client.addresses.all[1:]
    api.client = KubeClient(Distrustful(api.network.transport, *hosts), api.access)
    api.client.addresses.learn(known)


@ANY_CALL
@virtual_time
async def test_an_address_that_cannot_be_trusted_gets_nothing_and_the_next_one_is_asked(
    call: Calling,
) -> None:
    api = await world("vip", "a")
    distrust(api, "vip")
    await call(api)
    assert api.sent_to == ["a"]


@ANY_CALL
@virtual_time
async def test_where_nobody_can_be_trusted_the_sentence_says_what_to_look_at(
    call: Calling,
) -> None:
    api = await world()
    distrust(api, "vip")
    with pytest.raises(errors.Untrusted) as caught:
        await call(api)
    assert str(caught.value).endswith(
        "the certificate of https://vip:6443 cannot be trusted: expired; check the certificate "
        "authority, the server name and the client certificate of context 'test' of a kubeconfig"
    )


@ANY_CALL
@virtual_time
async def test_a_call_may_recover_as_long_as_one_address_may(call: Calling) -> None:
    api = await world("vip", "a")
    distrust(api, "vip")
    api.link("a").refuse = True
    with pytest.raises(errors.Unreachable, match=r"https://a:6443 refused.*vip:6443 cannot be"):
        await call(api)


# All of it at once


STRANGER = "does not know us"
FAULTS: dict[str, Callable[[World, str], None]] = {
    "none": lambda api, host: None,
    "refuses": lambda api, host: setattr(api.link(host), "refuse", True),
    "accepts nothing": lambda api, host: setattr(api.link(host), "connect_delay", NEVER),
    "accepts slowly": lambda api, host: setattr(api.link(host), "connect_delay", 0.9),
    "is far away": lambda api, host: setattr(api.link(host), "delay", 0.7),
    "is silent": lambda api, host: setattr(api.link(host), "silent", True),
    "resets": lambda api, host: setattr(api.link(host), "lose_answer", "reset"),
    "loses answers": lambda api, host: setattr(api.link(host), "lose_answer", "silence"),
    "cannot serve": lambda api, host: api.server(host).script.append(refusal(503)),
    "asks to wait": lambda api, host: api.server(host).script.append(refusal(429, retry_after="1")),
    STRANGER: lambda api, host: api.server(host).script.append(refusal(401)),
    "says something else": lambda api, host: api.server(host).script.append(
        Answer(status=502, body=b"<html>")
    ),
}

SOME_FAULTS = st.lists(st.sampled_from(sorted(FAULTS)), min_size=1, max_size=4)


async def afflicted(faults: list[str]) -> World:
    hosts = ["vip", "a", "b", "c"][: len(faults)]
    api = await world(*hosts, tokens=("t1", "t2", "t3"))
    for host, fault in zip(hosts, faults, strict=True):
        FAULTS[fault](api, host)
    return api


@settings(deadline=None)
@given(
    faults=SOME_FAULTS, timeout=st.floats(0.1, 20.0), call=st.sampled_from([read, change, follow])
)
def test_no_call_outlives_its_deadline_and_no_write_is_carried_out_twice(
    faults: list[str], timeout: float, call: Callable[..., Awaitable[None]]
) -> None:
    async def story() -> None:
        api = await afflicted(faults)
        with suppress(errors.KubeError):
            await call(api, timeout=timeout)
        assert now() <= math.nextafter(timeout, math.inf)
        if call is change:
            known = {h for h, fault in zip(api.servers, faults, strict=True) if fault != STRANGER}
            assert len([host for host in api.sent_to if host in known]) <= 1

    run(story())


@settings(deadline=None)
@given(
    faults=st.lists(
        st.sampled_from(["refuses", "accepts nothing", "accepts slowly"]), min_size=0, max_size=3
    ),
    place=st.integers(0, 3),
    timeout=st.sampled_from([0.1, 0.5, 1.0, 2.0, 10.0]),
    call=st.sampled_from([read, change, follow]),
)
def test_one_address_that_works_is_enough(
    faults: list[str], place: int, timeout: float, call: Callable[..., Awaitable[None]]
) -> None:
    async def story() -> None:
        api = await afflicted([*faults[:place], "none", *faults[place:]])
        await call(api, timeout=timeout)
        assert now() <= min(timeout, CONNECT_BUDGET)

    run(story())
