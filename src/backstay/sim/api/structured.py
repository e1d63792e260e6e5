"""Objects seen through their schema: which fields one has, what changed, how two become one.

The schema says what is one thing and what has parts. Structs and maps have their fields, a list
of kind ``map`` or ``set`` has items that a key or their value identifies; scalars, atomic lists
and atomic maps are leaves. Where there is no schema, maps have parts and lists are leaves.

Walks stop where two sides are the same Python object, so they cost what changed. Results share
everything that they can with what they were made of. ``None`` for a node of a field set means
that there is nothing below it, because an empty node is a member (see ``fieldsets``).
"""

from collections.abc import Iterator
from typing import Any

from backstay.sim.api import gotext
from backstay.sim.api.fieldsets import (
    LEAF,
    SELF,
    FieldSet,
    as_member,
    element_text,
    is_member,
    key_element,
    ordered,
    value_element,
)
from backstay.sim.api.kinds import ANY, Object, Schema, Types
from backstay.sim.api.patches import same

_MISSING: Any = object()
_NULL = type(None)

# By the type that the schema gives a scalar; None is what has parts.
_ACCEPTED: dict[str | None, frozenset[type]] = {
    "any": frozenset((str, int, float, bool, _NULL)),
    "string": frozenset((str, _NULL)),
    "integer": frozenset((int, float, _NULL)),
    "number": frozenset((int, float, _NULL)),
    "boolean": frozenset((bool, _NULL)),
    None: frozenset((_NULL,)),
}
_ZERO: dict[str | None, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False}

Nodes = tuple[FieldSet | None, FieldSet | None]


class Mismatch(Exception):
    """An object does not fit its schema; ``violations`` says where."""


def is_associative(schema: Schema) -> bool:
    """Whether it is a list whose items are parts of their own."""
    return schema.list is not None and schema.kind != "atomic"


