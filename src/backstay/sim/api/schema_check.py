"""Whether a custom resource is what its OpenAPI schema says, and in which words it is not.

The server's validator is an old one with habits, and clients see them: it names the type that it
found as if that were the value, it says of ``oneOf`` that nothing was valid and then what was
wrong with the alternative that came closest (the most checks passed), and it never says the same
thing twice. All of that is repeated here.

An update may leave what was wrong before as wrong as it was: whatever is not valid but also did
not change is not held against it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from backstay.sim.api import causes, formats, gotext
from backstay.sim.api.patches import same
from backstay.sim.api.status import Cause

Json = Mapping[str, Any]

_UNKNOWN: Any = object()
"""In the place of an old value: there is none that this one could be compared with."""

_TYPES = {bool: "boolean", str: "string", int: "integer", float: "number", list: "array",
          dict: "object"}  # fmt: skip
_NUMBER_FORMATS = {"integer": ("int32", "int64"), "number": ("float", "double")}
_GO_FORMATS = {int: "int64", float: "float64"}
_WIDTHS = {"int32": 2**31, "int64": 2**63}


class Findings:
    """What is wrong, each thing once, and how many checks were passed on the way."""

    __slots__ = ("_causes", "passed")

    def __init__(self) -> None:
        self._causes: dict[str, Cause] = {}
        self.passed = 0

    @property
    def causes(self) -> list[Cause]:
        return list(self._causes.values())

    def __bool__(self) -> bool:
        return bool(self._causes)

    def add(self, message: str, cause: Cause) -> None:
        self._causes.setdefault(message, cause)

    def about_no_field(self, message: str) -> None:
        """Some complaints name their field only in the text."""
        self.add(message, causes.invalid("", "", message))

    def merge(self, other: "Findings") -> None:
        for message, cause in other._causes.items():
            self._causes.setdefault(message, cause)
        self.passed += other.passed


class Checker:
    """A schema, made ready for all the objects that it is held against."""

    def __init__(self, schema: Json) -> None:
        self._schema = schema
        self._fits = _quick(schema)

    def check(self, value: Any, old: Any = _UNKNOWN, *, root: str = "") -> list[Cause]:
        """Everything that is wrong with ``value``, which is the field ``root`` of its object."""
        if self._fits(value, old):
            return []
        found = _checked(self._schema, value, "", old)
        return [_placed(cause, root) for cause in found.causes]


def _placed(cause: Cause, root: str) -> Cause:
    if not cause.field:
        return Cause(cause.reason, cause.message, root or "<nil>")
    field = cause.field.removeprefix(".")
    return Cause(cause.reason, cause.message, f"{root}.{field}" if root else field)


# Whether anything is wrong

_USUAL = frozenset({
    "type", "description", "properties", "additionalProperties", "required", "items", "nullable",
    "default", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource",
    "x-kubernetes-validations",
})  # fmt: skip
"""The words of a schema that leave nothing to check but the type and what is below."""

_OF_LENGTH = frozenset({"maxLength", "minLength", "pattern"})


Fits = Callable[[Any, Any], bool]
"""Of a value and the old one in its place: whether nothing would be found."""


def _quick(schema: Json) -> Fits:
    """The same in a fraction of the time: nearly everything that is sent is in order, and nobody
    reads how it came to be. What has other words than the usual ones is looked at in the long way,
    and so is whatever does not fit."""
    quick = _QUICK.get(schema.get("type", ""))
    if quick is None or not schema.keys() <= quick.words:
        return lambda value, old: not _checked(schema, value, "", old)
    kind, is_right = quick.type, quick.made(schema)

    def fits(value: Any, old: Any) -> bool:
        if type(value) is kind and (is_right is None or is_right(value, old)):
            return True
        return old is not _UNKNOWN and same(old, value)

    return fits


def _of_text(schema: Json) -> Fits | None:
    enum, form = schema.get("enum"), schema.get("format")
    if not enum and not form and _OF_LENGTH.isdisjoint(schema):
        return None
    most, least = schema.get("maxLength"), schema.get("minLength")
    pattern = schema.get("pattern")

    def is_right(value: str, _old: Any) -> bool:
        return (
            (not enum or value in enum)
            and (most is None or len(value) <= most)
            and (least is None or len(value) >= least)
            and (not pattern or compiled(pattern).search(value) is not None)
            and (not form or formats.fits(form, value))
        )

    return is_right


def _of_whole_number(schema: Json) -> Fits:
    width = _WIDTHS["int32" if schema.get("format") == "int32" else "int64"]
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    least = -width if minimum is None else max(-width, int(minimum))
    most = width - 1 if maximum is None else min(width - 1, int(maximum))
    return lambda value, _old: least <= value <= most


def _of_list(schema: Json) -> Fits:
    items, most = schema.get("items"), schema.get("maxItems")
    fits = _quick(items) if items is not None else None

    def is_right(value: list[Any], old: Any) -> bool:
        if most is not None and len(value) > most:
            return False
        if fits is None:
            return True
        before = _by_key(schema, old)
        for item in value:
            was = before.get(_key(schema, item), _UNKNOWN) if before else _UNKNOWN
            if was is not item and not fits(item, was):
                return False
        return True

    return is_right


def _of_map(schema: Json) -> Fits:
    properties = schema.get("properties") or {}
    fields = {name: _quick(below) for name, below in properties.items()}
    others = schema.get("additionalProperties")
    other = _quick(others) if type(others) is dict else None
    required = frozenset(schema.get("required") or ())

    def is_right(value: Mapping[str, Any], old: Any) -> bool:
        before = old if type(old) is dict else {}
        for name, item in value.items():
            was = before.get(name, _UNKNOWN)
            if was is item:
                continue
            fits = fields.get(name, other)
            if fits is not None and not fits(item, was):
                return False
        return value.keys() >= required

    return is_right


class _Quick(NamedTuple):
    """For the values of one type: the words of a schema that are understood, and what is made of
    them; None if every value of the type will do."""

    type: type
    words: frozenset[str]
    made: Callable[[Json], Fits | None]


_QUICK = {
    "string": _Quick(str, _USUAL | _OF_LENGTH | {"enum", "format"}, _of_text),
    "integer": _Quick(int, _USUAL | {"format", "minimum", "maximum"}, _of_whole_number),
    "boolean": _Quick(bool, _USUAL, lambda _schema: None),
    "array": _Quick(list, _USUAL | {"maxItems"}, _of_list),
    "object": _Quick(dict, _USUAL, _of_map),
}


# What is wrong


def _checked(schema: Json, value: Any, path: str, old: Any) -> Findings:
    # What did not change needs no look: whatever is wrong with it would be excused.
    if value is old or (old is not _UNKNOWN and same(old, value)):
        return Findings()
    return _of_any_age(schema, value, path, old)


def _of_any_age(schema: Json, value: Any, path: str, old: Any) -> Findings:
    found = Findings()
    if value is None:
        found.merge(_type(schema, value, path))
        found.merge(_enum(schema, value, path))
        return found
    for part in _parts(schema, value, path, old):
        found.merge(part)
        found.passed += 1
    found.passed += 1
    return found


def _parts(schema: Json, value: Any, path: str, old: Any) -> Iterator[Findings]:
    """The checks that apply to a value of its type, in the server's order."""
    kind = type(value)
    if _types_of(schema) or _format_of(schema):
        yield _type(schema, value, path)
    yield _combined(schema, value, path, old)
    if kind is str:
        yield _string(schema, value, path)
        if formats.is_checked(_format_of(schema)):
            yield _string_format(schema, value, path)
    elif kind in (int, float):
        yield _number(schema, value, path)
    elif kind is list:
        yield _list(schema, value, path, old)
    yield _enum(schema, value, path)
    if kind is dict:
        yield _map(schema, value, path, old)


