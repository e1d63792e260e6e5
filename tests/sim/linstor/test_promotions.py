"""LINSTOR's stream of promotions, over a socket and in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from backstay.seam.errors import ConnectionLost, TimedOut
from backstay.seam.transport import Stream
from backstay.sim.linstor.front import STREAM, Trouble
from backstay.sim.linstor.served import Lab, Served, serving
from tests.seam.worlds import World, in_memory, over_http
from tests.support.virtual import virtual_time

KINDS = {"memory": in_memory, "socket": over_http}
CURRENT = {"Last-Event-ID": "current", "Accept": "text/event-stream"}


class Reader:
    """A stream, event by event."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._buffer = b""

    async def frame(self, timeout: float = 5.0) -> bytes:
        while b"\n\n" not in self._buffer:
            piece = await self.stream.read(timeout)
            if not piece:
                return b""
            self._buffer += piece
        whole, _, self._buffer = self._buffer.partition(b"\n\n")
        return whole

    async def event(self) -> tuple[str, str, bool | None]:
        name, _, data = (await self.frame()).partition(b"\ndata: ")
        assert name == b"event: may-promote-change"
        told = msgspec.json.decode(data)
        return told["resource_name"], told["node_name"], told.get("may_promote")

    async def events(self, count: int) -> list[tuple[str, str, bool | None]]:
        return [await self.event() for _ in range(count)]


class Rig:
    """A LINSTOR controller with three nodes, and somebody who listens to it."""

    def __init__(self, world: World, lab: Lab, served: Served) -> None:
        self.lab = lab
        self.faults = served.faults
        self.promotions = served.controller.promotions
        self.world = world
        self._url = served.url

    @asynccontextmanager
    async def stream(self, *, current: bool = True, timeout: float = 5) -> AsyncIterator[Reader]:
        headers = CURRENT if current else {}
        request = self.world.request(self._url + STREAM, headers=headers, timeout=timeout)
        async with self.world.transport.stream(request) as stream:
            yield Reader(stream)

    @asynccontextmanager
    async def live(self) -> AsyncIterator[Reader]:
        """A stream that has told the state of the one resource."""
        async with self.stream() as reader:
            await reader.events(3)
            yield reader


@asynccontextmanager
async def rig_over(kind: str, *resources: str) -> AsyncIterator[Rig]:
    lab = Lab("n1", "n2", "n3")
    for name in resources:
        lab.define(name)
    async with KINDS[kind]() as world:
        async with serving(world.serve, lab.controller()) as served:
            rig = Rig(world, lab, served)
            while not all(map(served.controller.is_online, lab.database.nodes)):  # noqa: ASYNC110
                await asyncio.sleep(0.002)
            yield rig
        lab.close()


@pytest.fixture(params=KINDS)
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    async with rig_over(request.param, "pvc-1") as rig:
        yield rig


def all_nodes(state: bool | None) -> set[tuple[str, str, bool | None]]:
    return {("pvc-1", node, state) for node in ("n1", "n2", "n3")}


async def test_the_state_of_every_replica_comes_first_for_who_asks_for_it(rig: Rig) -> None:
    async with rig.stream() as reader:
        assert reader.stream.status == 200
        assert reader.stream.headers["content-type"] == "text/event-stream"
        assert await reader.frame() == (
            b"event: may-promote-change\n"
            b'data: {"resource_name":"pvc-1","node_name":"n1","may_promote":true}'
        )
        assert set(await reader.events(2)) < all_nodes(True)


async def test_everybody_is_told_the_state_again_when_anybody_connects(rig: Rig) -> None:
    async with rig.live() as first, rig.live():
        assert set(await first.events(3)) == all_nodes(True)


async def test_the_head_comes_at_once_though_there_is_nothing_to_tell() -> None:
    async with rig_over("memory") as rig, rig.stream() as reader:
        assert reader.stream.headers["content-type"] == "text/event-stream"
        with pytest.raises(TimedOut):
            await reader.frame(timeout=0.05)


@virtual_time
async def test_where_heads_are_late_there_is_none_without_an_event() -> None:
    async with rig_over("memory") as rig:
        rig.faults.trouble = Trouble.LATE_HEAD
        with pytest.raises(TimedOut):
            async with rig.stream(timeout=3600):
                pass


@virtual_time
async def test_a_late_head_comes_with_the_first_event() -> None:
    async with rig_over("memory", "pvc-1") as rig:
        rig.faults.trouble = Trouble.LATE_HEAD
        asyncio.get_running_loop().call_later(600, rig.lab.drbd.promote, "pvc-1", "n1")
        async with rig.stream(current=False, timeout=3600) as reader:
            assert asyncio.get_running_loop().time() >= 600
            assert set(await reader.events(3)) == all_nodes(False)


