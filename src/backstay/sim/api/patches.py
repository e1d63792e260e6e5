"""Patches: what an object becomes by a merge patch, a JSON patch or a strategic merge patch.

Objects are immutable. A result shares with its original every subtree that the patch did not
touch, and a patch that changes nothing gives back the very same object, so whoever comes later
finds what changed by comparing identities.

They do what kube-apiserver does, which is not always what the RFCs say: ``replace`` adds a missing
key, an index below zero counts from the end, and a JSON patch that does not apply is refused
without a word about why.
"""

from collections.abc import Callable
from operator import is_
from typing import Any

from backstay.sim.api import gotext
from backstay.sim.api.kinds import ANY, Object, Schema, Types
from backstay.sim.api.status import Refusal, bad_request

_MOST_OPERATIONS = 10_000
_STRING_FIELDS = ("op", "path", "from")
_BEHIND_THE_LAST = "-"
_ABSENT: Any = object()
_CONTAINERS = (dict, list)


def merge_patch(obj: Object, patch: Any) -> Object:
    """RFC 7386: maps merge, null deletes, everything else is replaced."""
    if patch is None:
        raise bad_request("Invalid JSON Patch")
    return _merge(obj, _a_map(patch))


def _a_map(patch: Any) -> Object:
    if type(patch) is not dict:
        kind = gotext.json_kind(patch)
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {kind} into Go value of type "
            "map[string]interface {}"
        )
    return patch


def _merge(original: Object, patch: Object) -> Object:
    changed: Object | None = None
    for key, value in patch.items():
        old = original.get(key, _ABSENT)
        new = _ABSENT if value is None else _merged(old, value)
        if new is old:
            continue
        if changed is None:
            changed = dict(original)
        if new is _ABSENT:
            del changed[key]
        else:
            changed[key] = new
    return original if changed is None else changed


def _merged(old: Any, value: Any) -> Any:
    if type(value) is dict:
        return _merge(old, value) if type(old) is dict else without_nulls(value)
    if type(value) is list and type(old) is not dict:
        value = without_nulls(value)
    return old if same(old, value) else value


def without_nulls(value: Any) -> Any:
    """The same value, with no key that is null anywhere in it."""
    if type(value) is dict:
        return {
            key: without_nulls(item) if type(item) in _CONTAINERS else item
            for key, item in value.items()
            if item is not None
        }
    return [without_nulls(item) for item in value] if type(value) is list else value


def same(left: Any, right: Any) -> bool:
    """Whether two values are the same JSON. Python alone would take ``True`` for ``1``."""
    if left is right:
        return True
    if left != right:
        return False
    if type(left) is dict:
        return all(same(value, right[key]) for key, value in left.items())
    if type(left) is list:
        return all(map(same, left, right))
    return (type(left) is bool) == (type(right) is bool)


class _Inapplicable(Exception):
    """An operation does not fit the document."""


def json_patch(obj: Object, operations: Any) -> Object:
    """RFC 6902, all of it or nothing."""
    result: Any = obj
    for operation in _decoded(operations):
        try:
            result = _apply(result, operation)
        except _Inapplicable:
            raise Refusal(
                422, "Invalid", "the server rejected our request due to an error in our request",
                details={},
            ) from None  # fmt: skip
    replaced: Object = result
    return replaced


def _decoded(operations: Any) -> list[Object]:
    if operations is None:
        return []
    if type(operations) is not list:
        raise _undecodable(operations, "value of type []handlers.jsonPatchOp")
    for operation in operations:
        if type(operation) is not dict:
            raise _undecodable(operation, "value of type handlers.jsonPatchOp")
        for field in _STRING_FIELDS:
            value = operation.get(field)
            if type(value) is not str and value is not None:
                raise _undecodable(value, f"struct field jsonPatchOp.{field} of type string")
    if len(operations) > _MOST_OPERATIONS:
        raise Refusal(
            413, "RequestEntityTooLarge",
            f"Request entity too large: The allowed maximum operations in a JSON patch is "
            f"{_MOST_OPERATIONS}, got {len(operations)}",
        )  # fmt: skip
    return operations


def _undecodable(value: Any, into: str) -> Refusal:
    return bad_request(
        f"error decoding patch: json: cannot unmarshal {gotext.json_kind(value)} into Go {into}"
    )


def _apply(document: Any, operation: Object) -> Any:
    path, value = operation.get("path"), operation.get("value")
    if path is None:
        raise _Inapplicable
    match operation.get("op"):
        case "add":
            return _changed(document, _tokens(path), _adding(value))
        case "remove":
            return _changed(document, _tokens(path), _removing)
        case "replace":
            if path == "" and type(value) is dict:
                return value
            return _changed(document, _tokens(path), _replacing(value))
        case "test":
            if not same(_found(document, path), value):
                raise _Inapplicable
            return document
        case "move":
            moved = _found(document, _from(operation))
            left = _changed(document, _tokens(_from(operation)), _removing)
            return _changed(left, _tokens(path), _adding(moved))
        case "copy":
            copied = _found(document, _from(operation))
            return _changed(document, _tokens(path), _adding(copied))
    raise _Inapplicable


