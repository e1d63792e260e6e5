"""Label and field selectors: parsed once for a request, then asked for each object."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from backstay.sim.api.kinds import KindInfo, Object
from backstay.sim.api.status import Refusal, bad_request

Test = Callable[[Object], bool]

_TOKEN = re.compile(r"\s*(==|!=|=|\(|\)|,|!|>|<|[^\s=!(),<>]+)")
_NAME = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)\Z")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z")

_LabelTest = Callable[[Mapping[str, str]], bool]


def everything(_obj: Object) -> bool:
    return True


def select(info: KindInfo, labels: str, fields: str) -> Test:
    """A test for both; the common case of neither costs nothing."""
    tests: list[Test] = []
    if labels:
        by_label = parse_labels(labels)
        tests.append(lambda obj: by_label(obj["metadata"].get("labels") or {}))
    if fields:
        tests.append(_parse_fields(info, fields))
    if not tests:
        return everything
    if len(tests) == 1:
        return tests[0]
    return lambda obj: all(test(obj) for test in tests)


@lru_cache(maxsize=1024)
def parse_labels(text: str) -> _LabelTest:
    """Equality and set requirements, joined by commas. Raises a ``Refusal`` (400)."""
    tokens = _tokens(text)
    tests: list[_LabelTest] = []
    while tokens:
        tests.append(_requirement(tokens))
        if tokens:
            separator = tokens.pop(0)
            if separator != ",":
                raise _found(separator, "',' or 'end of string'")
            if not tokens:
                raise _found("", "identifier after ','")
    return lambda labels: all(test(labels) for test in tests)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            break
        tokens.append(match.group(1))
        position = match.end()
    return tokens


def _requirement(tokens: list[str]) -> _LabelTest:
    if tokens[0] == "!":
        tokens.pop(0)
        key = _key(tokens)
        return lambda labels: key not in labels
    key = _key(tokens)
    if not tokens or tokens[0] == ",":
        return lambda labels: key in labels
    operator = tokens.pop(0)
    if operator in ("=", "=="):
        value = _value(tokens)
        return lambda labels: labels.get(key) == value
    if operator == "!=":
        value = _value(tokens)
        return lambda labels: labels.get(key) != value
    if operator in ("in", "notin"):
        values = _values(tokens)
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if operator in (">", "<"):
        return _comparison(key, operator, _value(tokens))
    raise _found(operator, "in, notin, =, ==, !=, gt, lt")


def _key(tokens: list[str]) -> str:
    key = tokens.pop(0) if tokens else ""
    prefix, slash, name = key.rpartition("/")
    if not key or key in "=!(),<>" or key == "!=":
        raise _found(key, "!, identifier, or 'end of string'")
    if not _NAME.match(name) or (slash and not prefix) or len(name) > 63:
        raise bad_request(
            f'unable to parse requirement: <nil>: Invalid value: "{key}": name part must consist '
            "of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
            "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        )
    return key


def _value(tokens: list[str]) -> str:
    if not tokens or tokens[0] == ",":
        return ""
    value = tokens.pop(0)
    if value in ("=", "==", "!=", "(", ")", "!", ">", "<"):
        raise _found(value, "identifier")
    if not _VALUE.match(value) or len(value) > 63:
        raise bad_request(
            f'unable to parse requirement: values[0][]: Invalid value: "{value}": a valid label '
            "must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and "
            "must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
            "or '12345', regex used for validation is "
            "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        )
    return value


def _values(tokens: list[str]) -> frozenset[str]:
    if not tokens or tokens.pop(0) != "(":
        raise _found("", "'('")
    values: set[str] = set()
    while tokens and tokens[0] != ")":
        values.add(_value(tokens))
        if tokens and tokens[0] == ",":
            tokens.pop(0)
    if not tokens:
        raise _found("", "',', or ')'")
    tokens.pop(0)
    return frozenset(values)


def _comparison(key: str, operator: str, value: str) -> _LabelTest:
    if not re.fullmatch(r"-?\d+", value):
        raise bad_request(
            f'unable to parse requirement: values[0][{key}]: Invalid value: "{value}": '
            "for 'Gt', 'Lt' operators, the value must be an integer"
        )
    bound = int(value)

    def test(labels: Mapping[str, str]) -> bool:
        found = labels.get(key, "")
        if not re.fullmatch(r"-?\d+", found):
            return False
        return int(found) > bound if operator == ">" else int(found) < bound

    return test


def _found(token: str, expected: str) -> Refusal:
    return bad_request(f"unable to parse requirement: found '{token}', expected: {expected}")


def _parse_fields(info: KindInfo, text: str) -> Test:
    tests: list[Test] = []
    for term in filter(None, text.split(",")):
        match = re.match(r"([^=!]*)(==|!=|=)(.*)\Z", term)
        if match is None:
            raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
        field, operator, value = match.groups()
        tests.append(_field_test(info, field, operator, value.replace("\\,", ",")))
    return lambda obj: all(test(obj) for test in tests)


def _field_test(info: KindInfo, field: str, operator: str, value: str) -> Test:
    if field not in info.selectable and field not in ("metadata.name", "metadata.namespace"):
        raise bad_request(f"field label not supported: {field}")
    path = field.split(".")
    if operator == "!=":
        return lambda obj: _at(obj, path) != value
    return lambda obj: _at(obj, path) == value


def _at(obj: Object, path: list[str]) -> str:
    node: Any = obj
    for step in path:
        node = node.get(step) if isinstance(node, dict) else None
        if node is None:
            # Unset means the zero value; booleans are spelled out.
            return "false" if path[-1] in ("unschedulable", "hostNetwork") else ""
    return str(node).lower() if isinstance(node, bool) else str(node)
