"""Clockwork: lets time pass for DRBD, on a loop in virtual time or in real time.

It belongs to no program: what happens in the kernels of nodes goes on whatever their programs do.
"""

import asyncio
from contextvars import Context

from backstay.sim.linstor.drbd import Drbd


class Clockwork:
    """Runs from the first change on, until ``stop``."""

    def __init__(self, drbd: Drbd) -> None:
        self._drbd = drbd
        self._timer: asyncio.TimerHandle | None = None
        self._release = drbd.follow(lambda _: self._wind())

    def stop(self) -> None:
        self._release()
        if self._timer is not None:
            self._timer.cancel()

    def _wind(self) -> None:
        due = self._drbd.due
        if self._timer is not None:
            if self._timer.when() == due:
                return
            self._timer.cancel()
            self._timer = None
        if due is not None:
            # In no program's context: its clock, and its death, are nothing to the kernel.
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(due, self._strike, context=Context())

    def _strike(self) -> None:
        self._timer = None
        self._drbd.advance()
        self._wind()
