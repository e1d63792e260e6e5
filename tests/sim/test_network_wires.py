"""What lies between processes: latency, partitions in one direction or both, and their end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from backstay.seam import Seams
from backstay.seam.errors import ConnectFailed, ConnectionLost, TimedOut
from backstay.seam.serve import Answer, Inbound
from backstay.seam.transport import Request
from backstay.sim.process import Process
from backstay.sim.world import World

URL = "http://api"


def get(path: str = "/", *, timeout: float = 10.0, connect_timeout: float | None = None) -> Request:
    return Request(method="GET", url=URL + path, timeout=timeout, connect_timeout=connect_timeout)


class Scene:
    """An API in a process of its own, and what it saw; ``ask`` is done by the process "a"."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: list[tuple[float, str]] = []
        self.streams_ended: list[float] = []
        self._asked: asyncio.Queue[tuple[Request, asyncio.Future[str]]] = asyncio.Queue()

    async def begin(self) -> None:
        self.world.start("api", self._serve)
        self.world.start("a", self._ask)
        await asyncio.sleep(0.1)

    async def ask(self, request: Request) -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked.put_nowait((request, answer))
        return await answer

    async def _ask(self, seams: Seams) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                request, answer = await self._asked.get()
                group.create_task(self._answer(seams, request, answer))

    async def _answer(self, seams: Seams, request: Request, answer: asyncio.Future[str]) -> None:
        try:
            response = await seams.transport.request(request)
        except (ConnectFailed, ConnectionLost, TimedOut) as error:
            answer.set_result(type(error).__name__)
        else:
            answer.set_result(response.body.decode())

    async def _serve(self, seams: Seams) -> None:
        await seams.serve.listen(self._handle, host="api", port=80)
        await asyncio.Event().wait()

    async def _handle(self, inbound: Inbound) -> Answer:
        self.seen.append((self.world.now, inbound.path))
        if inbound.path == "/slow":
            await asyncio.sleep(1.0)
        if inbound.path == "/watch":
            return Answer(body=self._ticks())
        return Answer(body=b"done")

    async def _ticks(self) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"tick"
                await asyncio.sleep(1.0)
        finally:
            self.streams_ended.append(self.world.now)

    @property
    def paths(self) -> list[str]:
        return [path for _, path in self.seen]


@pytest.fixture
def scene() -> Iterator[Scene]:
    with World(seed=1) as world:
        yield Scene(world)


def test_the_seed_draws_how_long_things_take() -> None:
    async def scenario(scene: Scene) -> list[float]:
        await scene.begin()
        for _ in range(20):
            await scene.ask(get())
        return [at for at, _ in scene.seen]

    def moments(seed: int) -> list[float]:
        with World(seed) as world:
            return world.run(scenario(Scene(world)))

    assert moments(1) == moments(1) != moments(2)


def test_requests_of_one_process_can_overtake_each_other(scene: Scene) -> None:
    async def scenario() -> None:
        await scene.begin()
        async with asyncio.TaskGroup() as group:
            for number in range(30):
                group.create_task(scene.ask(get(f"/{number}")))
        assert scene.paths != sorted(scene.paths, key=lambda path: int(path[1:]))

    scene.world.run(scenario())


def test_a_partition_lets_no_new_connection_through(scene: Scene) -> None:
    async def scenario() -> None:
        await scene.begin()
        scene.world.wires.part(["a"], ["api"])
        before = scene.world.now
        assert await scene.ask(get(connect_timeout=3.0)) == "ConnectFailed"
        assert scene.world.now == pytest.approx(before + 3.0)
        assert scene.seen == []

    scene.world.run(scenario())


@pytest.mark.parametrize(("source", "target"), [("a", "api"), ("api", "a")])
def test_a_new_connection_needs_both_directions(scene: Scene, source: str, target: str) -> None:
    async def scenario() -> None:
        await scene.begin()
        scene.world.wires.block(source, target)
        assert await scene.ask(get(connect_timeout=3.0)) == "ConnectFailed"
        assert scene.seen == []

    scene.world.run(scenario())


def test_whoever_waits_for_a_connection_has_it_when_the_partition_heals(scene: Scene) -> None:
    async def scenario() -> None:
        await scene.begin()
        scene.world.wires.part(["a"], ["api"])
        scene.world.loop.call_later(4.0, scene.world.wires.heal)
        assert await scene.ask(get()) == "done"
        assert scene.seen[0][0] > 4.0

    scene.world.run(scenario())


def test_a_partition_concerns_only_those_whom_it_parts(scene: Scene) -> None:
    async def scenario() -> None:
        await scene.begin()
        scene.world.wires.part(["a"], ["api"])
        assert (await scene.world.network.transport.request(get())).body == b"done"
        scene.world.wires.heal()
        scene.world.wires.part(["b", "c"], ["api", "a"])
        assert await scene.ask(get()) == "done"

    scene.world.run(scenario())


