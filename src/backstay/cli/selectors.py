"""Label selectors as people type them for kubectl: ``app=db,tier in (a, b),!spare``.

Equality (``=``, ``==``, ``!=``) and sets (``in``, ``notin``, a key alone, ``!key``); all parts must
hold, and an empty selector selects everything. What Kubernetes would refuse is refused.
"""

import re
from collections.abc import Iterator

import click

from backstay.model.policy import Requirement

_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_NAME}")
_VALUE = re.compile(rf"({_NAME})?")

_ALONE = re.compile(r"(?P<no>!?)\s*(?P<key>[^\s!=<>(),]+)")
_EQUAL = re.compile(r"(?P<key>[^\s!=<>(),]+)\s*(?P<sign>==|!=|=)\s*(?P<value>[^\s!=<>(),]*)")
_AMONG = re.compile(r"(?P<key>[^\s!=<>(),]+)\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)")


class Selector(click.ParamType[tuple[Requirement, ...]]):
    name = "selector"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Requirement, ...]:
        try:
            return parse(str(value))
        except ValueError as error:
            self.fail(f"{value!r} is not a label selector: {error}.", param, ctx)


def parse(text: str) -> tuple[Requirement, ...]:
    """Raises ``ValueError``, in words that name the part that is wrong."""
    if not text.strip():
        return ()
    return tuple(_requirement(part.strip()) for part in _parts(text))


def _parts(text: str) -> Iterator[str]:
    """At the commas that are not within parentheses."""
    yield from re.split(r",(?![^(]*\))", text)


def _requirement(part: str) -> Requirement:
    values: tuple[str, ...] = ()
    if found := _EQUAL.fullmatch(part):
        operator, values = ("NotIn" if found["sign"] == "!=" else "In"), (found["value"],)
    elif found := _AMONG.fullmatch(part):
        operator = "In" if found["word"] == "in" else "NotIn"
        values = tuple(value.strip() for value in found["values"].split(","))
    elif found := _ALONE.fullmatch(part):
        operator = "DoesNotExist" if found["no"] else "Exists"
    else:
        raise ValueError(f"{part!r} is none of key=value, key!=value, key in (a, b), key, !key")
    if not _KEY.fullmatch(found["key"]):
        raise ValueError(f"{found['key']!r} cannot be the key of a label")
    for value in values:
        if not _VALUE.fullmatch(value):
            raise ValueError(f"{value!r} cannot be the value of a label")
    return Requirement(found["key"], operator, values)
