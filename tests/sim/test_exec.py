"""Every ``Exec``, held to the contract, and what only a simulated one can show."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from backstay.seam import Seams
from backstay.seam.errors import ExecTimedOut
from backstay.seam.exec import Command, Completed
from backstay.seam.processes import SubprocessExec
from backstay.seam.serve import Answer, Inbound
from backstay.seam.transport import Request
from backstay.sim.exec import Program
from backstay.sim.world import World
from tests.seam.exec_contract import ExecContract, Machine
from tests.support.in_world import held_to

_MILLION_BYTES = "head -c 1000000 /dev/zero"


class RealPrograms:
    """The programs of the contract, said in shell."""

    def __init__(self, marks: Path) -> None:
        self._marks = marks
        mark = f"echo >>{marks}"
        self._argv = {
            "speak": ("/bin/sh", "-c", 'printf %s "$0"; printf %s "$1" >&2; exit 3'),
            "echo": ("/bin/cat",),
            "environment": ("/usr/bin/env",),
            "chatter": ("/bin/sh", "-c", f"{_MILLION_BYTES}; {_MILLION_BYTES} >&2"),
            "sleep": ("/bin/sh", "-c", f"{mark}; /bin/sleep 0.3; {mark}"),
            "absent": (str(marks) + "-absent",),
        }

    def argv(self, name: str, *arguments: str) -> tuple[str, ...]:
        return (*self._argv[name], *arguments)

    def marks(self) -> int:
        return len(self._marks.read_text()) if self._marks.exists() else 0


class TestRealPrograms(ExecContract):
    @pytest.fixture
    def machine(self, tmp_path: Path) -> Machine:
        return Machine(SubprocessExec(), RealPrograms(tmp_path / "marks"))


class SimulatedPrograms:
    """The same as asynchronous functions."""

    def __init__(self) -> None:
        self._marks = 0
        self.functions: dict[str, Program] = {
            "speak": self._speak,
            "echo": self._echo,
            "environment": self._environment,
            "chatter": self._chatter,
            "sleep": self._sleep,
        }

    def argv(self, name: str, *arguments: str) -> tuple[str, ...]:
        return (name, *arguments)

    def marks(self) -> int:
        return self._marks

    async def _speak(self, command: Command) -> Completed:
        return Completed(3, command.argv[1].encode(), command.argv[2].encode())

    async def _echo(self, command: Command) -> Completed:
        return Completed(0, command.stdin, b"")

    async def _environment(self, command: Command) -> Completed:
        lines = (f"{name}={value}\n" for name, value in command.env.items())
        return Completed(0, "".join(lines).encode(), b"")

    async def _chatter(self, _: Command) -> Completed:
        return Completed(0, bytes(1_000_000), bytes(1_000_000))

    async def _sleep(self, _: Command) -> Completed:
        self._marks += 1
        try:
            await asyncio.sleep(0.3)
        finally:
            self._marks += 1
        return Completed(0, b"", b"")


async def idle(_: Seams) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def simulated_machine(world: World) -> AsyncIterator[Machine]:
    process, programs = world.start("a", idle), SimulatedPrograms()
    process.programs.update(programs.functions)
    yield Machine(process.seams.exec, programs)


@held_to(ExecContract, machine=simulated_machine)
class TestSimulatedPrograms:
    """``sleep`` makes its second mark in a ``finally``, which a killed program does not reach."""


def test_the_connections_of_a_killed_program_are_cut() -> None:
    ended: list[float] = []

    async def ticks() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"tick"
                await asyncio.sleep(1.0)
        finally:
            ended.append(world.now)

    async def handle(_: Inbound) -> Answer:
        return Answer(body=ticks())

    async def serve(seams: Seams) -> None:
        await seams.serve.listen(handle, host="bmc", port=80)
        await idle(seams)

    async def scenario() -> None:
        world.start("bmc", serve)
        process = world.start("a", idle)

        async def fence(_: Command) -> Completed:
            request = Request(method="GET", url="http://bmc", timeout=5.0)
            async with process.seams.transport.stream(request) as stream:
                while await stream.read(5.0):
                    pass
            return Completed(0, b"", b"")

        process.programs["fence"] = fence
        await asyncio.sleep(0.1)
        with pytest.raises(ExecTimedOut):
            await process.seams.exec.run(Command(argv=("fence",), env={}, timeout=10.0))
        await asyncio.sleep(0.1)
        assert ended == [pytest.approx(10.1, abs=0.01)]

    with World(seed=1) as world:
        world.run(scenario())


def test_a_program_goes_by_the_clock_of_its_machine() -> None:
    async def scenario() -> None:
        process = world.start("a", idle)
        process.drift(2.0)

        async def sleep(_: Command) -> Completed:
            await asyncio.sleep(10.0)
            return Completed(0, b"", b"")

        process.programs["sleep"] = sleep
        await process.seams.exec.run(Command(argv=("sleep",), env={}, timeout=100.0))
        assert world.now == 5.0

    with World(seed=1) as world:
        world.run(scenario())
