"""Lane: the callbacks of one process, run first in, first out, by the process's own clock.

A context variable names the lane in which code runs. Tasks inherit it with the rest of their
context, so whatever a process starts stays in its lane, and code that runs in it needs to know
nothing of it. What runs in no lane belongs to the world itself: the scenario, the wires.

A lane that has ended never runs again, and so its coroutines stay suspended where they were, as
the death of a process leaves them: no ``finally`` and no ``except`` sees it. Python would still
run those when it collects the coroutines, so the lane keeps what it left behind. ``bury`` lets
go of it, when the world is over and nobody is left to be misled.
"""

import asyncio
import logging
import sys
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from types import AsyncGeneratorType
from typing import Any

from backstay.sim.clock import Oscillator
from backstay.sim.handle import Handle

LANE: ContextVar["Lane"] = ContextVar("lane")

# A coroutine that is told to end may wait once more in each ``finally`` on its way out.
_WAITS_ON_THE_WAY_OUT = 100


class Lane:
    """See the module. ``clock`` is None for true time. Only the loop changes its state: ``idle``
    says that it is not lined up to run, and that nothing forbids it."""

    __slots__ = ("_remains", "clock", "ended", "idle", "name", "overdue", "paused", "ready")

    def __init__(self, name: str, clock: Oscillator | None = None) -> None:
        self.name = name
        self.clock = clock
        self.ready: deque[Handle] = deque()
        self.overdue: list[Handle] = []
        self.idle = True
        self.paused = False
        self.ended = False
        self._remains: list[object] = []

    def context(self) -> Context:
        """A new context in this lane, with nothing else in it."""
        context = Context()
        context.run(LANE.set, self)
        return context

    def keep(self, *remains: object) -> None:
        self._remains.extend(remains)

    def bury(self) -> None:
        with _nobody_listening():
            for remains in self._remains:
                if isinstance(remains, asyncio.Task):
                    _end(remains.get_coro())
            for remains in self._remains:
                if isinstance(remains, AsyncGeneratorType):
                    # The generator itself goes quietly; what it was waiting for would not.
                    _end(remains.ag_await)
            self._remains.clear()
            self.ready.clear()
            self.overdue.clear()


def current_lane() -> Lane | None:
    """The lane of whoever calls this; None for the world itself."""
    return LANE.get(None)


def _end(awaitable: Any) -> None:
    if not hasattr(awaitable, "close"):
        return
    for _ in range(_WAITS_ON_THE_WAY_OUT):
        try:
            awaitable.close()
        except RuntimeError:
            # "coroutine ignored GeneratorExit": it waits for something on its way out.
            continue
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 - however it ends, nobody is left to care
            return
        return


@contextmanager
def _nobody_listening() -> Iterator[None]:
    """The last words of the dead are no news."""
    logs_before, hook_before = logging.root.manager.disable, sys.unraisablehook
    logging.disable()
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logs_before)
        sys.unraisablehook = hook_before
