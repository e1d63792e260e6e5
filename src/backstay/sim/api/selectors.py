"""Label and field selectors: parsed once for a request, then asked for each object."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from backstay.sim.api import gotext
from backstay.sim.api.kinds import KindInfo, Object
from backstay.sim.api.names import NOT_A_SUBDOMAIN, is_subdomain
from backstay.sim.api.status import Refusal, bad_request

Test = Callable[[Object], bool]

_TOKEN = re.compile(r"\s*(==|!=|=|\(|\)|,|!|>|<|[^\s=!(),<>]+)")
_NAME = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)\Z")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z")

_SYMBOLS = frozenset({"==", "!=", "=", "(", ")", ",", "!", ">", "<", ""})

_NEGATION = ("!",)
_LONGEST = 63
_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',"
    "  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def everything(_obj: Object) -> bool:
    return True


def select(info: KindInfo, labels: str, fields: str) -> Test:
    """A test for both; the common case of neither costs nothing."""
    return _selection(info.selectable, labels, fields) if labels or fields else everything


@lru_cache(maxsize=1024)
def _selection(selectable: tuple[str, ...], labels: str, fields: str) -> Test:
    tests: list[Test] = []
    if labels:
        tests.append(_parse_labels(labels))
    if fields:
        tests.append(_parse_fields(selectable, fields))
    if len(tests) == 1:
        return tests[0]
    return lambda obj: all(test(obj) for test in tests)


def _parse_labels(text: str) -> Test:
    """Equality and set requirements, joined by commas. Raises a ``Refusal`` (400)."""
    tokens = _tokens(text)
    tests: list[Test] = []
    if tokens and not _begins(tokens[0]):
        raise bad_request(_found(tokens[0], "!, identifier, or 'end of string'"))
    while tokens:
        tests.append(_requirement(tokens))
        if not tokens:
            break
        separator = tokens.pop(0)
        if separator != ",":
            raise bad_request(_found(separator, "',' or 'end of string'"))
        if not tokens or not _begins(tokens[0]):
            raise bad_request(_found(tokens[0] if tokens else "", "identifier after ','"))
    return tests[0] if len(tests) == 1 else lambda obj: all(test(obj) for test in tests)


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


def _is_word(token: str) -> bool:
    return token not in _SYMBOLS


def _begins(token: str) -> bool:
    """Whether a requirement can begin like this."""
    return _is_word(token) or token in _NEGATION


def _requirement(tokens: list[str]) -> Test:
    if tokens[0] == "!":
        tokens.pop(0)
        key = _key(tokens)
        return lambda obj: key not in _labels(obj)
    key = _key(tokens)
    if not tokens or tokens[0] == ",":
        return lambda obj: key in _labels(obj)
    operator = tokens.pop(0)
    if operator in ("=", "=="):
        return _equality(key, _value(tokens, key))
    if operator == "!=":
        value = _value(tokens, key)
        return lambda obj: _labels(obj).get(key) != value
    if operator in ("in", "notin"):
        values = _values(tokens, key)
        if operator == "in":
            return lambda obj: _labels(obj).get(key) in values
        return lambda obj: _labels(obj).get(key) not in values
    if operator in (">", "<"):
        return _comparison(key, operator, _exact(tokens))
    raise _unparsable(_found(operator, "in, notin, =, ==, !=, gt, lt"))


def _labels(obj: Object) -> Mapping[str, str]:
    found: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return found


def _equality(key: str, value: str) -> Test:
    def test(obj: Object) -> bool:
        # Nearly all selectors are of this kind, and every commit is held against all of them.
        meta = obj["metadata"]
        return "labels" in meta and key in meta["labels"] and meta["labels"][key] == value

    return test


def _key(tokens: list[str]) -> str:
    key = tokens.pop(0) if tokens else ""
    if not key or not _is_word(key):
        raise _unparsable(_found(key, "identifier"))
    why = _wrong_with_key(key)
    if why:
        raise _unparsable(f'<nil>: Invalid value: "{key}": {why}')
    return key


def _wrong_with_key(key: str) -> str:
    prefix, slash, name = key.partition("/")
    if not slash:
        prefix, name = "", key
    if "/" in name:
        return (
            f"a valid label key {_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. "
            "'example.com/MyName')"
        )
    if slash and not prefix:
        return "prefix part must be non-empty"
    if prefix and not is_subdomain(prefix):
        return f"prefix part {NOT_A_SUBDOMAIN}"
    if not name:
        return "name part must be non-empty"
    if len(name) > _LONGEST:
        return f"name part must be no more than {_LONGEST} bytes"
    return "" if _NAME.match(name) else f"name part {_NAME_RULE}"


def _exact(tokens: list[str]) -> str:
    if not tokens or tokens[0] == ",":
        return ""
    value = tokens.pop(0)
    if not _is_word(value):
        raise _unparsable(_found(value, "identifier"))
    return value


def _value(tokens: list[str], key: str) -> str:
    return _checked(_exact(tokens), key)


def _checked(value: str, key: str, index: int = 0) -> str:
    if len(value) > _LONGEST:
        why = f"must be no more than {_LONGEST} bytes"
    elif not _VALUE.match(value):
        why = _VALUE_RULE
    else:
        return value
    raise _unparsable(f'values[{index}][{key}]: Invalid value: "{value}": {why}')


def _values(tokens: list[str], key: str) -> frozenset[str]:
    opening = tokens.pop(0) if tokens else ""
    if opening != "(":
        raise _unparsable(f"found '{opening}' expected: '('")
    values = [""]
    while tokens and tokens[0] != ")":
        found = tokens.pop(0)
        if found == ",":
            values.append("")
        elif _is_word(found):
            values[-1] = found
            if tokens and tokens[0] not in (",", ")"):
                raise _unparsable(_found(tokens[0], "',' or ')'"))
        else:
            raise _unparsable(_found(found, "',', ')' or identifier"))
    if not tokens:
        raise _unparsable(_found("", "',' or ')'"))
    tokens.pop(0)
    return frozenset(_checked(value, key, n) for n, value in enumerate(sorted(set(values))))


def _comparison(key: str, operator: str, value: str) -> Test:
    if not re.fullmatch(r"-?\d+", value):
        raise bad_request(
            f'unable to parse requirement: values[0]: Invalid value: "{value}": '
            "for 'Gt', 'Lt' operators, the value must be an integer"
        )
    bound = int(value)

    def test(obj: Object) -> bool:
        found = _labels(obj).get(key, "")
        if not re.fullmatch(r"-?\d+", found):
            return False
        return int(found) > bound if operator == ">" else int(found) < bound

    return test


def _found(token: str, expected: str) -> str:
    return f"found '{token}', expected: {expected}"


def _unparsable(why: str) -> Refusal:
    return bad_request(f"unable to parse requirement: {why}")


_ONE_NAME = re.compile(r"metadata\.name==?([-.a-z0-9]+)")


def named(fields: str) -> str:
    """The name that a field selector asks for, if it is as simple as that."""
    match = _ONE_NAME.fullmatch(fields) if fields else None
    return match.group(1) if match is not None else ""


def _parse_fields(selectable: tuple[str, ...], text: str) -> Test:
    tests: list[Test] = []
    for term in filter(None, re.findall(r"(?:\\.|[^,\\])*", text)):
        match = re.match(r"((?:\\.|[^=!])*)(==|!=|=)(.*)\Z", term)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        field, operator, value = match.groups()
        if field or value:
            tests.append(_field_test(selectable, field, operator, _unescaped(value)))
    if len(tests) == 1:
        return tests[0]
    return lambda obj: all(test(obj) for test in tests)


def _unescaped(value: str) -> str:
    wrong = re.search(r"\\([^\\,=]|\Z)", value)
    if wrong is not None:
        raise bad_request(f"invalid field selector: invalid escape sequence: {wrong.group()}")
    return re.sub(r"\\(.)", r"\1", value)


def _field_test(selectable: tuple[str, ...], field: str, operator: str, value: str) -> Test:
    if field not in selectable and field not in ("metadata.name", "metadata.namespace"):
        raise bad_request(f"field label not supported: {field}")
    path = field.split(".")
    # Unset means the zero value; booleans are spelled out.
    unset = "false" if path[-1] in ("unschedulable", "hostNetwork") else ""
    wanted = operator != "!="

    def test(obj: Object) -> bool:
        node: Any = obj
        for step in path:
            if type(node) is not dict or step not in node or (node := node[step]) is None:
                return (unset == value) is wanted
        text = node if type(node) is str else gotext.plain(node)
        return (text == value) is wanted

    return test
