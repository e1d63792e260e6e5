"""``backstay config``: what people have configured, and what comes of it."""

import click

from backstay.cli.lazy import LazyGroup

_COMMANDS = {
    "show": "Show what holds in the cluster, or for one workload, and who has said so.",
}


@click.group(name="config", cls=LazyGroup, lazy=_COMMANDS, modules="backstay.cli.config_")
def command() -> None:
    """What is configured, and what applies to a workload and why."""
