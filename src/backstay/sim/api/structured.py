"""Objects seen through their shape: which fields one has, what changed, how two become one.

The shape says what is one thing and what has parts. Structs and maps have their fields, an
associative list has items that keys or their value identify; scalars, atomic lists and atomic
maps are leaves. Where there is no schema, maps have parts and lists are leaves.

Walks stop where two sides are the same or equal, so they cost what differs. Results share
everything that they can with what they were made of. ``None`` for a node of a field set means
that there is nothing below it, because an empty node is a member (see ``fieldsets``).
"""

from collections.abc import Iterator, Sequence
from itertools import repeat
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
from backstay.sim.api.kinds import Object
from backstay.sim.api.patches import same
from backstay.sim.api.shapes import Shape, fits, plan_for, signature

_MISSING: Any = object()
_CONTAINERS = (dict, list)
_ZERO: dict[str | None, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False}

Nodes = tuple[FieldSet | None, FieldSet | None]


class Mismatch(Exception):
    """An object does not fit its shape; ``violations`` says where."""


def _element(item: Any, shape: Shape) -> str:
    """What identifies an item of an associative list. Raises ``Mismatch``."""
    keys = shape.keys
    if not keys:
        if item is None or type(item) in _CONTAINERS:
            raise Mismatch
        return value_element(item)
    if type(item) is not dict:
        raise Mismatch
    key: list[Any] = []
    for name in keys:
        value = item[name] if name in item else shape.item.default(name)
        if type(value) in _CONTAINERS:
            raise Mismatch
        if value is not None or name in item:
            key += (name, value)
    if not key:
        raise Mismatch
    return key_element(*key)


def _elements(items: list[Any], shape: Shape) -> list[str]:
    """The elements of all items of an associative list. Raises ``Mismatch``."""
    if shape.only_key is not None:
        try:
            return list(map(key_element, repeat(shape.keys[0]), map(shape.only_key, items)))
        except (KeyError, TypeError):
            # A key is missing or is none; find out which.
            pass
    return [_element(item, shape) for item in items]


def _by_element(items: list[Any], shape: Shape) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for element, item in zip(_elements(items, shape), items, strict=True):
        found.setdefault(element, []).append(item)
    return found


# What an object says


class Ownership:
    """The fields that somebody who applies a value owns.

    ``saw_blank`` says that there was a null or something empty in it (see ``decoded``).
    """

    def __init__(self) -> None:
        self.saw_blank = False

    def of(self, value: Any, shape: Shape) -> FieldSet | None:
        """Raises ``Mismatch``."""
        kind = type(value)
        if kind is dict:
            return self._of_map(value, shape)
        if kind is list:
            return self._of_list(value, shape)
        if kind not in shape.scalars:
            raise Mismatch
        return LEAF

    def _of_map(self, value: Object, shape: Shape) -> FieldSet | None:
        plan = plan_for(shape, signature(value))
        if plan is None:
            raise Mismatch
        if plan.has_blank:
            self.saw_blank = True
        if not plan.parts:
            return plan.node
        node = dict(plan.node)
        for key, element, below, declared in plan.parts:
            part = value[key]
            child = self._of_map(part, below) if type(part) is dict else self._of_list(part, below)
            # A key of a map is there because somebody put it there; a field of a struct is not.
            if not declared:
                child = LEAF if child is None else as_member(child)
            if child is None:
                node.pop(element, None)
            else:
                node[element] = child
        return LEAF if shape.atomic else node or None

    def _of_list(self, value: list[Any], shape: Shape) -> FieldSet | None:
        if not value:
            self.saw_blank = True
        if not shape.associative:
            if not shape.item.scalars.issuperset(map(type, value)):
                for item in value:
                    self.of(item, shape.item)
            return LEAF
        elements = _elements(value, shape)
        if len(set(elements)) < len(elements):
            raise Mismatch
        return ordered(self._of_items(elements, value, shape)) if elements else None

    def _of_items(self, elements: list[str], items: list[Any], shape: Shape) -> FieldSet:
        below = shape.item
        signatures = {signature(item) for item in items} if shape.keys else ()
        if len(signatures) == 1:
            # Items that are all of a kind and have no parts, as most are, own the same.
            plan = plan_for(below, *signatures)
            if plan is not None and not (plan.parts or plan.has_blank):
                return dict.fromkeys(elements, plan.member)
        node: FieldSet = {}
        for element, item in zip(elements, items, strict=True):
            child = self.of(item, below)
            node[element] = LEAF if child is None else as_member(child)
        return node


