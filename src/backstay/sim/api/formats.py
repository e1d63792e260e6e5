"""Formats: whether a string is what the ``format`` of a custom resource's schema says.

A format that is not in the table is not checked; the server does not know most names either.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from urllib.parse import urlsplit

_HEX = "[0-9a-f]"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_HOST_LABEL = r"[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"
_MAC_BYTES = (6, 8, 20)

_GO_DURATION = re.compile(r"[-+]?(0|((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)\Z")
_LONG_DURATION = re.compile(r"\d+\s*([A-Za-zµ]+)")
_DURATION_UNITS = frozenset({"ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"})
_DURATION_WORDS = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(.\d+)?(z|[+-]\d\d:\d\d)\Z")


def _matches(pattern: str, flags: int = 0) -> Callable[[str], bool]:
    compiled = re.compile(pattern, flags)
    return lambda text: compiled.fullmatch(text) is not None


def _uuid(version: str) -> Callable[[str], bool]:
    variant = f"{_HEX}{{4}}" if version in ("", "3") else f"[89ab]{_HEX}{{3}}"
    third = f"{version}{_HEX}{{3}}" if version else f"{_HEX}{{4}}"
    return _matches(f"{_HEX}{{8}}-?{_HEX}{{4}}-?{third}-?{variant}-?{_HEX}{{12}}", re.IGNORECASE)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == len("2006-01-02")


def _is_date_time(text: str) -> bool:
    day, _, rest = text.lower().partition("t")
    clock = _CLOCK.match(rest)
    if clock is None or not _is_date(day):
        return False
    hour, minute, second = clock.group(1, 2, 3)
    return hour <= "23" and minute <= "59" and second <= "59"


def _is_duration(text: str) -> bool:
    if _GO_DURATION.match(text):
        return True
    units = [unit.lower() for unit in _LONG_DURATION.findall(text)]
    return any(unit in _DURATION_UNITS or unit.startswith(_DURATION_WORDS) for unit in units)


def _is_address(version: int) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return address.version == version and "%" not in text

    return test


def _is_cidr(text: str) -> bool:
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    return text.rpartition("/")[2].isdecimal() and "/" in text


def _is_mac(text: str) -> bool:
    for separator, digits in ((":", 2), ("-", 2), (".", 4)):
        parts = text.split(separator)
        if len(parts) > 1:
            pattern = re.compile(rf"[0-9a-fA-F]{{{digits}}}\Z")
            return all(map(pattern.match, parts)) and len(parts) * digits // 2 in _MAC_BYTES
    return False


def _is_hostname(text: str) -> bool:
    labels = text.split(".")
    if len(text) > 255 or not all(re.fullmatch(_HOST_LABEL, label) for label in labels):
        return False
    return len(labels) == 1 or re.fullmatch(r"[a-zA-Z]{2,63}", labels[-1]) is not None


def _is_uri(text: str) -> bool:
    """What may stand in a request: an absolute URI or an absolute path."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme) or text.startswith("/")


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return bool(text)


_CHECKS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _matches(f"{_HEX}{{24}}", re.IGNORECASE),
    "byte": _is_base64,
    "cidr": _is_cidr,
    "date": _is_date,
    "datetime": _is_date_time,
    "duration": _is_duration,
    "hexcolor": _matches(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": _is_hostname,
    "ipv4": _is_address(4),
    "ipv6": _is_address(6),
    "k8slongname": _matches(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*"),
    "k8sshortname": _matches(rf"(?=.{{1,63}}\Z){_LABEL}"),
    "mac": _is_mac,
    "uri": _is_uri,
    "uuid": _uuid(""),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4"),
    "uuid5": _uuid("5"),
}


def is_checked(name: str) -> bool:
    return _normal(name) in _CHECKS


def fits(name: str, text: str) -> bool:
    """Whether the text has this format; any text has one that is not checked."""
    check = _CHECKS.get(_normal(name))
    return check is None or check(text)


def _normal(name: str) -> str:
    return name.replace("-", "")
