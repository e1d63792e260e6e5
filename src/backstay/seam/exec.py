"""Exec: programs that we start, namely fence agents and credential plugins.

Secrets go in through ``stdin`` or ``env``, never through ``argv``, which every user of the
machine can read. The environment is exactly what the command says: nothing is inherited behind
the caller's back. When time is up, or the caller is cancelled, the program is killed together
with everything that it started.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A program to run. ``terminal`` lets it talk to the person at our own terminal."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    timeout: float
    stdin: bytes = b""
    terminal: bool = False
    max_output: int = 1024 * 1024

    def __repr__(self) -> str:
        return f"Command({' '.join(self.argv)})"


class Completed(msgspec.Struct, frozen=True):
    """How it ended. Output beyond ``max_output`` was read and dropped."""

    code: int
    stdout: bytes
    stderr: bytes


class Exec(Protocol):
    """Runs programs. Raises ``ExecNotFound`` and ``ExecTimedOut``; a non-zero code is an answer."""

    async def run(self, command: Command) -> Completed: ...
