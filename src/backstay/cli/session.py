"""What every command that talks to a cluster shares: its options, and the client they make."""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from backstay import __version__
from backstay.kube.client import KubeClient
from backstay.kube.find_access import find_access
from backstay.seam import Seams
from backstay.seam.real import open_seams, run

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """Which cluster the person means, as typed."""

    kubeconfig: str | None
    context: str | None


@dataclass(frozen=True)
class Session:
    """An open way to that cluster."""

    seams: Seams
    client: KubeClient


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--kubeconfig`` and ``--context``, as kubectl has them."""
    for option in (
        click.option("--context", metavar="NAME", help="The kubeconfig context to use."),
        click.option("--kubeconfig", metavar="FILE", help="The kubeconfig file to use."),
    ):
        command = option(command)
    return command


@asynccontextmanager
async def open_session(target: Target) -> AsyncIterator[Session]:
    async with open_seams() as seams:
        access = await find_access(
            seams,
            environ=os.environ,  # noqa: TID251 - commands are composed here
            kubeconfig=target.kubeconfig,
            context=target.context,
            terminal=sys.stdin.isatty(),
        )
        # A login may ask the person something, which takes longer than a request may.
        await access.grant()
        client = KubeClient(seams.transport, access, user_agent=f"backstay/{__version__}")
        yield Session(seams, client)


def in_session(target: Target, work: Callable[[Session], Awaitable[T]]) -> T:
    """Runs ``work`` with an open session, from an ordinary function."""

    async def inside() -> T:
        async with open_session(target) as session:
            return await work(session)

    return run(inside())
