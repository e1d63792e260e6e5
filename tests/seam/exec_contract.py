"""What every ``Exec`` promises, whatever its programs are made of. See ``backstay.seam.exec``."""

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from backstay.seam.errors import ExecNotFound, ExecTimedOut
from backstay.seam.exec import Command, Completed, Exec


class Programs(Protocol):
    """Programs that do as they are told by ``argv``, and a way to see what they got to do.

    ==================  =========================================================
    ``speak``           prints its arguments to stdout and stderr, exits with 3
    ``echo``            prints its input
    ``environment``     prints its environment, one NAME=value a line
    ``chatter``         prints a million bytes each to stdout and stderr
    ``sleep``           makes a mark, sleeps for 0.3 s, makes another
    ``absent``          is not there
    ==================  =========================================================
    """

    def argv(self, name: str, *arguments: str) -> tuple[str, ...]: ...

    def marks(self) -> int:
        """How many marks ``sleep`` has made."""
        ...


@dataclass
class Machine:
    """An ``Exec`` and the programs that it can run."""

    exec: Exec
    programs: Programs

    async def run(self, name: str, *arguments: str, **options: Any) -> Completed:
        options = {"timeout": 20.0, "env": {}, **options}
        return await self.exec.run(Command(argv=self.programs.argv(name, *arguments), **options))

    async def marked(self, marks: int) -> None:
        async with asyncio.timeout(20.0):
            while self.programs.marks() < marks:  # noqa: ASYNC110 - files and processes tell nobody
                await asyncio.sleep(0.01)


class ExecContract:
    """Subclasses provide ``machine``."""

    async def test_output_and_code_come_back(self, machine: Machine) -> None:
        assert await machine.run("speak", "out", "err") == Completed(3, b"out", b"err")

    async def test_input_arrives_and_ends(self, machine: Machine) -> None:
        assert (await machine.run("echo", stdin=b"secret=1\n")).stdout == b"secret=1\n"

    async def test_without_input_the_program_meets_the_end_at_once(self, machine: Machine) -> None:
        assert (await machine.run("echo")).stdout == b""

    async def test_the_environment_is_exactly_what_was_given(self, machine: Machine) -> None:
        done = await machine.run("environment", env={"B": "2", "A": "1"})
        assert sorted(done.stdout.splitlines()) == [b"A=1", b"B=2"]

    async def test_output_beyond_the_limit_is_dropped(self, machine: Machine) -> None:
        done = await machine.run("chatter", max_output=1000)
        assert (len(done.stdout), len(done.stderr), done.code) == (1000, 1000, 0)

    async def test_many_run_at_the_same_time(self, machine: Machine) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(machine.run("speak", str(n), "")) for n in range(10)]
        assert [task.result().stdout for task in tasks] == [b"%d" % n for n in range(10)]

    async def test_a_program_that_is_not_there_is_not_found(self, machine: Machine) -> None:
        with pytest.raises(ExecNotFound, match="cannot be executed: No such file or directory"):
            await machine.run("absent")

    async def test_a_program_that_ends_in_time_has_done_its_work(self, machine: Machine) -> None:
        assert (await machine.run("sleep")).code == 0
        assert machine.programs.marks() == 2

    async def test_time_that_is_up_kills_the_program(self, machine: Machine) -> None:
        with pytest.raises(ExecTimedOut, match=r"did not end within 0\.1 s and was killed"):
            await machine.run("sleep", timeout=0.1)
        await asyncio.sleep(0.4)
        assert machine.programs.marks() <= 1

    async def test_cancellation_kills_the_program(self, machine: Machine) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(machine.run("sleep"))
            await machine.marked(1)
            task.cancel()
        assert task.cancelled()
        await asyncio.sleep(0.4)
        assert machine.programs.marks() == 1

    async def test_no_secret_is_in_an_error(self, machine: Machine) -> None:
        with pytest.raises(ExecTimedOut) as caught:
            await machine.run("sleep", timeout=0.05, stdin=b"s3cret", env={"TOKEN": "s3cret"})
        assert "s3cret" not in str(caught.value)
