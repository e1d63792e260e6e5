"""``Request.not_after`` on real sockets: what is late does not leave, however it became late.

Each server here counts the bytes of requests that reach it, after TLS. The moment always lies in
the future when the request is made: a check before connecting would let every one of them pass.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.errors import TimedOut, TooLate
from backstay.seam.system import boot_time
from backstay.seam.tls import server_context
from backstay.seam.transport import Request
from tests.seam.hostile import Hostile, Script, Wire, answering, hostile
from tests.seam.worlds import server_tls, trust

BODIES = pytest.mark.parametrize("body", [b"", b"with a body"], ids=["bare", "with-body"])
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def now() -> float:
    return asyncio.get_running_loop().time()


class Jumping:
    """A clock that counts suspended time, on a machine that is suspended when asked nth."""

    def __init__(self, *, suspended_at: int) -> None:
        self.asked = 0
        self._suspended_at = suspended_at

    def __call__(self) -> float:
        self.asked += 1
        return boot_time() + (3600.0 if self.asked >= self._suspended_at else 0.0)


@asynccontextmanager
async def a_transport(clock: Callable[[], float] = boot_time) -> AsyncIterator[AiohttpTransport]:
    made = AiohttpTransport(clock=clock)
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def a_slow_handshake(seconds: float) -> AsyncIterator[Hostile]:
    context = server_context(server_tls())
    answer = answering(OK)

    async def script(wire: Wire) -> None:
        wire.stop_reading()
        await asyncio.sleep(seconds)
        await wire.start_tls(context)
        await answer(wire)

    async with hostile(script) as server:
        server.url = server.url.replace("http:", "https:")
        yield server


@BODIES
async def test_a_connection_that_comes_too_late_is_not_used(body: bytes) -> None:
    async with a_slow_handshake(0.3) as server, a_transport() as transport:
        late = server.request(method="PUT", body=body, tls=trust(), not_after=now() + 0.1)
        with pytest.raises(TooLate, match="was not sent: its time had passed"):
            await transport.request(late)
        with pytest.raises(TooLate):
            async with transport.stream(
                server.request(method="PUT", body=body, tls=trust(), not_after=now() + 0.1)
            ):
                pass
        assert (len(server.wires), await server.when_all_is_received()) == (2, b"")


@BODIES
async def test_a_connection_that_is_slow_but_in_time_is_used(body: bytes) -> None:
    async with a_slow_handshake(0.1) as server, a_transport() as transport:
        request = server.request(method="PUT", body=body, tls=trust(), not_after=now() + 5.0)
        assert (await transport.request(request)).status == 200
        assert server.received.startswith(b"PUT / HTTP/1.1\r\n")
        assert server.received.endswith(body)


@BODIES
async def test_time_that_the_machine_slept_while_connecting_counts(body: bytes) -> None:
    # Asked first when the request is made and second when it is about to leave.
    async with hostile(answering(OK)) as server, a_transport(Jumping(suspended_at=2)) as transport:
        with pytest.raises(TooLate):
            await transport.request(server.request(method="PUT", body=body, not_after=now() + 60.0))
        assert await server.when_all_is_received() == b""


async def test_a_body_is_held_back_until_the_very_last_moment() -> None:
    # Asked a third time when the request, with its body, is really written.
    clock = Jumping(suspended_at=3)
    async with hostile(answering(OK)) as server, a_transport(clock) as transport:
        with pytest.raises(TooLate):
            await transport.request(server.request(method="PUT", body=b"x", not_after=now() + 60.0))
        assert (clock.asked, await server.when_all_is_received()) == (3, b"")


@pytest.mark.parametrize("suspended_at", [2, 3])
async def test_a_kept_connection_is_closed_without_another_byte(suspended_at: int) -> None:
    clock = Jumping(suspended_at=suspended_at)
    async with hostile(answering(OK)) as server, a_transport(clock) as transport:
        await transport.request(server.request())
        before = server.received
        with pytest.raises(TooLate):
            await transport.request(server.request(method="PUT", body=b"x", not_after=now() + 60.0))
        assert (len(server.wires), await server.when_all_is_received()) == (1, before)


async def test_a_machine_that_slept_long_ago_is_not_late_for_ever() -> None:
    async with hostile(answering(OK)) as server, a_transport(Jumping(suspended_at=1)) as transport:
        request = server.request(method="PUT", body=b"x", not_after=now() + 60.0)
        assert (await transport.request(request)).status == 200


async def test_without_a_moment_nothing_is_late() -> None:
    script: Script = answering(OK)
    async with hostile(script) as server, a_transport(Jumping(suspended_at=2)) as transport:
        assert (await transport.request(server.request(method="PUT", body=b"x"))).status == 200


async def _last_words(*, not_after: float | None) -> bytes:
    """What a server hears that begins to listen when its caller has given up: all of the request,
    and how the connection ended. Raises ``ConnectionResetError`` if it was reset."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        request = Request(method="POST", url=url, body=b"x", timeout=0.2, not_after=not_after)
        async with a_transport() as transport:
            with pytest.raises(TimedOut):
                await transport.request(request)
            loop = asyncio.get_running_loop()
            taken, _ = await loop.sock_accept(listening)
            with taken:
                taken.setblocking(False)
                heard = b""
                async with asyncio.timeout(5):
                    while piece := await loop.sock_recv(taken, 4096):
                        heard += piece
                return heard


async def test_what_may_not_be_late_is_forgotten_by_the_kernel_once_it_was_given_up() -> None:
    """What reached the other machine before cannot be called back."""
    with pytest.raises(ConnectionResetError):
        await _last_words(not_after=now() + 60)


async def test_any_other_connection_ends_in_order() -> None:
    assert b"POST / HTTP/1.1" in await _last_words(not_after=None)
