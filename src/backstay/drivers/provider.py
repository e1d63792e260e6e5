"""Providers: whoever runs the machine that a node is, and can say whether it is on.

A driver answers for one instance, by the node's ``spec.providerID``. It says *off* only where the
provider has observed that the machine does not run and is not about to: stopped or terminated.
Suspended is not off, because what is suspended goes on where it was; neither is stopping, unknown,
or an instance that the provider does not know.
"""

from typing import Protocol

import msgspec


class ProviderFailed(Exception):
    """It could not be asked, in a sentence without secrets."""


class InstanceState(msgspec.Struct, frozen=True):
    """``detail`` is what the provider says, in its own words."""

    off: bool
    detail: str


class Provider(Protocol):
    """See the module."""

    @property
    def name(self) -> str:
        """As people know it."""

    def knows(self, provider_id: str) -> bool:
        """Whether this is the name of one of its instances."""

    async def state(self, provider_id: str) -> InstanceState:
        """As it is now. Raises ``ProviderFailed``."""
