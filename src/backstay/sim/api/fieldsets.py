"""Field sets: which fields of an object somebody owns, in the form that Kubernetes stores them.

A set *is* the JSON of ``fieldsV1``, so nothing is decoded to work with it and nothing is encoded
to store it. It is a tree whose edges are path elements:

* ``f:name`` a field, ``k:{"name":"x"}`` the list item with these keys, ``v:"x"`` the item with
  this value, ``i:0`` the item at this index;
* an empty node is a member of the set; a node with children is one only if it has a ``.`` too.
  The root is never a member, so an empty root is the empty set.

Sets are immutable by convention and share what they have in common. The algebra does work for
what differs: it walks the smaller change and returns its first argument itself when nothing
comes of it. Elements are always in the order in which the real server writes them.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from backstay.sim.api import gotext

FieldSet: TypeAlias = dict[str, "FieldSet"]

SELF = "."
LEAF: FieldSet = {}
EMPTY: FieldSet = {}

_decode = msgspec.json.Decoder().decode

# Go's order of values of different types.
_RANKS = {int: 0, float: 0, str: 1, bool: 2, list: 3, dict: 4}
_LAST_RANK = 5
_KINDS = {"f": 1, "k": 2, "v": 3, "i": 4}


# Elements


@lru_cache(maxsize=4096, typed=True)
def value_element(value: Any) -> str:
    """The element of an item in a list that is a set."""
    return "v:" + gotext.json_text(value)


@lru_cache(maxsize=16384, typed=True)
def key_element(*key: Any) -> str:
    """The element of an item in a list that is a map: names and values in turn."""
    return "k:" + gotext.json_text(dict(zip(key[::2], key[1::2], strict=True)))


def ordered(node: FieldSet) -> FieldSet:
    """The same node with its elements in the server's order."""
    if len(node) < 2:
        return node
    elements = tuple(node)
    in_order = _sorted(elements)
    return node if in_order == elements else {element: node[element] for element in in_order}


@lru_cache(maxsize=16384)
def _sorted(elements: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(elements, key=_order))


def _order(element: str) -> tuple[Any, ...]:
    kind = _KINDS.get(element[0], 0)
    if kind <= 1:
        return kind, element
    value = _decode(element[2:])
    if type(value) is dict:
        return kind, [(name, *_value_order(value[name])) for name in sorted(value)]
    return kind, *_value_order(value)


def _value_order(value: Any) -> tuple[Any, ...]:
    rank = _RANKS.get(type(value), _LAST_RANK)
    return (rank, value) if rank < _RANKS[list] else (rank, gotext.json_text(value))


# Algebra


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Members of either."""
    if left is right or not right:
        return left
    return _joined(left, right) if left else right


def _joined(left: FieldSet, right: FieldSet) -> FieldSet:
    result: FieldSet | None = None
    for element in right:
        node = right[element]
        if element in left:
            ours, theirs = left[element], node
            if ours == theirs:
                continue
            node = _joined(ours, theirs) if ours and theirs else as_member(ours or theirs)
            if node is ours:
                continue
        if result is None:
            result = dict(left)
        result[element] = node
    if result is None:
        return left
    return result if len(result) == len(left) else ordered(result)


def as_member(node: FieldSet) -> FieldSet:
    """The same node, as a member itself."""
    return node if not node or SELF in node else {SELF: LEAF, **node}


def is_member(node: FieldSet) -> bool:
    return not node or SELF in node


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Members of ``left`` that are not members of ``right``.

    What is below a member of ``right`` stays: it is a member of its own.
    """
    result: FieldSet | None = None
    for element in right:
        if element not in left:
            continue
        ours = left[element]
        node = _remaining(ours, right[element])
        if node is ours:
            continue
        if result is None:
            result = dict(left)
        if node is None:
            del result[element]
        else:
            result[element] = node
    return left if result is None else result


def _remaining(ours: FieldSet, theirs: FieldSet) -> FieldSet | None:
    if ours == theirs:
        return None
    if not ours:
        return None if is_member(theirs) else ours
    return _normal(difference(ours, theirs or {SELF: LEAF}))


def _normal(node: FieldSet) -> FieldSet | None:
    """A node that lost elements: nothing at all, or a leaf if it is all that is left of it."""
    if len(node) > 1:
        return node
    if not node:
        return None
    return LEAF if SELF in node else node


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """Members of both."""
    common = {}
    for element, ours in left.items():
        theirs = right.get(element)
        if theirs is not None:
            node = _shared(ours, theirs)
            if node is not None:
                common[element] = node
    return common


def _shared(ours: FieldSet, theirs: FieldSet) -> FieldSet | None:
    if ours and theirs:
        return _normal(intersection(ours, theirs))
    return LEAF if is_member(ours) and is_member(theirs) else None


def without(left: FieldSet, right: FieldSet) -> FieldSet:
    """``left`` without the members of ``right`` and without everything below them."""
    kept = {}
    for element, ours in left.items():
        if element not in right:
            kept[element] = ours
            continue
        theirs = right[element]
        if not is_member(theirs):
            node = _normal(without(ours, theirs)) if ours else ours
            if node is not None:
                kept[element] = node
    return kept


# In and out


def of(paths: Iterable[tuple[str, ...]]) -> FieldSet:
    """The set of these paths, each a sequence of field names."""
    result = EMPTY
    for path in paths:
        node = LEAF
        for name in reversed(path):
            node = {f"f:{name}": node}
        result = union(result, node)
    return result


def paths(fields: FieldSet, prefix: str = "") -> Iterator[str]:
    """Every member as people read it: ``.spec.containers[name="web"].image``."""
    inner = [(element, node) for element, node in fields.items() if element != SELF]
    for element, node in inner:
        if is_member(node):
            yield prefix + element_text(element)
    for element, node in inner:
        yield from paths(node, prefix + element_text(element))


def element_text(element: str) -> str:
    """One step of such a path."""
    kind, value = element[0], element[2:]
    if kind == "f":
        return f".{value}"
    if kind == "i":
        return f"[{value}]"
    if kind == "v":
        return f"[={_value_text(_decode(value))}]"
    key = _decode(value)
    return f"[{','.join(f'{name}={_value_text(key[name])}' for name in sorted(key))}]"


def _value_text(value: Any) -> str:
    if value is None:
        return "null"
    return gotext.quoted(value) if type(value) is str else gotext.plain(value)


def read(sent: Any) -> FieldSet:
    """A set as a client sent it, in our form. Raises ``ValueError`` if it is not one."""
    if type(sent) is not dict:
        raise ValueError("a field set is a JSON object")
    node: FieldSet = {}
    for element, child in sent.items():
        if element == SELF:
            node[SELF] = LEAF
            continue
        if element[1:2] != ":":
            raise ValueError(f"missing colon: {element}")
        if element[0] in _KINDS:
            node[_respelled(element)] = read(child)
    return ordered(node) if len(node) > 1 or SELF not in node else LEAF


def _respelled(element: str) -> str:
    if element[0] in "fi":
        return element
    try:
        return element[:2] + gotext.json_text(_decode(element[2:]))
    except msgspec.DecodeError as error:
        raise ValueError(f"not a path element: {element}: {error}") from None
