"""SubprocessExec: the real ``Exec``.

* Each program leads a session of its own, so that one signal reaches everything it started.
* It has ended when *it* has exited. A child that it leaves behind with our pipe in its hands is
  not waited for, beyond a moment for the last output.
* A program that talks to the person at the terminal stays in our own process group, because the
  terminal listens to no other; then only the program itself is killed when time is up.
"""

import asyncio
import os
import signal
import subprocess

from backstay.seam.errors import ExecNotFound, ExecTimedOut
from backstay.seam.exec import Command, Completed

_STDIN, _STDOUT, _STDERR = 0, 1, 2

# How long output may still come after the exit, and how long a killed program may take to die:
# one that sits in a system call on a dead disk does so later, or never.
_LAST_OUTPUT_SECONDS = 1.0
_REAP_SECONDS = 5.0


class _Run(asyncio.SubprocessProtocol):
    """What a program writes, up to a limit, and the moments at which it exits and falls silent."""

    def __init__(self, max_output: int, piped: set[int]) -> None:
        self.output = {_STDOUT: bytearray(), _STDERR: bytearray()}
        self.exited = asyncio.Event()
        self.silent = asyncio.Event()
        self._max_output = max_output
        self._talking = piped - {_STDIN}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept = self.output[fd]
        kept += data[: self._max_output - len(kept)]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._talking.discard(fd)
        if not self._talking:
            self.silent.set()

    def process_exited(self) -> None:
        self.exited.set()


class SubprocessExec:
    """Programs on this machine."""

    async def run(self, command: Command) -> Completed:
        # A task of its own, so that a cancellation cannot fall between the moment at which the
        # program exists and the one at which we know it well enough to kill it.
        start = asyncio.get_running_loop().create_task(self._start(command), name=command.argv[0])
        try:
            transport, run = await asyncio.shield(start)
            async with asyncio.timeout(command.timeout):
                await run.exited.wait()
        except TimeoutError:
            raise ExecTimedOut(
                f"{command.argv[0]} did not end within {command.timeout:g} s and was killed"
            ) from None
        else:
            await _wait_briefly(run.silent, _LAST_OUTPUT_SECONDS)
            code = transport.get_returncode()
            assert code is not None
            return Completed(code, bytes(run.output[_STDOUT]), bytes(run.output[_STDERR]))
        finally:
            await self._end(start, command)

    async def _end(
        self, start: asyncio.Task[tuple[asyncio.SubprocessTransport, _Run]], command: Command
    ) -> None:
        await asyncio.wait({start})
        if start.cancelled() or start.exception() is not None:
            return
        transport, run = start.result()
        if not run.exited.is_set():
            _kill(transport, command)
        transport.close()
        await _wait_briefly(run.exited, _REAP_SECONDS)

    async def _start(self, command: Command) -> tuple[asyncio.SubprocessTransport, _Run]:
        piped = {_STDOUT} if command.terminal else {_STDOUT, _STDERR}
        stdin: int | None = None
        if command.stdin:
            piped.add(_STDIN)
            stdin = subprocess.PIPE
        elif not command.terminal:
            stdin = subprocess.DEVNULL
        try:
            transport, run = await asyncio.get_running_loop().subprocess_exec(
                lambda: _Run(command.max_output, piped),
                *command.argv,
                env=command.env,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=None if command.terminal else subprocess.PIPE,
                start_new_session=not command.terminal,
            )
        except OSError as error:
            raise ExecNotFound(
                f"{command.argv[0]} cannot be executed: {error.strerror or error}"
            ) from None
        if command.stdin:
            pipe = transport.get_pipe_transport(_STDIN)
            assert isinstance(pipe, asyncio.WriteTransport)
            # Buffered: the program may write a lot before it reads any of this, or never read it.
            pipe.write(command.stdin)
            pipe.write_eof()
        return transport, run


def _kill(transport: asyncio.SubprocessTransport, command: Command) -> None:
    try:
        if command.terminal:
            transport.kill()
        else:
            os.killpg(transport.get_pid(), signal.SIGKILL)
    except ProcessLookupError:
        # It exited a moment ago, and with it the last of its group.
        return


async def _wait_briefly(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
