"""Invariants: what must never be, looked at after every write and every change of the truth.

Each is a rule with a name and a check. A check is asked about everything that happens
(``inspector.py``) and answers with a sentence when the rule was broken. It looks at the ground
truth and at what our controllers had seen when they wrote (``witness.py``), never at what they say
of themselves: the product's own code is not asked whether the product is right.

=======================  ========================================================================
OneWriter                no volume has two writers, and no workload runs twice (``copies.py``)
NoDeleteWithoutEvidence  what is removed was marked before, on a node whose death somebody vouches
                         for and that has shown no life since
EvidenceScope            volumes are taken from a node only on proof about it or about them, if
                         nothing there uses them; and it is put out of service only if all may go
                         (what rests on DRBD's word alone: ``drbd_rules.py``)
ProofAfterBarrier        what a removal rests on was looked at after the pod had been marked
Preconditions            every deletion names uid and resourceVersion, every taint the version of
                         its node: what is held up on its way changes only what its sender saw
Epoch                    each term has a higher epoch than whatever was recorded before, and
                         whoever takes something away has announced it under its own
Storm                    nothing is removed on silence while more nodes are silent than may be, and
                         all else at the pace that is set for that (``pace.py``)
Pdb                      from a node that lives something is taken only by an eviction that the API
                         let through, and for a maintenance of that node (``drain_rules.py``)
Disarm                   nothing is taken away and no node tainted, cordoned or fenced unless we are
                         armed, and armed anew since the API was rolled back
Ownership                only what is ours is changed: pods are deleted and nothing else is, of a
                         node only our own taint changes and what a maintenance puts on it, and
                         finalizers stay where they are
GivesBack                a maintenance takes off a node what it has put on, all of that, and nothing
                         that others have
TaintBeforeRemoval       nothing is removed, detached or evicted from a node that could be given
                         something new
Zombie                   whoever's term is over sends nothing more, nobody else's begins before,
                         and our taint stays on a node that still runs what was removed from it
NoHealthyGuestStopped    no guest that runs is stopped, nor loses its disks to a fence of ours while
                         anything of its node is heard; in a drain none that could be moved live
AsPolicySays             a guest is moved away from a dead kubelet, shut down there or started
                         only as its policy says, and is migrated once
OneAddress               no two pods have one address, and no address is taken from a pod that uses
                         it, or from one whose node is not proven dead
NoBystander              nothing on a living node is touched, nor what its owner has kept from us
OneOwner                 what the configuration leaves to another program, or to nobody, is not done
OwnersProof              nothing is removed on weaker proof than its owner asks for, within the
                         bounds of the cluster
PowerOrder               no node is switched off after we have switched it on again, nor on before
                         all is done, nor if it was not we who switched it off (``power_rules.py``)
LastCopy                 no node is switched off that has the last good copy of what somebody waits
                         for
=======================  ========================================================================

What must happen sooner or later is in ``liveness.py`` and ``drain_promises.py``.

Two copies that nobody could see coming are an ``accepted`` risk, and no breach (``copies.py``).

``INVARIANTS`` is a value; more rules are more entries. Each has a deliberate bug that it catches
(``bugs.py``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from backstay.apis.backstay import CONFIG_NAME, CONFIGS, CONFIRMATIONS, INCIDENTS
from backstay.apis.csiaddons import NETWORK_FENCES
from backstay.apis.kubevirt import VIRTUAL_MACHINES
from backstay.apis.machines import MIGRATIONS
from backstay.apis.maintenance import NODE_MAINTENANCES
from backstay.apis.storage import ATTACHMENTS
from backstay.kube.resource import LEASES, NODES, PODS
from backstay.lab.address_rules import one_address
from backstay.lab.addresses import BLOCKS, HANDLES
from backstay.lab.copies import SECOND_COPIES, one_writer
from backstay.lab.drain_rules import (
    calls_off,
    comes_back,
    gives_back,
    not_ours_in_a_maintenance,
    pdb,
    stops_what_could_move,
    takes_another_of_the_control_plane,
)
from backstay.lab.guest_rules import as_policy_says, has_stopped
from backstay.lab.happenings import (
    OURS,
    TAKEN_WITH,
    About,
    asks_to_delete_a_pod,
    node_of,
    pod_removed,
    pod_touched,
    request_of,
    takes_something,
)
from backstay.lab.linstor_rules import may_be_succeeded
from backstay.lab.policy_rules import as_read, kept_from_us, one_owner, owners_proof
from backstay.lab.power_rules import (
    asks_for,
    asks_to_switch,
    hits_a_bystander,
    kills_guests,
    last_copy_power,
    power_order,
    switched_off_in_a_storm,
    unannounced_switch,
)
from backstay.lab.powers import POWER
from backstay.lab.silence_rules import storm
from backstay.lab.storage_rules import (
    asks_to_detach,
    asks_to_fence,
    evidence_scope,
    robs_a_guest,
    somebodys_fence,
)
from backstay.lab.taints import has_our_taint
from backstay.lab.terms import holder, transitions
from backstay.lab.witness import OUR_LEASE, Asked, Committed, Happening, Witness
from backstay.model.labels import (
    DRAIN_TAINT,
    EXCLUDE,
    EXEMPT,
    MAINTENANCE,
    OUT_OF_SERVICE,
    OUT_OF_SERVICE_OURS,
    TAINT,
    VM_NAME,
)
from backstay.sim.bmc import Reset
from backstay.sim.nodes.truth import What

Json = Mapping[str, Any]
Check = Callable[[Happening, Witness], str | None]

_RECORDS = "configmaps"
"""In our own namespace: what they have recorded."""


@dataclass(frozen=True)
class Invariant:
    """``code`` is its number in the design; ``check`` says how it was broken, or None. What it is
    not ``about``, it has nothing to say of."""

    code: str
    name: str
    check: Check
    about: About


# I2, I13


def no_delete_without_evidence(happening: Happening, witness: Witness) -> str | None:
    removed = pod_removed(happening)
    if removed is None:
        return None
    meta = removed["metadata"]
    if not (meta.get("deletionTimestamp") or _was_over(removed, request_of(happening))):
        return f"{meta['name']} was removed without having been marked before"
    since = witness.marked(meta["uid"]) or 0
    doubt = _doubt(removed, request_of(happening), witness, since=since)
    return f"{meta['name']} was removed although {doubt}" if doubt else None


def _was_over(pod: Json, by: Asked) -> bool:
    """What has ended will not start again, and needs no mark: that would already remove it, before
    anything is proven anew. So it is removed on purpose, or not at all."""
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return ended and by.body.get("gracePeriodSeconds") == 0


def _doubt(pod: Json, by: Asked, witness: Witness, *, since: int) -> str:
    """Why nothing proves that it cannot write; empty if something does that was not taken back by
    ``since``."""
    doubt = witness.doubt(by, node_of(pod), since=since)
    return "" if has_stopped(pod, witness) or witness.is_shut_out(pod) else doubt


def proof_after_barrier(happening: Happening, witness: Witness) -> str | None:
    removed = pod_removed(happening)
    if removed is None:
        return None
    meta, node = removed["metadata"], node_of(removed)
    marked, by = witness.marked(meta["uid"]), request_of(happening)
    if marked is None:
        return None
    if witness.powers.read_off(by.user, node, sent=by.sent, before=marked) and _doubt(
        removed, by, witness, since=marked
    ):
        return f"{meta['name']} was removed, and its BMC was not asked again since it was marked"
    lease, words = witness.lease_look(by, node), witness.words_seen(by, node, since=marked)
    if lease is not None and not _doubt(removed, by, witness, since=lease.version):
        # What was taken back meanwhile is not what it rests on, where there is something else.
        words = witness.words_seen(by, node, since=lease.version)
    if all(look is not None and look.version >= marked for look in (lease, *words)):
        return None
    return f"{meta['name']} was removed, and nobody had looked at {node} since it was marked"


# I4


_REWRITTEN = frozenset({NODES.label, NETWORK_FENCES.label}) | BLOCKS | HANDLES
"""What is there before us, or after us, and is changed at the version that was seen."""


def preconditions(happening: Happening, _witness: Witness) -> str | None:
    if not isinstance(happening, Asked):
        return None
    if happening.storage in _REWRITTEN and happening.method != "POST":
        return _unconditional(happening)
    if not (asks_to_delete_a_pod(happening) or asks_to_detach(happening)):
        return None
    named = happening.body.get("preconditions") or {}
    missing = [each for each in ("uid", "resourceVersion") if not named.get(each)]
    if not missing:
        return None
    return f"{happening.key[1]} was to be deleted without {' and '.join(missing)}"


def _unconditional(asked: Asked) -> str | None:
    """A write to what others write to as well, whatever it had become meanwhile."""
    deletes = asked.method == "DELETE"
    named = asked.body.get("preconditions" if deletes else "metadata") or {}
    if named.get("resourceVersion"):
        return None
    return f"{asked.key[1]} was to be {'deleted' if deletes else 'written'}, whatever it had become"


# I5


def epoch(happening: Happening, witness: Witness) -> str | None:
    if asks_to_delete_a_pod(happening) or asks_to_detach(happening):
        assert isinstance(happening, Asked)
        return _unannounced(happening, witness)
    if asks_to_switch(happening):
        assert isinstance(happening, Asked)
        return unannounced_switch(happening, witness)
    return _epoch_of_a_new_term(happening, witness)


def _epoch_of_a_new_term(happening: Happening, witness: Witness) -> str | None:
    if not isinstance(happening, Committed) or not _is_our_lease(happening):
        return None
    commit = happening.commit
    taken = transitions(commit.after.object)
    before = 0 if commit.before is None else transitions(commit.before.object)
    if commit.deleted or (commit.before is not None and taken == before):
        return None
    recorded = max((_recorded_epoch(each) for each in _incidents(witness)), default=0)
    if taken > max(before, recorded):
        return None
    return f"a term began under epoch {taken}, and {max(before, recorded)} had been used already"


def _unannounced(asked: Asked, witness: Witness) -> str | None:
    """A deletion of which its sender had announced nothing when it left, or in another term."""
    name = asked.key[1]
    where = asked.key[0] or asked.storage.partition(".")[0]
    announced = witness.terms.announced(asked.user, f"{where}/{name}", asked.sent)
    if not announced:
        return f"{name} was to be deleted, and {asked.user} had not announced it"
    term = witness.terms.epoch(asked.user, asked.sent)
    if term in announced:
        return None
    return f"{name} was to be deleted under epoch {term}, and announced under another"


def _incidents(witness: Witness) -> list[Json]:
    return [stored.object for stored in witness.store.all(INCIDENTS.label)]


def _recorded_epoch(incident: Json) -> int:
    return int((incident.get("status") or {}).get("epoch") or 0)


def _is_our_lease(happening: Committed) -> bool:
    commit = happening.commit
    return commit.storage == LEASES.label and commit.after.key == OUR_LEASE


# I9


def disarm(happening: Happening, witness: Witness) -> str | None:
    """By the configuration as it was last read: a person who disarms in the very moment between
    reading and writing came too late for that write."""
    if not takes_something(happening, witness):
        return None
    assert isinstance(happening, Asked)
    thing = happening.key[1] or (happening.body.get("metadata") or {}).get("name", "")
    look = witness.look(happening, CONFIGS.label, CONFIG_NAME)
    if look is None or look.stored is None:
        return f"{thing} was to be changed although nobody has armed us"
    if witness.restores.was_known_to(happening.user, happening.sent):
        return f"{thing} was to be changed although the API was rolled back"
    if witness.is_armed(look.stored.object):
        return None
    return f"{thing} was to be changed although we are not armed"


# I10


def ownership(happening: Happening, witness: Witness) -> str | None:
    if isinstance(happening, Asked):
        if happening.storage == NETWORK_FENCES.label:
            return somebodys_fence(happening, witness)
        if happening.storage == NODE_MAINTENANCES.label:
            return not_ours_in_a_maintenance(happening, witness)
        return _not_ours_to_ask(happening, witness)
    if not isinstance(happening, Committed) or happening.by is None:
        return None
    commit = happening.commit
    if commit.storage != NODES.label or commit.before is None:
        return None
    if _foreign_parts(commit.before.object) == _foreign_parts(commit.after.object):
        return None
    return f"more of {commit.after.key[1]} was changed than our own taint"


def _open_incident_removed(asked: Asked, witness: Witness) -> str | None:
    """What is over may be cleared away; what is open, the next leader goes by."""
    live = witness.stored(INCIDENTS.label, asked.key[1])
    if live is None or (live.get("status") or {}).get("closedAt"):
        return None
    return f"the incident {asked.key[1]} was to be removed, and it is open"


_ALLOWED: Mapping[str, tuple[str, ...]] = {
    PODS.label: ("DELETE",),
    NODES.label: ("PATCH",),
    ATTACHMENTS.label: ("DELETE",),
    **dict.fromkeys(BLOCKS | HANDLES, ("PUT", "DELETE")),
    MIGRATIONS.label: ("POST",),
    VIRTUAL_MACHINES.label: ("PUT",),
    POWER: ("POST",),
}
"""What we may ask for, of what is not ours."""


def _not_ours_to_ask(asked: Asked, witness: Witness) -> str | None:
    name = asked.key[1]
    if asks_to_switch(asked) and asked.subresource not in tuple(Reset):
        return f"{asked.subresource} of {name} was asked for, which is neither off nor on"
    if "finalizers" in (asked.body.get("metadata") or ()):
        return f"the finalizers of {name} were to be changed"
    if asked.storage in OURS and asked.method != "DELETE":
        return None
    if asked.storage == INCIDENTS.label:
        return _open_incident_removed(asked, witness)
    if asked.storage == _RECORDS and asked.key[0] == OUR_LEASE[0]:
        return None
    if asked.method in _ALLOWED.get(asked.storage, ()) or asked.evicts:
        return None
    if (asked.storage, asked.subresource) == (CONFIRMATIONS.label, "status"):
        return None
    if calls_off(asked, witness):
        return None
    return f"{asked.method} of {asked.storage} {name} was asked for, which is not ours"


def _foreign_parts(node: Json) -> tuple[object, ...]:
    """All of a node but our taints, what a maintenance puts on it (``drain_rules.py``), and the
    notes that tell what of it is ours."""
    meta, spec = node["metadata"], node["spec"]
    said = meta.get("annotations") or {}
    ours = {TAINT, DRAIN_TAINT} | ({OUT_OF_SERVICE} if OUT_OF_SERVICE_OURS in said else set())
    taints = [each for each in spec.get("taints") or () if each["key"] not in ours]
    rest = {field: value for field, value in spec.items() if field not in _OF_DRAINS}
    notes = {key: value for key, value in said.items() if key not in _NOTES}
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key != EXCLUDE}
    return taints, rest, notes, labels, meta.get("finalizers")


_OF_DRAINS = frozenset({"taints", "unschedulable"})
_NOTES = frozenset({OUT_OF_SERVICE_OURS, MAINTENANCE})


# I11


def taint_before_removal(happening: Happening, witness: Witness) -> str | None:
    """By the node as it was last read: a person can take the taint off in the very next moment."""
    if (attachment := _to_be_detached(happening, witness)) is not None:
        assert isinstance(happening, Asked)
        node, by = str(attachment["spec"]["nodeName"]), happening
        deed = f"{by.key[1]} was to be detached"
    elif (removed := pod_removed(happening)) is not None:
        node, by = node_of(removed), request_of(happening)
        deed = f"{removed['metadata']['name']} was removed"
    else:
        return comes_back(happening, witness)
    seen = witness.look(by, NODES.label, node)
    if seen is None or seen.stored is None or has_our_taint(seen.stored.object):
        return None
    return f"{deed} from {node}, which did not have our taint"


def _to_be_detached(happening: Happening, witness: Witness) -> Json | None:
    if not asks_to_detach(happening):
        return None
    assert isinstance(happening, Asked)
    return witness.stored(ATTACHMENTS.label, happening.key[1])


def zombie(happening: Happening, witness: Witness) -> str | None:
    if isinstance(happening, Asked):
        return _sent_too_late(happening, witness) if takes_something(happening, witness) else None
    return _begun_too_soon(happening, witness) or _untainted_too_soon(happening, witness)


def _sent_too_late(asked: Asked, witness: Witness) -> str | None:
    """Judged by when it left: what was sent in time may land whenever it will."""
    late = asked.sent - witness.terms.ended(asked.user, asked.sent)
    if late <= 0:
        return None
    return f"{asked.user} was to change {asked.key[1]} {late:.1f} s after its term had ended"


def _begun_too_soon(happening: Happening, witness: Witness) -> str | None:
    """Whoever takes the lease from somebody takes it after the other's right to act has ended.
    Where the API was restored meanwhile, nobody else can know of a right that was wiped out; and
    who has one renews it once more if the lease, by chance, has the same version again."""
    if not isinstance(happening, Committed) or not _is_our_lease(happening):
        return None
    before, after = happening.commit.before, happening.commit.after
    if before is None or happening.commit.deleted:
        return None
    was, now = holder(before.object), holder(after.object)
    if was == now or not (was and now):
        return None
    early, by = witness.terms.ended(was, happening.at) - happening.at, happening.by
    if early <= 0 or witness.terms.is_forgotten(was, happening.at):
        return None
    if by is not None and witness.terms.is_forgotten(by.user, by.sent):
        return None
    return f"{now} took the lease {early:.1f} s before the term of {was} had ended"


def _untainted_too_soon(happening: Happening, witness: Witness) -> str | None:
    if not isinstance(happening, Committed) or happening.by is None:
        return None
    commit = happening.commit
    if commit.storage != NODES.label or commit.before is None:
        return None
    if not has_our_taint(commit.before.object) or has_our_taint(commit.after.object):
        return None
    for each in witness.truth.running(commit.after.key[1]):
        gone = witness.removed(each.uid)
        if gone is not None and gone.by_us:
            return f"{each.node} was given back while {each.name}, which we removed, runs there"
    return None


# I12, I16


def no_healthy_guest_stopped(happening: Happening, witness: Witness) -> str | None:
    if asks_for(happening, Reset.OFF):
        assert isinstance(happening, Asked)
        return kills_guests(happening, witness)
    if asks_to_fence(happening):
        assert isinstance(happening, Asked)
        return robs_a_guest(happening, witness)
    touched = pod_touched(happening)
    if touched is None:
        return stops_what_could_move(happening, witness)
    meta, node = touched["metadata"], node_of(touched)
    runs = any(each.uid == meta["uid"] for each in witness.truth.running(node))
    if not runs or witness.is_shut_out(touched) or not witness.doubt(request_of(happening), node):
        return None
    if may_be_succeeded(touched, request_of(happening), witness):
        return None
    kind = "guest" if VM_NAME in (meta.get("labels") or {}) else "pod"
    return f"the {kind} of {meta['name']} runs on {node} and was told to stop"


def no_bystander(happening: Happening, witness: Witness) -> str | None:
    """Also an attempt that the API refuses is one, unless it names a pod that is gone by now; and
    of one that names an older version nobody can say that its owner had kept it from us by then."""
    if asks_to_switch(happening):
        assert isinstance(happening, Asked)
        return hits_a_bystander(happening, witness)
    if isinstance(happening, Committed) and happening.commit.storage == NODES.label:
        return takes_another_of_the_control_plane(happening, witness)
    if not asks_to_delete_a_pod(happening):
        return None
    assert isinstance(happening, Asked)
    live = witness.stored(PODS.label, happening.key[1], happening.key[0])
    meant = happening.body.get("preconditions") or {}
    if live is None or not _is_meant(live, meant, "uid"):
        return None
    node = node_of(live)
    because = _kept_from_us(happening, live, node, witness)
    if because is not None and _is_meant(live, meant, "resourceVersion"):
        return f"{happening.key[1]} was to be deleted, and {because}"
    machine = witness.machines.get(node)
    if machine is None or machine.boot_id is None or witness.is_shut_out(live):
        return None
    if not witness.doubt(happening, node):
        return None
    if has_stopped(live, witness) or may_be_succeeded(live, happening, witness):
        return None
    return f"{happening.key[1]} was to be deleted, and {node} lives"


def _is_meant(live: Json, meant: Json, field: str) -> bool:
    """Whether a request to which that is a condition can be about what there is."""
    return not meant.get(field) or bool(meant[field] == live["metadata"][field])


def _kept_from_us(by: Asked, pod: Json, node: str, witness: Witness) -> str | None:
    """By the configuration and the node as they were last read: both can change in the very next
    moment."""
    if because := kept_from_us(pod, as_read(by, witness), witness):
        return because
    seen = witness.look(by, NODES.label, node)
    labels = (seen.stored.object["metadata"].get("labels") or {}) if seen and seen.stored else {}
    return f"{node} is exempt" if labels.get(EXEMPT) == "true" else None


def _storm(happening: Happening, witness: Witness) -> str | None:
    if asks_for(happening, Reset.OFF):
        assert isinstance(happening, Asked)
        return switched_off_in_a_storm(happening, witness)
    return storm(happening, witness)


_PODS, _NODES = frozenset({PODS.label}), frozenset({NODES.label})
_DELETED = frozenset({PODS.label, ATTACHMENTS.label})
_GUESTS = frozenset({VIRTUAL_MACHINES.label, MIGRATIONS.label})
_PODS_TOUCHED = About(deeds=_PODS)
_SWITCHED = frozenset({POWER})

INVARIANTS: tuple[Invariant, ...] = (
    Invariant("I1", "OneWriter", one_writer, About(truth=SECOND_COPIES)),
    Invariant("I2", "NoDeleteWithoutEvidence", no_delete_without_evidence, _PODS_TOUCHED),
    Invariant(
        "I3", "EvidenceScope", evidence_scope,
        About(requests=_NODES | {ATTACHMENTS.label}, deeds=_PODS),
    ),
    Invariant("I13", "ProofAfterBarrier", proof_after_barrier, _PODS_TOUCHED),
    Invariant(
        "I4", "Preconditions", preconditions, About(requests=_DELETED | _REWRITTEN)
    ),
    Invariant("I5", "Epoch", epoch, About(requests=_DELETED | _SWITCHED, lease=True)),
    Invariant("I6", "Storm", _storm, About(requests=_SWITCHED, deeds=_PODS)),
    Invariant("I7", "Pdb", pdb, About(requests=_PODS, deeds=_PODS)),
    Invariant("I8", "LastCopy", last_copy_power, About(requests=_SWITCHED)),
    Invariant("I9", "Disarm", disarm, About(requests=TAKEN_WITH)),
    Invariant("I10", "Ownership", ownership, About(requests=None, deeds=_NODES)),
    Invariant("I10", "GivesBack", gives_back, About(deeds=_NODES)),
    Invariant(
        "I11", "TaintBeforeRemoval", taint_before_removal,
        About(requests=_DELETED, deeds=_PODS),
    ),
    Invariant("I11", "Zombie", zombie, About(requests=TAKEN_WITH, deeds=_NODES, lease=True)),
    Invariant(
        "I12", "NoHealthyGuestStopped", no_healthy_guest_stopped,
        About(
            requests=_SWITCHED | {NETWORK_FENCES.label, VIRTUAL_MACHINES.label}, deeds=_PODS
        ),
    ),
    Invariant("I12", "AsPolicySays", as_policy_says, About(requests=_GUESTS)),
    Invariant(
        "I14", "OneAddress", one_address,
        About(truth=frozenset({What.STARTED, What.WRITING}), deeds=BLOCKS),
    ),
    Invariant("I15", "PowerOrder", power_order, About(requests=_SWITCHED)),
    Invariant("I16", "NoBystander", no_bystander, About(requests=_PODS | _SWITCHED, deeds=_NODES)),
    Invariant("I16", "OneOwner", one_owner, About(requests=TAKEN_WITH)),
    Invariant("I3", "OwnersProof", owners_proof, _PODS_TOUCHED),
)  # fmt: skip
