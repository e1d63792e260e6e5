"""What a process can suffer: pauses, clocks that drift, death, and starting over."""

import asyncio
import gc
import logging
from datetime import timedelta

import pytest

from backstay.seam import Seams
from backstay.seam.errors import ConnectFailed, ConnectionLost, TimedOut
from backstay.seam.exec import Command, Completed
from backstay.sim.clock import Oscillator
from backstay.sim.lane import current_lane
from backstay.sim.process import State
from backstay.sim.world import ProcessFailed, World
from tests.sim.an_api import URL, get, idle, outcome, started

# Pausing


def test_a_paused_process_runs_nothing_and_catches_up_when_it_goes_on(world: World) -> None:
    ticks: list[float] = []

    async def tick(_: Seams) -> None:
        while True:
            await asyncio.sleep(1.0)
            ticks.append(world.now)

    async def scenario() -> None:
        process = world.start("a", tick)
        await asyncio.sleep(2.5)
        process.pause()
        states = [process.state]
        await asyncio.sleep(10.0)
        assert ticks == [1.0, 2.0]
        process.resume()
        states.append(process.state)
        await asyncio.sleep(1.5)
        assert ticks == [1.0, 2.0, 12.5, 13.5]
        assert states == [State.PAUSED, State.RUNNING]

    world.run(scenario())


def test_a_process_that_was_paused_finds_its_time_passed(world: World) -> None:
    noticed: list[float] = []

    async def main(_: Seams) -> None:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        await asyncio.sleep(1.0)
        noticed.append(loop.time() - started_at)

    async def scenario() -> None:
        process = world.start("a", main)
        await asyncio.sleep(0.5)
        process.pause()
        await asyncio.sleep(60.0)
        process.resume()
        await process.wait()
        assert noticed == [60.5]

    world.run(scenario())


def test_the_connections_of_a_paused_process_stay_open_and_silent(world: World) -> None:
    async def scenario() -> None:
        await started(world)
        transport = world.network.transport
        async with transport.stream(get("/watch")) as stream:
            assert await stream.read(5.0) == b"tick"
            world.processes["api"].pause()
            with pytest.raises(TimedOut):
                await stream.read(30.0)
            with pytest.raises(TimedOut):
                await transport.request(get(timeout=30.0))
            world.processes["api"].resume()
            assert await stream.read(5.0) == b"tick"

    world.run(scenario())


# Clocks


def test_each_process_has_clocks_of_its_own(world: World) -> None:
    read: dict[str, tuple[float, timedelta]] = {}

    async def main(seams: Seams) -> None:
        before = seams.wall.now()
        await asyncio.sleep(60.0)
        lane = current_lane()
        assert lane is not None
        read[lane.name] = (world.now, seams.wall.now() - before)

    async def scenario() -> None:
        world.start("exact", main)
        world.start("fast", main, clock=Oscillator(ahead=1e6, rate=1.2))
        await asyncio.sleep(100.0)
        assert read["exact"] == (60.0, timedelta(seconds=60))
        assert read["fast"][0] == pytest.approx(50.0)
        assert read["fast"][1] == timedelta(seconds=60)
        assert world.processes["fast"].time() == pytest.approx(1e6 + 120.0)

    world.run(scenario())


def test_a_clock_can_begin_to_drift_and_the_time_of_day_can_be_set(world: World) -> None:
    async def main(seams: Seams) -> None:
        await asyncio.sleep(100.0)

    async def scenario() -> None:
        process = world.start("a", main)
        await asyncio.sleep(50.0)
        process.drift(2.0)
        await process.wait()
        assert world.now == 75.0
        start = process.wall.start
        process.wall.step(-3600.0)
        assert process.wall.start == start - timedelta(hours=1)

    world.run(scenario())


# Death


