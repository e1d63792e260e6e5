"""What every ``Transport`` promises, whatever it is made of. See ``backstay.seam.transport``."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from backstay.seam.errors import (
    BadAnswer,
    ConnectFailed,
    ConnectionLost,
    Refused,
    TimedOut,
    TooLate,
)
from backstay.seam.serve import Answer, Inbound
from backstay.seam.transport import Response
from tests.seam.worlds import World

_PACKED = {"Accept-Encoding": "gzip"}


def _packed(body: bytes) -> Answer:
    return Answer(headers={"Content-Encoding": "gzip"}, body=body)


def now() -> float:
    return asyncio.get_running_loop().time()


class Recorder:
    """A handler that gives one answer and keeps what it saw."""

    def __init__(self, answer: Callable[[], Answer] = Answer) -> None:
        self.seen: list[Inbound] = []
        self._answer = answer

    async def __call__(self, inbound: Inbound) -> Answer:
        self.seen.append(inbound)
        return self._answer()


def streaming(*pieces: bytes | float | Exception) -> Callable[[], Answer]:
    """An answer in pieces; a number is a pause, an exception is how it breaks off."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            if isinstance(piece, bytes):
                yield piece
            elif isinstance(piece, Exception):
                raise piece
            else:
                await asyncio.sleep(piece)

    return lambda: Answer(body=body())


async def never(_: Inbound) -> Answer:
    await asyncio.Event().wait()
    return Answer()


