"""JSONPath, as far as the columns of custom resources use it.

``.spec.replicas``, ``.metadata.labels.a\\.b``, ``.status.conditions[?(@.type=="Ready")].status``,
``.spec.names[0]``, ``.spec['a.b']`` and ``[*]``. A path that leads nowhere finds nothing.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

_Step = Callable[[Any], Iterator[Any]]

_FIELD = re.compile(r"\.((?:[^.\[\\]|\\.)+)")
_INDEX = re.compile(r"\[(-?\d+)\]")
_ALL = re.compile(r"\[\*\]")
_QUOTED = re.compile(r"\[(['\"])(.*?)\1\]")
_FILTER = re.compile(r"\[\?\(@((?:\.[^.\[\]=!<>]+)+)\s*(==|!=)\s*(.+?)\)\]")


class PathError(ValueError):
    """Not a path that is understood here."""


def find(path: str, obj: Any) -> list[Any]:
    """Everything that the path leads to. Raises ``PathError``."""
    found = [obj]
    for step in _steps(path):
        found = [each for value in found for each in step(value)]
    return found


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[_Step, ...]:
    steps = []
    position = 0
    while position < len(path):
        step, position = _step(path, position)
        steps.append(step)
    return tuple(steps)


def _step(path: str, position: int) -> tuple[_Step, int]:
    if match := _FILTER.match(path, position):
        return _filter(*match.groups()), match.end()
    if match := _QUOTED.match(path, position):
        return _field(match[2]), match.end()
    if match := _INDEX.match(path, position):
        return _index(int(match[1])), match.end()
    if match := _ALL.match(path, position):
        return _every, match.end()
    if match := _FIELD.match(path, position):
        return _field(re.sub(r"\\(.)", r"\1", match[1])), match.end()
    raise PathError(f"{path[position:]!r} in {path!r} is not a step of a path")


def _field(name: str) -> _Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _index(index: int) -> _Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _every(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()


def _filter(path: str, operator: str, literal: str) -> _Step:
    wanted = _literal(literal.strip())

    def step(value: Any) -> Iterator[Any]:
        for item in value if isinstance(value, list) else ():
            found = find(path, item)
            if found and (found[0] == wanted) == (operator == "=="):
                yield item

    return step


def _literal(text: str) -> Any:
    if text[:1] in "'\"" and text[-1:] == text[:1]:
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        raise PathError(f"{text!r} is not a value that a path can compare with") from None