def violations(value: Any, shape: Shape, path: str = "") -> Iterator[str]:
    """Everything that made ``Ownership`` raise, worded as the server words it."""
    kind = type(value)
    if not fits(kind, shape):
        yield f"{path}: {_expected(value, shape)}"
    elif kind is dict:
        for key, item in value.items():
            below = shape.children[key]
            if below is None:
                yield f"{path}.{key}: field not declared in schema"
            else:
                yield from violations(item, below, f"{path}.{key}")
    elif kind is list:
        yield from _list_violations(value, shape, path)


def _list_violations(value: list[Any], shape: Shape, path: str) -> Iterator[str]:
    seen = set()
    for index, item in enumerate(value):
        place = f"[{index}]"
        if shape.associative:
            try:
                element = _element(item, shape)
            except Mismatch:
                yield f"{path}: element {index}: {_unidentified(item, shape)}"
                return
            place = element_text(element)
            if element in seen:
                yield f"{path}: duplicate entries for key {place}"
            seen.add(element)
        yield from violations(item, shape.item, path + place)


def _expected(value: Any, shape: Shape) -> str:
    if shape.is_map:
        return f"expected map, got &{{{gotext.plain(value)}}}"
    if shape.is_list:
        return f"expected list, got &{{{gotext.plain(value)}}}"
    if shape.schema.type == "string":
        return f"expected string, got &value.valueUnstructured{{Value:{gotext.literal(value)}}}"
    if shape.schema.type == "boolean":
        return f"expected boolean, got &{{{gotext.plain(value)}}}"
    return f"expected numeric (int or float), got {gotext.type_name(value)}"


def _unidentified(item: Any, shape: Shape) -> str:
    """Why an item of an associative list has no element."""
    if not shape.keys:
        if type(item) is dict:
            return "associative list without keys has an element that's a map type"
        if type(item) is list:
            return "not supported: associative list with lists as elements"
        return "associative list without keys has an element that's an explicit null"
    if item is None:
        return "associative list with keys may not have a null element"
    if type(item) is not dict:
        return "associative list with keys may not have non-map elements"
    keys = " ".join(map(gotext.quoted, shape.schema.keys))
    return (
        f"associative list with keys has an element that omits all key fields [{keys}] (and "
        "doesn't have default values for any key fields)"
    )


# What changed


def changes(before: Object, after: Object, shape: Shape) -> tuple[FieldSet, FieldSet]:
    """The fields that were added or got another value, and those that were removed."""
    if before is after:
        return {}, {}
    written, removed = _compare_maps(before, after, shape)
    return written or {}, removed or {}


def _compare(old: Any, new: Any, shape: Shape) -> Nodes:
    if old == new and (not shape.loose or same(old, new)):
        return None, None
    if type(old) is dict or type(new) is dict:
        return _compare_trees(old, new, shape)
    if shape.associative and (old or new):
        return _compare_lists(old or [], new or [], shape)
    return LEAF, None


def _compare_trees(old: Any, new: Any, shape: Shape) -> Nodes:
    """At least one of them is a map; without a schema, the other may be anything."""
    if shape.atomic or not (old or new):
        return LEAF, None
    written, removed = _compare_maps(
        old if type(old) is dict else {}, new if type(new) is dict else {}, shape
    )
    if old is not None and new is not None and type(old) is not type(new):
        written = as_member(written or LEAF)
    return written, removed


def _compare_maps(old: Object, new: Object, shape: Shape) -> Nodes:
    written: FieldSet = {}
    removed: FieldSet = {}
    for key, value in new.items():
        if key not in old:
            written["f:" + key] = _whole(value, shape.children[key] or shape.free)
        elif old[key] is not value:
            put, gone = _compare(old[key], value, shape.children[key] or shape.free)
            if put is not None:
                written["f:" + key] = put
            if gone is not None:
                removed["f:" + key] = gone
    for key in old:
        if key not in new:
            removed["f:" + key] = _whole(old[key], shape.children[key] or shape.free)
    return (
        ordered(written) if len(written) > 1 else written or None,
        ordered(removed) if removed else None,
    )


def _compare_lists(old: list[Any], new: list[Any], shape: Shape) -> Nodes:
    written: FieldSet = {}
    removed: FieldSet = {}
    olds, news = _by_element(old, shape), _by_element(new, shape)
    for element in olds | news:
        put, gone = _compare_items(olds.get(element, ()), news.get(element, ()), shape.item)
        if put is not None:
            written[element] = put
        if gone is not None:
            removed[element] = gone
    return (
        ordered(written) if len(written) > 1 else written or None,
        ordered(removed) if removed else None,
    )


