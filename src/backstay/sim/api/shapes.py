"""Shapes: schemas made ready to be walked along with objects.

A ``Schema`` says what a type is; a ``Shape`` is the same with references resolved and with the
answers at hand that a walk needs at every step. Shapes are made when first needed and kept.

Most maps of an object look like many others: an environment variable has a name and a value.
What such a map owns depends on its keys and on the types of their values only, so it is worked
out once as a ``Plan``, and all objects share the result.
"""

from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from backstay.sim.api.fieldsets import LEAF, FieldSet, as_member
from backstay.sim.api.kinds import ANY, KindInfo, Kinds, Schema, Types

_NULL = type(None)
_CONTAINERS = (dict, list)

# By the type that the schema gives a scalar; None is for what has parts.
_SCALARS: dict[str | None, frozenset[type]] = {
    "any": frozenset((str, int, float, bool, _NULL)),
    "string": frozenset((str, _NULL)),
    "integer": frozenset((int, float, _NULL)),
    "number": frozenset((int, float, _NULL)),
    "boolean": frozenset((bool, _NULL)),
    None: frozenset((_NULL,)),
}


class Part(NamedTuple):
    """A map or list inside a map. ``declared``: by the struct, so it is not owned by itself."""

    key: str
    element: str
    shape: "Shape"
    declared: bool


class Plan(NamedTuple):
    """What is owned of a map, once its parts are filled in.

    ``member`` is the same where the map itself is owned too. ``has_blank`` says that a value is
    null, or that there is none and the map is not a struct.
    """

    node: FieldSet
    member: FieldSet
    parts: tuple[Part, ...]
    has_blank: bool


class Shape:
    """See the module.

    ``scalars`` are the types of values that are accepted besides maps and lists, if ``is_map``
    or ``is_list`` say that those are. ``associative`` lists have items that are parts of their
    own, identified by ``keys`` (``only_key`` gets the value of a single one) or, without any,
    by their value. ``typed`` says that there is a
    schema at all, ``loose`` that there is none for some of what is inside.
    """

    __slots__ = (
        "associative",
        "atomic",
        "children",
        "is_list",
        "is_map",
        "item",
        "keys",
        "loose",
        "only_key",
        "scalars",
        "schema",
        "typed",
        "types",
    )

    def __init__(self, schema: Schema, types: Types) -> None:
        self.schema = schema
        self.typed = schema.type != "any"
        self.loose = _is_loose(schema)
        self.is_list = schema.list is not None or not self.typed
        self.is_map = not self.typed or (schema.type is None and schema.list is None)
        self.atomic = schema.atomic
        self.associative = schema.list is not None and schema.kind != "atomic"
        self.keys = tuple(sorted(schema.keys)) if schema.kind == "map" else ()
        self.only_key = itemgetter(*self.keys) if len(self.keys) == 1 else None
        self.scalars = _SCALARS[schema.type]
        self.types = types
        self.children = _Children(self)
        self.item = self if schema.list is None else shape_of(schema.list, types)

    @property
    def free(self) -> "Shape":
        """The shape of what nobody declared."""
        return shape_of(ANY, self.types)

    def declares(self, key: str) -> bool:
        """Whether it is a struct with this field."""
        return self.schema.fields is not None and key in self.schema.fields

    def default(self, key: str) -> Any:
        """What the absence of a field means, None if nothing in particular."""
        return (self.schema.fields or {}).get(key, ANY).default

    def always_has(self, key: str) -> bool:
        """Whether every object of the type has this field, with a zero value if need be."""
        return (self.schema.fields or {}).get(key, ANY).always


class _Children(dict[str, Shape | None]):
    """The shapes of fields, None for one that the schema does not allow. Made when first asked for;
    those of declared fields are kept, because a walk asks for them at every step, and all others
    have one in common."""

    def __init__(self, parent: Shape) -> None:
        self._parent = parent

    def __missing__(self, key: str) -> Shape | None:
        fields = self._parent.schema.fields
        if fields is None or key not in fields:
            return self._undeclared
        found = self[key] = shape_of(fields[key], self._parent.types)
        return found

    @cached_property
    def _undeclared(self) -> Shape | None:
        parent = self._parent
        if parent.schema.map is not None:
            return shape_of(parent.schema.map, parent.types)
        return None if parent.typed else parent


def _is_loose(schema: Schema) -> bool:
    """Custom resources have such parts in the open; in built-in types they have a name."""
    inner = (*(schema.fields or {}).values(), schema.map, schema.list)
    return schema.type == "any" or any(_is_loose(node) for node in inner if node is not None)


class _Same:
    """A schema by identity: it has dictionaries in it and no hash of its own."""

    __slots__ = ("schema", "types")

    def __init__(self, schema: Schema, types: Types) -> None:
        self.schema = schema
        self.types = types

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.schema is other.schema


def shape_of(schema: Schema, types: Types) -> Shape:
    """The shape of a schema. Built-in types are the same everywhere, so ``types`` is no key."""
    return _made(_Same(types.resolve(schema), types))


def shape_of_kind(info: KindInfo, kinds: Kinds) -> Shape:
    """The shape of a kind's objects, which every write asks for."""
    found: Shape | None = kinds.shapes.get(info.type)
    if found is None:
        found = kinds.shapes[info.type] = shape_of(kinds.schema(info), kinds.types)
    return found


@lru_cache(maxsize=16384)
def _made(same: _Same) -> Shape:
    return Shape(same.schema, same.types)


def signature(value: dict[str, Any]) -> tuple[Any, ...]:
    """What a plan depends on: the keys of a map, and then the types of their values."""
    return (*value, *map(type, value.values()))


@lru_cache(maxsize=16384)
def plan_for(shape: Shape, said: tuple[Any, ...], *, stored: bool = False) -> Plan | None:
    """The plan for maps with this signature; None if they do not fit the shape.

    Everything fits that is ``stored`` already.
    """
    keys, kinds = said[: len(said) // 2], said[len(said) // 2 :]
    node: FieldSet = {}
    parts = []
    for key, kind in sorted(zip(keys, kinds, strict=True)):
        child = shape.children[key]
        if child is None and stored:
            child = shape.free
        if child is None or not (stored or fits(kind, child)):
            return None
        element = f"f:{key}"
        node[element] = LEAF
        if kind in _CONTAINERS:
            parts.append(Part(key, element, child, shape.declares(key)))
    if shape.atomic:
        node = LEAF
    has_blank = _NULL in kinds or (not keys and shape.schema.map is not None)
    return Plan(node, as_member(node), tuple(parts), has_blank)


def fits(kind: type, shape: Shape) -> bool:
    """Whether a value of this type can have this shape, as far as its type tells."""
    if kind is dict:
        return shape.is_map
    if kind is list:
        return shape.is_list
    return kind in shape.scalars
