"""Happenings: what something that has happened is, as the rules see it.

Rules are about deeds: that a pod is marked or removed, a node tainted, an address taken. Here it is
told by which requests and commits those are done, and which rules a happening can concern at all:
most of what happens in a cluster is somebody else's doing, or a record that is ours to write.
"""

import enum
from collections.abc import Mapping
from typing import Any

from backstay.apis.backstay import INCIDENTS
from backstay.kube.resource import EVENTS, LEASES, NODES, PODS
from backstay.lab.addresses import BLOCKS, HANDLES
from backstay.lab.guest_rules import asks_kubevirt
from backstay.lab.storage_rules import asks_to_detach, asks_to_fence
from backstay.lab.witness import OUR_LEASE, Asked, Committed, Happening
from backstay.model.labels import TAINT
from backstay.sim.nodes.truth import Entry

Json = Mapping[str, Any]

OURS = frozenset({INCIDENTS.label, LEASES.label, EVENTS.label})
"""What our controllers keep in the API for themselves and for whoever reads it."""


class About(enum.Flag):
    """What a rule can be broken by: the truth, a request, a request that only writes down what our
    controllers keep for themselves, or a commit of ours."""

    TRUTH = enum.auto()
    REQUESTS = enum.auto()
    RECORDS = enum.auto()
    COMMITS = enum.auto()


_LOOKED_AT = frozenset({PODS.label, NODES.label}) | BLOCKS
"""The kinds whose commits rules look at, beside our lease."""


def what_about(happening: Happening) -> About | None:
    """Which rules to ask about it; None if it can break none, as most things cannot: a change by
    nobody of ours, or of what is ours to write, unless it is about our lease."""
    if isinstance(happening, Entry):
        return About.TRUTH
    if isinstance(happening, Asked):
        is_record = happening.storage in OURS and happening.method != "DELETE"
        return About.RECORDS if is_record else About.REQUESTS
    commit = happening.commit
    if commit.after.key == OUR_LEASE:
        return About.COMMITS
    ours = happening.by is not None and commit.storage in _LOOKED_AT
    return About.COMMITS if ours else None


def asks_to_delete_a_pod(happening: Happening) -> bool:
    return (
        isinstance(happening, Asked)
        and happening.storage == PODS.label
        and (happening.method == "DELETE" or happening.subresource == "eviction")
    )


def takes_something(happening: Happening) -> bool:
    return (
        asks_to_delete_a_pod(happening)
        or asks_for_our_taint(happening)
        or asks_for_addresses(happening)
        or asks_to_detach(happening)
        or asks_to_fence(happening)
        or asks_kubevirt(happening)
    )


def asks_for_addresses(happening: Happening) -> bool:
    return isinstance(happening, Asked) and happening.storage in BLOCKS | HANDLES


def asks_for_our_taint(happening: Happening) -> bool:
    if not isinstance(happening, Asked) or happening.storage != NODES.label:
        return False
    taints = (happening.body.get("spec") or {}).get("taints") or ()
    return any(each.get("key") == TAINT for each in taints)


def pod_touched(happening: Happening) -> Json | None:
    """A pod that one of ours has just marked or removed, as it was before."""
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
