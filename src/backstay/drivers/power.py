"""Power devices: what a machine's power hangs on, such as its BMC, asked by the name of its node.

* ``sight`` is what the device says when it is asked now. It is the only thing that shows whether a
  machine is off.
* ``switch_off`` and ``switch_on`` put one request on the wire at most, none after ``not_after``.
  That one was answered says nothing about the machine: what became of it has to be seen. It may
  still arrive for ``DEADLINE`` seconds after that moment, and no longer.
"""

from typing import Protocol

import msgspec

DEADLINE = 10.0
"""Seconds that a request to switch something may take."""


class PowerFailed(Exception):
    """It could not be asked, in a sentence without secrets."""


class PowerReading(msgspec.Struct, frozen=True, kw_only=True):
    """``on`` is None while it changes, and where the device does not say. ``uuid`` is whose power
    it is, as the device names the machine; ``detail`` is what it says, as a part of a sentence."""

    on: bool | None
    uuid: str
    detail: str


class PowerDevices(Protocol):
    """See the module. All but ``nodes`` and ``refresh`` raise ``PowerFailed``."""

    def nodes(self) -> frozenset[str]:
        """For which there is a device, as of the last ``refresh``."""

    async def refresh(self) -> tuple[str, ...]:
        """Looks which devices there are. What is wrong with how they are described, a sentence
        each; it keeps none of the others from being used."""

    async def sight(self, node: str) -> PowerReading:
        """As it is now."""

    async def switch_off(self, node: str, *, not_after: float) -> None:
        """At once, as if a plug were pulled. One that is off already is left alone."""

    async def switch_on(self, node: str, *, not_after: float) -> None:
        """One that is on already is left alone."""
