"""Decoding: what a built-in kind makes of JSON that a client sent.

Fields that the kind does not have are dropped, and reported to clients that want to know; a value
of another type than its field's is refused. Custom resources are not decoded into anything: what
becomes of theirs is said by their definition.
"""

import re
from collections.abc import Callable
from typing import Any

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
    kept: Object = walk.value(sent, kinds.schema(info), _Place(info.kind))
    return kept


class _Place:
    """Where a walk is: the path for people, and the innermost struct for the decoder's words."""

    __slots__ = ("fields", "path", "struct")

    def __init__(self, struct: str, path: str = "", fields: str = "") -> None:
        self.struct = struct
        self.path = path
        self.fields = fields

    def field(self, name: str) -> "_Place":
        path = f"{self.path}.{name}" if self.path else name
        return _Place(self.struct, path, f"{self.fields}.{name}")

    def item(self, index: int) -> "_Place":
        return _Place(self.struct, f"{self.path}[{index}]", self.fields)

    def key(self, name: str) -> "_Place":
        return _Place(self.struct, f"{self.path}.{name}", self.fields)

    def inside(self, type_name: str) -> "_Place":
        return _Place(type_name.rpartition(".")[2], self.path, self.fields)


class _Walk:
    def __init__(self, types: Types, unknown: list[str]) -> None:
        self._types = types
        self._unknown = unknown

    def value(self, value: Any, schema: Schema, place: _Place) -> Any:
        if value is None:
            return None
        resolved = self._types.resolve(schema)
        if resolved.fields is not None:
            _demand(isinstance(value, dict), value, schema, place)
            inside = place.inside(schema.ref) if schema.ref else place
            return self._struct(value, resolved.fields, inside)
        if resolved.map is not None:
            _demand(isinstance(value, dict), value, schema, place)
            below = resolved.map
            return {k: self.value(v, below, place.key(k)) for k, v in value.items()}
        if resolved.list is not None:
            _demand(isinstance(value, list), value, schema, place)
            below = resolved.list
            return [self.value(v, below, place.item(n)) for n, v in enumerate(value)]
        # Types with a name of their own decode themselves.
        decode = DECODERS.get(schema.ref or "")
        if decode is not None:
            return _decoded_by(decode, value)
        if schema.ref is None and resolved.type in _ACCEPTED:
            _demand(_fits(value, resolved), value, schema, place)
            if resolved.format == "byte":
                _check_base64(value)
        return value

    def _struct(self, value: Object, fields: dict[str, Schema], place: _Place) -> Object:
        kept = {}
        for name, each in value.items():
            schema = fields.get(name)
            if schema is not None:
                kept[name] = self.value(each, schema, place.field(name))
            elif name.startswith("$"):
                kept[name] = each
            else:
                self._unknown.append(place.field(name).path)
        return kept


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


def _demand(fits: bool, value: Any, schema: Schema, place: _Place) -> None:
    if fits:
        return
    kind = gotext.json_kind(value)
    if kind == "number" and schema.type == "integer":
        kind = f"number {gotext.plain(value)}"
    raise Mismatch(
        f"json: cannot unmarshal {kind} into Go struct field "
        f"{place.struct}{place.fields} of type {_go_type(schema)}"
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
