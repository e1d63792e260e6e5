"""The real transport against servers that break every rule, on real sockets."""

import asyncio
import gzip
import socket
import zlib
from collections.abc import AsyncIterator

import pytest

from backstay.seam.aiohttp_transport import AiohttpTransport, _new_socket
from backstay.seam.errors import (
    BadAnswer,
    ConnectionLost,
    NotSent,
    Refused,
    TimedOut,
    TransportError,
)
from tests.seam.hostile import Hostile, Script, Wire, answering, hostile

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def sized(body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(line + b"\r\n" for line in headers)
    return OK + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTransport]:
    made = AiohttpTransport()
    yield made
    await made.close()


async def outcome(
    transport: AiohttpTransport, script: Script, *, timeout: float = 5.0
) -> type[TransportError] | bytes:
    """What a request and a stream make of the script; they must agree."""
    async with hostile(script) as server:
        async with asyncio.TaskGroup() as group:
            whole = group.create_task(requested(transport, server, timeout=timeout))
            pieces = group.create_task(streamed(transport, server, timeout=timeout))
        assert len(server.wires) == 2, "sent more than once"
    assert whole.result() == pieces.result()
    return whole.result()


async def requested(
    transport: AiohttpTransport, server: Hostile, *, timeout: float = 5.0
) -> type[TransportError] | bytes:
    try:
        return (await transport.request(server.request(timeout=timeout))).body
    except TransportError as error:
        return type(error)


async def streamed(
    transport: AiohttpTransport, server: Hostile, *, timeout: float = 5.0
) -> type[TransportError] | bytes:
    body = b""
    try:
        async with transport.stream(server.request(timeout=timeout)) as stream:
            while piece := await stream.read(timeout):
                body += piece
    except TransportError as error:
        return type(error)
    return body


class TestSilence:
    """Peers that are there, and say nothing."""

    async def test_before_the_head(self, transport: AiohttpTransport) -> None:
        assert await outcome(transport, answering(), timeout=0.5) is TimedOut

    async def test_in_the_middle_of_the_head(self, transport: AiohttpTransport) -> None:
        assert await outcome(transport, answering(OK + b"X-Half: "), timeout=0.5) is TimedOut

    async def test_in_the_middle_of_the_body(self, transport: AiohttpTransport) -> None:
        script = answering(OK + b"Content-Length: 10\r\n\r\nhalf ")
        assert await outcome(transport, script, timeout=0.5) is TimedOut

    async def test_in_the_middle_of_a_chunk(self, transport: AiohttpTransport) -> None:
        script = answering(CHUNKED + b"a\r\nhalf ")
        assert await outcome(transport, script, timeout=0.5) is TimedOut

    async def test_of_a_peer_that_stops_reading(self, transport: AiohttpTransport) -> None:
        async def script(wire: Wire) -> None:
            wire.stop_reading()
            await asyncio.Event().wait()

        async with hostile(script) as server:
            request = server.request(method="PUT", body=bytes(30_000_000), timeout=1.0)
            with pytest.raises(TimedOut):
                await transport.request(request)

    async def test_interrupted_by_drops_is_still_bounded(self, transport: AiohttpTransport) -> None:
        drops: list[bytes | float] = [b"x", 0.02]
        script = answering(OK + b"Content-Length: 1000\r\n\r\n", *drops * 1000)
        async with hostile(script) as server:
            with pytest.raises(TimedOut, match=r"was not answered within 0\.2 s"):
                await transport.request(server.request(timeout=0.2))

    async def test_in_a_head_that_comes_late_but_comes(self, transport: AiohttpTransport) -> None:
        script = answering(b"HTTP/1.1 20", 0.05, b"0 OK\r\nContent-", 0.05, b"Length: 2\r\n\r\nok")
        assert await outcome(transport, script) == b"ok"


