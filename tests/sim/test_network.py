"""The faults of the in-memory network; what it shares with the real one is in the contract."""

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar

import pytest

from backstay.seam.errors import BadAnswer, ConnectFailed, ConnectionLost, TimedOut, TooLate
from backstay.seam.serve import Answer, Inbound, ServerTls
from backstay.seam.transport import Request
from backstay.sim.network import Link, Network
from tests.support.virtual import virtual_time

URL = "http://api:6443"


def now() -> float:
    return asyncio.get_running_loop().time()


class Server:
    """Answers "done" and remembers at what moment it saw which path."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, str]] = []

    async def __call__(self, inbound: Inbound) -> Answer:
        self.seen.append((now(), inbound.path))
        return Answer(body=b"done")


async def listening(handler: Server | None = None) -> tuple[Network, Link, Server]:
    network, server = Network(), handler or Server()
    await network.serve.listen(server, host="api", port=6443)
    return network, network.link(URL), server


def get(path: str = "/", *, timeout: float = 10.0, not_after: float | None = None) -> Request:
    return Request(method="GET", url=URL + path, timeout=timeout, not_after=not_after)


async def ticking(interval: float) -> AsyncIterator[bytes]:
    while True:
        await asyncio.sleep(interval)
        yield b"tick"


@virtual_time
async def test_a_delay_holds_up_the_request_and_the_answer() -> None:
    network, link, server = await listening()
    link.delay = 2.0
    assert (await network.transport.request(get("/a"))).body == b"done"
    assert server.seen == [(2.0, "/a")]
    assert now() == 4.0


@virtual_time
async def test_a_delay_that_shrinks_does_not_reorder_a_stream() -> None:
    network = Network()

    async def count() -> AsyncIterator[bytes]:
        for number in range(4):
            yield b"%d" % number
            network.link(URL).delay = 0.0

    async def handler(_: Inbound) -> Answer:
        return Answer(body=count())

    await network.serve.listen(handler, host="api", port=6443)
    network.link(URL).delay = 3.0
    assert (await network.transport.request(get())).body == b"0123"


@virtual_time
async def test_a_silent_link_takes_the_request_and_never_answers() -> None:
    network, link, server = await listening()
    link.silent = True
    with pytest.raises(TimedOut, match="GET http://api:6443/ was not answered within 10 s"):
        await network.transport.request(get())
    assert now() == 10.0
    assert [sent.at for sent in link.sent] == [0.0]
    link.silent = False
    await asyncio.sleep(1.0)
    assert server.seen == []


@virtual_time
async def test_what_was_held_by_silence_arrives_when_it_ends() -> None:
    network, link, server = await listening()
    link.silent = True
    asyncio.get_running_loop().call_later(5.0, setattr, link, "silent", False)
    assert (await network.transport.request(get("/a"))).body == b"done"
    assert server.seen == [(5.0, "/a")]


@virtual_time
async def test_silence_falls_on_open_streams_too() -> None:
    network = Network()

    async def handler(_: Inbound) -> Answer:
        return Answer(body=ticking(1.0))

    await network.serve.listen(handler, host="api", port=6443)
    async with network.transport.stream(get()) as stream:
        assert await stream.read(5.0) == b"tick"
        network.link(URL).silent = True
        with pytest.raises(TimedOut):
            await stream.read(30.0)
        assert now() == 31.0
        network.link(URL).silent = False
        assert await stream.read(5.0) == b"tick"
        assert now() == 31.0


@virtual_time
async def test_a_refusing_link_sends_nothing() -> None:
    network, link, server = await listening()
    link.refuse = True
    with pytest.raises(ConnectFailed, match="http://api:6443 refused the connection"):
        await network.transport.request(get())
    assert (link.sent, server.seen) == ([], [])


@virtual_time
async def test_a_connection_that_comes_after_not_after_sends_nothing() -> None:
    network, link, server = await listening()
    link.connect_delay = 3.0
    with pytest.raises(TooLate):
        await network.transport.request(get(not_after=2.9))
    assert (link.sent, server.seen) == ([], [])
    await network.transport.request(get("/b", not_after=6.0))
    assert [sent.at for sent in link.sent] == [6.0]


@pytest.mark.parametrize(("timeout", "connect_timeout"), [(10.0, 2.0), (2.0, None), (2.0, 10.0)])
@virtual_time
async def test_a_connection_that_does_not_come_in_time_is_not_sent(
    timeout: float, connect_timeout: float | None
) -> None:
    network, link, _ = await listening()
    link.connect_delay = 3.0
    request = Request(method="GET", url=URL, timeout=timeout, connect_timeout=connect_timeout)
    with pytest.raises(ConnectFailed, match="did not accept a connection in time"):
        await network.transport.request(request)
    assert (now(), link.sent) == (2.0, [])


@virtual_time
async def test_cut_ends_exchanges_and_streams_that_are_open() -> None:
    closed = asyncio.Event()

    async def ticking_until_closed() -> AsyncIterator[bytes]:
        try:
            async for tick in ticking(3600.0):
                yield tick
        finally:
            closed.set()

    async def handler(inbound: Inbound) -> Answer:
        if inbound.path == "/watch":
            return Answer(body=ticking_until_closed())
        await asyncio.sleep(3600.0)
        return Answer()

    network = Network()
    await network.serve.listen(handler, host="api", port=6443)
    asyncio.get_running_loop().call_later(4.0, network.link(URL).cut)

    async with network.transport.stream(get("/watch")) as stream:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_outcome(network, get("/slow", timeout=100.0)))
            with pytest.raises(ConnectionLost):
                await stream.read(100.0)
        assert waiting.result() is ConnectionLost
        assert now() == 4.0
        await closed.wait()


@pytest.mark.parametrize(
    ("loss", "error", "after"), [("reset", ConnectionLost, 0.0), ("silence", TimedOut, 10.0)]
)
@virtual_time
async def test_a_lost_answer_leaves_the_work_done(
    loss: str, error: type[Exception], after: float
) -> None:
    network, link, server = await listening()
    link.lose_answer = "reset" if loss == "reset" else "silence"
    assert await _outcome(network, get("/a")) is error
    assert (server.seen, now()) == ([(0.0, "/a")], after)


@virtual_time
async def test_a_body_that_is_never_read_is_still_closed() -> None:
    class Subscription:
        closed = False

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self

        async def __anext__(self) -> bytes:
            raise AssertionError("nobody is there to read")

        async def aclose(self) -> None:
            self.closed = True

    subscription = Subscription()

    async def handler(_: Inbound) -> Answer:
        return Answer(body=subscription)

    network = Network()
    await network.serve.listen(handler, host="api", port=6443)
    network.link(URL).lose_answer = "reset"
    assert await _outcome(network, get()) is ConnectionLost
    assert subscription.closed


@virtual_time
async def test_a_sender_waits_for_a_reader_that_is_behind() -> None:
    made = 0

    async def plenty() -> AsyncIterator[bytes]:
        nonlocal made
        for _ in range(100):
            made += 1
            yield bytes(64 * 1024)

    async def handler(_: Inbound) -> Answer:
        return Answer(body=plenty())

    network = Network()
    await network.serve.listen(handler, host="api", port=6443)
    async with network.transport.stream(get()) as stream:
        await asyncio.sleep(60.0)
        assert made == 5
        total = 0
        while chunk := await stream.read(1.0):
            total += len(chunk)
        assert total == 100 * 64 * 1024


@virtual_time
async def test_a_handler_runs_in_the_context_of_its_own_side() -> None:
    who = ContextVar("who", default="nobody")

    async def handler(_: Inbound) -> Answer:
        return Answer(body=who.get().encode())

    network = Network()
    who.set("server")
    await network.serve.listen(handler, host="api", port=6443)
    who.set("client")
    assert (await network.transport.request(get())).body == b"server"


@virtual_time
async def test_an_address_is_the_same_however_it_is_written() -> None:
    network = Network()
    tls = ServerTls(cert=b"", key=b"")
    await network.serve.listen(Server(), host="api", port=443, tls=tls)
    await network.serve.listen(Server(), host="::1", port=80)
    for url in ("https://api/x", "https://API:443", "http://[::1]/y", "http://[::1]:80"):
        request = Request(method="GET", url=url, timeout=1.0)
        assert (await network.transport.request(request)).body == b"done"
    assert network.link("https://api") is network.link("https://api:443/some/path")


@virtual_time
async def test_an_address_is_taken_once() -> None:
    network, _, _ = await listening()
    with pytest.raises(OSError, match="in use"):
        await network.serve.listen(Server(), host="api", port=6443)


@virtual_time
async def test_a_url_that_is_not_http_cannot_be_connected_to() -> None:
    with pytest.raises(ConnectFailed, match="not an http or https address"):
        await Network().transport.request(Request(method="GET", url="ftp://x", timeout=1.0))


async def _outcome(network: Network, request: Request) -> type[Exception] | int:
    try:
        return (await network.transport.request(request)).status
    except (ConnectionLost, ConnectFailed, TimedOut, BadAnswer) as error:
        return type(error)
