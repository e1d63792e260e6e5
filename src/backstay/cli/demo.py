"""``backstay demo``: see in a minute what Backstay does, on a cluster in this process's memory.

Nothing is installed, nothing outside of this process is touched, and nothing is left behind. The
work is in ``backstay.lab``; here is what has to do with the terminal.
"""

import asyncio
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import click

from backstay.cli.ending import ended_by_signals
from backstay.cli.main import EXIT_ERROR
from backstay.cli.output import output_option, show
from backstay.lab import view
from backstay.lab.audience import Audience, Lines, Nobody, on_terminal
from backstay.lab.console import Console
from backstay.lab.show import Pace, Report, Show
from backstay.lab.summary import summary
from backstay.lab.view import Paint
from backstay.seam import Seams
from backstay.seam.real import open_seams, run
from backstay.seam.tasks import Tasks
from backstay.sim.cluster.ground import on_this_loop

_USUAL_SPEED = 10.0

_LONGEST = 115.0
"""Seconds at the usual speed, and in proportion at a slower one."""


@click.command(name="demo")
@click.option("--plain", is_flag=True, help="Print lines instead of drawing a screen.")
@click.option("--quick", is_flag=True, help="Do not wait for readers.")
@click.option("--stay", is_flag=True, help="Keep the cluster afterwards, for you and kubectl.")
@click.option(
    "--speed",
    metavar="N",
    type=click.FloatRange(1.0, 50.0),
    default=_USUAL_SPEED,
    show_default=True,
    help="How many times faster than in life.",
)
@output_option
def command(plain: bool, quick: bool, stay: bool, speed: float, output: str) -> int:
    """See what Backstay does when a node dies, and when one only seems to.

    A cluster of five nodes with twelve VMs and two StatefulSets runs in this process, beside an
    equal one without Backstay. Exit code 0 only if everything recovered and no invariant broke.
    """
    if stay and output != "table":
        raise click.UsageError("--stay is for people: leave --output out.")
    reading = 0.0 if quick or output != "table" else min(1.0, _USUAL_SPEED / speed)
    pace = Pace(factor=1 / speed, reading=reading)
    with _quietly():
        report = run(_demo(pace, plain=plain, stay=stay, output=output))
    if output != "table":
        show(report, output=output, table=str)
    return 0 if report.ok else EXIT_ERROR


async def _demo(pace: Pace, *, plain: bool, stay: bool, output: str) -> Report:
    with ended_by_signals():
        async with open_seams() as seams, AsyncExitStack() as stack:
            # The grounds end in the order in which they were begun, the cluster of Backstay last.
            plain_ground = await stack.enter_async_context(on_this_loop(seams))
            ground = await stack.enter_async_context(on_this_loop(seams))
            with _audience(plain=plain, output=output) as audience:
                played = Show((ground, plain_ground), audience, pace)
                report = await _played(played, _LONGEST * max(1.0, _USUAL_SPEED * pace.factor))
            if output == "table":
                click.echo("\n".join(["", *summary(report, _paint())]))
            if stay and not report.failure:
                await _stay(played, seams)
            return report


async def _played(played: Show, longest: float) -> Report:
    try:
        async with asyncio.timeout(longest):
            return await played.play()
    except TimeoutError:
        raise click.ClickException(
            f"The demo was not over after {longest:.0f} s: this machine is too busy for it. "
            "NEXT: try it again with --speed 5"
        ) from None


# The terminal


@contextmanager
def _audience(*, plain: bool, output: str) -> Iterator[Audience]:
    if output != "table":
        yield Nobody()
    elif plain or not _can_draw():
        yield Lines(sys.stdout, _paint())
    else:
        with on_terminal(sys.stdout, _paint()) as terminal:
            yield terminal


def _can_draw() -> bool:
    room = shutil.get_terminal_size((0, 0))
    return (
        sys.stdout.isatty()
        and _environment("TERM") not in ("", "dumb")
        and room.columns >= view.WIDTH
        and room.lines >= view.HEIGHT
    )


def _paint() -> Paint:
    coloured = sys.stdout.isatty() and not _environment("NO_COLOR")
    return view.in_colour if coloured else view.plain


def _environment(name: str) -> str:
    return os.environ.get(name, "")  # noqa: TID251 - commands are composed here


@contextmanager
def _quietly() -> Iterator[None]:
    """What goes wrong in the demo is meant to; its warnings are not for the terminal."""
    logger, silence = logging.getLogger("backstay"), logging.NullHandler()
    logger.addHandler(silence)
    try:
        yield
    finally:
        logger.removeHandler(silence)


# Staying


async def _stay(played: Show, seams: Seams) -> None:
    cluster = played.ours
    played.audience = Lines(sys.stdout, _paint())
    async with cluster.embedded.serve(seams.serve) as served, Tasks("stay") as tasks:
        with _in_a_file(served.kubeconfig) as path:
            click.echo(_WELCOME.format(path=path))
            tasks.spawn(played.go_on(), name="news")
            await _converse(Console(cluster, _paint()))


_WELCOME = """
The cluster stays until you type quit. In another terminal:

  export KUBECONFIG={path}
  kubectl get nodes      kubectl get vm -A      kubectl get incidents
  backstay status        backstay readiness     backstay explain node/n2

Here, type what is to happen: kill n2, cut n3, heal n3, boot n2, confirm n2, truth, help, quit.
"""


@contextmanager
def _in_a_file(kubeconfig: bytes) -> Iterator[str]:
    """Readable by nobody else, and gone at the end."""
    with tempfile.TemporaryDirectory(prefix="backstay-demo-") as directory:
        path = os.path.join(directory, "kubeconfig")
        with open(path, "wb") as file:
            file.write(kubeconfig)
        yield path


async def _converse(console: Console) -> None:
    async with _lines() as lines:
        while True:
            line = await lines.get()
            if not line or line.strip() in ("quit", "exit"):
                return
            if answer := await console.answer(line):
                print(answer, flush=True)


@asynccontextmanager
async def _lines() -> AsyncIterator[asyncio.Queue[str]]:
    """What is typed; the empty string is the end."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()
    # A terminal is readable when a whole line is there, so this never blocks the loop.
    loop.add_reader(sys.stdin, lambda: lines.put_nowait(sys.stdin.readline()))
    try:
        yield lines
    finally:
        loop.remove_reader(sys.stdin)
