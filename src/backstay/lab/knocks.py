"""Knocks: what our controllers could have heard of a node at its port, as the wires have it.

A death that is presumed rests on silence alone. Whether there was silence is asked of the network
and of the API's history, never of the controllers:

* for as long as a presumption takes, the API had heard nothing of the node,
* nobody of ours had met anybody at its port, be it to be refused,
* from two nodes of which it is none it was tried all the while, and to the last,
* and each of those met the kubelet of some other node a moment ago.

Where all of that is so, and the node ran all the same, that is the risk which its owners accepted.

What rests on more than silence is refuted by an answer: ``answered_at`` says of which answer one of
ours must have known.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from backstay.model.policy import Times
from backstay.sim.network import Contact

_KUBELET = "kubelet"
_PLACES = 2

_SHARE = 0.98
"""Clocks drift: somebody may have counted 150 s a little early."""

_NEWS = 10.0
"""Seconds that others have to tell us what they have just met."""

_KNOWN = 4.0
"""Seconds until one that has met somebody knows it, also if nothing comes over the connection."""

_KNOCK = 5.0
"""Seconds between two knocks."""


@dataclass
class Knocks:
    """``contacts`` are the network's, by the names of processes; ``ours`` are those of our
    controllers, by the users that they are. Without ``contacts`` there are no ports, and nobody can
    be presumed dead."""

    factor: float = 1.0
    contacts: Mapping[tuple[str, str], Contact] = field(default_factory=dict)
    ours: Mapping[str, str] = field(default_factory=dict)

    def against(self, node: str, *, at: float, heard_at: float) -> str:
        """Why the death of a node could not be presumed, in words; empty if it could. The API had
        last heard of it at ``heard_at``."""
        times = Times().scaled(self.factor)
        patience, recent = _SHARE * times.presume, times.answer + _NEWS * self.factor
        if at - heard_at < patience:
            return f"it was heard of {at - heard_at:.0f} s before"
        for process in self.ours.values():
            met = at - self._contact(process, node).met_at
            if _NEWS * self.factor < met < patience:
                return f"{process} had met it {met:.0f} s before"
        places = {
            _machine(process)
            for process in self.ours.values()
            if _machine(process) != node
            and self._was_silent(self._contact(process, node), at, patience, recent)
            and self._reaches_others(process, node, since=at - recent)
        }
        if len(places) < _PLACES:
            return f"it had been knocked at in vain from {len(places)} places only"
        return ""

    def answered_at(self, user: str, node: str, *, by: float) -> float:
        """When, at the earliest, that one of ours had last met somebody at the node's port, of all
        that it knew by then."""
        contact, known = self._contact(self.ours.get(user, ""), node), by - _KNOWN * self.factor
        if contact.met_at <= known:
            return contact.met_at
        if contact.met_since <= known:
            return max(contact.met_since, known - _KNOCK * self.factor)
        return -math.inf

    def meetings(self, node: str, *, after: float) -> Iterator[tuple[str, float]]:
        """Who of ours has met somebody at the node's port after that moment, as far as it went on
        without a break, and when at the latest for the first time."""
        for user, process in self.ours.items():
            contact = self._contact(process, node)
            first = max(contact.met_since, after + _KNOCK * self.factor)
            if contact.met_at > after:
                yield user, min(first, contact.met_at)

    def _contact(self, process: str, node: str) -> Contact:
        return self.contacts.get((process, f"{node}/{_KUBELET}"), Contact())

    def _was_silent(self, contact: Contact, at: float, patience: float, recent: float) -> bool:
        since = contact.in_vain_since
        if since is None and at - contact.met_since <= _NEWS * self.factor:
            # Somebody was met a moment ago, of which whoever asks need not have heard.
            since = contact.in_vain_before
        return since is not None and at - since >= patience and at - contact.tried_at <= recent

    def _reaches_others(self, process: str, node: str, *, since: float) -> bool:
        own = {f"{node}/{_KUBELET}", f"{_machine(process)}/{_KUBELET}"}
        return any(
            caller == process
            and called.endswith(f"/{_KUBELET}")
            and called not in own
            and contact.met_at >= since
            for (caller, called), contact in self.contacts.items()
        )


def _machine(process: str) -> str:
    return process.partition("/")[0]