class TestCutsAndLies:
    """Answers that end early, or are longer than they say."""

    @pytest.mark.parametrize("end", [Wire.close, Wire.reset], ids=["closed", "reset"])
    @pytest.mark.parametrize(
        "pieces",
        [
            [],
            [b"HTTP/1.1 2"],
            [OK + b"X-Half: "],
            [OK + b"Content-Length: 10\r\n\r\n"],
            [OK + b"Content-Length: 10\r\n\r\nhalf ", 0.02],
            [CHUNKED, 0.02],
            [CHUNKED + b"a\r\nhalf ", 0.02],
            [CHUNKED + chunk(b"whole"), 0.02],
            [CHUNKED + chunk(b"whole") + b"0\r\n", 0.02],
        ],
        ids=[
            "before-the-head", "in-the-status", "in-the-headers", "after-the-head",
            "in-the-body", "before-the-first-chunk", "in-a-chunk", "after-a-chunk",
            "in-the-last-chunk",
        ],
    )  # fmt: skip
    async def test_a_cut_is_connection_lost(
        self, transport: AiohttpTransport, pieces: list[bytes | float], end: object
    ) -> None:
        then = Wire.close if end is Wire.close else Wire.reset
        assert await outcome(transport, answering(*pieces, then=then)) is ConnectionLost

    async def test_a_cut_before_the_answer_is_not_answered_by_a_second_try(
        self, transport: AiohttpTransport
    ) -> None:
        async def script(wire: Wire) -> None:
            await wire.request()
            await wire.send(sized(b"first"))
            await wire.request()
            wire.close()

        async with hostile(script) as server:
            request = server.request(method="DELETE")
            assert (await transport.request(request)).body == b"first"
            with pytest.raises(ConnectionLost):
                await transport.request(request)
            assert len(server.wires) == 1
            assert server.received.count(b"DELETE /") == 2

    @pytest.mark.parametrize("end", [Wire.close, Wire.reset], ids=["closed", "reset"])
    async def test_a_body_that_ends_with_the_connection_is_refused(
        self, transport: AiohttpTransport, end: object
    ) -> None:
        then = Wire.close if end is Wire.close else Wire.reset
        script = answering(OK + b"\r\nperhaps this is all", 0.02, then=then)
        assert await outcome(transport, script) is BadAnswer

    async def test_what_comes_after_the_body_is_not_taken_for_the_next_answer(
        self, transport: AiohttpTransport
    ) -> None:
        async with hostile(answering(sized(b"true") + sized(b"planted"))) as server:
            for _ in range(3):
                assert (await transport.request(server.request())).body == b"true"
            assert len(server.wires) == 3

    async def test_what_comes_between_two_requests_is_not_taken_for_an_answer(
        self, transport: AiohttpTransport
    ) -> None:
        planted = asyncio.Event()

        async def script(wire: Wire) -> None:
            await wire.request()
            await wire.send(sized(b"true"), 0.02, sized(b"planted"))
            planted.set()
            await wire.until_closed()

        async with hostile(script) as server:
            assert await requested(transport, server) == b"true"
            await planted.wait()
            await asyncio.sleep(0.05)
            assert await requested(transport, server) is Refused
            assert await requested(transport, server) == b"true"
            assert server.received.count(b"GET / HTTP") == 2

    async def test_who_speaks_first_is_not_asked(self, transport: AiohttpTransport) -> None:
        async def script(wire: Wire) -> None:
            await wire.send(b"SSH-2.0-OpenSSH_9.6\r\n")
            await wire.until_closed()

        async with hostile(script) as server:
            assert await requested(transport, server) in (Refused, BadAnswer)


