"""Processes that run ``backstay`` and begin with everything loaded.

Most of what a command costs is loading its modules. So one process loads them all, once for a
whole test session, and has a child for each command. A command still is a process of its own, with
the streams, the variables, the terminal, the exit code and the end of any other; only how it came
to be differs. Where that is the point, and for what starts itself anew (``sim``), a test starts
the program itself.

This file is both: what tests call (``start``), and the process that it is run as.
"""

import asyncio
import atexit
import fcntl
import gc
import importlib
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NoReturn

import msgspec

_LONGEST = 2**20


class Command(msgspec.Struct, frozen=True):
    """What to run; ``owns_terminal`` says that its standard input is a terminal, its own."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    owns_terminal: bool = False


@dataclass(frozen=True)
class Born:
    """A command that runs, or ran."""

    pid: int
    _told: asyncio.StreamReader

    async def wait(self) -> int:
        """Its exit code; that of one which a signal ended is below zero."""
        return int(await self._told.read())

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


async def start(command: Command, streams: tuple[int, int, int]) -> Born:
    """Runs it with copies of these as its standard streams."""
    told, teller = os.pipe()
    reader = await reading(told)
    try:
        socket.send_fds(_nursery(), [msgspec.json.encode(command)], [*streams, teller])
    finally:
        os.close(teller)
    return Born(int(await reader.readline()), reader)


async def reading(pipe: int) -> asyncio.StreamReader:
    """What comes out of a pipe; it is closed at its end."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb")
    )
    return reader


@cache
def _nursery() -> socket.socket:
    """Our end of the way to it, which ends when nobody holds this end any more."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(its.fileno())], pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL, process_group=0,
        )  # fmt: skip
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


# The other process


def _load_everything() -> None:
    import backstay.cli as commands

    for module in pkgutil.iter_modules(commands.__path__, "backstay.cli."):
        importlib.import_module(module.name)
    for name in ("backstay.seam.real", "backstay.kube.find_access"):
        importlib.import_module(name)


def _serve(way: socket.socket) -> None:
    """Returns in each command, and when there is nobody left who wants one."""
    while True:
        request, given, *_ = socket.recv_fds(way, _LONGEST, 4)
        if not request:
            return
        if os.fork() == 0:
            way.close()
            _attend(msgspec.json.decode(request, type=Command), given)
            return
        for each in given:
            os.close(each)


def _attend(command: Command, given: list[int]) -> None:
    """Returns in the command; whoever is its parent tells who it is and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, teller = given
    child = os.fork()
    if child:
        for each in streams:
            os.close(each)
        os.write(teller, b"%d\n" % child)
        _, status = os.waitpid(child, 0)
        os.write(teller, b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    os.close(teller)
    _become(command, streams)


def _become(command: Command, streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if command.owns_terminal:
        own_terminal()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as there is a process
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(command.environment)
    sys.argv = ["backstay", *command.arguments]


def own_terminal() -> None:
    """A session whose terminal is its standard input, so that ^C reaches it."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _run(way: socket.socket) -> NoReturn:
    from backstay.cli.main import main

    _load_everything()
    # Whoever attends a command tells how it ended, and nobody waits for him.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.collect()
    gc.freeze()
    nursery = os.getpid()
    _serve(way)
    if os.getpid() == nursery:
        sys.exit()
    main()


if __name__ == "__main__":
    _run(socket.socket(fileno=int(sys.argv[1])))
