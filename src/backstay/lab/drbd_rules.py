"""Rules about what rests on DRBD's word alone, by who could really write and by what was set.

That a node cannot write at the moment at which its pod is removed is what other rules look at
(``witness.is_shut_out``). It may have been luck, so three more things are held to:

* **EvidenceScope**: it could not write for the most part of the grace. A node that comes and goes
  is gone now and then, and comes back to what was taken from it.
* **EvidenceScope**: quorum was on and two primaries were forbidden, wherever that is set, but for
  as long as a look may be old. Otherwise nothing keeps it from writing a moment later.
* **NoBystander**: Kubernetes had missed the node, too, when whoever acts looked last. One that is
  cut off from its storage alone is there: its pods are its own kubelet's to end.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from backstay.kube.resource import PODS
from backstay.lab.guest_rules import has_stopped
from backstay.lab.happenings import About
from backstay.lab.witness import Asked, Committed, Happening, Witness
from backstay.sim.linstor.storage import Linstor
from backstay.sim.nodes.truth import Entry, What

Json = Mapping[str, Any]

_MOST_OF_THE_GRACE = 30.0
_LOOK = 1.0


class DrbdsWord:
    """See the module."""

    def __init__(self, witness: Witness, linstor: Linstor, *, factor: float) -> None:
        self.about = About(
            truth=frozenset({What.BARRED}),
            requests=frozenset({PODS.label}),
            deeds=frozenset({PODS.label}),
        )
        self.due = 0.0
        self._witness = witness
        self._linstor = linstor
        self._factor = factor
        self._wrote_until: dict[tuple[str, str], float] = {}
        """By node and volume."""
        self._unbound_since: dict[str, float] = {}

    def look(self, happening: Happening) -> Iterator[tuple[str, str]]:
        if happening.at >= self.due:
            # What is judged next is to be judged by what is set now.
            self.look_around(happening.at)
        if isinstance(happening, Entry) and happening.what is What.BARRED:
            for volume in happening.volumes:
                self._wrote_until[happening.node, volume] = happening.at
        if isinstance(happening, Asked) and happening.storage == PODS.label:
            yield from self._robbed(happening)
        if not isinstance(happening, Committed) or happening.by is None:
            return
        commit = happening.commit
        removed = commit.storage == PODS.label and commit.deleted and not happening.by.evicts
        if removed and commit.before is not None:
            yield from self._removed(commit.before.object, happening.by)

    def look_around(self, now: float) -> Iterable[tuple[str, str]]:
        self.due = now + _LOOK * self._factor
        self._unbound_since = {
            name: self._unbound_since.get(name, now)
            for name in self._linstor.volumes
            if self._is_unbound(name)
        }
        return ()

    def _is_unbound(self, volume: str) -> bool:
        """Whether any of its replicas goes by no quorum, or may be primary beside another."""
        database = self._linstor.database
        definition = database.definitions[self._linstor.volumes[volume].resource]
        replicas = database.drbd.resources[self._linstor.volumes[volume].resource].replicas
        options = [database.options(definition, node) for node in replicas]
        return any(
            each.quorum not in ("majority", "all") or each.allow_two_primaries for each in options
        )

    def _rests_on_drbd(self, pod: Json, by: Asked) -> set[str]:
        """Its volumes of LINSTOR, if nothing else speaks for its removal."""
        node, mine = _node_of(pod), self._witness.volumes_of(pod) & self._linstor.volumes.keys()
        since = self._witness.marked(pod["metadata"]["uid"]) or 0
        vouched = not self._witness.doubt(by, node, since=since)
        shut_out = self._witness.is_shut_out(pod)
        return mine if shut_out and not vouched and not has_stopped(pod, self._witness) else set()

    def _removed(self, pod: Json, by: Asked) -> Iterator[tuple[str, str]]:
        node, name = _node_of(pod), pod["metadata"]["name"]
        for volume in sorted(self._rests_on_drbd(pod, by)):
            lasted = by.sent - self._wrote_until.get((node, volume), -self._factor * 1e9)
            if 0 <= lasted < _MOST_OF_THE_GRACE * self._factor:
                yield (
                    "EvidenceScope",
                    f"{name} was removed, and {node} could write to {volume} {lasted:.0f} s before",
                )
            unbound = by.sent - self._unbound_since.get(volume, by.sent)
            if unbound > self._witness.times.fresh:
                yield (
                    "EvidenceScope",
                    f"{name} was removed on DRBD's word, and nothing binds the writers of {volume}",
                )

    def _robbed(self, asked: Asked) -> Iterator[tuple[str, str]]:
        pod = self._witness.stored(PODS.label, asked.key[1], asked.key[0])
        if asked.method != "DELETE" or pod is None or not self._rests_on_drbd(pod, asked):
            return
        signs, node = self._witness.signs, _node_of(pod)
        silent = asked.sent - signs.seen_renewed_at(asked.user, node, sent=asked.sent)
        if silent < self._witness.times.confirmed:
            yield (
                "NoBystander",
                f"{asked.key[1]} was to be deleted, and {node}, which DRBD has lost, was"
                f" heard of {silent:.0f} s before",
            )


def _node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))