def _from(operation: Object) -> str:
    source: str | None = operation.get("from")
    if not source:
        raise _Inapplicable
    return source


def _tokens(path: str) -> list[str]:
    if "/" not in path:
        raise _Inapplicable
    tokens = path.split("/")[1:]
    if "~" not in path:
        return tokens
    return [token.replace("~1", "/").replace("~0", "~") for token in tokens]


def _found(document: Any, path: str) -> Any:
    """What is at a path. The last key of a path may be missing: that reads as null."""
    if path == "":
        return document
    *way, last = _tokens(path)
    for token in way:
        document = _child(document, token)
    if type(document) is dict:
        return document.get(last)
    return _child(document, last)


def _child(container: Any, token: str) -> Any:
    if type(container) is dict and token in container:
        return container[token]
    if type(container) is list:
        return container[_index(token, len(container))]
    raise _Inapplicable


def _index(token: str, length: int) -> int:
    """As Go reads a number; one below zero counts from the end."""
    digits = token[1:] if token[:1] in ("-", "+") else token
    if not (digits.isascii() and digits.isdigit()):
        raise _Inapplicable
    index = int(token)
    if not -length <= index < length:
        raise _Inapplicable
    return index % length


Change = Callable[[Any, str], Any]
"""From a container and a key or index in it to the changed container."""


def _changed(document: Any, way: list[str], change: Change) -> Any:
    """The document with ``change`` done at the end of the way, the way to it copied."""
    token = way[0]
    if len(way) == 1:
        if type(document) not in _CONTAINERS:
            raise _Inapplicable
        return change(document, token)
    old = _child(document, token)
    return _replacing(_changed(old, way[1:], change))(document, token)


def _adding(value: Any) -> Change:
    def add(container: Any, token: str) -> Any:
        if type(container) is dict:
            return {**container, token: value}
        places = len(container) + 1
        index = places - 1 if token == _BEHIND_THE_LAST else _index(token, places)
        return [*container[:index], value, *container[index:]]

    return add


def _replacing(value: Any) -> Change:
    def replace(container: Any, token: str) -> Any:
        if type(container) is dict:
            return {**container, token: value}
        index = _index(token, len(container))
        return [*container[:index], value, *container[index + 1 :]]

    return replace


def _removing(container: Any, token: str) -> Any:
    if type(container) is dict:
        if token not in container:
            raise _Inapplicable
        return {key: value for key, value in container.items() if key != token}
    index = _index(token, len(container))
    return [*container[:index], *container[index + 1 :]]


_SIGN = "$"
"""Every directive begins with it, and hardly any field does."""

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder"
_DELETE = "$deleteFromPrimitiveList"


def strategic_patch(obj: Object, patch: Any, schema: Schema, types: Types) -> Object:
    """Kubernetes' own: maps merge, and lists merge where their schema says by which key."""
    if patch is None:
        return obj
    if type(patch) is not dict:
        raise bad_request(
            f"json: cannot unmarshal {gotext.json_kind(patch)} into Go value of type "
            "map[string]interface {}"
        )
    return _Strategic(types).map(obj, patch, schema)


def _failed(message: str) -> Refusal:
    """The server has no code of its own for most of what can be wrong with such a patch."""
    return Refusal(500, "", message)