class TestNotHttp:
    """Answers that are not what they should be."""

    @pytest.mark.parametrize(
        "answer",
        [
            b"SSH-2.0-OpenSSH_9.6\r\n",
            b"\x15\x03\x01\x00\x02\x02\x50",
            b"HTTP/1.1 abc OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
            OK + b"X-Huge: " + b"x" * 100_000 + b"\r\n\r\n",
            OK + b"".join(b"X-%d: y\r\n" % n for n in range(10_000)) + b"\r\n",
            OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
            OK + b"Content-Length: -1\r\n\r\n",
            OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            CHUNKED + b"not a size\r\nabc\r\n0\r\n\r\n",
            CHUNKED + b"3\r\nabcdefgh\r\n0\r\n\r\n",
        ],
        ids=[
            "another-protocol", "a-tls-alert", "no-status", "no-header", "a-huge-header",
            "too-many-headers", "two-lengths", "a-negative-length", "length-and-chunks",
            "a-chunk-without-size", "a-chunk-longer-than-it-says",
        ],
    )  # fmt: skip
    async def test_is_a_bad_answer(self, transport: AiohttpTransport, answer: bytes) -> None:
        assert await outcome(transport, answering(answer), timeout=2.0) is BadAnswer

    async def test_broken_chunks_after_a_while_are_a_bad_answer(
        self, transport: AiohttpTransport
    ) -> None:
        script = answering(CHUNKED + chunk(b"good"), 0.05, b"not a size\r\n")
        assert await outcome(transport, script, timeout=2.0) is BadAnswer

    async def test_interim_answers_are_passed_over(self, transport: AiohttpTransport) -> None:
        script = answering(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", sized(b"final"))
        assert await outcome(transport, script) == b"final"

    async def test_an_endless_head_is_bounded(self, transport: AiohttpTransport) -> None:
        async def script(wire: Wire) -> None:
            await wire.request()
            await wire.send(OK)
            while True:
                await wire.send(b"X-More: " + b"x" * 4000 + b"\r\n")

        async with hostile(script) as server:
            with pytest.raises(BadAnswer):
                await transport.request(server.request())


class TestCompression:
    """Nothing asks for it by default, but a server may do it all the same."""

    BODY = bytes(range(256)) * 2000

    async def test_is_asked_for_only_by_the_request(self, transport: AiohttpTransport) -> None:
        async with hostile(answering(sized(b"ok"))) as server:
            await transport.request(server.request())
            await transport.request(server.request(headers={"accept-encoding": "gzip"}))
        _, plain, packed = server.received.lower().split(b"get / http/1.1")
        assert b"accept-encoding: identity\r\n" in plain
        assert b"accept-encoding: gzip\r\n" in packed
        assert b"identity" not in packed

    @pytest.mark.parametrize("members", [1, 3])
    async def test_is_undone(self, transport: AiohttpTransport, members: int) -> None:
        packed = gzip.compress(self.BODY) * members
        script = answering(sized(packed, b"Content-Encoding: gzip"))
        assert await outcome(transport, script) == self.BODY * members

    async def test_is_undone_however_it_is_cut_up(self, transport: AiohttpTransport) -> None:
        packed = gzip.compress(self.BODY)
        pieces = [chunk(packed[n : n + 97]) for n in range(0, len(packed), 97)]
        head = OK + b"Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n"
        script = answering(head, *pieces, b"0\r\n\r\n")
        assert await outcome(transport, script) == self.BODY

    @pytest.mark.parametrize(
        "packed",
        [
            gzip.compress(BODY)[:-12],
            gzip.compress(BODY)[:100] + b"damaged" + gzip.compress(BODY)[107:],
            b"not gzip at all",
            zlib.compress(BODY),
            gzip.compress(BODY)[:-8] + bytes(8),
        ],
        ids=["stops-short", "damaged", "plain", "zlib", "wrong-checksum"],
    )
    async def test_that_is_wrong_is_a_bad_answer(
        self, transport: AiohttpTransport, packed: bytes
    ) -> None:
        script = answering(sized(packed, b"Content-Encoding: gzip"))
        assert await outcome(transport, script) is BadAnswer

    async def test_of_an_unknown_kind_is_a_bad_answer(self, transport: AiohttpTransport) -> None:
        script = answering(sized(b"\x0b\x02\x80ok\x03", b"Content-Encoding: br"))
        assert await outcome(transport, script) is BadAnswer

    async def test_of_an_empty_body_is_an_empty_body(self, transport: AiohttpTransport) -> None:
        assert await outcome(transport, answering(sized(b"", b"Content-Encoding: gzip"))) == b""

    async def test_cannot_be_used_to_exhaust_memory(self, transport: AiohttpTransport) -> None:
        bomb = gzip.compress(bytes(40_000_000))
        assert len(bomb) < 200_000
        async with hostile(answering(sized(bomb, b"Content-Encoding: gzip"))) as server:
            with pytest.raises(BadAnswer, match="more than 1000000 bytes"):
                await transport.request(server.request(max_body=1_000_000))
            async with transport.stream(server.request()) as stream:
                assert len(await stream.read(5.0)) <= 2**20


class TestConnections:
    """What is reused, what is closed, and what goes out."""

    def test_a_peer_that_vanished_is_noticed_by_the_kernel(self) -> None:
        with _new_socket((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)) as made:
            assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            tcp = {
                name: made.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
                for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
            }
        probing = tcp["TCP_KEEPIDLE"] + tcp["TCP_KEEPINTVL"] * tcp["TCP_KEEPCNT"]
        assert probing <= 30
        assert tcp["TCP_USER_TIMEOUT"] == 30_000

    async def test_a_line_of_megabytes_passes_through_a_stream(
        self, transport: AiohttpTransport
    ) -> None:
        line = b"x" * 1_500_000 + b"\n"
        assert await outcome(transport, answering(CHUNKED, chunk(line), b"0\r\n\r\n")) == line

    async def test_a_stream_that_was_read_to_its_end_leaves_its_connection_usable(
        self, transport: AiohttpTransport
    ) -> None:
        async def script(wire: Wire) -> None:
            while True:
                await wire.request()
                await wire.send(CHUNKED + chunk(b"all") + b"0\r\n\r\n")

        async with hostile(script) as server:
            for _ in range(3):
                assert await streamed(transport, server) == b"all"
            assert len(server.wires) == 1

    async def test_leaving_a_stream_early_closes_its_connection(
        self, transport: AiohttpTransport
    ) -> None:
        closed = asyncio.Event()

        async def script(wire: Wire) -> None:
            await wire.request()
            await wire.send(CHUNKED + chunk(b"first"))
            await wire.until_closed()
            closed.set()

        async with hostile(script) as server:
            async with transport.stream(server.request()) as stream:
                assert await stream.read(5.0) == b"first"
            async with asyncio.timeout(5.0):
                await closed.wait()

    @pytest.mark.parametrize("pieces", [[], [CHUNKED + chunk(b"part")]], ids=["head", "body"])
    async def test_a_cancelled_request_closes_its_connection(
        self, transport: AiohttpTransport, pieces: list[bytes]
    ) -> None:
        sent, closed = asyncio.Event(), asyncio.Event()

        async def script(wire: Wire) -> None:
            await wire.request()
            await wire.send(*pieces, 0.02)
            sent.set()
            await wire.until_closed()
            closed.set()

        async with hostile(script) as server, asyncio.TaskGroup() as group:
            task = group.create_task(transport.request(server.request()))
            await sent.wait()
            task.cancel()
            async with asyncio.timeout(5.0):
                await closed.wait()

    async def test_a_request_carries_nothing_that_the_caller_did_not_say(
        self, transport: AiohttpTransport
    ) -> None:
        async with hostile(answering(sized(b"", b"Set-Cookie: id=1; Path=/"))) as server:
            await transport.request(server.request(path="/a%2Fb?c=%20d"))
            await transport.request(server.request(method="POST", body=b"text"))
        host = server.url.partition("://")[2].encode()
        common = b"Host: " + host + b"\r\nAccept-Encoding: identity\r\nAccept: */*\r\n"
        get = b"GET /a%2Fb?c=%20d HTTP/1.1\r\n" + common + b"\r\n"
        post = b"POST / HTTP/1.1\r\n" + common + b"Content-Length: 4\r\n\r\ntext"
        assert server.received == get + post

    @pytest.mark.parametrize("value", ["a\r\nX-Injected: 1", "a\nb", "a\x00b"])
    async def test_a_header_cannot_smuggle_in_another(
        self, transport: AiohttpTransport, value: str
    ) -> None:
        async with hostile(answering(sized(b""))) as server:
            with pytest.raises(NotSent, match="its header 'Authorization' contains") as caught:
                await transport.request(server.request(headers={"Authorization": value}))
            assert value not in str(caught.value)
            assert server.wires == []

    @pytest.mark.parametrize("path", ["/ HTTP/1.1\r\n\r\nDELETE /", "/a b", "/a\tb"])
    async def test_a_path_cannot_smuggle_in_a_request(
        self, transport: AiohttpTransport, path: str
    ) -> None:
        async with hostile(answering(sized(b""))) as server:
            with pytest.raises(NotSent, match="not allowed in a URL"):
                await transport.request(server.request(path=path))
            assert server.wires == []

    async def test_credentials_are_in_no_error(self, transport: AiohttpTransport) -> None:
        async with hostile(answering(b"garbage\r\n\r\n")) as server:
            request = server.request(headers={"Authorization": "Bearer s3cret"}, body=b"s3cret")
            with pytest.raises(BadAnswer) as caught:
                await transport.request(request)
        assert "s3cret" not in str(caught.value) + repr(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
