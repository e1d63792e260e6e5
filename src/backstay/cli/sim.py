"""``backstay sim``: disasters on a cluster in memory, under virtual time.

Nothing outside of this process is touched. Each command lives in a module of its own, ``sim_run``
and so on, and loads when it is used. What plays is started over with fixed hashes if need be, and
before it is loaded, which takes longer than all the rest.
"""

import click

from backstay.cli.lazy import LazyGroup
from backstay.sim.hash_seed import reexec_with_fixed_hash_seed

EXIT_BROKEN = 4
"""An invariant broke."""

_COMMANDS = {
    "bugs": "List the deliberate bugs, and the invariant that catches each.",
    "fuzz": "Play disasters that are drawn by chance, each from a seed.",
    "hunt": "Count how many cases of chance it takes to catch each deliberate bug.",
    "run": "Play scenarios, and print what happened when.",
}

_PLAYING = frozenset({"fuzz", "hunt", "run"})


class _Simulations(LazyGroup):
    """See the module."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        # A shell that only wants to complete a word is not to find another process.
        if cmd_name in _PLAYING and not ctx.resilient_parsing:
            reexec_with_fixed_hash_seed()
        return super().get_command(ctx, cmd_name)


@click.group(name="sim", cls=_Simulations, lazy=_COMMANDS, modules="backstay.cli.sim_")
def command() -> None:
    """Play disasters on a cluster in memory, and see whether any invariant breaks."""