class _Strategic:
    """A walk along object, patch and schema at once."""

    def __init__(self, types: Types) -> None:
        self._types = types

    def map(self, original: Object, patch: Object, schema: Schema) -> Object:
        if _DIRECTIVE in patch:
            return _directed(patch)
        result = _retained(original, patch) if _RETAIN in patch else dict(original)
        done = {_RETAIN}
        for key in patch:
            if key[:1] == _SIGN and key.startswith(_ORDER):
                done |= {key, self._set_order(result, patch, key, schema)}
        for key, value in patch.items():
            if type(value) is str and key[:1] != _SIGN:
                # Most of what is patched; nothing of the long way makes a difference to it.
                if key not in result or result[key] != value:
                    result[key] = value
            elif key not in done:
                self._merge_field(result, key, value, schema)
        for key, value in original.items():
            if key not in result or result[key] is not value:
                return result
        return original if len(result) == len(original) else result

    def _merge_field(self, result: Object, key: str, value: Any, schema: Schema) -> None:
        deleting = key[:1] == _SIGN and key.startswith(_DELETE)
        if deleting:
            key = _list_of(key, _DELETE, "invalid patch format of primitive list")
        old = result.get(key)
        if value is None:
            result.pop(key, None)
        elif type(value) is dict and type(old) is dict:
            node = self._field(schema, key)
            result[key] = _as_is(value) if node.patch == "replace" else self.map(old, value, node)
        elif type(value) is list and type(old) is list:
            result[key] = self._list(old, value, self._list_field(schema, key), deleting=deleting)
        elif deleting:
            return
        elif type(value) is dict and _DIRECTIVE in value:
            result.pop(key, None)
        elif not same(old, value):
            result[key] = _new(value)

    def _field(self, schema: Schema, key: str) -> Schema:
        """The schema of a field as it is declared: a reference keeps its name."""
        resolved = self._types.resolve(schema)
        if resolved.fields is None:
            return resolved.map or ANY
        field = resolved.fields.get(key)
        if field is None:
            name = (schema.ref or "").rpartition(".")[2]
            raise _failed(f'unable to find api field in struct {name} for the json field "{key}"')
        return field

    def _list_field(self, schema: Schema, key: str) -> Schema:
        return self._types.resolve(self._field(schema, key))

    def _list(self, original: list[Any], patch: list[Any], node: Schema, *, deleting: bool) -> Any:
        if not deleting and not _merges(node):
            return original if same(original, patch) else _as_is(patch)
        if not original and not patch:
            return original
        if _element_type(original, patch) is not dict:
            if deleting:
                return [item for item in original if item not in patch]
            merged = list(dict.fromkeys([*original, *patch]))
        elif node.merge_key is None:
            raise _failed("cannot merge lists without merge key for struct")
        else:
            original, patch = _without_directives(original, patch, node.merge_key)
            merged = self._merge_items(original, patch, node)
        result = _in_order(merged, patch, original, node.merge_key)
        return original if _identical(original, result) else result

    def _merge_items(self, original: list[Any], patch: list[Any], node: Schema) -> list[Any]:
        assert node.merge_key is not None
        key = node.merge_key
        merged = list(original)
        for item in patch:
            value = _merge_value(item, key)
            for index, old in enumerate(merged):
                if key in old and old[key] == value and same(old[key], value):
                    merged[index] = self.map(old, item, node.list or ANY)
                    break
            else:
                merged.append(_as_is(item))
        return merged

    def _set_order(self, result: Object, patch: Object, directive: str, schema: Schema) -> str:
        """Merges one list as its ``$setElementOrder`` asks; returns the key that it is of."""
        order = _a_list(patch[directive])
        key = _list_of(directive, _ORDER, "invalid patch format of setElementOrder list")
        original = _a_list(result[key]) if key in result else []
        changes = _a_list(patch[key]) if key in patch else []
        node = self._list_field(schema, key)
        _check_order(changes, order, node.merge_key)
        if key in result and key in patch:
            merged = self._list(original, changes, node, deleting=False)
        elif key in result or key in patch:
            merged = original or [_new(item) for item in changes if not _is_directive(item)]
        else:
            return key
        _element_type(original, changes)
        result[key] = _in_order(merged, order, original, node.merge_key)
        if _identical(original, result[key]):
            result[key] = original
        return key


def _directed(patch: Object) -> Object:
    if patch[_DIRECTIVE] == "replace":
        replaced: Object = _as_is(patch)
        return replaced
    if patch[_DIRECTIVE] == "delete":
        return {}
    raise _unknown_directive(patch)


def _unknown_directive(patch: Object) -> Refusal:
    return _failed(
        f"unknown patch type: {gotext.plain(patch[_DIRECTIVE])} in map: {gotext.plain(patch)}"
    )


def _retained(original: Object, patch: Object) -> Object:
    """Only the keys that ``$retainKeys`` lists; the patch must not set any other."""
    kept = patch[_RETAIN]
    said = (key for key, v in patch.items() if v is not None and not _is_parallel(key))
    if type(kept) is not list or any(key not in kept for key in said):
        raise bad_request("invalid patch format of retainKeys")
    return {key: value for key, value in original.items() if key in kept}


def _is_parallel(key: str) -> bool:
    return key[:1] == _SIGN and (key == _RETAIN or key.startswith((_ORDER, _DELETE)))


def _list_of(key: str, prefix: str, otherwise: str) -> str:
    head, slash, name = key.partition("/")
    if head != prefix or not slash:
        raise bad_request(otherwise)
    return name


def _a_list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise _failed(f"expected a []interface {{}}, but received a {gotext.type_name(value)}")
    return value


def _merges(node: Schema) -> bool:
    return node.patch is not None and "merge" in node.patch.split(",")


def _is_directive(item: Any) -> bool:
    return type(item) is dict and _DIRECTIVE in item


