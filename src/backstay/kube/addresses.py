"""Addresses: several ways to one API, so that the death of one API server does not blind us.

The configured address (a service IP, a load balancer) comes first; the API servers' own
addresses, once learned from the endpoints of ``default/kubernetes``, follow. We stay with an
address while it works, which keeps connections warm, and leave it at the first failure. An
address that failed rests for a while, unless all do.

``CONNECT_BUDGET`` bounds how long it may take to have tried every address: a service IP that
leads to a dead API server is given its share of it, not a TCP time-out of minutes. Those for
which the share was too short have one more turn (``Turns``) and what is left of the call's own
time, because a slow API server is better than none.
"""

from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec

CONNECT_BUDGET = 2.0
REST = 10.0
_LEAST_CONNECT = 0.25


class Addresses:
    """Base URLs of one API, in the order in which to try them."""

    def __init__(self, configured: str) -> None:
        self.configured = configured
        self.connect_timeout = CONNECT_BUDGET
        """How many seconds an address has, as a rule, to accept a connection."""
        self._learned: tuple[str, ...] = ()
        self._rests_until: dict[str, float] = {}
        self._current = configured

    @property
    def all(self) -> tuple[str, ...]:
        return (self.configured, *self._learned)

    @property
    def host(self) -> str:
        """The configured host: certificates are checked against it whichever address is used."""
        return urlsplit(self.configured).hostname or ""

    def learn(self, urls: Iterable[str]) -> None:
        """Replaces what was learned before; an empty answer teaches nothing.

        Nor can anything be learned through a gateway, which is what a base URL with a path or
        without TLS leads to: our identity is known to the gateway, not to what is behind it.
        """
        found = tuple(sorted(set(urls) - {self.configured}))
        if not found or self._is_gateway:
            return
        self._learned = found
        self.connect_timeout = max(_LEAST_CONNECT, CONNECT_BUDGET / len(self.all))
        self._rests_until = {u: at for u, at in self._rests_until.items() if u in self.all}

    @property
    def _is_gateway(self) -> bool:
        parts = urlsplit(self.configured)
        return parts.scheme != "https" or bool(parts.path.strip("/"))

    def order(self, now: float) -> list[str]:
        """Every address once: the one in use, then the rested, then those that failed of late."""
        if not self._learned:
            return [self.configured]

        def rank(url: str) -> tuple[float, bool]:
            resting = self._rests_until.get(url, 0.0)
            return (resting if resting > now else 0.0, url != self._current)

        return sorted(self.all, key=rank)

    def worked(self, url: str) -> None:
        self._current = url
        if url in self._rests_until:
            del self._rests_until[url]

    def failed(self, url: str, now: float) -> None:
        self._rests_until[url] = now + REST


class Turn(msgspec.Struct, frozen=True):
    """An address to try, and how many seconds it has to accept a connection. The ``last`` one has
    none after it, as far as is known before it was tried."""

    base: str
    patience: float
    hurried: bool
    last: bool


class Turns:
    """The addresses that one call tries. See the module."""

    __slots__ = ("_hurried", "_share", "_slow")

    def __init__(self, addresses: Addresses, now: float) -> None:
        self._share = addresses.connect_timeout
        self._hurried = addresses.order(now)
        self._slow: list[str] = []

    def next(self, left: float) -> Turn | None:
        """Whose turn it is when the call has ``left`` seconds to go; None when it is nobody's."""
        line = self._hurried or self._slow
        if left <= 0 or not line:
            return None
        hurried = line is self._hurried
        patience = left / len(line)
        # A call that has less time than the budget leaves each address its part of that.
        if hurried and patience > self._share:
            patience = self._share
        base = line.pop(0)
        return Turn(base, patience, hurried, not (self._hurried or self._slow))

    def unreached(self, turn: Turn, after: float) -> None:
        """No connection came about: was that a refusal, or was its share too short for it?"""
        if turn.hurried and after >= turn.patience / 2:
            self._slow.append(turn.base)