class Witness:
    """A main function that tells of everything that it gets to do."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def __call__(self, _: Seams) -> None:
        self.told.append("begun")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._child())
                await asyncio.sleep(1e6)
        except BaseException as error:
            self.told.append(type(error).__name__)
            raise
        finally:
            self.told.append("finally")
            await asyncio.sleep(0.0)

    async def _child(self) -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            self.told.append("child finally")


def test_a_killed_process_runs_no_finally(world: World) -> None:
    witness = Witness()

    async def scenario() -> None:
        process = world.start("a", witness)
        await asyncio.sleep(1.0)
        process.kill()
        assert process.state is State.ENDED
        gc.collect()
        await asyncio.sleep(1e7)

    world.run(scenario())
    assert witness.told == ["begun"]


def test_a_terminated_process_cleans_up(world: World) -> None:
    witness = Witness()

    async def scenario() -> None:
        process = world.start("a", witness)
        await asyncio.sleep(1.0)
        process.terminate()
        await process.wait()
        assert process.state is State.ENDED

    world.run(scenario())
    assert witness.told == ["begun", "child finally", "CancelledError", "finally"]


def test_what_a_process_leaves_running_is_cancelled_when_it_ends(world: World) -> None:
    told: list[str] = []

    async def leftover() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            told.append("cancelled")

    async def main(_: Seams) -> None:
        tasks.append(asyncio.get_running_loop().create_task(leftover()))
        await asyncio.sleep(1.0)

    tasks: list[asyncio.Task[None]] = []

    async def scenario() -> None:
        await world.start("a", main).wait()

    world.run(scenario())
    assert told == ["cancelled"]


def test_a_peer_of_a_killed_process_sees_its_connections_end(world: World) -> None:
    async def scenario() -> None:
        api = await started(world)
        transport = world.network.transport
        async with transport.stream(get("/watch")) as stream, asyncio.TaskGroup() as group:
            slow = group.create_task(outcome(transport.request(get("/slow"))))
            assert await stream.read(5.0) == b"tick"
            killed_at = world.now
            world.processes["api"].kill()
            with pytest.raises(ConnectionLost):
                await stream.read(60.0)
            assert world.now < killed_at + 0.1
        assert slow.result() is ConnectionLost
        with pytest.raises(ConnectFailed, match="refused"):
            await transport.request(get())
        assert api.streams_ended == 0

    world.run(scenario())


def test_a_server_notices_that_its_caller_was_killed(world: World) -> None:
    async def watch(seams: Seams) -> None:
        async with seams.transport.stream(get("/watch")) as stream:
            while await stream.read(5.0):
                pass

    async def scenario() -> None:
        api = await started(world)
        process = world.start("a", watch)
        await asyncio.sleep(3.5)
        process.kill()
        await asyncio.sleep(0.1)
        assert api.streams_ended == 1

    world.run(scenario())


def test_a_request_that_had_left_arrives_although_its_sender_is_dead(world: World) -> None:
    async def main(seams: Seams) -> None:
        await seams.transport.request(get("/last-words"))

    async def scenario() -> None:
        api = await started(world)
        world.network.link(URL).delay = 1.0
        process = world.start("a", main)
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(1.0)
        assert api.seen == [("a", "/last-words")]

    world.run(scenario())


def test_a_process_cannot_be_killed_by_its_own_code_but_it_can_die(world: World) -> None:
    told: list[str] = []

    async def main(_: Seams) -> None:
        me = world.processes["a"]
        try:
            with pytest.raises(RuntimeError, match=r"cannot be killed by its own code.*die\(\)"):
                me.kill()
            with pytest.raises(RuntimeError, match="cannot be switched off by its own code"):
                me.lose_power()
            told.append("still here")
            await me.die()
        finally:
            told.append("finally")

    async def scenario() -> None:
        await world.start("a", main).wait()
        await asyncio.sleep(1.0)

    world.run(scenario())
    assert told == ["still here"]


# Starting over


def test_a_restarted_process_begins_afresh_with_the_files_and_clocks_of_its_machine(
    world: World,
) -> None:
    lives: list[tuple[float, bytes]] = []

    async def main(seams: Seams) -> None:
        try:
            found = await seams.files.read("/var/state")
        except FileNotFoundError:
            found = b""
        lives.append((asyncio.get_running_loop().time(), found))
        await seams.files.write("/var/state", found + b"x")
        await idle(seams)

    async def scenario() -> None:
        process = world.start("a", main, clock=Oscillator(ahead=100.0))
        await asyncio.sleep(10.0)
        process.kill()
        await asyncio.sleep(10.0)
        process.restart()
        await asyncio.sleep(10.0)
        process.restart()
        await asyncio.sleep(10.0)

    world.run(scenario())
    assert lives == [(100.0, b""), (120.0, b"x"), (130.0, b"xx")]


def test_a_restarted_process_can_listen_where_it_did(world: World) -> None:
    async def scenario() -> None:
        await started(world)
        world.processes["api"].restart()
        await asyncio.sleep(0.1)
        assert await outcome(world.network.transport.request(get())) == 200

    world.run(scenario())


def test_a_process_that_runs_cannot_be_started_again(world: World) -> None:
    async def scenario() -> None:
        process = world.start("a", idle)
        with pytest.raises(RuntimeError, match="a is running and cannot be started again"):
            process.start()
        with pytest.raises(ValueError, match="there is a process 'a' already"):
            world.start("a", idle)

    world.run(scenario())


def test_a_process_that_was_killed_while_paused_starts_running(world: World) -> None:
    async def scenario() -> None:
        process = world.start("a", idle)
        process.pause()
        process.restart()
        assert process.state is State.RUNNING

    world.run(scenario())


# Failure


async def failing(_: Seams) -> None:
    await asyncio.sleep(3.0)
    raise LookupError("out of ideas")


def test_a_process_that_fails_fails_the_run(world: World) -> None:
    async def scenario() -> None:
        world.start("a", failing)
        await asyncio.sleep(1e6)

    with pytest.raises(ProcessFailed, match="a failed at 3 s: LookupError") as caught:
        world.run(scenario())
    assert isinstance(caught.value.__cause__, LookupError)


def test_whoever_waits_for_a_process_gets_its_failure(world: World) -> None:
    async def scenario() -> None:
        process = world.start("a", failing)
        with pytest.raises(LookupError, match="out of ideas"):
            await process.wait()
        assert process.state is State.ENDED

    world.run(scenario())


# Programs


def test_the_programs_of_a_process_die_with_it(world: World) -> None:
    told: list[str] = []

    async def fence(_: Command) -> Completed:
        try:
            await asyncio.sleep(5.0)
            told.append("fenced")
        finally:
            told.append("finally")
        return Completed(0, b"", b"")

    async def main(seams: Seams) -> None:
        await seams.exec.run(Command(argv=("fence",), env={}, timeout=60.0))

    async def scenario() -> None:
        process = world.start("a", main)
        process.programs["fence"] = fence
        await asyncio.sleep(1.0)
        process.kill()
        await asyncio.sleep(60.0)

    world.run(scenario())
    assert told == []


def test_the_programs_of_a_process_are_paused_with_it(world: World) -> None:
    ended_at: list[float] = []

    async def fence(_: Command) -> Completed:
        await asyncio.sleep(5.0)
        ended_at.append(world.now)
        return Completed(0, b"", b"")

    async def main(seams: Seams) -> None:
        await seams.exec.run(Command(argv=("fence",), env={}, timeout=60.0))

    async def scenario() -> None:
        process = world.start("a", main)
        process.programs["fence"] = fence
        await asyncio.sleep(1.0)
        process.pause()
        await asyncio.sleep(20.0)
        process.resume()
        await process.wait()

    world.run(scenario())
    assert ended_at == [21.0]


# The log


def test_the_log_tells_when_and_who(world: World) -> None:
    logger = logging.getLogger("backstay.test")

    async def main(_: Seams) -> None:
        await asyncio.sleep(1.5)
        logger.info("said %s", "it")
        try:
            raise LookupError("no address in memory")
        except LookupError:
            logger.exception("failed")

    async def scenario() -> None:
        await world.start("a", main, clock=Oscillator(ahead=1e6)).wait()
        world.log.note("seen from outside")

    world.run(scenario())
    logger.info("after the end")
    assert world.log.text.decode().splitlines() == [
        "1.500000 a: INFO backstay.test said it",
        "1.500000 a: ERROR backstay.test failed",
        "1.500000 a:   LookupError('no address in memory')",
        "1.500000 world: seen from outside",
    ]


def test_what_is_torn_down_with_the_world_is_not_in_its_log(world: World) -> None:
    async def main(_: Seams) -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            world.log.note("finally")

    async def scenario() -> None:
        world.start("killed", main)
        world.start("alive", main)
        await asyncio.sleep(1.0)
        world.processes["killed"].kill()

    world.run(scenario())
    world.close()
    assert world.log.text == b""
