"""Durations as people write them: ``30m``, ``2h``, ``1d``."""

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
