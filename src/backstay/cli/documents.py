"""Manifests on standard output, in a form that kubectl takes."""

from collections.abc import Callable, Sequence
from typing import Any

import click

documents_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="How to print them; kubectl takes both.",
)


def print_documents(documents: Sequence[dict[str, Any]], *, output: str) -> None:
    click.echo(as_yaml(documents) if output == "yaml" else _as_json(documents), nl=False)


def as_yaml(documents: Sequence[dict[str, Any]]) -> str:
    import yaml  # slow to import, and not all commands of this room need it

    class Plain(yaml.SafeDumper):
        """Writes a value that occurs twice twice: anchors are for machines."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    return "".join(
        f"---\n{yaml.dump(one, Dumper=Plain, sort_keys=False, allow_unicode=True, width=100)}"
        for one in documents
    )


def _as_json(documents: Sequence[dict[str, Any]]) -> str:
    import msgspec

    together = {"apiVersion": "v1", "kind": "List", "items": documents}
    return msgspec.json.format(msgspec.json.encode(together), indent=2).decode() + "\n"