def test_with_only_the_way_back_blocked_the_work_is_done_and_nobody_hears_of_it(
    scene: Scene,
) -> None:
    async def scenario() -> None:
        await scene.begin()
        assert await scene.ask(get("/before")) == "done"
        scene.world.wires.block("api", "a")
        assert await scene.ask(get("/committed")) == "TimedOut"
        assert scene.paths == ["/before", "/committed"]
        # The connection from before was given up, and there is no new one.
        assert await scene.ask(get("/not-sent")) == "ConnectFailed"
        scene.world.wires.unblock("api", "a")
        assert await scene.ask(get("/after")) == "done"
        assert scene.paths == ["/before", "/committed", "/after"]

    scene.world.run(scenario())


def test_what_left_before_a_partition_healed_arrives_late_although_its_sender_gave_up(
    scene: Scene,
) -> None:
    async def scenario() -> None:
        await scene.begin()
        assert await scene.ask(get("/before")) == "done"
        scene.world.wires.block("a", "api")
        assert await scene.ask(get("/late")) == "TimedOut"
        await asyncio.sleep(50.0)
        assert scene.paths == ["/before"]
        scene.world.wires.unblock("a", "api")
        await asyncio.sleep(0.1)
        assert scene.paths == ["/before", "/late"]

    scene.world.run(scenario())


def test_nothing_is_sent_again_for_longer_than_tcp_has_patience(scene: Scene) -> None:
    async def scenario() -> None:
        await scene.begin()
        await scene.ask(get("/before"))
        scene.world.wires.block("a", "api")
        assert await scene.ask(get("/late")) == "TimedOut"
        await asyncio.sleep(1000.0)
        scene.world.wires.heal()
        await asyncio.sleep(60.0)
        assert scene.paths == ["/before"]

    scene.world.run(scenario())


def test_a_stream_goes_on_after_a_partition_with_nothing_missing(scene: Scene) -> None:
    async def scenario() -> None:
        await scene.begin()
        async with scene.world.network.transport.stream(get("/watch")) as stream:
            assert await stream.read(5.0) == b"tick"
            scene.world.wires.part(["world"], ["api"])
            with pytest.raises(TimedOut):
                await stream.read(9.5)
            scene.world.wires.heal()
            ticks = [await stream.read(0.1) for _ in range(9)]
            assert ticks == [b"tick"] * 9

    scene.world.run(scenario())


def test_a_server_does_not_learn_through_a_partition_that_its_caller_is_gone(scene: Scene) -> None:
    async def scenario() -> None:
        await scene.begin()
        async with scene.world.network.transport.stream(get("/watch")) as stream:
            await stream.read(5.0)
            scene.world.wires.part(["world"], ["api"])
        await asyncio.sleep(60.0)
        assert scene.streams_ended == []
        scene.world.wires.heal()
        await asyncio.sleep(1.0)
        assert len(scene.streams_ended) == 1

    scene.world.run(scenario())


def test_a_caller_does_not_learn_through_a_partition_that_the_server_is_gone(scene: Scene) -> None:
    async def scenario() -> None:
        await scene.begin()
        async with scene.world.network.transport.stream(get("/watch")) as stream:
            await stream.read(5.0)
            scene.world.wires.part(["world"], ["api"])
            scene.world.processes["api"].kill()
            with pytest.raises(TimedOut):
                await stream.read(60.0)
            scene.world.wires.heal()
            with pytest.raises(ConnectionLost):
                await stream.read(60.0)

    scene.world.run(scenario())


def test_a_request_that_is_held_up_finds_out_that_the_server_was_replaced(scene: Scene) -> None:
    async def scenario() -> None:
        await scene.begin()
        await scene.ask(get("/before"))
        scene.world.wires.part(["a"], ["api"])
        asking = asyncio.get_running_loop().create_task(scene.ask(get("/old", timeout=60.0)))
        await asyncio.sleep(1.0)
        scene.world.processes["api"].restart()
        await asyncio.sleep(1.0)
        scene.world.wires.heal()
        assert await asking == "ConnectionLost"
        assert scene.paths == ["/before"]

    scene.world.run(scenario())


@pytest.mark.parametrize("end", [Process.kill, Process.lose_power])
def test_an_idle_connection_does_not_outlive_the_process_at_its_other_end(
    scene: Scene, end: Callable[[Process], None]
) -> None:
    async def scenario() -> None:
        await scene.begin()
        await scene.ask(get("/before"))
        end(scene.world.processes["api"])
        await asyncio.sleep(1.0)
        scene.world.processes["api"].restart()
        await asyncio.sleep(0.1)
        scene.world.wires.block("api", "a")
        assert await scene.ask(get("/after", connect_timeout=3.0)) == "ConnectFailed"
        assert scene.paths == ["/before"]

    scene.world.run(scenario())