class TransportContract:
    """Subclasses provide ``world``."""

    async def test_a_request_arrives_as_it_was_sent(self, world: World) -> None:
        recorder = Recorder()
        server = await world.listen(recorder)
        await world.transport.request(
            world.request(
                f"{server.url}/apis/a%20b/c?x=1%2F2&y=%26&z",
                method="PATCH",
                headers={"Content-Type": "application/json", "X-Mixed-Case": "Kept"},
                body=b'{"a": 1}',
            )
        )
        [inbound] = recorder.seen
        assert (inbound.method, inbound.path) == ("PATCH", "/apis/a b/c")
        assert inbound.query == "x=1%2F2&y=%26&z"
        assert inbound.body == b'{"a": 1}'
        assert inbound.headers["content-type"] == "application/json"
        assert inbound.headers["x-mixed-case"] == "Kept"
        assert inbound.headers["host"] == server.url.partition("://")[2]

    @pytest.mark.parametrize("status", [200, 201, 404, 409, 500, 503])
    async def test_an_answer_comes_back_as_it_was_given(self, world: World, status: int) -> None:
        answer = Answer(status=status, headers={"X-Mixed-Case": "Kept"}, body=b"text")
        server = await world.listen(Recorder(lambda: answer))
        response = await world.transport.request(world.request(server.url))
        assert (response.status, response.body) == (status, b"text")
        assert response.headers["x-mixed-case"] == "Kept"

    async def test_bodies_of_megabytes_go_both_ways(self, world: World) -> None:
        async def echo(inbound: Inbound) -> Answer:
            return Answer(body=inbound.body)

        server = await world.listen(echo)
        body = bytes(range(256)) * 12_000
        request = world.request(server.url, method="PUT", body=body)
        assert (await world.transport.request(request)).body == body

    async def test_a_body_in_pieces_is_one_body(self, world: World) -> None:
        server = await world.listen(Recorder(streaming(b"one ", b"", b"two ", 0.01, b"three")))
        response = await world.transport.request(world.request(server.url))
        assert response.body == b"one two three"

    async def test_a_packed_body_comes_unpacked_and_is_measured_so(self, world: World) -> None:
        body = bytes(1000)
        server = await world.listen(Recorder(partial(_packed, gzip.compress(body))))
        exact = world.request(server.url, headers=_PACKED, max_body=1000)
        assert (await world.transport.request(exact)).body == body
        with pytest.raises(BadAnswer):
            await world.transport.request(world.request(server.url, headers=_PACKED, max_body=999))

    @pytest.mark.parametrize(
        "body", [gzip.compress(bytes(1000))[:-4], b"not gzip at all"], ids=["cut-off", "plain"]
    )
    async def test_a_body_that_is_not_packed_as_it_says_is_refused(
        self, world: World, body: bytes
    ) -> None:
        server = await world.listen(Recorder(partial(_packed, body)))
        with pytest.raises(BadAnswer):
            await world.transport.request(world.request(server.url, headers=_PACKED))

    async def test_the_answer_to_head_has_no_body(self, world: World) -> None:
        for answer in (lambda: Answer(body=b"text"), streaming(b"text")):
            server = await world.listen(Recorder(answer))
            request = world.request(server.url, method="HEAD")
            assert (await world.transport.request(request)).body == b""

    async def test_many_requests_run_at_the_same_time(self, world: World) -> None:
        waiting = asyncio.Barrier(40)

        async def together(_: Inbound) -> Answer:
            await waiting.wait()
            return Answer(body=b"all here")

        server = await world.listen(together)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(world.transport.request(world.request(server.url)))
                for _ in range(40)
            ]
        assert {task.result().body for task in tasks} == {b"all here"}

    async def test_a_machine_on_which_nobody_listens_refuses(self, world: World) -> None:
        server = await world.listen(Recorder())
        await server.close()
        with pytest.raises(Refused, match=server.url):
            await world.transport.request(world.request(server.url))

    @pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "no address at all", "http://", ""])
    async def test_what_is_not_an_http_address_cannot_be_connected_to(
        self, world: World, url: str
    ) -> None:
        with pytest.raises(ConnectFailed, match="not an http or https address"):
            await world.transport.request(world.request(url))

    @pytest.mark.parametrize("body", [b"", b"with a body"])
    async def test_nothing_is_sent_after_not_after(self, world: World, body: bytes) -> None:
        recorder = Recorder()
        server = await world.listen(recorder)
        url, late = server.url, now() - 0.001
        with pytest.raises(TooLate, match="its time had passed"):
            await world.transport.request(
                world.request(url, method="POST", body=body, not_after=late)
            )
        with pytest.raises(TooLate):
            async with world.transport.stream(world.request(url, not_after=late)):
                pass
        assert recorder.seen == []
        in_time = world.request(url, method="POST", body=body, not_after=now() + 10.0)
        assert (await world.transport.request(in_time)).status == 200

    @pytest.mark.parametrize("body", [b"", b"with a body"])
    async def test_nothing_is_sent_late_on_a_connection_that_is_already_there(
        self, world: World, body: bytes
    ) -> None:
        recorder = Recorder()
        server = await world.listen(recorder)
        request = world.request(server.url, method="POST", body=body)
        await world.transport.request(request)
        with pytest.raises(TooLate):
            await world.transport.request(
                world.request(server.url, method="POST", body=body, not_after=now() - 0.001)
            )
        await world.transport.request(request)
        assert len(recorder.seen) == 2

    @pytest.mark.parametrize("body", [b"", b"with a body"])
    async def test_a_request_that_is_not_answered_in_time_may_have_been_carried_out(
        self, world: World, body: bytes
    ) -> None:
        recorder = Recorder(streaming(3600.0, b"too late"))
        server = await world.listen(recorder)
        with pytest.raises(TimedOut, match=r"was not answered within 0\.4 s"):
            await world.transport.request(
                world.request(server.url, method="POST", body=body, timeout=0.4)
            )
        assert len(recorder.seen) == 1

    async def test_the_timeout_bounds_the_body_too(self, world: World) -> None:
        drips: list[bytes | float] = [b"drip", 0.05]
        server = await world.listen(Recorder(streaming(*drips * 1000)))
        with pytest.raises(TimedOut):
            await world.transport.request(world.request(server.url, timeout=0.4))

    async def test_the_connect_timeout_bounds_nothing_but_the_connection(
        self, world: World
    ) -> None:
        server = await world.listen(Recorder(streaming(0.5, b"slow")))
        request = world.request(server.url, connect_timeout=0.4)
        await world.transport.request(request)

    async def test_a_body_that_breaks_off_is_connection_lost(self, world: World) -> None:
        broken = streaming(b"first part", 0.02, LookupError("broken off"))
        recorder = Recorder(broken)
        server = await world.listen(recorder)
        with pytest.raises(ConnectionLost):
            await world.transport.request(world.request(server.url))
        assert len(recorder.seen) == 1

    @pytest.mark.parametrize("error", [ConnectionResetError, ConnectionLost, TimeoutError])
    async def test_a_body_that_breaks_off_with_a_network_error_is_no_end_either(
        self, world: World, error: type[Exception]
    ) -> None:
        server = await world.listen(Recorder(streaming(b"first part", 0.02, error("upstream"))))
        with pytest.raises(ConnectionLost):
            await world.transport.request(world.request(server.url, timeout=2.0))

    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
    async def test_a_request_whose_connection_dies_is_not_repeated(
        self, world: World, method: str
    ) -> None:
        recorder = Recorder()
        server = await world.listen(recorder)
        await world.transport.request(world.request(server.url, method=method))
        recorder._answer = streaming(LookupError("dies before its first byte"))
        with pytest.raises(ConnectionLost):
            await world.transport.request(world.request(server.url, method=method))
        assert len(recorder.seen) == 2

    @pytest.mark.parametrize("pieces", [False, True], ids=["whole", "in-pieces"])
    async def test_an_answer_larger_than_allowed_is_refused(
        self, world: World, pieces: bool
    ) -> None:
        body = bytes(1000)
        answer = streaming(body[:500], body[500:]) if pieces else lambda: Answer(body=body)
        server = await world.listen(Recorder(answer))
        exact = world.request(server.url, max_body=1000)
        assert (await world.transport.request(exact)).body == body
        with pytest.raises(BadAnswer, match="more than 999 bytes"):
            await world.transport.request(world.request(server.url, max_body=999))

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    async def test_a_redirect_is_an_answer_and_is_not_followed(
        self, world: World, status: int
    ) -> None:
        elsewhere = Recorder()
        target = await world.listen(elsewhere)
        redirect = Answer(status=status, headers={"Location": target.url})
        server = await world.listen(Recorder(lambda: redirect))
        response = await world.transport.request(world.request(server.url))
        assert (response.status, response.headers["location"]) == (status, target.url)
        assert elsewhere.seen == []

    async def test_proxies_of_the_environment_are_not_used(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proxy = Recorder()
        elsewhere = await world.listen(proxy)
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, elsewhere.url)
            monkeypatch.setenv(name.lower(), elsewhere.url)
        recorder = Recorder()
        server = await world.listen(recorder)
        await world.transport.request(world.request(server.url))
        assert (len(recorder.seen), len(proxy.seen)) == (1, 0)

    async def test_a_cancelled_request_is_gone(self, world: World) -> None:
        arrived = asyncio.Event()

        async def slow(_: Inbound) -> Answer:
            arrived.set()
            return await never(_)

        server = await world.listen(slow)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(world.transport.request(world.request(server.url)))
            await arrived.wait()
            task.cancel()
        assert task.cancelled()


