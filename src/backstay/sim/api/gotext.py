"""How Go writes JSON values, because the server's own words and names quote them in that form."""

import re
from typing import Any

import msgspec

_encode = msgspec.json.Encoder(order="sorted").encode

# Go's encoder keeps its JSON safe for HTML.
_ESCAPED = re.compile("[<>&\u2028\u2029]")

_JSON_KINDS = {bool: "bool", str: "string", int: "number", float: "number", list: "array"}
_TYPES = {
    bool: "bool", str: "string", int: "int64", float: "float64",
    list: "[]interface {}", dict: "map[string]interface {}",
}  # fmt: skip


def json_kind(value: Any) -> str:
    """What a JSON decoder calls it: ``number``, ``array``, ``object`` ..."""
    return _JSON_KINDS.get(type(value), "object")


def type_name(value: Any) -> str:
    """Its type when decoded without one of its own."""
    return _TYPES.get(type(value), "%!s(<nil>)")


def plain(value: Any) -> str:
    """As ``%v``: ``map[a:1 b:[x y]]``."""
    if value is None:
        return "<nil>"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is dict:
        return f"map[{' '.join(f'{k}:{plain(value[k])}' for k in sorted(value))}]"
    if type(value) is list:
        return f"[{' '.join(map(plain, value))}]"
    return str(value)


def literal(value: Any) -> str:
    """As ``%#v``: ``map[string]interface {}{"a":1}``."""
    if type(value) is str:
        return quoted(value)
    if type(value) is dict:
        entries = (f"{quoted(key)}:{literal(value[key])}" for key in sorted(value))
        return f"map[string]interface {{}}{{{', '.join(entries)}}}"
    if type(value) is list:
        return f"[]interface {{}}{{{', '.join(map(literal, value))}}}"
    return plain(value)


def quoted(text: str) -> str:
    """As ``%q``."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def json_text(value: Any) -> str:
    """As JSON, compact and with sorted keys."""
    text = _encode(value).decode()
    return _ESCAPED.sub(lambda m: f"\\u{ord(m[0]):04x}", text) if _ESCAPED.search(text) else text
