"""``backstay crds``: our CustomResourceDefinitions, to be piped into ``kubectl apply -f -``.

deploy/crds.yaml is this command's output, and deploy/maintenance-crd.yaml that of
``--maintenance``; tests hold them together.
"""

import click

from backstay.apis.definitions import definitions
from backstay.apis.maintenance_definition import maintenance_definition
from backstay.cli.documents import documents_option, print_documents


@click.command(name="crds")
@click.option(
    "--maintenance",
    is_flag=True,
    help="That of NodeMaintenance instead, where the Node Maintenance Operator has not been.",
)
@documents_option
def command(maintenance: bool, output: str) -> None:
    """Print the CustomResourceDefinitions, for kubectl apply -f -."""
    print_documents([maintenance_definition()] if maintenance else definitions(), output=output)
