"""Rules about volumes (I3, EvidenceScope): what may be taken from a node, and on whose word.

Like all rules (``invariants.py``) these look at what whoever asks could have known, and at what is
really there.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from backstay.apis.apps import STATEFUL_SETS
from backstay.apis.csiaddons import FENCED, NETWORK_FENCES
from backstay.apis.kubevirt import INSTANCES, VIRTUAL_MACHINES
from backstay.apis.storage import ATTACHMENTS
from backstay.kube.resource import NODES, PODS
from backstay.lab.guest_rules import has_stopped
from backstay.lab.silence_rules import has_consented, may_be_presumed
from backstay.lab.witness import Asked, Committed, Happening, Witness
from backstay.model.labels import FENCED_NODE, INCIDENT, OUT_OF_SERVICE_OURS, PROTECT
from backstay.sim.api.store import Commit

Json = Mapping[str, Any]


def evidence_scope(happening: Happening, witness: Witness) -> str | None:
    if asks_to_detach(happening):
        assert isinstance(happening, Asked)
        return _detached_too_much(happening, witness)
    if _asks_for_out_of_service(happening):
        assert isinstance(happening, Asked)
        return _put_out_too_soon(happening, witness)
    if isinstance(happening, Committed) and happening.by is not None:
        return _released_on_too_little(happening.commit, happening.by, witness)
    return None


def somebodys_fence(asked: Asked, witness: Witness) -> str | None:
    """Only our own fences are lifted or deleted by us, and none is deleted that still holds."""
    live = witness.stored(NETWORK_FENCES.label, asked.key[1])
    if live is None or asked.method == "POST":
        return None
    if INCIDENT not in (live["metadata"].get("annotations") or {}):
        return f"the fence {asked.key[1]} was to be changed, which is not ours"
    if asked.method == "DELETE" and live["spec"].get("fenceState") != "Unfenced":
        return f"the fence {asked.key[1]} was to be deleted before it was lifted"
    return None


def asks_to_fence(happening: Happening) -> bool:
    return (
        isinstance(happening, Asked)
        and happening.storage == NETWORK_FENCES.label
        and (happening.body.get("spec") or {}).get("fenceState") == FENCED
    )


def robs_a_guest(asked: Asked, witness: Witness) -> str | None:
    """A node whose guests run and of which something was heard is to be refused its disks."""
    named = ((asked.body.get("metadata") or {}).get("annotations") or {}).get(FENCED_NODE)
    nodes = (stored.object["metadata"] for stored in witness.store.all(NODES.label))
    for node in [meta["name"] for meta in nodes if meta["uid"] == named]:
        sign = witness.signs.late(asked.user, node, sent=asked.sent)
        if sign and witness.truth.running(node):
            return f"the storage was to refuse {node}, where guests run, although {sign}"
    return None


def asks_to_detach(happening: Happening) -> bool:
    return (
        isinstance(happening, Asked)
        and happening.storage == ATTACHMENTS.label
        and happening.method == "DELETE"
    )


def _asks_for_out_of_service(happening: Happening) -> bool:
    if not isinstance(happening, Asked) or happening.storage != NODES.label:
        return False
    said = (happening.body.get("metadata") or {}).get("annotations") or {}
    return bool(said.get(OUT_OF_SERVICE_OURS))


def _released_on_too_little(commit: Commit, by: Asked, witness: Witness) -> str | None:
    """On silence, or on the word of another program, only what its owner has consented to, and
    nothing that has a volume for one node at a time."""
    if commit.storage != PODS.label or not commit.deleted or commit.before is None:
        return None
    if by.evicts:
        return None
    pod = commit.before.object
    node, name = str(pod["spec"].get("nodeName", "")), pod["metadata"]["name"]
    volumes = witness.volumes_of(pod)
    if not witness.doubt(by, node, strong=True) or witness.is_shut_out(pod):
        return None
    if has_stopped(pod, witness):
        return None
    if not has_consented(pod, witness):
        return f"{name} was removed on less than its owner has consented to"
    unfit = [each for each in volumes if not may_be_presumed(each, witness)]
    return f"{name} was removed on a presumption, and has {unfit[0]}" if unfit else None


def _detached_too_much(asked: Asked, witness: Witness) -> str | None:
    live = witness.stored(ATTACHMENTS.label, asked.key[1])
    if live is None:
        return None
    node = str(live["spec"]["nodeName"])
    volume = str((live["spec"].get("source") or {}).get("persistentVolumeName", ""))
    for pod in _pods_on(node, asked, witness):
        if volume in witness.volumes_of(pod):
            name = pod["metadata"]["name"]
            return f"{volume} was to be detached from {node}, where {name} uses it"
    doubt = witness.doubt(asked, node, strong=True)
    if not doubt or witness.truth.is_barred(node, volume):
        return None
    return f"{volume} was to be detached from {node}, although {doubt}"


def _put_out_too_soon(asked: Asked, witness: Witness) -> str | None:
    node = asked.key[1]
    for pod in _pods_on(node, asked, witness):
        meta = pod["metadata"]
        kept = (meta.get("labels") or {}).get(PROTECT) == "false"
        if kept or _would_be_made_anew(pod, witness):
            return f"{node} was to be put out of service, with {meta['name']} on it"
    doubt = witness.doubt(asked, node, strong=True)
    return f"{node} was to be put out of service, although {doubt}" if doubt else None


def _would_be_made_anew(pod: Json, witness: Witness) -> bool:
    """Whether it is for us to have it made anew, before anybody else takes it away. A guest is not
    whose VM is about to go, or that never had one."""
    owner = _owner_of(pod)
    if owner is None or owner["kind"] != INSTANCES.kind:
        return owner is not None and owner["kind"] == STATEFUL_SETS.kind
    namespace = pod["metadata"]["namespace"]
    guest = witness.stored(INSTANCES.label, owner["name"], namespace)
    made_by = None if guest is None else _owner_of(guest)
    if made_by is None or made_by["kind"] != VIRTUAL_MACHINES.kind:
        return made_by is not None
    machine = witness.stored(VIRTUAL_MACHINES.label, made_by["name"], namespace)
    return machine is not None and "deletionTimestamp" not in machine["metadata"]


def _owner_of(thing: Json) -> Json | None:
    return next(iter(thing["metadata"].get("ownerReferences") or ()), None)


def _pods_on(node: str, asked: Asked, witness: Witness) -> Iterator[Json]:
    """Those that are not over. Of what a restore of the API has brought back since whoever asks
    last looked, nothing could be known."""
    look, restored_at = witness.look(asked, NODES.label, node), witness.restores.last_at
    if look is not None and restored_at is not None and look.at < restored_at:
        return
    for stored in witness.store.all(PODS.label):
        pod = stored.object
        over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if pod["spec"].get("nodeName") == node and not over:
            yield pod
