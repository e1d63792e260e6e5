"""Durations as people write them: ``30m``, ``2h``, ``1d``; and as programs in Go do: ``1m30s``."""

import re
from datetime import timedelta

import click

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class Duration(click.ParamType[timedelta]):
    """At least a minute, and at most ``longest``."""

    name = "duration"

    def __init__(self, longest: timedelta) -> None:
        self._longest = longest

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        match = re.fullmatch(r"([0-9]{1,5})([mhd])", str(value))
        if match is None:
            self.fail(f"{value!r} is not a duration such as 30m, 2h or 1d.", param, ctx)
        length = timedelta(**{_UNITS[match[2]]: int(match[1])})
        if not timedelta() < length <= self._longest:
            self.fail(f"{value!r} is not between 1m and {_spoken(self._longest)}.", param, ctx)
        return length


def _spoken(length: timedelta) -> str:
    return f"{length.days}d" if length.days else f"{length.seconds // 3600}h"


_GO_UNITS = {
    "ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0,
    "h": 3600.0,
}  # fmt: skip
_GO_PART = re.compile(rf"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)({'|'.join(_GO_UNITS)})")
_LONGEST_GO = 30 * 24 * 3600.0


class GoDuration(click.ParamType[float]):
    """In seconds; from nothing to thirty days."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value).removeprefix("+")
        parts = _GO_PART.findall(text)
        if text != "0" and (not parts or "".join(map("".join, parts)) != text):
            self.fail(f"{value!r} is not a duration such as 45s or 1m30s.", param, ctx)
        seconds = sum(float(number) * _GO_UNITS[unit] for number, unit in parts)
        if seconds > _LONGEST_GO:
            self.fail(f"{value!r} is longer than 720h.", param, ctx)
        return seconds
