"""Elsewhere: a simulation that is played by another process like this one, which tells what came of
it as JSON. So the commands that take ``--jobs`` keep all cores busy."""

import os
import sys
from typing import TypeVar

import click
import msgspec

from backstay.cli.sim import EXIT_BROKEN
from backstay.seam.exec import Command, Exec

T = TypeVar("T")

_FRONT_DOOR = "from backstay.cli.main import main; main()"


async def elsewhere(
    program: Exec, *arguments: str, kind: type[T], undone: str, timeout: float
) -> T:
    """What ``backstay sim`` with these arguments tells. ``undone`` is said where it fails, and then
    why."""
    done = await program.run(
        Command(
            argv=(sys.executable, "-c", _FRONT_DOOR, "sim", *arguments, "--output", "json"),
            env=dict(os.environ),  # noqa: TID251 - all of it is passed on as it is
            timeout=timeout,
        )
    )
    if done.code not in (0, EXIT_BROKEN):
        said = done.stderr.decode(errors="replace").strip() or f"exit code {done.code}"
        raise click.ClickException(f"{undone}: {said}")
    return msgspec.json.decode(done.stdout, type=kind)