class Structure:
    """The walks, with the types at hand. ``saw_null`` tells whether ``owned`` met a null."""

    def __init__(self, types: Types) -> None:
        self._types = types
        self.saw_null = False

    def _child(self, schema: Schema, key: str) -> Schema | None:
        """The schema of a field, resolved; None if the schema does not allow it."""
        fields = schema.fields
        node = schema.map if fields is None else fields.get(key, schema.map)
        if node is None:
            return None if fields is not None else ANY
        return node if node.ref is None else self._types.resolve(node)

    def _item(self, schema: Schema) -> Schema:
        return self._types.resolve(schema.list) if schema.list is not None else ANY

    def _element(self, item: Any, schema: Schema) -> str:
        """The path element of an item of an associative list. Raises ``Mismatch``."""
        if schema.kind == "set":
            if type(item) in (dict, list, _NULL):
                raise Mismatch
            return value_element(item)
        if type(item) is not dict:
            raise Mismatch
        key = {name: item[name] for name in schema.keys if name in item}
        if len(key) < len(schema.keys):
            key |= self._key_defaults(schema, key)
            if not key:
                raise Mismatch
        return key_element(key)

    def _key_defaults(self, schema: Schema, given: dict[str, Any]) -> dict[str, Any]:
        fields = self._item(schema).fields or {}
        declared = {name: declared_default(fields.get(name, ANY)) for name in schema.keys}
        return {k: v for k, v in declared.items() if k not in given and v is not None}

    # What an object says

    def owned(self, value: Any, schema: Schema, *, stored: bool = False) -> FieldSet | None:
        """The fields that somebody who applies ``value`` owns. Raises ``Mismatch``.

        What is ``stored`` already may have duplicates and fields that nobody declared.
        """
        kind = type(value)
        if kind is dict:
            return self._owned_map(value, schema, stored)
        if kind is list:
            return self._owned_list(value, schema, stored)
        if kind not in _ACCEPTED[schema.type] and not stored:
            raise Mismatch
        if value is None:
            self.saw_null = True
        return LEAF

    def _owned_map(self, value: Object, schema: Schema, stored: bool) -> FieldSet | None:
        if schema.list is not None or schema.type not in (None, "any"):
            raise Mismatch
        node: FieldSet = {}
        fields = schema.fields or ()
        for key in sorted(value):
            below = self._child(schema, key) or (ANY if stored else None)
            if below is None:
                raise Mismatch
            child = self.owned(value[key], below, stored=stored)
            # A key of a map is there because somebody put it there; a field of a struct is not.
            if key not in fields:
                child = LEAF if child is None else as_member(child)
            if child is not None:
                node["f:" + key] = child
        if schema.atomic or not value:
            return LEAF
        return node or None

    def _owned_list(self, value: list[Any], schema: Schema, stored: bool) -> FieldSet | None:
        if schema.list is None and schema.type != "any":
            raise Mismatch
        item_schema = self._item(schema)
        if not is_associative(schema):
            for item in value:
                self.owned(item, item_schema, stored=stored)
            return LEAF
        node: FieldSet = {}
        for item in value:
            element = self._element(item, schema)
            child = self.owned(item, item_schema, stored=stored)
            if element in node:
                if not stored:
                    raise Mismatch
                child = None
            node[element] = LEAF if child is None else as_member(child)
        return ordered(node) if node else None

    def violations(self, value: Any, schema: Schema, path: str = "") -> Iterator[str]:
        """Everything that made ``owned`` raise, worded as the server words it."""
        kind = type(value)
        if kind is dict and schema.list is None and schema.type in (None, "any"):
            for key, item in value.items():
                below = self._child(schema, key)
                if below is None:
                    yield f"{path}.{key}: field not declared in schema"
                else:
                    yield from self.violations(item, below, f"{path}.{key}")
        elif kind is list and (schema.list is not None or schema.type == "any"):
            yield from self._list_violations(value, schema, path)
        elif kind not in _ACCEPTED[schema.type]:
            yield f"{path}: {_expected(value, schema)}"

    def _list_violations(self, value: list[Any], schema: Schema, path: str) -> Iterator[str]:
        seen = set()
        for index, item in enumerate(value):
            place = f"[{index}]"
            if is_associative(schema):
                try:
                    element = self._element(item, schema)
                except Mismatch:
                    yield f"{path}: element {index}: {_unidentified(item, schema)}"
                    return
                place = element_text(element)
                if element in seen:
                    yield f"{path}: duplicate entries for key {place}"
                seen.add(element)
            yield from self.violations(item, self._item(schema), path + place)

    # What changed

    def changes(self, before: Object, after: Object, schema: Schema) -> tuple[FieldSet, FieldSet]:
        """The fields that were added or got another value, and those that were removed."""
        if before is after:
            return {}, {}
        written, removed = self._compare_maps(before, after, schema)
        return written or {}, removed or {}

    def _compare(self, old: Any, new: Any, schema: Schema) -> Nodes:
        if old is new:
            return None, None
        if old is _MISSING:
            return self._whole(new, schema), None
        if new is _MISSING:
            return None, self._whole(old, schema)
        if type(old) is dict or type(new) is dict:
            return self._compare_trees(old, new, schema)
        if is_associative(schema) and (old or new):
            return self._compare_lists(old or [], new or [], schema)
        return (None if same(old, new) else LEAF), None

    def _compare_trees(self, old: Any, new: Any, schema: Schema) -> Nodes:
        """At least one of them is a map; without a schema, the other may be anything."""
        if schema.atomic or not (old or new):
            return (None if same(old, new) else LEAF), None
        written, removed = self._compare_maps(
            old if type(old) is dict else {}, new if type(new) is dict else {}, schema
        )
        if old is not None and new is not None and type(old) is not type(new):
            written = as_member(written or LEAF)
        return written, removed

    def _compare_maps(self, old: Object, new: Object, schema: Schema) -> Nodes:
        written: FieldSet = {}
        removed: FieldSet = {}
        for key, value in new.items():
            before = old.get(key, _MISSING)
            if before is not value:
                put, gone = self._compare(before, value, self._child(schema, key) or ANY)
                if put is not None:
                    written["f:" + key] = put
                if gone is not None:
                    removed["f:" + key] = gone
        for key, value in old.items():
            if key not in new:
                removed["f:" + key] = self._whole(value, self._child(schema, key) or ANY)
        return _node(written), _node(removed)

    def _compare_lists(self, old: list[Any], new: list[Any], schema: Schema) -> Nodes:
        written: FieldSet = {}
        removed: FieldSet = {}
        olds, news = self._by_element(old, schema), self._by_element(new, schema)
        for element in olds | news:
            put, gone = self._compare_items(olds.get(element, ()), news.get(element, ()), schema)
            if put is not None:
                written[element] = put
            if gone is not None:
                removed[element] = gone
        return _node(written), _node(removed)

    def _compare_items(
        self, old: list[Any] | tuple[()], new: list[Any] | tuple[()], schema: Schema
    ) -> Nodes:
        """All items that have the same element. Items that share one are owned as a whole."""
        item = self._item(schema)
        if len(old) > 1 and len(new) > 1:
            return (None if same(old, new) else LEAF), None
        if len(old) > 1:
            return (self._whole(new[0], item) if new else None), LEAF
        if len(new) > 1:
            return LEAF, (self._whole(old[0], item) if old else None)
        return self._compare(old[0] if old else _MISSING, new[0] if new else _MISSING, item)

    def _by_element(self, items: list[Any], schema: Schema) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for item in items:
            found.setdefault(self._element(item, schema), []).append(item)
        return found

    def _whole(self, value: Any, schema: Schema) -> FieldSet:
        """Every field of a subtree that came or went as one."""
        if type(value) is dict and value and not schema.atomic:
            return {SELF: LEAF} | {
                "f:" + key: self._whole(value[key], self._child(schema, key) or ANY)
                for key in sorted(value)
            }
        if type(value) is list and value and is_associative(schema):
            node: FieldSet = {SELF: LEAF}
            for element, items in self._by_element(value, schema).items():
                node[element] = (
                    LEAF if len(items) > 1 else self._whole(items[0], self._item(schema))
                )
            return ordered(node)
        return LEAF

    def created(self, obj: Object, schema: Schema) -> FieldSet:
        """The fields that whoever creates ``obj`` owns: all that a blank object has not."""
        return self._beyond_blank(obj, schema) or {}

    def _beyond_blank(self, obj: Object, schema: Schema) -> FieldSet | None:
        node: FieldSet = {}
        fields = schema.fields or {}
        for key in sorted(obj):
            value, declared = obj[key], fields.get(key, ANY)
            below = self._child(schema, key) or ANY
            child: FieldSet | None
            if not is_always_there(declared):
                child = self._whole(value, below)
            elif type(value) is dict and declared_default(declared) == {}:
                child = self._beyond_blank(value, below)
            else:
                child = self._whole(value, below) if value != _ZERO.get(below.type) else None
                child = {k: v for k, v in child.items() if k != SELF} if child else child
            if child is not None:
                node["f:" + key] = LEAF if below.atomic else child
        return node or None

    # How two become one

    def merged(self, old: Any, new: Any, schema: Schema) -> Any:
        """``old`` with everything that ``new`` says; ``old`` itself if that is nothing new."""
        if old is new:
            return old
        if type(new) is dict and type(old) is dict and old and not schema.atomic:
            return self._merged_map(old, new, schema)
        if type(new) is list and type(old) is list and old and is_associative(schema):
            return self._merged_list(old, new, schema)
        if new is None and old and _has_parts(old, schema):
            return old
        return old if same(old, new) else new

    def _merged_map(self, old: Object, new: Object, schema: Schema) -> Object:
        result: Object | None = None
        for key, value in new.items():
            before = old.get(key, _MISSING)
            if before is not _MISSING:
                value = self.merged(before, value, self._child(schema, key) or ANY)
            if value is not before:
                if result is None:
                    result = dict(old)
                result[key] = value
        return old if result is None else result

    def _merged_list(self, old: list[Any], new: list[Any], schema: Schema) -> list[Any]:
        ours, theirs = self._by_element(old, schema), self._by_element(new, schema)
        item = self._item(schema)
        result: list[Any] = []
        for element, index in _interleaved(
            [self._element(entry, schema) for entry in old], list(theirs)
        ):
            mine, said = ours.get(element, ()), theirs.get(element)
            if said is None:
                result.append(old[index])
            else:
                result.append(self.merged(mine[0], said[0], item) if len(mine) == 1 else said[0])
        unchanged = len(result) == len(old) and all(map(_is, result, old))
        return old if unchanged else result

    def removed(self, value: Any, fields: FieldSet, schema: Schema) -> Any:
        """``value`` without the members of ``fields``; None if nothing of it is left."""
        if type(value) is dict:
            return None if schema.atomic else self._removed_from_map(value, fields, schema)
        if type(value) is not list:
            return value
        kept: list[Any] = []
        for entry in value if is_associative(schema) else ():
            below = fields.get(self._element(entry, schema))
            if below is None:
                kept.append(entry)
            elif not is_member(below):
                kept.append(self.removed(entry, below, self._item(schema)))
        return kept or None

    def _removed_from_map(self, value: Object, fields: FieldSet, schema: Schema) -> Object | None:
        kept: Object = {}
        for key, item in value.items():
            below = fields.get("f:" + key)
            if below is None:
                kept[key] = item
            elif not is_member(below):
                kept[key] = self.removed(item, below, self._child(schema, key) or ANY)
        return kept or None

    def with_structs(self, fields: FieldSet, schema: Schema) -> FieldSet:
        """The set with every struct field on the way to a member as a member too."""
        node: FieldSet = {}
        for element, below in fields.items():
            if not below:
                node[element] = below
                continue
            named = element[0] == "f" and element[2:] in (schema.fields or ())
            node[element] = self.with_structs(below, self._below(element, schema))
            if named:
                node[element] = as_member(node[element])
        return node

    def _below(self, element: str, schema: Schema) -> Schema:
        if element[0] == "f":
            return self._child(schema, element[2:]) or ANY
        return self._item(schema) if element[0] == "k" else ANY

    def decoded(self, value: Any, schema: Schema) -> Any:
        """What decoding into the kind's type leaves: a null is an absent field or a zero value."""
        if type(value) is list:
            item = self._item(schema)
            items = [self.decoded(_ZERO.get(item.type) if v is None else v, item) for v in value]
            return value if all(map(_is, items, value)) else items
        if type(value) is not dict:
            return value
        result: Object = {}
        for key, entry in value.items():
            below = self._child(schema, key) or ANY
            if entry is None and below is not ANY:
                entry = self._zero(schema, key, below)
                if entry is None:
                    continue
            result[key] = self.decoded(entry, below)
        unchanged = len(result) == len(value) and all(map(_is, result.values(), value.values()))
        return value if unchanged else result

    def _zero(self, schema: Schema, key: str, below: Schema) -> Any:
        field = (schema.fields or {}).get(key)
        if field is not None:
            return {} if declared_default(field) == {} else None
        return _ZERO.get(below.type)


