"""``backstay crds``: our CustomResourceDefinitions, to be piped into ``kubectl apply -f -``.

deploy/crds.yaml is this command's output; a test holds the two together.
"""

import click

from backstay.apis.definitions import definitions
from backstay.cli.documents import documents_option, print_documents


@click.command(name="crds")
@documents_option
def command(output: str) -> None:
    """Print the CustomResourceDefinitions, for kubectl apply -f -."""
    print_documents(definitions(), output=output)
