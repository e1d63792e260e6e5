"""What owners and the cluster have said: rules that nothing is done against it.

Like all rules (``invariants.py``) these read what stands in the API themselves; how the product
makes terms of it is not asked. Which policies select a pod is told by the labels of the pod and of
its VM.

* **OneOwner**: a job that the configuration gives to another program, or to nobody, is not done.
* **OwnersProof**: nothing is removed on weaker proof than its owner asks for, within the bounds of
  the cluster.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from backstay.apis.apps import STATEFUL_SETS
from backstay.apis.backstay import AVAILABILITY_POLICIES, CONFIG_NAME, CONFIGS
from backstay.apis.csiaddons import NETWORK_FENCES
from backstay.apis.kubevirt import INSTANCES, VIRTUAL_MACHINES
from backstay.kube.resource import NODES, PODS
from backstay.lab.addresses import BLOCKS, HANDLES
from backstay.lab.guest_rules import asks_kubevirt, has_stopped
from backstay.lab.maintenances import parts_on
from backstay.lab.powers import POWER
from backstay.lab.storage_rules import asks_to_detach
from backstay.lab.taints import has_our_taint
from backstay.lab.witness import Asked, Committed, Happening, Witness
from backstay.model.evidence import Strength
from backstay.model.labels import (
    IGNORE_FAIL_OVER,
    MINIMUM_PROOF,
    ON_STORAGE_LOST,
    OUT_OF_SERVICE_OURS,
    PROTECT,
    TMAX_PROTECT,
    VM_NAME,
)
from backstay.sim.api.label_selectors import selects

Json = Mapping[str, Any]

OURS = "Ours"
_STRENGTHS = tuple(map(str, Strength))
"""The strongest first."""
_KINDS = (("virtualMachines", INSTANCES.kind), ("statefulSets", STATEFUL_SETS.kind))
"""What a configuration can leave out: the field, and who owns the pods."""


# Who does what


def one_owner(happening: Happening, witness: Witness) -> str | None:
    """By the configuration as it was last read."""
    job = _job(happening, witness)
    if job is None:
        return None
    assert isinstance(happening, Asked)
    spec = as_read(happening, witness)
    owner = owner_of(job, spec)
    if job == "fencing" and happening.storage == POWER and not _switches_power(spec):
        owner = "Off"
    if owner == OURS:
        return None
    return f"{happening.key[1]} was to be changed, and {job} is not ours to do ({owner})"


def owner_of(job: str, spec: Json) -> str:
    """By what stands in a BackstayConfig."""
    return str((spec.get("owners") or {}).get(job, OURS))


def _switches_power(spec: Json) -> bool:
    """Whether the configuration lets us switch anybody off or on."""
    return bool(((spec.get("fencing") or {}).get("power") or {}).get("enabled"))


def _job(happening: Happening, witness: Witness) -> str | None:
    """Whose deed it is, if it takes something from a node."""
    if not isinstance(happening, Asked):
        return None
    if asks_to_detach(happening):
        return "detach"
    if happening.storage in BLOCKS | HANDLES:
        return "addresses"
    if happening.storage == NETWORK_FENCES.label:
        return "fencing" if happening.method == "POST" else None
    if happening.storage == POWER:
        return "fencing"
    if asks_kubevirt(happening):
        return "failover"
    if happening.evicts:
        return None if happening.dry_run else "maintenance"
    if happening.storage == PODS.label:
        return "failover" if happening.method == "DELETE" else None
    return _job_at_a_node(happening, witness) if happening.storage == NODES.label else None


def _job_at_a_node(asked: Asked, witness: Witness) -> str | None:
    wanted = parts_on(asked.body)
    live = witness.stored(NODES.label, asked.key[1]) if wanted else None
    if wanted - parts_on(live or {}):
        return "maintenance"
    said = (asked.body.get("metadata") or {}).get("annotations") or {}
    if said.get(OUT_OF_SERVICE_OURS):
        return "detach"
    return "failover" if has_our_taint(asked.body) else None


# What owners ask for


def configured(witness: Witness) -> Json:
    """The spec of the configuration as it stands in the API now."""
    config = witness.stored(CONFIGS.label, CONFIG_NAME) or {"spec": {}}
    spec: Json = config["spec"]
    return spec


def as_read(by: Asked, witness: Witness) -> Json:
    """The same, as whoever asks for something had read it last."""
    look = witness.look(by, CONFIGS.label, CONFIG_NAME)
    if look is None or look.stored is None:
        return {}
    spec: Json = look.stored.object["spec"]
    return spec


def kept_from_us(pod: Json, spec: Json, witness: Witness) -> str:
    """What says that it is not to be touched, if anything does. Labels go before policies, and
    these before a configuration with that ``spec``."""
    meta = pod["metadata"]
    said = meta.get("labels") or {}
    if said.get(PROTECT) == "false":
        return "its label says that it is not protected"
    if said.get(PROTECT) != "true" and IGNORE_FAIL_OVER in (meta.get("annotations") or {}):
        return "its annotation says that it is to be ignored"
    if not said.keys().isdisjoint((PROTECT, TMAX_PROTECT, ON_STORAGE_LOST)):
        return ""
    asked = set(_asked(pod, "protect", witness))
    if False in asked:
        return "a policy of its namespace says that it is not protected"
    owners, protect = _owners(pod), spec.get("protect") or {}
    left_out = any(kind in owners and protect.get(field) is False for field, kind in _KINDS)
    return "the configuration leaves its kind out" if left_out and not asked else ""


def owners_proof(happening: Happening, witness: Witness) -> str | None:
    if not isinstance(happening, Committed) or happening.by is None:
        return None
    commit = happening.commit
    if commit.storage != PODS.label or not commit.deleted or commit.before is None:
        return None
    pod, by = commit.before.object, happening.by
    if hangs_on_another(pod) or by.evicts:
        return None
    wanted, had = _demanded(pod, by, witness), _had(pod, by, witness)
    if _STRENGTHS.index(had) <= _STRENGTHS.index(wanted):
        return None
    return f"{pod['metadata']['name']} was removed on what is {had}, and {wanted} was asked for"


def wants_more_than_a_word(pod: Json, witness: Witness) -> bool:
    """Whether a person's word is not enough for it, by what stands in the API now."""
    weakest = str((configured(witness).get("proof") or {}).get("weakest", Strength.PRESUMED))
    return Strength.OBSERVED.value in (weakest, _asked_proof(pod, witness))