def _is(left: Any, right: Any) -> bool:
    return left is right


def _node(elements: FieldSet) -> FieldSet | None:
    if len(elements) > 1:
        return ordered(elements)
    return elements or None


def _has_parts(value: Any, schema: Schema) -> bool:
    if type(value) is dict:
        return not schema.atomic
    return type(value) is list and is_associative(schema)


def _interleaved(ours: list[str], theirs: list[str]) -> Iterator[tuple[str, int]]:
    """The order of a merged list, as elements and where they are in ``ours``.

    What both have comes in their order, and what only one has stays where it was among that.
    """
    mine, wanted = set(ours), set(theirs)
    shared = [element for element in theirs if element in mine]
    done: set[str] = set()
    at = 0
    for element in theirs:
        due = shared[len(done & mine)] if len(done & mine) < len(shared) else None
        while at < len(ours) and ours[at] != element:
            if ours[at] not in wanted:
                yield ours[at], at
            elif ours[at] == due:
                break
            at += 1
        yield element, at
        if at < len(ours) and ours[at] == element:
            at += 1
        done.add(element)
    for index in range(at, len(ours)):
        if ours[index] not in wanted:
            yield ours[index], index


def declared_default(schema: Schema) -> Any:
    """The default that the type declares for a field, None if there is none."""
    return getattr(schema, "default", None)