async def test_a_change_is_told_as_it_happens_and_only_once(rig: Rig) -> None:
    async with rig.live() as reader:
        rig.lab.drbd.promote("pvc-1", "n1")
        assert set(await reader.events(3)) == all_nodes(False)
        rig.lab.drbd.demote("pvc-1", "n1")
        assert set(await reader.events(3)) == all_nodes(True)


@virtual_time
async def test_a_dead_primary_is_told_of_by_the_others_and_then_by_the_controller() -> None:
    async with rig_over("memory", "pvc-1") as rig, rig.live() as reader:
        rig.lab.drbd.promote("pvc-1", "n1")
        await reader.events(3)
        rig.lab.drbd.lose_power("n1")
        rig.lab.cut_off("n1")
        seen = await reader.events(3)
        assert sorted(seen, key=str) == [
            ("pvc-1", "n1", None),
            ("pvc-1", "n2", True),
            ("pvc-1", "n3", True),
        ]


async def test_what_is_unknown_is_left_out(rig: Rig) -> None:
    async with rig.live() as reader:
        rig.lab.cut_off("n3")
        frames = [await reader.frame()]
        assert frames == [
            b'event: may-promote-change\ndata: {"resource_name":"pvc-1","node_name":"n3"}'
        ]


async def test_a_new_controller_knows_nothing_and_then_hears_everything() -> None:
    async with rig_over("memory", "pvc-1") as rig:
        world = rig.world
        async with serving(world.serve, rig.lab.controller()) as served:
            again = Rig(world, rig.lab, served)
            async with again.stream() as reader:
                assert set(await reader.events(6)) == all_nodes(None) | all_nodes(True)


@virtual_time
async def test_the_state_can_follow_behind_a_newer_change() -> None:
    async with rig_over("memory", "pvc-1") as rig, rig.live() as reader:
        # After somebody's state was taken, and before it is told.
        asyncio.get_running_loop().call_later(0.005, rig.lab.drbd.promote, "pvc-1", "n1")
        async with rig.stream():
            seen = await reader.events(6)
        assert set(seen[:3]) == all_nodes(False)
        assert set(seen[3:]) == all_nodes(True), "which is not so any more"


# Trouble


async def test_a_stream_can_be_cut(rig: Rig) -> None:
    async with rig.live() as reader:
        rig.promotions.cut()
        with pytest.raises(ConnectionLost):
            await reader.frame()
    async with rig.live():
        pass


async def test_a_stream_can_end_as_if_nothing_were_wrong(rig: Rig) -> None:
    async with rig.live() as reader:
        rig.promotions.end()
        assert await reader.frame() == b""


@virtual_time
async def test_a_stream_can_go_silent_while_new_ones_work() -> None:
    async with rig_over("memory", "pvc-1") as rig, rig.live() as reader:
        rig.promotions.go_silent()
        rig.lab.drbd.promote("pvc-1", "n1")
        with pytest.raises(TimedOut):
            await reader.frame(timeout=3600)
        async with rig.stream() as another:
            assert set(await another.events(3)) == all_nodes(False)


async def test_a_stream_can_say_that_there_is_none(rig: Rig) -> None:
    rig.faults.trouble = Trouble.ERROR_EVENT
    async with rig.stream() as reader:
        assert reader.stream.status == 200
        assert (await reader.frame()).startswith(b'event: error\ndata: [{"ret_code":-')
        assert await reader.frame() == b""


async def test_anything_can_be_said_on_it_in_any_pieces(rig: Rig) -> None:
    async with rig.live() as reader:
        for piece in (
            b": comment\nevent: unk",
            b"nown\r\nid: 7\nretry: 10\ndata: a\nda",
            b"ta: b\n\n",
        ):
            rig.promotions.say(piece)
        whole = b": comment\nevent: unknown\r\nid: 7\nretry: 10\ndata: a\ndata: b"
        assert await reader.frame() == whole


async def test_who_has_left_is_forgotten(rig: Rig) -> None:
    async with rig.live():
        assert rig.promotions.clients == 1
    rig.lab.drbd.promote("pvc-1", "n1")
    async with asyncio.timeout(5):
        while rig.promotions.clients:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


@virtual_time
async def test_five_thousand_events_come_at_once() -> None:
    names = [f"pvc-{number}" for number in range(1700)]
    async with rig_over("memory", *names) as rig, rig.stream() as reader:
        assert len(set(await reader.events(5100))) == 5100
