"""What every ``Serve`` promises, whatever it is made of. See ``backstay.seam.serve``."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from backstay.seam.errors import ConnectFailed, ConnectionLost
from backstay.seam.serve import Answer, Inbound
from tests.seam.worlds import World


async def hello(_: Inbound) -> Answer:
    return Answer(body=b"hello")


class ServeContract:
    """Subclasses provide ``world``."""

    async def test_a_free_port_is_taken_and_told(self, world: World) -> None:
        one, two = await world.listen(hello), await world.listen(hello)
        assert one.url != two.url
        for listener in (one, two):
            response = await world.transport.request(world.request(listener.url))
            assert response.body == b"hello"

    async def test_a_taken_port_is_an_os_error(self, world: World) -> None:
        taken = await world.listen(hello)
        port = int(taken.url.rpartition(":")[2])
        with pytest.raises(OSError, match="in use"):
            await world.listen(hello, port=port)

    async def test_a_handler_that_fails_is_a_bare_500_and_a_line_in_the_log(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def fail(_: Inbound) -> Answer:
            raise LookupError("the secret reason")

        server = await world.listen(fail)
        response = await world.transport.request(world.request(f"{server.url}/x?token=t"))
        assert (response.status, response.body) == (500, b"")
        assert "secret" not in "".join(response.headers.values())
        records = [record for record in caplog.records if record.name == "backstay.serve"]
        assert [record.getMessage() for record in records] == ["the handler of GET /x failed"]
        assert records[0].exc_info is not None

    async def test_a_handler_that_times_out_is_a_500_too(self, world: World) -> None:
        async def give_up(_: Inbound) -> Answer:
            raise TimeoutError

        server = await world.listen(give_up)
        assert (await world.transport.request(world.request(server.url))).status == 500

    async def test_a_body_that_is_too_large_never_reaches_the_handler(self, world: World) -> None:
        seen: list[int] = []

        async def handler(inbound: Inbound) -> Answer:
            seen.append(len(inbound.body))
            return Answer()

        server = await world.listen(handler, max_body=1000)
        statuses = []
        for size in (1000, 1001, 900_000):
            request = world.request(server.url, method="POST", body=bytes(size))
            statuses.append((await world.transport.request(request)).status)
        assert (statuses, seen) == ([200, 413, 413], [1000])

    async def test_a_handler_finishes_although_its_caller_is_gone(self, world: World) -> None:
        arrived, go_on, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def handler(_: Inbound) -> Answer:
            arrived.set()
            await go_on.wait()
            finished.set()
            return Answer()

        server = await world.listen(handler)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(world.transport.request(world.request(server.url)))
            await arrived.wait()
            task.cancel()
        await asyncio.sleep(0.05)
        go_on.set()
        async with asyncio.timeout(5.0):
            await finished.wait()

    async def test_a_body_for_a_caller_who_is_gone_is_closed(self, world: World) -> None:
        arrived, go_on, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

        class Subscription:
            def __aiter__(self) -> AsyncIterator[bytes]:
                return self

            async def __anext__(self) -> bytes:
                raise AssertionError("nobody is there to read")

            async def aclose(self) -> None:
                closed.set()

        async def handler(_: Inbound) -> Answer:
            arrived.set()
            await go_on.wait()
            return Answer(body=Subscription())

        server = await world.listen(handler)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(world.transport.request(world.request(server.url)))
            await arrived.wait()
            task.cancel()
        await asyncio.sleep(0.05)
        go_on.set()
        async with asyncio.timeout(5.0):
            await closed.wait()

    async def test_closing_waits_for_an_answer_under_way(self, world: World) -> None:
        arrived = asyncio.Event()

        async def handler(_: Inbound) -> Answer:
            arrived.set()
            await asyncio.sleep(0.05)
            return Answer(body=b"just in time")

        server = await world.listen(handler)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(world.transport.request(world.request(server.url)))
            await arrived.wait()
            await server.close()
        assert task.result().body == b"just in time"

    async def test_closing_cuts_what_does_not_end(self, world: World) -> None:
        ended = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            try:
                yield b"first"
                await asyncio.Event().wait()
            finally:
                ended.set()

        async def handler(_: Inbound) -> Answer:
            return Answer(body=endless())

        server = await world.listen(handler)
        async with world.transport.stream(world.request(server.url)) as stream:
            assert await stream.read(5.0) == b"first"
            await server.close()
            with pytest.raises(ConnectionLost):
                await stream.read(5.0)
        assert ended.is_set()

    async def test_a_closed_door_is_closed(self, world: World) -> None:
        server = await world.listen(hello)
        await world.transport.request(world.request(server.url))
        await server.close()
        with suppress(ConnectFailed, ConnectionLost):
            # This one may meet the connection of the first in the moment of its closing.
            await world.transport.request(world.request(server.url))
        with pytest.raises(ConnectFailed):
            await world.transport.request(world.request(server.url))

    async def test_the_port_of_a_closed_door_can_be_taken_again(self, world: World) -> None:
        server = await world.listen(hello)
        await server.close()
        again = await world.listen(hello, port=int(server.url.rpartition(":")[2]))
        assert again.url == server.url
        assert (await world.transport.request(world.request(again.url))).body == b"hello"
