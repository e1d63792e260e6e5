"""Fate: what becomes of one request on its way, drawn by chance or written in a script.

A ``Network`` asks its ``fate`` about each ``Attempt``. The answer says what the network does to
it, and travels with the request: whoever wraps a handler can read ``current_fate`` and add what
only the handler's side can do to it. Such a wrapper extends ``Fate`` by its own fields, so that
one draw, or one line of a script, decides all that goes wrong with a request.

When a request left its sender travels along as well (``left_at``), for those who judge senders: it
may have been on the wire for minutes.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Literal, Protocol, TypeAlias

import msgspec

from backstay.seam.transport import Request
from backstay.sim.chance import Chance

Loss: TypeAlias = Literal["reset", "silence"]
"""Whether the caller learns of it at once, or by its own timeout."""


class Carried(Protocol):
    """A request that has arrived: what becomes of it, and when it left, in true time."""

    @property
    def fate(self) -> "Fate": ...

    @property
    def began(self) -> float: ...


CARRIED: ContextVar[Carried] = ContextVar("carried")
"""What the handler that runs in this context is answering."""


class Attempt(msgspec.Struct, frozen=True):
    """A request that is about to be made. ``number`` counts all requests of the network."""

    number: int
    caller: str
    address: str
    request: Request


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """All is well, unless it says otherwise.

    * ``refuse``: there is no connection;  ``connect_delay``: there is one, but late;
    * ``delay``: seconds that everything is under way in each direction, on top of the rest;
    * ``lose_request``: it leaves, but does not arrive;
    * ``lose_answer``: the handler does its work, but nobody hears of it;
    * ``cut_after``: seconds after which the connection is reset, whatever was said by then;
    * ``drip``: the answer comes in pieces of so many bytes, one every so many seconds.
    """

    refuse: bool = False
    connect_delay: float = 0.0
    delay: float = 0.0
    lose_request: Loss | None = None
    lose_answer: Loss | None = None
    cut_after: float | None = None
    drip: tuple[int, float] | None = None


ALL_WELL = Fate()

Fates: TypeAlias = Callable[[Attempt], Fate]


def current_fate() -> Fate:
    """The fate of the request that the calling handler is answering."""
    carried = CARRIED.get(None)
    return ALL_WELL if carried is None else carried.fate


def left_at() -> float | None:
    """When the request that the calling handler is answering was put on the wire, in true time;
    None for one that came another way."""
    carried = CARRIED.get(None)
    return None if carried is None else carried.began


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """How probable each trouble is, for each request by itself. At most one befalls it."""

    refuse: float = 0.0
    late: float = 0.0
    slow: float = 0.0
    lose_request: float = 0.0
    lose_answer: float = 0.0
    cut: float = 0.0
    drip: float = 0.0
    seconds: float = 5.0
    """The mean of whatever takes time."""

    def fates(self, chance: Chance) -> Fates:
        return lambda attempt: self.draw(chance)

    def draw(self, chance: Chance) -> Fate:
        roll = chance.random()
        for trouble in _TROUBLES:
            roll -= getattr(self, trouble)
            if roll < 0:
                return _TROUBLES[trouble](self, chance)
        return ALL_WELL


def _loss(chance: Chance) -> Loss:
    return "reset" if chance.happens(0.5) else "silence"


_TROUBLES: dict[str, Callable[[Weather, Chance], Fate]] = {
    "refuse": lambda weather, chance: Fate(refuse=True),
    "late": lambda weather, chance: Fate(connect_delay=chance.exponential(weather.seconds)),
    "slow": lambda weather, chance: Fate(delay=chance.exponential(weather.seconds)),
    "lose_request": lambda weather, chance: Fate(lose_request=_loss(chance)),
    "lose_answer": lambda weather, chance: Fate(lose_answer=_loss(chance)),
    "cut": lambda weather, chance: Fate(cut_after=chance.exponential(weather.seconds)),
    "drip": lambda weather, chance: Fate(drip=(1 + chance.below(64), chance.between(0.0, 0.1))),
}
