"""``backstay version``: ours, and the cluster's if it can be reached."""

import click
import msgspec

from backstay import __version__
from backstay.cli.output import output_option, show
from backstay.cli.session import Session, Target, in_session, target_options
from backstay.kube.discovery import server_version
from backstay.kube.errors import KubeError


class Versions(msgspec.Struct):
    """Both versions; ``problem`` says why the cluster's is missing."""

    backstay: str
    kubernetes: str | None = None
    problem: str | None = None


@click.command(name="version")
@click.option("--client", is_flag=True, help="Do not ask the cluster.")
@target_options
@output_option
def command(client: bool, kubeconfig: str | None, context: str | None, output: str) -> None:
    """Show the version of Backstay and of the cluster."""
    versions = Versions(__version__)
    if not client:
        try:
            versions.kubernetes = in_session(Target(kubeconfig, context), _ask)
        except KubeError as error:
            versions.problem = str(error)
    show(versions, output=output, table=lambda: _table(versions))


async def _ask(session: Session) -> str:
    return (await server_version(session.client, timeout=5.0)).git_version


def _table(versions: Versions) -> str:
    lines = [f"Backstay    {versions.backstay}"]
    if versions.kubernetes:
        lines.append(f"Kubernetes  {versions.kubernetes}")
    elif versions.problem:
        lines.append(f"Kubernetes  unknown: {versions.problem}")
    return "\n".join(lines)
