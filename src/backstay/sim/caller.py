"""Caller: a process as those see it that it asks: the connections that it keeps for its next
requests, and how long it waits for the answers.

There is one timer for all of its deadlines, by its own clock, because nearly all answers are there
long before they have to be: it looks who still waits, and goes on to the next deadline.
"""

import asyncio
import math
from typing import Protocol

from backstay.sim.lane import Lane
from backstay.sim.loop import VirtualLoop


class Awaited(Protocol):
    """What somebody waits for."""

    def expire(self) -> None:
        """Nobody waits for it any longer."""


class Caller:
    """See the module. It stands for the process in ``lane``; None is the world itself."""

    __slots__ = ("_looks_at", "deadlines", "idle", "lane", "loop", "name", "virtual")

    def __init__(self, lane: Lane | None) -> None:
        self.lane = lane
        self.name = name_of(lane)
        self.loop = asyncio.get_running_loop()
        self.virtual = self.loop if isinstance(self.loop, VirtualLoop) else None
        self.idle: dict[str, int] = {}
        """How many connections are left from earlier requests, by their addresses."""
        self.deadlines: dict[Awaited, float] = {}
        # Of the timers that are set, each sooner than the one before. What was set for later stays
        # so, because deadlines that are far off come back when the near ones are over.
        self._looks_at = [math.inf]

    def must_hear(self, awaited: Awaited, deadline: float) -> None:
        """By this ``loop.time()`` of its own, or it waits no longer."""
        self.deadlines[awaited] = deadline
        if deadline < self._looks_at[-1]:
            self._look_at(deadline)

    def _look_at(self, moment: float) -> None:
        self._looks_at.append(moment)
        self.loop.call_at(moment, self._look)

    def _look(self) -> None:
        self._looks_at.pop()
        now = self.loop.time()
        for awaited in [each for each, deadline in self.deadlines.items() if deadline <= now]:
            del self.deadlines[awaited]
            awaited.expire()
        if self.deadlines and (soonest := min(self.deadlines.values())) < self._looks_at[-1]:
            self._look_at(soonest)


def name_of(lane: Lane | None) -> str:
    """The name of the process that a lane belongs to."""
    return lane.name if lane else "world"
