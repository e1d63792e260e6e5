"""``backstay manifests``: the whole installation, to be piped into ``kubectl apply -f -``.

The files are those of deploy/, which are packed into the wheel as they are; their order is that
of deploy/kustomization.yaml.
"""

import re
from importlib.resources import files
from typing import Any

import click
import yaml

from backstay.cli.documents import documents_option, print_documents

# What a registry, a repository, a tag and a digest are made of.
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")


@click.command(name="manifests")
@click.option("--image", metavar="NAME", help="The controller's image, if it is not the default.")
@click.option("--alerts", is_flag=True, help="The alerts instead, for the Prometheus operator.")
@click.option("--runbooks", metavar="URL", help="Where you keep docs/runbooks; with --alerts.")
@click.option(
    "--linstor",
    is_flag=True,
    help="Those that take the place of the Piraeus HA controller instead; apply the CRDs before.",
)
@documents_option
def command(
    image: str | None, alerts: bool, runbooks: str | None, linstor: bool, output: str
) -> None:
    """Print everything that an installation consists of, for kubectl apply -f -."""
    if image is not None and not _IMAGE.fullmatch(image):
        raise click.ClickException(f"{image!r} is not the name of an image.")
    if runbooks is not None and not alerts:
        raise click.UsageError("--runbooks goes with --alerts.")
    if alerts and linstor:
        raise click.UsageError("--alerts and --linstor are two things: ask for one at a time.")
    documents = alerting(runbooks) if alerts else drop_in() if linstor else manifests()
    if image is not None:
        _use(image, documents)
    print_documents(documents, output=output)


def manifests() -> list[dict[str, Any]]:
    """The objects of an installation, in the order in which they are applied."""
    directory = files("backstay") / "deploy"
    listed = yaml.safe_load((directory / "kustomization.yaml").read_text())["resources"]
    return [
        document
        for name in listed
        for document in yaml.safe_load_all((directory / name).read_text())
    ]


def drop_in() -> list[dict[str, Any]]:
    """The objects that take the place of the Piraeus HA controller, in that order."""
    return [*_documents("linstor.yaml"), *beyond_piraeus()]


def beyond_piraeus() -> list[dict[str, Any]]:
    """Those of them that are needed beside a manifest of that one."""
    return _documents("linstor-rights.yaml")


def _documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((files("backstay") / "deploy" / name).read_text()))


def alerting(runbooks: str | None = None) -> list[dict[str, Any]]:
    """The alerts, with the addresses of their runbooks under ``runbooks``."""
    text = (files("backstay") / "deploy" / "prometheus-rule.yaml").read_text()
    documents = list(yaml.safe_load_all(text))
    if runbooks is not None:
        for rule in _rules(documents):
            page = rule["annotations"]["runbook_url"].rpartition("/")[2]
            rule["annotations"]["runbook_url"] = f"{runbooks.rstrip('/')}/{page}"
    return documents


def _rules(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        rule for each in documents for group in each["spec"]["groups"] for rule in group["rules"]
    ]


def _use(image: str, documents: list[dict[str, Any]]) -> None:
    for document in documents:
        if document["kind"] == "Deployment":
            for container in document["spec"]["template"]["spec"]["containers"]:
                container["image"] = image
