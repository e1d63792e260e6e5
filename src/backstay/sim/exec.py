"""SimulatedExec: programs that are asynchronous functions, each in a lane of its own.

A program is registered under the name that commands call it by, gets the ``Command`` and gives
back what it printed and how it ended. When its time is up, or its caller is cancelled, it is
killed as a real one is: it does not get to clean up, and its connections are cut. It shares the
machine of its caller, and so its clock and its name in the network.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import TypeAlias

from backstay.seam.errors import ExecNotFound, ExecTimedOut
from backstay.seam.exec import Command, Completed
from backstay.sim.lane import Lane

Program: TypeAlias = Callable[[Command], Awaitable[Completed]]


class SimulatedExec:
    """``lane`` opens a lane for one program; leaving it kills whatever still runs there."""

    def __init__(
        self,
        programs: Mapping[str, Program],
        lane: Callable[[], AbstractContextManager[Lane]],
    ) -> None:
        self._programs = programs
        self._lane = lane

    async def run(self, command: Command) -> Completed:
        name = command.argv[0]
        program = self._programs.get(name)
        if program is None:
            raise ExecNotFound(f"{name} cannot be executed: No such file or directory")
        with self._lane() as lane:
            running = asyncio.get_running_loop().create_task(
                _run(program, command), name=name, context=lane.context()
            )
            done, _ = await asyncio.wait({running}, timeout=command.timeout)
            if not done:
                raise ExecTimedOut(
                    f"{name} did not end within {command.timeout:g} s and was killed"
                )
            completed = running.result()
        limit = command.max_output
        return Completed(completed.code, completed.stdout[:limit], completed.stderr[:limit])


async def _run(program: Program, command: Command) -> Completed:
    return await program(command)