def _compare_items(old: Sequence[Any], new: Sequence[Any], shape: Shape) -> Nodes:
    """All items that have the same element. Items that share one are owned as a whole."""
    if len(old) > 1 and len(new) > 1:
        return (None if same(old, new) else LEAF), None
    if len(old) > 1:
        return (_whole(new[0], shape) if new else None), LEAF
    if len(new) > 1:
        return LEAF, (_whole(old[0], shape) if old else None)
    if not new:
        return None, _whole(old[0], shape)
    if not old:
        return _whole(new[0], shape), None
    return (None, None) if old[0] is new[0] else _compare(old[0], new[0], shape)


def _whole(value: Any, shape: Shape) -> FieldSet:
    """Every field of a subtree that came or went as one."""
    if type(value) is dict and value and not shape.atomic:
        plan = plan_for(shape, signature(value), stored=True)
        assert plan is not None
        if not plan.parts:
            return plan.member
        node = dict(plan.member)
        for part in plan.parts:
            node[part.element] = _whole(value[part.key], part.shape)
        return node
    if type(value) is list and value and shape.associative:
        items = _by_element(value, shape)
        return ordered({SELF: LEAF} | {
            element: LEAF if len(same_key) > 1 else _whole(same_key[0], shape.item)
            for element, same_key in items.items()
        })  # fmt: skip
    return LEAF


def created(obj: Object, shape: Shape) -> FieldSet:
    """The fields that whoever creates ``obj`` owns: all that a blank object has not."""
    return _beyond_blank(obj, shape) or {}


def _beyond_blank(obj: Object, shape: Shape) -> FieldSet | None:
    node: FieldSet = {}
    declared = shape.schema.fields or {}
    for key in sorted(obj):
        value = obj[key]
        below = shape.children[key] or shape.free
        child: FieldSet | None
        if key not in declared or not declared[key].always:
            child = _whole(value, below) if type(value) in _CONTAINERS else LEAF
        elif type(value) is dict and declared[key].default == {}:
            child = _beyond_blank(value, below)
        elif value == _ZERO.get(below.schema.type):
            child = None
        else:
            child = {k: v for k, v in _whole(value, below).items() if k != SELF}
        if child is not None:
            node["f:" + key] = LEAF if below.atomic else child
    return node or None


# How two become one


def merged(old: Any, new: Any, shape: Shape) -> Any:
    """``old`` with everything that ``new`` says; ``old`` itself if that is nothing new."""
    if old is new or (old == new and (not shape.loose or same(old, new))):
        return old
    if type(new) is dict and type(old) is dict and old and not shape.atomic:
        return _merged_map(old, new, shape)
    if type(new) is list and type(old) is list and old and shape.associative:
        return _merged_list(old, new, shape)
    if new is None and old and _has_parts(old, shape):
        return old
    return new


def _has_parts(value: Any, shape: Shape) -> bool:
    if type(value) is dict:
        return not shape.atomic
    return type(value) is list and shape.associative


def _merged_map(old: Object, new: Object, shape: Shape) -> Object:
    result: Object | None = None
    for key, value in new.items():
        before = old.get(key, _MISSING)
        if before is not _MISSING:
            value = merged(before, value, shape.children[key] or shape.free)
        if value is not before:
            if result is None:
                result = dict(old)
            result[key] = value
    return old if result is None else result


def _merged_list(old: list[Any], new: list[Any], shape: Shape) -> list[Any]:
    """Items of ``new`` are known to be different from each other."""
    ours = _elements(old, shape)
    theirs = dict(zip(_elements(new, shape), new, strict=True))
    result: list[Any] = []
    for element, index in _interleaved(ours, list(theirs)):
        if element not in theirs:
            result.append(old[index])
        elif index < 0 or ours.count(element) > 1:
            result.append(theirs[element])
        else:
            result.append(merged(old[index], theirs[element], shape.item))
    return old if len(result) == len(old) and all(map(_is, result, old)) else result


def _is(left: Any, right: Any) -> bool:
    return left is right


def _interleaved(ours: list[str], theirs: list[str]) -> Iterator[tuple[str, int]]:
    """The order of a merged list: elements, and where they are in ``ours`` (-1: nowhere).

    What both have comes in their order, and what only one has stays where it was among that.
    """
    if ours == theirs:
        yield from zip(ours, range(len(ours)), strict=True)
        return
    where = {element: index for index, element in reversed(list(enumerate(ours)))}
    wanted = set(theirs)
    due = [element for element in theirs if element in where]
    at = 0
    for element in theirs:
        shared = element in where
        while at < len(ours) and ours[at] != element:
            if ours[at] not in wanted:
                yield ours[at], at
            elif due and ours[at] == due[0] and not shared:
                break
            elif not due:
                # Merged before: no reason to let more of ours go first.
                at += 1
                break
            at += 1
        yield element, where.get(element, -1)
        if shared:
            due.pop(0)
            at += at < len(ours) and ours[at] == element
    for index in range(at, len(ours)):
        if ours[index] not in wanted:
            yield ours[index], index