def _element_type(*lists: list[Any]) -> type:
    """The one type that all items have."""
    found = {type(item) for items in lists for item in items}
    if len(found) > 1:
        raise _failed(f"list element types are not identical: {gotext.plain(list(lists))}")
    if not found:
        raise _failed("no elements in any of the given slices")
    if found == {list}:
        raise Refusal(
            422, "Invalid", "the server rejected our request due to an error in our request",
            details={},
        )  # fmt: skip
    return found.pop()


def _merge_value(item: Any, key: str) -> Any:
    if type(item) is not dict:
        raise _failed(
            f"expected a map[string]interface {{}}, but received a {gotext.type_name(item)}"
        )
    if key not in item:
        raise _failed(f"map: {gotext.plain(item)} does not contain declared merge key: {key}")
    return item[key]


def _without_directives(
    original: list[Any], patch: list[Any], key: str
) -> tuple[list[Any], list[Any]]:
    """What is left of both when the patch's ``$patch`` items have had their effect."""
    plain = [item for item in patch if _DIRECTIVE not in item]
    if len(plain) == len(patch):
        return original, patch
    for item in patch:
        directive = item.get(_DIRECTIVE, "replace")
        if directive == "delete":
            gone = _merge_value(item, key)
            original = [old for old in original if not same(old.get(key), gone)]
        elif directive == "merge":
            raise _failed("merging lists cannot yet be specified in the patch")
        elif directive != "replace":
            raise _unknown_directive(item)
    if any(item.get(_DIRECTIVE) == "replace" for item in patch):
        return [_as_is(item) for item in plain], []
    return original, plain


def _check_order(patch: list[Any], order: list[Any], key: str | None) -> None:
    """The patch's items must be among those of the order list, in the same order."""
    if not patch or not order:
        return
    waiting = iter(order)
    for item in patch:
        if key is not None and _is_directive(item):
            continue
        value = item if key is None else _merge_value(item, key)
        if not any(same(value, o if key is None else _merge_value(o, key)) for o in waiting):
            raise _failed(
                f"The order in patch list:\n{gotext.plain(patch)}\n doesn't match {_ORDER} list:\n"
                f"{gotext.plain(order)}\n"
            )


def _in_order(merged: list[Any], asked: list[Any], live: list[Any], key: str | None) -> list[Any]:
    """The items that ``asked`` names in its order, the others in theirs, interleaved as they were.

    Neither order is ever broken; an item of the others comes before the first asked-for item
    that it came before in ``live``.
    """
    if (names := _names(merged, key)) and names == _names(asked, key):
        return merged
    wanted = _positions(asked, key)
    before = _positions(live, key)
    named: list[Any] = []
    others: list[Any] = []
    for item in merged:
        (named if _value(item, key) in wanted else others).append(item)
    named.sort(key=lambda item: wanted[_value(item, key)])
    others.sort(key=lambda item: before.get(_value(item, key), len(before)))
    result: list[Any] = []
    for item in named:
        place = before.get(_value(item, key), -1)
        while others and before.get(_value(others[0], key), place) < place:
            result.append(others.pop(0))
        result.append(item)
    return result + others


def _names(items: list[Any], key: str | None) -> list[str]:
    """What tells items apart if that is a text for each, as it mostly is; otherwise nothing."""
    try:
        names = items if key is None else [item[key] for item in items]
    except (KeyError, TypeError):
        return []
    return names if set(map(type, names)) == {str} and len(set(names)) == len(names) else []


def _value(item: Any, key: str | None) -> Any:
    """What tells an item from others; only a value can."""
    value = item if key is None else _merge_value(item, key)
    if type(value) in _CONTAINERS:
        raise _failed(f"runtime error: hash of unhashable type {gotext.type_name(value)}")
    return value


def _positions(items: list[Any], key: str | None) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for index, item in enumerate(items):
        if key is not None and type(item) is not dict:
            raise _failed(f"value for key {index} is not a map")
        found.setdefault(_value(item, key), index)
    return found


def _identical(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(map(is_, left, right))


def _as_is(value: Any) -> Any:
    """A value taken over whole: what decoding it leaves, which is no directive and no null."""
    if type(value) is dict:
        return {
            key: _as_is(item) if type(item) in _CONTAINERS else item
            for key, item in value.items()
            if item is not None
            and (key[:1] != _SIGN or (key != _DIRECTIVE and not _is_parallel(key)))
        }
    return [_as_is(item) for item in value] if type(value) is list else value


def _new(value: Any) -> Any:
    """A value for a field that was not there: what it says to delete is not there either."""
    if type(value) is dict:
        return {
            key: _new(item) if type(item) in _CONTAINERS else item
            for key, item in value.items()
            if item is not None
            and (key[:1] != _SIGN or not _is_parallel(key))
            and not (type(item) is dict and _DIRECTIVE in item)
        }
    if type(value) is list:
        return [_new(item) for item in value if not _is_directive(item)]
    return value
