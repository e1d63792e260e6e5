"""Handle and Timer: callbacks that a ``VirtualLoop`` has yet to run.

asyncio's own ask at each turn whether to remember by whom they were made, and keep much for
messages. There are dozens of them for every request of a simulation, so these keep only what it
takes to run them, and the loop runs them itself.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any


class Handle(asyncio.Handle):
    """One that was cancelled has neither callback nor arguments any more."""

    __slots__ = ()
    _callback: Callable[..., object] | None
    _context: Context
    _repr = None
    _source_traceback = None

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = None
        self._args = ()


class Timer(Handle, asyncio.TimerHandle):
    """The same, for later. ``on_cancel`` is called once, if it is."""

    __slots__ = ("_on_cancel",)
    _when: float

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
        on_cancel: Callable[[], None],
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self._when = when
        self._on_cancel = on_cancel

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = None
            self._args = ()
            self._on_cancel()
