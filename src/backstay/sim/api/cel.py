"""Expressions: the small part of CEL in which we write rules for custom resources.

Comparisons, ``in``, ``&&``, ``||``, ``!``, fields, items, literals, lists, ``has()``, ``size()``
and a few questions about strings. ``compiled`` refuses everything else by name, so that a rule is
either kept or refused, never silently ignored.

As in CEL, what fails (a field that is not there) fails the whole expression, unless the other side
of ``&&`` or ``||`` decides without it.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from backstay.sim.api.patches import same

Scope = Mapping[str, Any]
Evaluate = Callable[[Scope], Any]


class NotUnderstood(Exception):
    """The text says what of the expression is not understood."""


class Failed(Exception):
    """The expression makes no sense for this value; the text is CEL's."""


class Expression(NamedTuple):
    """What to evaluate, and whether it looks at what was there before."""

    evaluate: Evaluate
    uses_old: bool


_TOKENS = re.compile(
    r"""\s*(?:
        (?P<number>\d+\.\d+|\d+)
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<name>[A-Za-z_]\w*)
      | (?P<sign>&&|\|\||==|!=|<=|>=|[-!<>()\[\].,])
    )""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_LITERALS = {"true": True, "false": False, "null": None}
_VARIABLES = frozenset({"self", "oldSelf"})
_COMPARED = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}  # fmt: skip
_OF_STRINGS: Mapping[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": str.__contains__,
}
_NUMBERS = (int, float)
_DEEPEST = 30


def compiled(text: str) -> Expression:
    """Raises ``NotUnderstood``."""
    parser = _Parser(_tokens(text))
    evaluate = parser.either()
    parser.end()
    return Expression(evaluate, parser.uses_old)


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    text = text.strip()
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None:
            raise NotUnderstood(repr(text[at:].lstrip()[0]))
        kind = match.lastgroup or ""
        found.append((kind, match[kind]))
        at = match.end()
    return found


class _Parser:
    """One method for each level of precedence, from the loosest to the tightest."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._depth = 0
        self.uses_old = False

    def _next(self) -> tuple[str, str]:
        return self._tokens[0] if self._tokens else ("end", "the end")

    def _take(self, *signs: str) -> str:
        """Takes the next token if it is one of these."""
        kind, text = self._next()
        if kind not in ("sign", "name") or text not in signs:
            return ""
        self._tokens.pop(0)
        return text

    def _demand(self, sign: str) -> None:
        if not self._take(sign):
            raise NotUnderstood(f"{self._next()[1]!r} where {sign!r} was expected")

    def end(self) -> None:
        if self._tokens:
            raise NotUnderstood(repr(self._next()[1]))

    def either(self) -> Evaluate:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NotUnderstood(f"an expression of more than {_DEEPEST} levels")
        left = self._both()
        while self._take("||"):
            left = _decided(left, self._both(), by=True)
        self._depth -= 1
        return left

    def _both(self) -> Evaluate:
        left = self._relation()
        while self._take("&&"):
            left = _decided(left, self._relation(), by=False)
        return left

    def _relation(self) -> Evaluate:
        left = self._unary()
        sign = self._take("==", "!=", "in", *_COMPARED)
        return _related(sign, left, self._unary()) if sign else left

    def _unary(self) -> Evaluate:
        if self._take("!"):
            below = self._member()
            return lambda scope: not _truth(below(scope))
        if self._take("-"):
            number = self._member()
            return lambda scope: -number(scope)
        return self._member()

    def _member(self) -> Evaluate:
        value = self._primary()
        while sign := self._take(".", "["):
            if sign == "[":
                value = _item(value, self.either())
                self._demand("]")
                continue
            name = self._name()
            value = self._method(value, name) if self._take("(") else _field(value, name)
        return value

    def _method(self, value: Evaluate, name: str) -> Evaluate:
        if name == "size":
            self._demand(")")
            return lambda scope: _size(value(scope))
        ask = _OF_STRINGS.get(name)
        if ask is None:
            raise NotUnderstood(f"the function {name!r}")
        argument = self.either()
        self._demand(")")
        return lambda scope: ask(_string(value(scope)), _string(argument(scope)))

    def _name(self) -> str:
        kind, text = self._next()
        if kind != "name":
            raise NotUnderstood(f"{text!r} where a name was expected")
        self._tokens.pop(0)
        return text

    def _primary(self) -> Evaluate:
        if self._take("("):
            inner = self.either()
            self._demand(")")
            return inner
        if self._take("["):
            return self._list()
        kind, text = self._next()
        if kind not in ("number", "text", "name"):
            raise NotUnderstood(repr(text))
        self._tokens.pop(0)
        return self._named(text) if kind == "name" else _literal(_value(kind, text))

    def _list(self) -> Evaluate:
        items = []
        while not self._take("]"):
            items.append(self.either())
            if not self._take(","):
                self._demand("]")
                break
        return lambda scope: [item(scope) for item in items]

    def _named(self, name: str) -> Evaluate:
        if name in _LITERALS:
            return _literal(_LITERALS[name])
        if name in _VARIABLES:
            self.uses_old = self.uses_old or name == "oldSelf"
            return lambda scope: scope[name]
        if name not in ("has", "size") or not self._take("("):
            raise NotUnderstood(repr(name))
        argument = self.either()
        self._demand(")")
        if name == "size":
            return lambda scope: _size(argument(scope))
        return lambda scope: _has(argument, scope)


def _literal(value: Any) -> Evaluate:
    return lambda _: value


def _value(kind: str, text: str) -> Any:
    if kind == "text":
        return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text[1:-1])
    return float(text) if "." in text else int(text)


