"""``linstor-wait-until api-online``: ends when LINSTOR answers.

The manifests of the Piraeus HA controller have an init container that calls it by this name. Our
controller waits for LINSTOR by itself, so that nothing needs it; it is there for whoever keeps such
a manifest.
"""

import asyncio
import os

import click

from backstay.cli.piraeus import linstor_of
from backstay.drivers.linstor.client import Linstor
from backstay.drivers.linstor.errors import LinstorError
from backstay.seam.real import open_seams, run

_AGAIN = 10.0


@click.command(name="linstor-wait-until")
@click.argument("condition", type=click.Choice(["api-online"]))
def command(condition: str) -> None:
    """Wait until one of LS_CONTROLLERS answers, however long that takes."""
    run(_wait())


async def _wait() -> None:
    access = linstor_of(os.environ, asked=True)  # noqa: TID251 - commands are composed here
    assert access is not None
    async with open_seams() as seams:
        linstor = Linstor(seams.transport, seams.files, access)
        while True:
            try:
                version = await linstor.version()
            except LinstorError as error:
                click.echo(f"LINSTOR does not answer yet: {error}", err=True)
                await asyncio.sleep(_AGAIN)
            else:
                click.echo(f"LINSTOR {version} answers.")
                return


def main() -> None:
    """The console script's entry."""
    command()