def is_always_there(schema: Schema) -> bool:
    """Whether every object of the type has this field, with a zero value if need be."""
    return bool(getattr(schema, "always", False))


def _expected(value: Any, schema: Schema) -> str:
    if schema.fields is not None or schema.map is not None:
        return f"expected map, got &{{{gotext.plain(value)}}}"
    if schema.list is not None:
        return f"expected list, got &{{{gotext.plain(value)}}}"
    if schema.type == "string":
        return f"expected string, got &value.valueUnstructured{{Value:{gotext.literal(value)}}}"
    if schema.type == "boolean":
        return f"expected boolean, got &{{{gotext.plain(value)}}}"
    return f"expected numeric (int or float), got {gotext.type_name(value)}"


def _unidentified(item: Any, schema: Schema) -> str:
    """Why an item of an associative list has no element."""
    if schema.kind == "set":
        if type(item) is dict:
            return "associative list without keys has an element that's a map type"
        if type(item) is list:
            return "not supported: associative list with lists as elements"
        return "associative list without keys has an element that's an explicit null"
    if item is None:
        return "associative list with keys may not have a null element"
    if type(item) is not dict:
        return "associative list with keys may not have non-map elements"
    keys = " ".join(map(gotext.quoted, schema.keys))
    return (
        f"associative list with keys has an element that omits all key fields [{keys}] (and "
        "doesn't have default values for any key fields)"
    )