def _decided(left: Evaluate, right: Evaluate, *, by: bool) -> Evaluate:
    """``||`` is decided by a true side, ``&&`` by a false one, whatever becomes of the other."""

    def evaluate(scope: Scope) -> bool:
        failed: Failed | None = None
        for side in (left, right):
            try:
                if _truth(side(scope)) is by:
                    return by
            except Failed as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return not by

    return evaluate


def _related(sign: str, left: Evaluate, right: Evaluate) -> Evaluate:
    if sign == "==":
        return lambda scope: _equal(left(scope), right(scope))
    if sign == "!=":
        return lambda scope: not _equal(left(scope), right(scope))
    if sign == "in":
        return lambda scope: _contains(right(scope), left(scope))

    def compared(scope: Scope) -> bool:
        one, other = left(scope), right(scope)
        numbers = type(one) in _NUMBERS and type(other) in _NUMBERS
        if not numbers and not (type(one) is str and type(other) is str):
            raise Failed("no such overload")
        return bool(_COMPARED[sign](one, other))

    return compared


def _field(value: Evaluate, name: str) -> Evaluate:
    def evaluate(scope: Scope) -> Any:
        holder = value(scope)
        if type(holder) is not dict or name not in holder:
            raise Failed(f"no such key: {name}")
        return holder[name]

    return evaluate


def _item(value: Evaluate, index: Evaluate) -> Evaluate:
    def evaluate(scope: Scope) -> Any:
        holder, key = value(scope), index(scope)
        if type(holder) is dict:
            if key not in holder:
                raise Failed(f"no such key: {key}")
            return holder[key]
        if type(holder) is not list or type(key) is not int:
            raise Failed("no such overload")
        if not 0 <= key < len(holder):
            raise Failed(f"index out of bounds: {key}")
        return holder[key]

    return evaluate


def _has(argument: Evaluate, scope: Scope) -> bool:
    try:
        return argument(scope) is not None
    except Failed:
        return False


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise Failed("no such overload")
    return value


def _string(value: Any) -> str:
    if type(value) is not str:
        raise Failed("no such overload")
    return value


def _size(value: Any) -> int:
    if type(value) not in (str, list, dict):
        raise Failed("no such overload")
    return len(value)


def _equal(left: Any, right: Any) -> bool:
    return same(left, right)


def _contains(holder: Any, value: Any) -> bool:
    if type(holder) is dict:
        return value in holder
    if type(holder) is not list:
        raise Failed("no such overload")
    return any(same(each, value) for each in holder)
