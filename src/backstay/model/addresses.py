"""Addresses: which ones a pod holds, whether its successor will ask for the same, and what became
of them.

An address that a workload is pinned to stays taken when its node dies: the network gives it back
only when the node's own plugin says so, which a dead node never does. The workload's new pod then
waits for it. So it is released with the pod, under the same proof, and only if the network says
that it is still this very pod's.

A claim is what annotations say, and they are written by tenants: it names what to look for and
proves nothing. Whose an address is, the network's own records say.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from backstay.model.reasons import Reason, Why


class AddressClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of one pod. ``workload`` is in words; ``container`` is the sandbox to which
    they were given; ``pinned`` are those that somebody has asked for by name; ``guest`` is the
    name of the virtual machine that runs in the pod, if one does."""

    workload: str
    namespace: str
    pod: str
    node: str
    container: str
    addresses: tuple[str, ...]
    pinned: tuple[str, ...] = ()
    guest: str = ""

    @property
    def will_be_asked_for(self) -> bool:
        """Whether the next pod of the workload needs what this one holds."""
        return not set(self.pinned).isdisjoint(self.addresses)

    @property
    def owner(self) -> tuple[str, str, str]:
        return self.namespace, self.pod, self.node

    def has_handle(self, handle: str) -> bool:
        """A handle is the name of the network and that of the container."""
        return bool(self.container) and handle.rpartition(".")[2] == self.container

    def is_its_guests(self, handle: str) -> bool:
        """Whether the network keeps under this handle what is the virtual machine's, whichever of
        its pods has it now."""
        return bool(self.guest) and handle.endswith(f".vmi.{self.namespace}.{self.guest}")


class Fate(StrEnum):
    RELEASED = "Released"
    COOLING = "Cooling"
    """Released, and not to be used again for a while."""
    FREE = "Free"
    """Nobody had it any more: perhaps a predecessor of ours released it and died."""
    KEPT = "Kept"
    """The network itself gives it to the workload's next pod."""
    BOUND = "Bound"
    """The network lets no other node use it."""
    UNPROVEN = "Unproven"
    """What is proven says nothing about who uses it."""
    LEFT = "Left"


class AddressOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one address. ``because`` is for those that were left."""

    claim: AddressClaim
    address: str
    fate: Fate
    because: str = ""
    seconds: int = 0


def told(outcomes: Iterable[AddressOutcome]) -> tuple[Why, ...]:
    """In words: one sentence for all addresses of a workload to which the same has happened."""
    alike: dict[tuple[str, Fate, str], list[AddressOutcome]] = {}
    for outcome in outcomes:
        key = (outcome.claim.workload, outcome.fate, outcome.because)
        alike.setdefault(key, []).append(outcome)
    return tuple(map(_why, alike.values()))


def _why(outcomes: list[AddressOutcome]) -> Why:
    first = outcomes[0]
    about: dict[str, object] = {
        "workload": first.claim.workload,
        "node": first.claim.node,
        "addresses": " and ".join(outcome.address for outcome in outcomes),
        "address": first.address,
    }
    match first.fate:
        case Fate.RELEASED | Fate.FREE:
            return Reason.AddressReleased.because(**about)
        case Fate.COOLING:
            return Reason.AddressCoolsDown.because(**about, seconds=first.seconds)
        case Fate.KEPT:
            return Reason.AddressKept.because(**about)
        case Fate.BOUND:
            return Reason.AddressBound.because(**about)
        case Fate.UNPROVEN:
            return Reason.AddressMayBeUsed.because(**about)
        case Fate.LEFT:
            return Reason.AddressLeft.because(**about, because=first.because)
