"""Handle and Timer: callbacks that a ``VirtualLoop`` has yet to run.

asyncio's own ask at each turn whether to remember by whom they were made, and keep much for
messages. There are dozens of them for every request of a simulation, so these keep only what it
takes to run them, and the loop runs them itself. They stand in for asyncio's: nobody who is given
one does more with it than to cancel it, or to ask when it is due.
"""

from collections.abc import Callable
from contextvars import Context
from typing import Any

import msgspec


class Handle(msgspec.Struct, eq=False):
    """One that was cancelled has neither callback nor arguments any more."""

    callback: Callable[..., object] | None
    args: tuple[Any, ...]
    context: Context

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None


class Timer(Handle, eq=False):
    """The same, for later. ``on_cancel`` is called if it is cancelled while it is still set."""

    due: float
    on_cancel: Callable[[], None] | None

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self.args = ()
            if self.on_cancel is not None:
                self.on_cancel()

    def when(self) -> float:
        """By the clock of the lane that it will run in."""
        return self.due