def removed(value: Any, fields: FieldSet, shape: Shape) -> Any:
    """``value`` without the members of ``fields``. What nothing is left of is null."""
    if type(value) is dict and not shape.atomic:
        kept: Object | list[Any] = {}
        for key, item in value.items():
            below = fields.get("f:" + key)
            if below is None:
                kept[key] = item
            elif not is_member(below):
                kept[key] = removed(item, below, shape.children[key] or shape.free)
    elif type(value) is list and shape.associative:
        kept = []
        for item in value:
            below = fields.get(_element(item, shape))
            if below is None:
                kept.append(item)
            elif not is_member(below):
                kept.append(removed(item, below, shape.item))
    else:
        return value
    return kept or (None if value else value)


def given_up(
    last: FieldSet, mine: FieldSet, claimed: FieldSet, shape: Shape, *, covered: bool = False
) -> FieldSet:
    """What an applier had claimed the last time and is to be removed, because nobody claims it.

    ``claimed`` is what anybody claims now, ``mine`` what the applier itself does. A struct on the
    way to a claimed field counts as claimed too, on either side, so it goes when the last claim
    to anything in it goes, and takes along what is in it of nobody's. ``covered`` says that
    such a struct, or whatever else was claimed, is above.
    """
    gone: FieldSet = {}
    for element, ours in last.items():
        if element == SELF or mine.get(element) == ours:
            continue
        declared, below = _step(element, shape)
        had = declared or is_member(ours)
        theirs = claimed.get(element)
        if theirs is not None and (declared or is_member(theirs)):
            node = given_up(ours, mine.get(element, LEAF), theirs, below, covered=covered or had)
        elif had:
            gone[element] = LEAF
            continue
        elif covered:
            node = _with_structs(ours, below)
        else:
            node = given_up(ours, mine.get(element, LEAF), theirs or LEAF, below)
        if node:
            gone[element] = node
    return gone


def _with_structs(fields: FieldSet, shape: Shape) -> FieldSet:
    """The set with every struct field on the way to a member as a member too."""
    node: FieldSet = {}
    for element, ours in fields.items():
        declared, below = _step(element, shape)
        child = _with_structs(ours, below)
        node[element] = as_member(child) if declared else child
    return node


def _step(element: str, shape: Shape) -> tuple[bool, Shape]:
    """Whether an element is a declared field, and the shape below it."""
    if element[0] == "f":
        name = element[2:]
        return shape.declares(name), shape.children[name] or shape.free
    return False, shape.item


def decoded(value: Any, shape: Shape, old: Any = _MISSING) -> Any:
    """What decoding into a built-in type leaves of a value; ``old`` has been decoded before.

    Such a type knows no null: it is an absent field, or a zero value where there are no fields.
    A list or map of a struct that is empty is absent too, unless the struct always has it.
    """
    if value is old:
        return value
    if type(value) is list:
        known = {id(item): item for item in old} if type(old) is list else {}
        zero = _ZERO.get(shape.item.schema.type)
        items = [
            decoded(zero if item is None else item, shape.item, known.get(id(item), _MISSING))
            for item in value
        ]
        return value if all(map(_is, items, value)) else items
    if type(value) is not dict:
        return value
    before = old if type(old) is dict else {}
    result: Object = {}
    for key, entry in value.items():
        below, known_entry = shape.children[key] or shape.free, before.get(key, _MISSING)
        if not entry and below.typed and entry is not known_entry:
            entry = _decoded_blank(entry, shape, key, below)
            if entry is None:
                continue
        result[key] = decoded(entry, below, known_entry)
    unchanged = len(result) == len(value) and all(map(_is, result.values(), value.values()))
    return value if unchanged else result


def _decoded_blank(value: Any, shape: Shape, key: str, below: Shape) -> Any:
    """A null, a zero or something empty; None if it is no longer there."""
    if not shape.declares(key):
        return _ZERO.get(below.schema.type) if value is None else value
    if value is None:
        return {} if shape.always_has(key) and shape.default(key) == {} else None
    listed = below.schema.list is not None or below.schema.map is not None
    return None if listed and not shape.always_has(key) else value