def hangs_on_another(pod: Json) -> bool:
    """A pod that holds a plugged disk belongs to a launcher, and goes with it."""
    return "Pod" in _owners(pod)


def _owners(pod: Json) -> set[str]:
    """Of which kinds they are."""
    return {each["kind"] for each in pod["metadata"].get("ownerReferences") or ()}


def _demanded(pod: Json, by: Asked, witness: Witness) -> str:
    weakest = str((as_read(by, witness).get("proof") or {}).get("weakest", Strength.PRESUMED))
    return min(_asked_proof(pod, witness), weakest, key=_STRENGTHS.index)


def _asked_proof(pod: Json, witness: Witness) -> str:
    labels = pod["metadata"].get("labels") or {}
    own = labels.get(MINIMUM_PROOF)
    if own is not None:
        known = {each.lower(): each for each in _STRENGTHS}
        return known.get(own.lower(), Strength.OBSERVED.value)
    if labels.get(TMAX_PROTECT) == "true":
        return Strength.PRESUMED.value
    # A word that we do not know asks for the most, here too.
    strictest = Strength.OBSERVED.value
    found = _asked(pod, "minimumProof", witness)
    asked = [each if each in _STRENGTHS else strictest for each in found]
    return min(asked, key=_STRENGTHS.index) if asked else Strength.CONFIRMED.value


def _had(pod: Json, by: Asked, witness: Witness) -> str:
    """How strong the proof really was."""
    node = str(pod["spec"].get("nodeName", ""))
    seen_off = witness.powers.read_off(by.user, node, sent=by.sent)
    if has_stopped(pod, witness) or witness.is_shut_out(pod) or seen_off:
        return Strength.OBSERVED.value
    doubt = witness.doubt(by, node, strong=True)
    return Strength.PRESUMED.value if doubt else Strength.CONFIRMED.value


def _asked(pod: Json, field: str, witness: Witness) -> Iterator[Any]:
    """What each policy that selects the pod says about it, if it does."""
    meta = pod["metadata"]
    labels = dict(meta.get("labels") or {})
    machine = witness.stored(VIRTUAL_MACHINES.label, labels.get(VM_NAME, ""), meta["namespace"])
    if machine is not None:
        labels |= machine["metadata"].get("labels") or {}
    for stored in witness.store.all(AVAILABILITY_POLICIES.label):
        spec = stored.object["spec"]
        same = stored.object["metadata"]["namespace"] == meta["namespace"]
        if same and spec.get(field) is not None and selects(spec.get("selector") or {}, labels):
            yield spec[field]
