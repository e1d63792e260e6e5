"""Rules about LINSTOR: whose pod may be told to go although nobody has proven its node dead.

It is the controller of LINSTOR alone, which has nothing on a disk, whose ReplicaSet starts another,
and which is asked to end in order; its node must have been silent for as long as it takes to miss
it, and most others must not: else it is more likely whoever asks who is cut off. How many are
silent besides does not matter, for it is one pod. That a pod is *removed* needs proof like any
other.
"""

from collections.abc import Mapping
from typing import Any

from backstay.apis.backstay import CONFIRMATIONS
from backstay.kube.resource import NODES
from backstay.lab.witness import Asked, Witness

Json = Mapping[str, Any]

_BEHIND = 10.0
"""Seconds by which one of ours may be behind with what it has seen of the others."""
_ON_DISK = ("persistentVolumeClaim", "ephemeral", "hostPath", "csi", "nfs")


def may_be_succeeded(pod: Json, by: Asked, witness: Witness) -> bool:
    """Whether this deletion only has LINSTOR's controller replaced."""
    options = by.body
    removes = options.get("gracePeriodSeconds") == 0 or by.method != "DELETE"
    return not removes and is_replaceable(pod) and _is_missed(pod, by, witness)


def is_replaceable(pod: Json) -> bool:
    """Whether it is LINSTOR's controller, and nothing is lost with it."""
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    component = labels.get("app.kubernetes.io/component") == "linstor-controller"
    owners = [each["kind"] for each in meta.get("ownerReferences") or () if each.get("controller")]
    volumes = pod["spec"].get("volumes") or ()
    kept = any(kind in volume for volume in volumes for kind in _ON_DISK)
    return component and owners == ["ReplicaSet"] and not kept


def _is_missed(pod: Json, by: Asked, witness: Witness) -> bool:
    node = str(pod["spec"].get("nodeName", ""))
    silent = by.sent - witness.signs.renewed_at(node)
    missed = silent >= witness.times.suspect and not witness.signs.late(by.user, node, sent=by.sent)
    return missed and _are_most_there(node, by, witness)


def _are_most_there(node: str, by: Asked, witness: Witness) -> bool:
    """Of the other nodes, without those that are silent and that somebody has declared dead."""
    others = {stored.key[1] for stored in witness.store.all(NODES.label)} - {node}
    window = witness.times.suspect + _BEHIND * witness.factor
    there = {name for name in others if by.sent - witness.signs.renewed_at(name) <= window}
    words = (stored.object for stored in witness.store.all(CONFIRMATIONS.label))
    asked = others - ({word["spec"]["node"] for word in words} - there)
    return 2 * len(there) >= len(asked) > 0