# Types and formats


def _types_of(schema: Json) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    named = schema.get("type")
    return (named,) if named else ()


def _format_of(schema: Json) -> str:
    """The format, if it is one that is checked for this type."""
    name: str = schema.get("format") or ""
    types = _types_of(schema)
    kind = types[0] if len(types) == 1 else ""
    if kind in _NUMBER_FORMATS:
        return name if name in _NUMBER_FORMATS[kind] else ""
    return name if kind in ("", "string") and formats.is_checked(name) else ""


def _type(schema: Json, value: Any, path: str) -> Findings:
    found = Findings()
    expected = _type_mismatch(schema, value)
    if expected is None:
        found.passed = 1
        return found
    wanted, got = expected
    message = f"{path} in body must be of type {wanted}: {gotext.quoted(got)}"
    found.add(message, causes.type_invalid(path, got, message))
    return found


def _type_mismatch(schema: Json, value: Any) -> tuple[str, str] | None:
    """What was wanted and what was found instead."""
    types, name = _types_of(schema), _format_of(schema)
    wanted = ",".join(types)
    if value is None:
        return (wanted, "null") if types and not schema.get("nullable") else None
    kind = type(value)
    got = _TYPES[kind]
    whole = kind is float and value.is_integer() and "integer" in types
    if got in types or whole or (kind is int and "number" in types):
        return None
    if name and kind not in (str, list):
        return name, _GO_FORMATS.get(kind, "")
    if name and not {"number", "integer"} & set(types):
        return None
    return wanted, got