class StreamContract:
    """The same, for answers that are read as they come. Subclasses provide ``world``."""

    async def test_a_stream_is_read_while_it_is_written(self, world: World) -> None:
        more: asyncio.Queue[bytes] = asyncio.Queue()

        async def body() -> AsyncIterator[bytes]:
            while piece := await more.get():
                yield piece

        async def handler(_: Inbound) -> Answer:
            return Answer(status=201, headers={"X-Kind": "watch"}, body=body())

        server = await world.listen(handler)
        async with world.transport.stream(world.request(server.url)) as stream:
            assert (stream.status, stream.headers["x-kind"]) == (201, "watch")
            for piece in (b"first", b"second"):
                more.put_nowait(piece)
                assert await stream.read(5.0) == piece
            more.put_nowait(b"")
            assert await stream.read(5.0) == b""
            assert await stream.read(5.0) == b""

    async def test_the_pieces_of_a_stream_are_all_of_it_and_none_is_empty(
        self, world: World
    ) -> None:
        server = await world.listen(Recorder(streaming(b"first", b"second", 0.05, b"third")))
        got: list[bytes] = []
        async with world.transport.stream(world.request(server.url)) as stream:
            while pieces := await stream.pieces(5.0):
                got += pieces
            assert await stream.pieces(5.0) == []
        assert all(got)
        assert b"".join(got) == b"firstsecondthird"

    async def test_a_stream_that_came_faster_than_it_was_read_is_whole(self, world: World) -> None:
        many = [bytes([number]) * 2**20 for number in range(12)]
        server = await world.listen(Recorder(streaming(*many)))
        got: list[bytes] = []
        async with world.transport.stream(world.request(server.url)) as stream:
            await asyncio.sleep(0.1)
            while pieces := await stream.pieces(5.0):
                got += pieces
        assert b"".join(got) == b"".join(many)

    async def test_the_timeout_of_a_stream_bounds_its_head(self, world: World) -> None:
        server = await world.listen(never)
        with pytest.raises(TimedOut, match=r"was not answered within 0\.4 s"):
            async with world.transport.stream(world.request(server.url, timeout=0.4)):
                pass

    async def test_a_stream_outlives_the_timeout_of_its_head(self, world: World) -> None:
        server = await world.listen(Recorder(streaming(0.5, b"later", 0.1, b"still")))
        async with world.transport.stream(world.request(server.url, timeout=0.4)) as stream:
            assert await stream.read(5.0) == b"later"
            assert await stream.read(5.0) == b"still"

    async def test_silence_is_timed_out_and_the_stream_can_be_read_on(self, world: World) -> None:
        more = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            await more.wait()
            yield b"after the silence"

        server = await world.listen(Recorder(lambda: Answer(body=body())))
        async with world.transport.stream(world.request(server.url)) as stream:
            with pytest.raises(TimedOut, match=r"went silent for 0\.1 s"):
                await stream.read(0.1)
            more.set()
            assert await stream.read(5.0) == b"after the silence"

    async def test_a_stream_that_breaks_off_is_connection_lost(self, world: World) -> None:
        broken = streaming(b"part", 0.05, LookupError("broken off"))
        server = await world.listen(Recorder(broken))
        async with world.transport.stream(world.request(server.url)) as stream:
            assert await stream.read(5.0) == b"part"
            with pytest.raises(ConnectionLost):
                await stream.read(5.0)

    async def test_a_stream_has_no_bound_on_its_size(self, world: World) -> None:
        server = await world.listen(Recorder(streaming(*[bytes(100_000)] * 50)))
        async with world.transport.stream(world.request(server.url, max_body=1)) as stream:
            size = 0
            while piece := await stream.read(5.0):
                size += len(piece)
        assert size == 5_000_000

    async def test_leaving_a_stream_ends_it_on_the_other_side(self, world: World) -> None:
        ended = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            try:
                yield b"first"
                await asyncio.Event().wait()
            finally:
                ended.set()

        server = await world.listen(Recorder(lambda: Answer(body=body())))
        async with world.transport.stream(world.request(server.url)) as stream:
            assert await stream.read(5.0) == b"first"
        async with asyncio.timeout(5.0):
            await ended.wait()

    async def test_an_error_is_a_stream_too(self, world: World) -> None:
        server = await world.listen(Recorder(lambda: Answer(status=410, body=b"gone")))
        async with world.transport.stream(world.request(server.url)) as stream:
            assert stream.status == 410
            assert await stream.read(5.0) == b"gone"

    async def test_streams_do_not_stand_in_the_way_of_requests(self, world: World) -> None:
        async def handler(inbound: Inbound) -> Answer:
            answer: Callable[[], Answer] = Answer
            if inbound.path == "/watch":
                answer = streaming(b"first", 3600.0)
            return answer()

        server = await world.listen(handler)
        async with (
            world.transport.stream(world.request(f"{server.url}/watch")) as one,
            world.transport.stream(world.request(f"{server.url}/watch")) as two,
        ):
            assert (await one.read(5.0), await two.read(5.0)) == (b"first", b"first")
            response: Response = await world.transport.request(world.request(server.url))
            assert response.status == 200
