"""What the commands that change something share: who asks, what is refused, and questions.

A question is asked only at a terminal. Everywhere else the answer has to stand on the command
line, so that no script ever waits for a person, and none says yes by accident.
"""

import difflib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click
import msgspec

from backstay.cli.main import EXIT_BLIND
from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.kube.resource import Resource

_SELF_REVIEW = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)


class Blind(click.ClickException):
    """What we see is not to be relied on."""

    exit_code = EXIT_BLIND


class _UserInfo(msgspec.Struct, frozen=True):
    username: str


class _ReviewStatus(msgspec.Struct, frozen=True, rename="camel"):
    user_info: _UserInfo


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus


async def own_name(client: KubeClient) -> str:
    """Who the API server takes us for."""
    body = {"apiVersion": _SELF_REVIEW.api_version, "kind": _SELF_REVIEW.kind}
    reply = await client.create(_SELF_REVIEW, body)
    return reply.into(_Review).status.user_info.username


@contextmanager
def our_kinds() -> Iterator[None]:
    """Around requests for our own kinds: on a cluster that does not know them, says how to change
    that."""
    try:
        yield
    except errors.NotFound as error:
        if is_unknown_kind(error):
            raise click.ClickException(
                "Backstay's kinds are not installed on this cluster. "
                "NEXT: backstay crds | kubectl apply -f -"
            ) from None
        raise


def is_unknown_kind(error: errors.NotFound) -> bool:
    """Whether the API has no such kind, rather than no such object."""
    details = error.status.details
    return details is None or not details.name


def at_terminal() -> bool:
    """Whether a person can be asked: one who answers, and who sees the question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def say(text: str = "") -> None:
    """For the person; standard output is the result's alone."""
    click.echo(text, err=True)


def wrapped(text: str) -> str:
    return click.wrap_text(text, width=79)


def near(name: str, known: Iterable[str]) -> str:
    """``Did you mean ...?`` if there is something alike."""
    alike = difflib.get_close_matches(name, sorted(known), n=3)
    return f" Did you mean {' or '.join(alike)}?" if alike else ""


def agreed(question: str, *, yes: bool, command: str) -> None:
    """Ends the command unless the person agrees; ``command`` is how to say so in a script."""
    if yes:
        return
    if not at_terminal():
        raise click.ClickException(
            f"Nobody is here to be asked, so nothing was changed. NEXT: {command}"
        )
    if not click.confirm(question, default=False, err=True):
        raise click.ClickException("Nothing was changed.")
