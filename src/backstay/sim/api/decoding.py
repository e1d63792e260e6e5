"""Decoding: what a built-in kind makes of JSON that a client sent.

Fields that the kind does not have are dropped, and reported to clients that want to know; a value
of another type than its field's is refused. Custom resources are not decoded into anything: what
becomes of theirs is said by their definition.
"""

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

from backstay.sim.api import gotext
from backstay.sim.api.kinds import KindInfo, Kinds, Object, Schema, Types
from backstay.sim.api.status import bad_request
from backstay.sim.api.values import DECODERS, Unreadable

_ACCEPTED: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_GO_TYPES = {"string": "string", "boolean": "bool", "integer": "int32", "number": "float64"}
_GO_FORMATS = {"int64": "int64", "byte": "[]uint8"}
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=\r\n]")
_TEXT = "string"
_TEXTS = frozenset({str})
_WIDTHS = {None: 2**31, "int64": 2**63}


class Mismatch(Exception):
    """A value of the wrong type; the text is the decoder's."""


def decoded(info: KindInfo, sent: Object, kinds: Kinds) -> tuple[Object, list[str]]:
    """The object without what its kind does not know, and the paths of that. Raises a
    ``Refusal`` for what cannot be decoded."""
    unknown: list[str] = []
    try:
        obj = known(info, sent, kinds, unknown)
    except Mismatch as error:
        raise bad_request(
            f'{info.kind} in version "{info.version}" cannot be handled as a {info.kind}: {error}'
        ) from None
    return obj, unknown


def known(info: KindInfo, sent: Object, kinds: Kinds, unknown: list[str]) -> Object:
    """The same for an object or a merge patch of one. Raises ``Mismatch``."""
    walk = _Walk(kinds.types, unknown)
    kept: Object = walk.value(sent, kinds.schema(info), (None, "struct", info.kind))
    return kept


_Place: TypeAlias = tuple["_Place | None", Literal["struct", "field", "item", "key"], str | int]
"""Where a walk is: the last step, and where that was made from. It is put into words only when
there is something to say about it, because there hardly ever is."""


class _Described(NamedTuple):
    """A place in words: the innermost struct and the fields in it, as the decoder says it, and
    the whole path, as people do."""

    struct: str
    fields: str
    path: str


def _described(place: _Place) -> _Described:
    before, step, name = place
    struct, fields, path = _described(before) if before is not None else _Described("", "", "")
    match step:
        case "struct":
            struct = str(name).rpartition(".")[2]
        case "field":
            fields, path = f"{fields}.{name}", f"{path}.{name}" if path else str(name)
        case "item":
            path = f"{path}[{name}]"
        case "key":
            path = f"{path}.{name}"
    return _Described(struct, fields, path)


class _Walk:
    def __init__(self, types: Types, unknown: list[str]) -> None:
        self._types = types
        self._unknown = unknown

    def value(self, value: Any, schema: Schema, place: _Place) -> Any:
        if value is None:
            return None
        resolved = schema
        if schema.ref is not None:
            if schema.ref in DECODERS:
                # Some types with a name of their own decode themselves.
                return _decoded_by(DECODERS[schema.ref], value)
            resolved = self._types.resolve(schema)
        if resolved.fields is not None:
            if type(value) is not dict:
                raise _mismatch(value, schema, place)
            inside: _Place = (place, "struct", schema.ref) if schema.ref else place
            return self._struct(value, resolved.fields, inside)
        if resolved.map is not None:
            if type(value) is not dict:
                raise _mismatch(value, schema, place)
            return self._map(value, resolved.map, place)
        if resolved.list is not None:
            below = resolved.list
            if type(value) is not list:
                raise _mismatch(value, schema, place)
            return [self.value(v, below, (place, "item", n)) for n, v in enumerate(value)]
        return _plain(value, schema, resolved, place)

    def _map(self, value: Object, below: Schema, place: _Place) -> Object:
        plain = below.type == _TEXT and below.format is None
        if plain and _TEXTS.issuperset(map(type, value.values())):
            return value
        return {k: self.value(v, below, (place, "key", k)) for k, v in value.items()}

    def _struct(self, value: Object, fields: dict[str, Schema], place: _Place) -> Object:
        kept = {}
        for name, each in value.items():
            if name in fields:
                schema = fields[name]
                # Most fields are plain texts, which are what they are.
                if type(each) is not str or schema.type != _TEXT or schema.format is not None:
                    each = self.value(each, schema, (place, "field", name))
                kept[name] = each
            elif name.startswith("$"):
                kept[name] = each
            else:
                self._unknown.append(_described((place, "field", name)).path)
        return kept


def _plain(value: Any, schema: Schema, resolved: Schema, place: _Place) -> Any:
    if schema.ref is None and resolved.type in _ACCEPTED:
        if not _fits(value, resolved):
            raise _mismatch(value, schema, place)
        if resolved.format == "byte":
            _check_base64(value)
    return value


def _decoded_by(decode: Callable[[Any], str], value: Any) -> str:
    try:
        return decode(value)
    except Unreadable as error:
        raise Mismatch(str(error)) from None


def _fits(value: Any, schema: Schema) -> bool:
    if type(value) not in _ACCEPTED[schema.type or ""]:
        return False
    if schema.type != "integer":
        return True
    width = _WIDTHS[schema.format]
    return bool(-width <= value < width)


def _check_base64(text: str) -> None:
    wrong = _NOT_BASE64.search(text)
    at = wrong.start() if wrong else len(text) // 4 * 4 if len(text) % 4 else None
    if at is not None:
        raise Mismatch(f"illegal base64 data at input byte {at}")


def _mismatch(value: Any, schema: Schema, place: _Place) -> Mismatch:
    kind = gotext.json_kind(value)
    if kind == "number" and schema.type == "integer":
        kind = f"number {gotext.plain(value)}"
    where = _described(place)
    return Mismatch(
        f"json: cannot unmarshal {kind} into Go struct field "
        f"{where.struct}{where.fields} of type {_go_type(schema)}"
    )


def _go_type(schema: Schema) -> str:
    if schema.ref is not None:
        return ".".join(schema.ref.split(".")[-2:])
    if schema.map is not None:
        return f"map[string]{_go_type(schema.map)}"
    if schema.list is not None:
        return f"[]{_go_type(schema.list)}"
    if schema.format is not None:
        return _GO_FORMATS[schema.format]
    return _GO_TYPES.get(schema.type or "", "interface {}")
