"""Hands: several of them work on the keys of one controller, side by side.

A key waits at most once, and no two hands are ever on the same: one that is added while it is
worked on is worked on once more. A hand goes from key to key while any waits, because a task of its
own for each key would cost more than most looks, which find nothing to do.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

from backstay.sim.api.store import Key

Work = Callable[[Key], Awaitable[float | None]]
"""Does what is due, and says in how many seconds to look again, if so. Its failure ends all."""


class Hands:
    """See the module. Keys can be added while it runs."""

    def __init__(self, number: int, work: Work) -> None:
        self._free = number
        self._work = work
        self._group = asyncio.TaskGroup()
        self._waiting: dict[Key, None] = {}
        self._later: dict[Key, asyncio.TimerHandle] = {}
        self._busy: dict[Key, bool] = {}
        """What is being worked on, and whether it has been added since."""
        self._over = False

    async def run(self, begin: Callable[[], None]) -> None:
        """Until it is cancelled, or a piece of work fails."""
        try:
            async with self._group:
                begin()
                await self._for_ever()
        finally:
            for timer in self._later.values():
                timer.cancel()

    async def _for_ever(self) -> NoReturn:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._over = True
        raise AssertionError("nobody ends the wait but by cancelling it")

    def add(self, key: Key) -> None:
        if self._over:
            # Hands that are under way take their time to end, and others go on meanwhile.
            return
        if key in self._busy:
            self._busy[key] = True
        elif key not in self._waiting:
            timer = self._later.pop(key, None)
            if timer is not None:
                timer.cancel()
            self._waiting[key] = None
            if self._free:
                self._free -= 1
                self._group.create_task(self._go_through())

    async def _go_through(self) -> None:
        while self._waiting:
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._busy[key] = False
            again = await self._work(key)
            if self._busy.pop(key):
                self._waiting[key] = None
            elif again is not None:
                loop = asyncio.get_running_loop()
                self._later[key] = loop.call_later(again, self.add, key)
        self._free += 1
