"""Controllers beside the API: what follows the store, and acts on it a little later.

A real controller hears of a change through a watch and answers it with requests of its own. Here
it follows the store and does each piece of work in a later turn of the loop, one at a time and
with a pause that stands for the request, so that everybody else can come in between and every
step can be watched. Work is a key and says nothing of what has changed: whoever does it looks.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from backstay.sim.api.status import Refusal
from backstay.sim.api.store import Commit, Store

K = TypeVar("K", bound=Hashable)

STEP = 0.002
RETRY = 0.5


class Controller(ABC, Generic[K]):
    """``run`` works until it is cancelled; ``hear`` says what a commit gives it to do. ``hears``
    names the kinds that it hears of; None is all of them."""

    hears: frozenset[str] | None = None

    def __init__(self, store: Store) -> None:
        self.store = store
        self._waiting: dict[K, None] = {}
        self._later: dict[K, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()

    @abstractmethod
    def hear(self, commit: Commit) -> None: ...

    @abstractmethod
    def begin(self) -> None:
        """Adds what there is to do for everything that is there already."""

    @abstractmethod
    def work(self, key: K) -> None:
        """Does it. A ``Refusal`` means that somebody was faster: it is done again later."""

    def add(self, key: K) -> None:
        self._waiting[key] = None
        self._wake.set()

    def add_after(self, key: K, seconds: float) -> None:
        """The last one to say when is the one that counts."""
        timer = self._later.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._later[key] = asyncio.get_running_loop().call_later(seconds, self._due, key)

    def _due(self, key: K) -> None:
        del self._later[key]
        self.add(key)

    async def run(self) -> None:
        release = self._follow()
        try:
            self.begin()
            while True:
                while not self._waiting:
                    self._wake.clear()
                    await self._wake.wait()
                await asyncio.sleep(STEP)
                self._do_next()
        finally:
            release()
            for timer in self._later.values():
                timer.cancel()
            self._later.clear()

    def _follow(self) -> Callable[[], None]:
        if self.hears is None:
            return self.store.follow(None, self.hear)
        return self.store.follow_each(sorted(self.hears), self.hear)

    def _do_next(self) -> None:
        key = next(iter(self._waiting))
        del self._waiting[key]
        try:
            self.work(key)
        except Refusal as refusal:
            if refusal.code != 404:
                self.add_after(key, RETRY)
