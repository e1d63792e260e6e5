"""Rules that the schema of a custom resource states as expressions (``x-kubernetes-validations``).

A rule is about the value that its schema describes (``self``). One that looks at what was there
before (``oldSelf``) is asked only of changes, where it is clear which value was changed. What was
wrong before and did not change is not held against an update.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from backstay.sim.api import causes, cel
from backstay.sim.api.patches import same
from backstay.sim.api.status import Cause

Json = Mapping[str, Any]

KEYWORD = "x-kubernetes-validations"
_NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"
)
_BLOCKING = frozenset({
    "FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany",
    "FieldValueTypeInvalid",
})  # fmt: skip
_KNOWN = frozenset({"rule", "message", "reason", "fieldPath"})
_KNOWS = (
    "the embedded API knows comparisons, in, &&, ||, !, has(), size(), startsWith(), endsWith() "
    "and contains()"
)


# What is wrong with a definition


def problems(schema: Json, path: str) -> Iterator[Cause]:
    """What cannot be done of the rules of one schema, not looking below it."""
    for index, rule in enumerate(schema.get(KEYWORD) or ()):
        place = f"{path}.{KEYWORD}[{index}]"
        text = (rule.get("rule") or "").strip()
        if not text:
            yield causes.required(f"{place}.rule", "rule is not specified")
            continue
        try:
            cel.compiled(text)
        except cel.NotUnderstood as error:
            yield causes.invalid(f"{place}.rule", text, f"{error} is not understood: {_KNOWS}")
        for field in sorted(set(rule) - _KNOWN):
            yield causes.forbidden(f"{place}.{field}", "the embedded API does not know it")


# What is wrong with an object


class _Rule(msgspec.Struct, frozen=True):
    expression: cel.Expression
    text: str
    message: str
    reason: str
    field: str


class Rules(msgspec.Struct, frozen=True):
    """The rules of a schema and of everything below it."""

    type: str
    rules: tuple[_Rule, ...]
    properties: dict[str, "Rules"]
    others: "Rules | None"
    items: "Rules | None"
    keys: tuple[str, ...]
    correlates: bool

    def check(self, value: Any, old: Any, path: str = "") -> Iterator[Cause]:
        if value is None:
            return
        for rule in self.rules:
            yield from self._ask(rule, value, old, path)
        if type(value) is dict:
            yield from self._check_map(value, old, path)
        elif type(value) is list and self.items is not None:
            before = self._by_key(old)
            for index, item in enumerate(value):
                was = before.get(self._key(item))
                yield from self.items.check(item, was, f"{path}[{index}]")

    def _check_map(self, value: Json, old: Any, path: str) -> Iterator[Cause]:
        before = old if type(old) is dict and self.correlates else {}
        for name, item in value.items():
            below = self.properties.get(name)
            if below is not None:
                place = f"{path}.{name}" if path else name
                yield from below.check(item, before.get(name), place)
            elif self.others is not None:
                yield from self.others.check(item, before.get(name), f"{path}[{name}]")

    def _by_key(self, old: Any) -> dict[str, Any]:
        return {self._key(item): item for item in old} if self.keys and type(old) is list else {}

    def _key(self, item: Any) -> str:
        return causes.shown([item.get(key) for key in self.keys] if type(item) is dict else [])

    def _ask(self, rule: _Rule, value: Any, old: Any, path: str) -> Iterator[Cause]:
        if rule.expression.uses_old and old is None:
            return
        place = path or "<nil>"
        try:
            if rule.expression.evaluate({"self": value, "oldSelf": old}) is True:
                return
        except cel.Failed as error:
            yield causes.invalid(place, self.type, _why_failed(error, rule))
            return
        if not rule.expression.uses_old and old is not None and same(value, old):
            return
        if rule.field:
            place = f"{path}{rule.field}" if path else rule.field.removeprefix(".")
        yield _refusal(rule, place, self._shown(value))

    def _shown(self, value: Any) -> str:
        return "" if self.type in ("object", "array") else causes.shown(value)


def _why_failed(error: cel.Failed, rule: _Rule) -> str:
    said = rule.message or rule.text
    if str(error) == "no such overload":
        return (
            f"'{error}': call arguments did not match a supported operator, function or macro "
            f"signature for rule: {said}"
        )
    return f"{error} evaluating rule: {said}"


def _refusal(rule: _Rule, place: str, value: str) -> Cause:
    why = rule.message or f"failed rule: {rule.text}"
    if rule.reason == "FieldValueForbidden":
        return causes.forbidden(place, why)
    if rule.reason == "FieldValueRequired":
        return causes.required(place, why)
    if rule.reason == "FieldValueDuplicate":
        return Cause(rule.reason, ": ".join(filter(None, ("Duplicate value", value))), place)
    said = ": ".join(filter(None, ("Invalid value", value, why)))
    return Cause("FieldValueInvalid", said, place)


def parse(schema: Json) -> Rules | None:
    """None if there is no rule in it."""
    below = {name: parse(each) for name, each in (schema.get("properties") or {}).items()}
    properties = {name: rules for name, rules in below.items() if rules is not None}
    others = schema.get("additionalProperties")
    inner = parse(others) if isinstance(others, dict) else None
    items = parse(schema["items"]) if schema.get("items") else None
    rules = tuple(map(_parsed, schema.get(KEYWORD) or ()))
    if not rules and not properties and inner is None and items is None:
        return None
    is_map = schema.get("x-kubernetes-list-type") == "map"
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if is_map else ()
    correlates = schema.get("x-kubernetes-map-type") != "atomic"
    kind = schema.get("type") or ""
    return Rules(kind, rules, properties, inner, items, keys, correlates)


def _parsed(rule: Json) -> _Rule:
    text = rule["rule"].strip()
    return _Rule(
        cel.compiled(text),
        text,
        (rule.get("message") or "").strip(),
        rule.get("reason") or "",
        rule.get("fieldPath") or "",
    )


def check(rules: Rules | None, new: Any, old: Any, found: list[Cause]) -> Iterator[Cause]:
    """What rules find in an object of which ``found`` is known already."""
    if rules is None:
        return
    if any(cause.reason in _BLOCKING for cause in found):
        yield causes.invalid("<nil>", None, _NOT_CHECKED)
        return
    yield from rules.check(new, old)