def _string(schema: Json, value: str, path: str) -> Findings:
    """The first thing that is wrong with it; there is no second."""
    found = Findings()
    most, least = schema.get("maxLength"), schema.get("minLength")
    pattern = schema.get("pattern")
    if most is not None and len(value) > most:
        message = f"{path} in body should be at most {most} chars long"
        found.add(message, causes.too_long(path, most))
    elif least is not None and len(value) < least:
        message = f"{path} in body should be at least {least} chars long"
        found.add(message, causes.invalid(path, value, message))
    elif pattern and not compiled(pattern).search(value):
        message = f"{path} in body should match '{pattern}'"
        found.add(message, causes.invalid(path, value, message))
    return found


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """Raises ``re.error``. In Go a final ``$`` does not match before a line's end."""
    return re.compile(re.sub(r"(?<!\\)\$\Z", r"\\Z", pattern))


def _string_format(schema: Json, value: str, path: str) -> Findings:
    found = Findings()
    name = _format_of(schema)
    if not formats.fits(name, value):
        message = f"{path} in body must be of type {name}: {gotext.quoted(value)}"
        found.add(message, causes.type_invalid(path, value, message))
    return found


# Numbers


def _number(schema: Json, value: float, path: str) -> Findings:
    found = Findings()
    found.passed = 1
    types, name = _types_of(schema), _format_of(schema)
    if types == ("integer",):
        whole = float(value).is_integer() and -_WIDTHS["int64"] <= value < _WIDTHS["int64"]
        if not whole or (name == "int32" and not -_WIDTHS[name] <= value < _WIDTHS[name]):
            how = f"with format {name}" if name else "(default format)"
            found.about_no_field(f"Checked value must be of type integer {how} in {path}")
    for limit in (_not_a_multiple, _below, _above):
        problem = limit(schema, value, path)
        if problem is not None:
            wrong, message = problem
            found.add(message, causes.invalid(path, wrong, message))
    return found


def _not_a_multiple(schema: Json, value: float, path: str) -> tuple[float, str] | None:
    factor = schema.get("multipleOf")
    if factor is None:
        return None
    # Whole numbers are compared with whole numbers, even if nothing is left of the other one.
    factor = int(factor) if type(value) is int else float(factor)
    if factor <= 0:
        message = f"factor MultipleOf declared for {path} must be positive: {factor}"
        return factor, message
    if (value / factor).is_integer():
        return None
    return value, f"{path} in body should be a multiple of {causes.number(factor)}"


def _below(schema: Json, value: float, path: str) -> tuple[float, str] | None:
    least = schema.get("minimum")
    if least is None:
        return None
    least = int(least) if type(value) is int else float(least)
    if schema.get("exclusiveMinimum"):
        fine, how = value > least, "greater than"
    else:
        fine, how = value >= least, "greater than or equal to"
    return None if fine else (value, f"{path} in body should be {how} {causes.number(least)}")


def _above(schema: Json, value: float, path: str) -> tuple[float, str] | None:
    most = schema.get("maximum")
    if most is None:
        return None
    most = int(most) if type(value) is int else float(most)
    if schema.get("exclusiveMaximum"):
        fine, how = value < most, "less than"
    else:
        fine, how = value <= most, "less than or equal to"
    return None if fine else (value, f"{path} in body should be {how} {causes.number(most)}")


def _enum(schema: Json, value: Any, path: str) -> Findings:
    found = Findings()
    allowed = schema.get("enum")
    if allowed and (value is None or not any(_equal(value, each) for each in allowed)):
        listed = [each if type(each) is str else causes.shown(each) for each in allowed]
        message = f"{path} in body should be one of {gotext.plain(allowed)}"
        found.add(message, causes.not_supported(path, value, listed))
    return found


