"""Addresses: several ways to one API, so that the death of one API server does not blind us.

The configured address (a service IP, a load balancer) comes first; the API servers' own
addresses, once learned from the endpoints of ``default/kubernetes``, follow. We stay with an
address while it works, which keeps connections warm, and leave it at the first failure. An
address that failed rests for a while, unless all do.

``CONNECT_BUDGET`` bounds how long it may take to have tried every address: a service IP that
leads to a dead API server is given its share of it, not a TCP time-out of minutes.
"""

from collections.abc import Iterable
from urllib.parse import urlsplit

CONNECT_BUDGET = 2.0
REST = 10.0
_LEAST_CONNECT = 0.25


class Addresses:
    """Base URLs of one API, in the order in which to try them."""

    def __init__(self, configured: str) -> None:
        self.configured = configured
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

    @property
    def connect_timeout(self) -> float:
        return max(_LEAST_CONNECT, CONNECT_BUDGET / len(self.all))

    def learn(self, urls: Iterable[str]) -> None:
        """Replaces what was learned before; an empty answer teaches nothing.

        A base URL with a path is a gateway, not an API server: behind it nothing can be learned.
        """
        found = tuple(sorted(set(urls) - {self.configured}))
        if not found or urlsplit(self.configured).path.strip("/"):
            return
        self._learned = found
        if self._current not in self.all:
            self._current = self.configured

    def order(self, now: float) -> list[str]:
        """Every address once: the one in use, then the rested, then those that failed of late."""

        def rank(url: str) -> tuple[float, bool]:
            resting = self._rests_until.get(url, 0.0)
            return (resting if resting > now else 0.0, url != self._current)

        return sorted(self.all, key=rank)

    def worked(self, url: str) -> None:
        self._current = url
        self._rests_until.pop(url, None)

    def failed(self, url: str, now: float) -> None:
        self._rests_until[url] = now + REST
