"""Causes: what is wrong with one field, worded as the server's validation words it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from backstay.sim.api import gotext
from backstay.sim.api.status import Cause

# Maps are shown in the order of their keys, structs in that of their fields.
_compact = msgspec.json.Encoder(order="deterministic").encode

# Where Go begins to write floats with an exponent.
_EXPONENT_FROM = 1e21


def required(field: str, detail: str = "") -> Cause:
    return Cause("FieldValueRequired", _joined("Required value", detail), field)


def invalid(field: str, value: Any, detail: str) -> Cause:
    return Cause("FieldValueInvalid", _joined("Invalid value", shown(value), detail), field)


def type_invalid(field: str, value: Any, detail: str) -> Cause:
    return Cause("FieldValueTypeInvalid", _joined("Invalid value", shown(value), detail), field)


def not_supported(field: str, value: Any, supported: Sequence[str]) -> Cause:
    listed = "supported values: " + ", ".join(map(gotext.quoted, supported))
    return Cause(
        "FieldValueNotSupported", _joined("Unsupported value", shown(value), listed), field
    )


def forbidden(field: str, detail: str) -> Cause:
    return Cause("FieldValueForbidden", _joined("Forbidden", detail), field)


def duplicate(field: str, value: Any, detail: str = "") -> Cause:
    return Cause("FieldValueDuplicate", _joined("Duplicate value", shown(value), detail), field)


def too_long(field: str, most: int) -> Cause:
    unit = "byte" if most == 1 else "bytes"
    return Cause("FieldValueTooLong", f"Too long: may not be more than {most} {unit}", field)


def too_many(field: str, count: int, most: int) -> Cause:
    unit = "item" if most == 1 else "items"
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {most} {unit}", field)


def shown(value: Any) -> str:
    """A value as messages quote it: simple ones as Go prints them, the rest as JSON."""
    if type(value) is str:
        return gotext.quoted(value)
    if type(value) is float:
        return number(value)
    if type(value) in (int, bool):
        return gotext.plain(value)
    return _compact(value).decode()


def number(value: float) -> str:
    """As ``%v`` prints a number: whole ones without a fraction."""
    if value == int(value) and abs(value) < _EXPONENT_FROM:
        return str(int(value))
    return repr(value)


def _joined(*parts: str) -> str:
    return ": ".join(part for part in parts if part)