def _equal(left: Any, right: Any) -> bool:
    return same(left, right) and type(right) is not type(None)


# Lists and maps


def _list(schema: Json, value: list[Any], path: str, old: Any) -> Findings:
    found = Findings()
    items = schema.get("items")
    if items is not None:
        before = _by_key(schema, old)
        for index, item in enumerate(value):
            was = before.get(_key(schema, item), _UNKNOWN) if before else _UNKNOWN
            found.merge(_checked(items, item, f"{path}[{index}]", was))
    least, most = schema.get("minItems"), schema.get("maxItems")
    if least is not None and len(value) < least:
        message = f"{path} in body should have at least {least} items"
        found.add(message, causes.invalid(path, len(value), message))
    if most is not None and len(value) > most:
        message = f"{path} in body should have at most {most} items"
        found.add(message, causes.too_many(path, len(value), most))
    found.passed += 1
    return found


def _by_key(schema: Json, old: Any) -> dict[str, Any]:
    """The items of an old list, where something tells which of the new ones they are."""
    if type(old) is not list or schema.get("x-kubernetes-list-type") != "map":
        return {}
    return {_key(schema, item): item for item in old}


def _key(schema: Json, item: Any) -> str:
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    return causes.shown([item.get(key) for key in keys] if type(item) is dict else [])


def _map(schema: Json, value: Mapping[str, Any], path: str, old: Any) -> Findings:
    found = Findings()
    least, most = schema.get("minProperties"), schema.get("maxProperties")
    if least is not None and len(value) < least:
        message = f"{path} in body should have at least {least} properties"
        found.add(message, causes.invalid(path, len(value), message))
    if most is not None and len(value) > most:
        message = f"{path} in body should have at most {most} properties"
        found.add(message, causes.too_many(path, len(value), most))
    before = old if type(old) is dict else {}
    properties = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    for name, item in value.items():
        if name not in properties and type(others) is dict:
            below = f"{path}.{name}"
            found.merge(_checked(others, item, below, before.get(name, _UNKNOWN)))
    for name, below_schema in properties.items():
        if name in value:
            below = f"{path}.{name}" if path else name
            was = before.get(name, _UNKNOWN)
            found.merge(_checked(below_schema, value[name], below, was))
    for name in schema.get("required") or ():
        if name not in value:
            below = f"{path}.{name}"
            found.add(f"{below} in body is required", causes.required(below))
    return found


# Alternatives


def _combined(schema: Json, value: Any, path: str, old: Any) -> Findings:
    found = Findings()
    if schema.get("anyOf"):
        _any_of(found, schema["anyOf"], value, path, old)
    if schema.get("oneOf"):
        _one_of(found, schema["oneOf"], value, path, old)
    if schema.get("allOf"):
        _all_of(found, schema["allOf"], value, path, old)
    if schema.get("not") and not _of_any_age(schema["not"], value, path, old):
        found.about_no_field(f"{gotext.quoted(path)} must not validate the schema (not)")
    found.passed += 1
    return found


def _any_of(found: Findings, schemas: list[Json], value: Any, path: str, old: Any) -> None:
    closest: Findings | None = None
    for schema in schemas:
        result = _of_any_age(schema, value, path, old)
        if not result:
            found.merge(result)
            return
        if closest is None or result.passed > closest.passed:
            closest = result
    found.about_no_field(f"{gotext.quoted(path)} must validate at least one schema (anyOf)")
    if closest is not None:
        found.merge(closest)


def _one_of(found: Findings, schemas: list[Json], value: Any, path: str, old: Any) -> None:
    results = [_of_any_age(schema, value, path, old) for schema in schemas]
    valid = [result for result in results if not result]
    if len(valid) == 1:
        found.merge(valid[0])
        return
    count = f"Found {len(valid)} valid alternatives" if valid else "Found none valid"
    found.about_no_field(
        f"{gotext.quoted(path)} must validate one and only one schema (oneOf). {count}"
    )
    if not valid:
        found.merge(max(results, key=lambda result: result.passed))


def _all_of(found: Findings, schemas: list[Json], value: Any, path: str, old: Any) -> None:
    results = [_of_any_age(schema, value, path, old) for schema in schemas]
    for result in results:
        found.merge(result)
    wrong = sum(map(bool, results))
    if wrong:
        none = ". None validated" if wrong == len(results) else ""
        found.about_no_field(f"{gotext.quoted(path)} must validate all the schemas (allOf){none}")
