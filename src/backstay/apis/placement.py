"""Node selectors: what pods and volumes say about the nodes that they can be used on.

``bound_to`` answers the one question that matters here: is there a label, with one value, without
which no node will do? A choice of several nodes, or a zone, binds to no single one.
"""

from collections.abc import Iterable, Sequence

import msgspec

HOSTNAME = "kubernetes.io/hostname"
NODE_NAME = "metadata.name"
"""Of a match on fields: the node's own name."""


class Requirement(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class Term(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A node will do if it meets one of the terms, and a term all of its requirements."""

    node_selector_terms: list[Term] | None = None


class Binding(msgspec.Struct, frozen=True, gc=False):
    """A label (or field) that a node must have, and the only value that will do."""

    key: str
    value: str

    def names(self, node: str) -> bool:
        """Whether it leaves no node but ``node``, on which what it belongs to is in use.

        A host name need not be the node's name, but no two nodes share one. Storage drivers have
        labels of their own for the same, whose value is the node's name.
        """
        return self.key in (HOSTNAME, NODE_NAME) or self.value == node


def bound_to(selector: NodeSelector | None) -> tuple[Binding, ...]:
    """The bindings that every term makes. A selector without terms makes none."""
    terms = (selector.node_selector_terms if selector else None) or ()
    if not terms:
        return ()
    first, *others = map(_bindings, terms)
    return tuple(binding for binding in first if all(binding in other for other in others))


def _bindings(term: Term) -> Sequence[Binding]:
    asked: Iterable[Requirement] = [*(term.match_expressions or ()), *(term.match_fields or ())]
    return [
        Binding(each.key, each.values[0])
        for each in asked
        if each.operator == "In" and each.values and len(each.values) == 1
    ]
