"""``backstay storm``: whether so many nodes are silent that silence proves nothing, and how to say
that they really are dead."""

import click

from backstay.cli.lazy import LazyGroup

_COMMANDS = {
    "release": "Let Backstay act on silence although many nodes are silent, for a time.",
}


@click.group(name="storm", cls=LazyGroup, lazy=_COMMANDS, modules="backstay.cli.storm_")
def command() -> None:
    """What to do when many nodes are silent at once."""
