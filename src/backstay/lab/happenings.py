"""Happenings: what something that has happened is, as the rules see it.

Rules are about deeds: that a pod is marked or removed, a node tainted or switched off, an address
taken. Here it is
told by which requests and commits those are done, and what a happening is about at all: most of
what happens in a cluster is somebody else's doing, or a record that is ours to write, and most
rules have nothing to say of it. So each says what it is ``About``, and is asked about nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from backstay.apis.backstay import INCIDENTS
from backstay.apis.csiaddons import NETWORK_FENCES
from backstay.apis.kubevirt import VIRTUAL_MACHINES
from backstay.apis.machines import MIGRATIONS
from backstay.apis.storage import ATTACHMENTS
from backstay.kube.resource import EVENTS, LEASES, NODES, PODS
from backstay.lab.addresses import BLOCKS, HANDLES
from backstay.lab.guest_rules import asks_kubevirt
from backstay.lab.maintenances import parts_on
from backstay.lab.power_rules import asks_to_switch
from backstay.lab.powers import POWER
from backstay.lab.storage_rules import asks_to_detach, asks_to_fence
from backstay.lab.taints import has_our_taint
from backstay.lab.terms import term_of
from backstay.lab.witness import OUR_LEASE, Asked, Committed, Happening, Witness
from backstay.sim.api.store import Commit
from backstay.sim.nodes.truth import What

Json = Mapping[str, Any]

OURS = frozenset({INCIDENTS.label, LEASES.label, EVENTS.label})
"""What our controllers keep in the API for themselves and for whoever reads it."""


TAKEN_WITH = frozenset(
    {
        PODS.label, NODES.label, ATTACHMENTS.label, NETWORK_FENCES.label,
        VIRTUAL_MACHINES.label, MIGRATIONS.label, POWER,
    }
) | BLOCKS | HANDLES  # fmt: skip
"""The kinds by requests for which something can be taken away."""

_ASKED, _DONE, _SEEN, _LED = "asked", "done", "seen", "led"

Subject: TypeAlias = tuple[str, str] | What
"""What a happening is about, as far as it decides which rules are asked."""


def subject_of(happening: Happening) -> Subject:
    """A request by the kind of its object; a commit by that as well, by whether it is our doing,
    and by whether our lease changes hands with it; and the truth by what came of it."""
    if isinstance(happening, Committed):
        commit = happening.commit
        if commit.after.key == OUR_LEASE and commit.storage == LEASES.label and _is_taken(commit):
            return (_LED, commit.storage)
        return (_SEEN if happening.by is None else _DONE, commit.storage)
    if isinstance(happening, Asked):
        return (_ASKED, happening.storage)
    return happening.what


def _is_taken(lease: Commit) -> bool:
    """Or given up, or lost: whatever is more than that its holder renews it."""
    if lease.before is None or lease.deleted:
        return True
    return term_of(lease.before.object) != term_of(lease.after.object)


@dataclass(frozen=True, kw_only=True)
class About:
    """What a rule can have something to say of: changes of the ``truth``, ``requests`` of ours
    about these kinds (None: about any), ``deeds`` of ours and ``commits`` of whomever to them, and
    that our ``lease`` changes hands."""

    truth: frozenset[What] = frozenset()
    requests: frozenset[str] | None = frozenset()
    deeds: frozenset[str] = frozenset()
    commits: frozenset[str] = frozenset()
    lease: bool = False

    def includes(self, subject: Subject) -> bool:
        if isinstance(subject, What):
            return subject in self.truth
        how, storage = subject
        if how == _ASKED:
            return self.requests is None or storage in self.requests
        if how == _DONE and storage in self.deeds:
            return True
        return storage in self.commits or (how == _LED and self.lease)


def asks_to_delete_a_pod(happening: Happening) -> bool:
    """Whatever its budget says of it."""
    return (
        isinstance(happening, Asked)
        and happening.storage == PODS.label
        and happening.method == "DELETE"
    )


def asks_to_evict(happening: Happening) -> bool:
    return isinstance(happening, Asked) and happening.evicts and not happening.dry_run


def asks_to_cordon(happening: Happening, witness: Witness) -> bool:
    """Or for anything else that a maintenance puts on a node and that is not there yet."""
    if not isinstance(happening, Asked) or happening.storage != NODES.label:
        return False
    wanted = parts_on(happening.body)
    live = witness.stored(NODES.label, happening.key[1]) if wanted else None
    return bool(wanted - parts_on(live or {}))


def takes_something(happening: Happening, witness: Witness) -> bool:
    return (
        asks_to_delete_a_pod(happening)
        or asks_to_evict(happening)
        or asks_to_cordon(happening, witness)
        or asks_for_our_taint(happening, witness)
        or asks_for_addresses(happening)
        or asks_to_detach(happening)
        or asks_to_fence(happening)
        or asks_kubevirt(happening)
        or asks_to_switch(happening)
    )


def asks_for_addresses(happening: Happening) -> bool:
    return isinstance(happening, Asked) and happening.storage in BLOCKS | HANDLES


def asks_for_our_taint(happening: Happening, witness: Witness) -> bool:
    """Where it is not yet: whoever changes another taint of a node writes down all of them."""
    if not isinstance(happening, Asked) or happening.storage != NODES.label:
        return False
    if not has_our_taint(happening.body):
        return False
    return not has_our_taint(witness.stored(NODES.label, happening.key[1]) or {})


def pod_touched(happening: Happening) -> Json | None:
    """A pod that one of ours has just marked or removed, as it was before. What is evicted is
    judged by other rules (``drain_rules.py``)."""
    found = _pod_changed(happening)
    return None if found is None or request_of(happening).evicts else found


def pod_evicted(happening: Happening) -> Json | None:
    """A pod that one of ours has just evicted, and the API has let go, as it was before."""
    found = _pod_changed(happening)
    return found if found is not None and request_of(happening).evicts else None


def _pod_changed(happening: Happening) -> Json | None:
    if not isinstance(happening, Committed) or happening.by is None:
        return None
    commit = happening.commit
    if commit.storage != PODS.label or commit.before is None:
        return None
    return commit.before.object


def pod_removed(happening: Happening) -> Json | None:
    """A pod that one of ours has just taken out of the API."""
    gone = isinstance(happening, Committed) and happening.commit.deleted
    return pod_touched(happening) if gone else None


def request_of(happening: Happening) -> Asked:
    """The request of ours that did it."""
    assert isinstance(happening, Committed)
    assert happening.by is not None
    return happening.by


def node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))
