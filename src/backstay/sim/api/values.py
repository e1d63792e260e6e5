"""Values that decode themselves: quantities and times.

A real server reads ``1024Mi`` and says ``1Gi``: what is stored is the value in its usual form, not
the text that was sent. What cannot be read is refused in the words of whoever tried to.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

_QUANTITY = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)\Z")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)\Z")
_EXPONENT = re.compile(r"[eE][-+]?\d+\Z")
_DECIMAL = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
# Most are sent as they are kept.
_USUAL = re.compile(r"(0|[1-9]\d{0,2}([numkMGTPE]|[KMGTPE]i)?)\Z")
_LEAST = Fraction(1, 10**9)


class Unreadable(Exception):
    """The text is the decoder's."""


# Quantities


def quantity(sent: Any) -> str:
    """In the usual form. Raises ``Unreadable``."""
    text = sent if type(sent) is str else repr(sent)
    if _USUAL.match(text):
        return text
    parts = _QUANTITY.match(text)
    if type(sent) not in (str, int, float) or parts is None or not _NUMBER.match(parts[1]):
        raise Unreadable(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    number, suffix = Fraction(parts[1]), parts[2]
    if suffix in _BINARY:
        return _in_binary(number * 1024 ** _BINARY[suffix])
    if suffix in _DECIMAL:
        return _in_steps(_rounded(number * Fraction(1000) ** _DECIMAL[suffix]), _DECIMAL)
    if _EXPONENT.match(suffix):
        exponents = {f"e{3 * step}" if step else "": step for step in _DECIMAL.values()}
        return _in_steps(_rounded(number * Fraction(10) ** int(suffix[1:])), exponents)
    raise Unreadable("unable to parse quantity's suffix")


def _rounded(value: Fraction) -> Fraction:
    """Nothing finer is kept, and nothing is less than it was."""
    return -((-value) // _LEAST) * _LEAST


def _in_steps(value: Fraction, names: Mapping[str, int]) -> str:
    if not value:
        return "0"
    for name, step in sorted(names.items(), key=lambda each: -each[1]):
        count = value / Fraction(1000) ** step
        if count.denominator == 1:
            return f"{count.numerator}{name}"
    raise AssertionError("what is rounded fits the least step")


def _in_binary(value: Fraction) -> str:
    if abs(value) < 1024 or value.denominator != 1:
        return _in_steps(_rounded(value), _DECIMAL)
    for name, step in sorted(_BINARY.items(), key=lambda each: -each[1]):
        if value.numerator % 1024**step == 0:
            return f"{value.numerator // 1024**step}{name}"
    return str(value.numerator)


# Times

_DATE = (("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"))
_CLOCK = (("T", "T"), ("15", r"\d\d"), (":", ":"), ("04", r"\d\d"), (":", ":"), ("05", r"\d\d"))
_ZONE = ("Z07:00", r"Z|[+-]\d\d:\d\d")
_TIME = (*_DATE, *_CLOCK, ("", r"([.,]\d+)?"), _ZONE)
_MICRO_TIME = (*_DATE, *_CLOCK, (".000000", r"\.\d{6}"), _ZONE)

_STAMP = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-([01]\d|2[0-8])T([01]\d|2[0-3])(:[0-5]\d){2}(\.\d{6})?Z\Z"
)


def time(sent: Any) -> str:
    """In UTC and whole seconds. Raises ``Unreadable``."""
    if type(sent) is str and _STAMP.match(sent) and "." not in sent:
        return sent
    return _moment(sent, _TIME).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(sent: Any) -> str:
    if type(sent) is str and _STAMP.match(sent) and "." in sent:
        return sent
    return _moment(sent, _MICRO_TIME).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(sent: Any, layout: tuple[tuple[str, str], ...]) -> datetime:
    if type(sent) is not str:
        raise Unreadable("json: cannot unmarshal into Go value of type string")
    rest = sent
    for name, pattern in layout:
        found = re.match(pattern, rest)
        if found is None:
            whole = "".join(part for part, _ in layout)
            raise Unreadable(
                f'parsing time "{sent}" as "{whole}": cannot parse "{rest}" as "{name}"'
            )
        rest = rest[found.end() :]
    if rest:
        raise Unreadable(f'parsing time "{sent}": extra text: "{rest}"')
    try:
        return datetime.fromisoformat(sent.replace(",", ".")).astimezone(UTC)
    except ValueError:
        raise Unreadable(f'parsing time "{sent}": {_out_of_range(sent)} out of range') from None


def _out_of_range(text: str) -> str:
    parts = (("month", 5, 12), ("hour", 11, 23), ("minute", 14, 59), ("second", 17, 59))
    for name, at, most in parts:
        if int(text[at : at + 2]) > most or (name == "month" and text[at : at + 2] == "00"):
            return name
    return "day"


DECODERS: Mapping[str, Callable[[Any], str]] = {
    "api.resource.Quantity": quantity,
    "apis.meta.v1.Time": time,
    "apis.meta.v1.MicroTime": micro_time,
}
"""By the names of their types."""
