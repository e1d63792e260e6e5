"""The options of ``backstay run`` that say whom else to tell.

The address may hold a secret, so it is named by its file and never typed: arguments can be read by
everybody on the machine.
"""

import logging
from collections.abc import Callable
from typing import Any

import click
import msgspec

from backstay.cli.session import Session
from backstay.record.notify import Unusable, Webhook, read_destination

_log = logging.getLogger("backstay.run")


def webhook_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--cluster-name",
            metavar="NAME",
            default="",
            help="What notifications call this cluster, instead of its address.",
        ),
        click.option(
            "--notify-ca-file",
            metavar="FILE",
            default="",
            help="Whom to trust there, instead of the system's authorities.",
        ),
        click.option(
            "--notify-key-file",
            metavar="FILE",
            default="",
            help="Holds the key by which notifications are signed.",
        ),
        click.option(
            "--notify-url-file",
            metavar="FILE",
            default="",
            help="Holds the https address that is notified of incidents.",
        ),
    ):
        command = option(command)
    return command


def webhook_of(*, url_file: str, key_file: str, ca_file: str, cluster: str) -> Webhook | None:
    if url_file:
        return Webhook(url_file=url_file, key_file=key_file, ca_file=ca_file, cluster=cluster)
    if key_file or ca_file:
        raise click.UsageError("--notify-key-file and --notify-ca-file go with --notify-url-file.")
    return None


async def checked(webhook: Webhook | None, session: Session) -> Webhook | None:
    """The same, with a name for the cluster. What is wrong is said and no reason not to start:
    that nobody can be told of a failover is not worth having none."""
    if webhook is None:
        return None
    try:
        await read_destination(session.seams.files, webhook)
    except Unusable as error:
        _log.warning("notifications cannot be sent yet: %s", error)
    name = webhook.cluster or session.client.access.server
    return msgspec.structs.replace(webhook, cluster=name)
