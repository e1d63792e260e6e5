"""Rules about what is presumed (I6, Storm, and a part of I3): what silence is enough for.

Like all rules (``invariants.py``) these look at what is really there. Whether there was silence at
all is for ``knocks.py`` to say.
"""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from backstay.apis.backstay import AVAILABILITY_POLICIES, CONFIG_NAME, CONFIGS
from backstay.apis.storage import VOLUMES
from backstay.kube.resource import NODES, PODS
from backstay.lab.linstor_rules import is_replaceable
from backstay.lab.taints import has_our_taint
from backstay.lab.witness import Committed, Happening, Witness
from backstay.model.evidence import Strength
from backstay.model.labels import MINIMUM_PROOF, TMAX_PROTECT

Json = Mapping[str, Any]

_SILENT = 60.0
"""Seconds after which a node is certainly taken for silent."""


def storm(happening: Happening, witness: Witness) -> str | None:
    """Nothing is removed on silence while more nodes are silent than may be."""
    if not isinstance(happening, Committed) or happening.by is None:
        return None
    commit = happening.commit
    if commit.storage != PODS.label or not commit.deleted or commit.before is None:
        return None
    pod, by = commit.before.object, happening.by
    node = str(pod["spec"].get("nodeName", ""))
    if not witness.doubt(by, node, strong=True) or witness.doubt(by, node):
        return None
    spec = _config(witness)
    down = many_silent(node, spec, by.sent, witness)
    if not down or is_lifted(spec, witness):
        return None
    silent = ", ".join(down)
    return f"{pod['metadata']['name']} was removed on silence, and so many are silent: {silent}"


def many_silent(node: str, spec: Json, now: float, witness: Witness) -> list[str]:
    """Which nodes are silent together with this one, if those are more than may be."""
    nodes = [stored.object for stored in witness.store.all(NODES.label)]
    down = [
        each["metadata"]["name"]
        for each in nodes
        if each["metadata"]["name"] == node or _is_down(each, now, witness)
    ]
    return down if len(down) > most_silent(spec, len(nodes)) else []


def most_silent(spec: Json, nodes: int) -> int:
    """How many of so many nodes may be silent at once, by this configuration."""
    said = (spec.get("limits") or {}).get("nodesDown")
    return int(said) if said else max(1, nodes // 10)


def is_lifted(spec: Json, witness: Witness) -> bool:
    """Whether a person has lifted the brake on storms, and it still holds."""
    until = str((spec.get("stormRelease") or {}).get("until") or "")
    return bool(until) and datetime.fromisoformat(until) > witness.wall_now()


def _is_down(node: Json, now: float, witness: Witness) -> bool:
    """Silent, and not all done for it; LINSTOR's controller is only marked, and may stay."""
    name = node["metadata"]["name"]
    renewed = witness.signs.renewed_at(name)
    if renewed == -math.inf or now - renewed < _SILENT * witness.factor:
        return False
    tainted = has_our_taint(node)
    pods = (stored.object for stored in witness.store.all(PODS.label))
    return not tainted or any(
        pod["spec"].get("nodeName") == name and not is_replaceable(pod) for pod in pods
    )


def has_consented(pod: Json, witness: Witness) -> bool:
    """Whether the owner of a pod agreed that its node may be presumed dead. Which pods a policy is
    about is not looked at: here, all of its namespace."""
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    if any(each["kind"] == "Pod" for each in meta.get("ownerReferences") or ()):
        # It holds a plugged disk for a launcher, which is asked about itself, and goes with it.
        return True
    if labels.get(TMAX_PROTECT) == "true" or labels.get(MINIMUM_PROOF) == Strength.PRESUMED:
        return True
    return any(
        stored.object["metadata"]["namespace"] == meta["namespace"]
        and stored.object["spec"].get("minimumProof") == Strength.PRESUMED
        for stored in witness.store.all(AVAILABILITY_POLICIES.label)
    )


def may_be_presumed(volume: str, witness: Witness) -> bool:
    """Whether silence can ever be enough for what has this volume: two copies of it can have it at
    once without destroying it, or somebody has said that they can."""
    spec = (witness.stored(VOLUMES.label, volume) or {"spec": {}})["spec"]
    if "ReadWriteMany" not in (spec.get("accessModes") or ()):
        return False
    proof = _config(witness).get("proof") or {}
    return spec.get("volumeMode") != "Block" or bool(proof.get("presumeBlock"))


def _config(witness: Witness) -> Json:
    config = witness.stored(CONFIGS.label, CONFIG_NAME) or {"spec": {}}
    spec: Json = config["spec"]
    return spec
