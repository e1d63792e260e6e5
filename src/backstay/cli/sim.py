"""``backstay sim``: disasters on a cluster in memory, under virtual time.

Nothing outside of this process is touched. Each command lives in a module of its own, ``sim_run``
and so on, and loads when it is used.
"""

import click

from backstay.cli.lazy import LazyGroup

EXIT_BROKEN = 4
"""An invariant broke."""

_COMMANDS = {
    "bugs": "List the deliberate bugs, and the invariant that catches each.",
    "fuzz": "Play disasters that are drawn by chance, each from a seed.",
    "run": "Play scenarios, and print what happened when.",
}


@click.group(name="sim", cls=LazyGroup, lazy=_COMMANDS, modules="backstay.cli.sim_")
def command() -> None:
    """Play disasters on a cluster in memory, and see whether any invariant breaks."""
