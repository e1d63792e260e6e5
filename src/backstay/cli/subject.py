"""What a command is about, as a person names it: ``node/n1``, ``vm/shop/web``, ``pod/shop/db-0``.

A name that the cluster does not know is met with those that come close to it.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

import click
import msgspec

from backstay.cli.consent import near


class Kind(StrEnum):
    NODE = "node"
    VM = "vm"
    POD = "pod"


_ALIASES = {
    "nodes": Kind.NODE, "no": Kind.NODE, "vms": Kind.VM, "virtualmachine": Kind.VM,
    "vmi": Kind.VM, "pods": Kind.POD, "po": Kind.POD,
}  # fmt: skip

_FORMS = "node/NAME, vm/NAMESPACE/NAME or pod/NAMESPACE/NAME"

# What Kubernetes allows a name to be; what it does not can be nobody's, and is not asked for.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Subject(msgspec.Struct, frozen=True):
    """``namespace`` is empty for a node."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        words = {Kind.NODE: "node", Kind.VM: "VM", Kind.POD: "pod"}
        path = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{words[self.kind]} {path}"


def parse(text: str) -> Subject:
    """Raises ``BadParameter`` for what cannot be read."""
    first, *names = text.split("/")
    try:
        kind = _ALIASES.get(first.lower()) or Kind(first.lower())
    except ValueError:
        raise click.BadParameter(f"{text!r} is none of {_FORMS}.") from None
    if not all(names) or len(names) != (1 if kind is Kind.NODE else 2):
        raise click.BadParameter(f"{text!r} is not complete: write {_FORMS}.")
    for name in names:
        _check(name)
    return Subject(kind, *(["", *names] if kind is Kind.NODE else names))


def _check(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r} can be nobody's name in Kubernetes.")


def parse_node(text: str) -> str:
    """The name of a node, with or without ``node/`` before it."""
    if "/" not in text:
        _check(text)
        return text
    subject = parse(text)
    if subject.kind is not Kind.NODE:
        raise click.BadParameter(f"{text!r} is not a node: write node/NAME.")
    return subject.name


def unknown(subject: Subject, known: Iterable[str]) -> click.ClickException:
    """One sentence; ``known`` are the names (or paths) that there are."""
    path = f"{subject.namespace}/{subject.name}" if subject.namespace else subject.name
    return click.ClickException(f"There is no {subject}.{near(path, known)}")
