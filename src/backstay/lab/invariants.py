"""Invariants: what must never be, looked at after every write and every change of the truth.

Each is a rule with a name and a check. A check is asked about everything that happens and answers
with a sentence when the rule was broken. It looks at the ground truth and at what our controllers
had seen when they wrote (``witness.py``), never at what they say of themselves: the product's own
code is not asked whether the product is right.

=======================  ========================================================================
OneWriter                no volume has two writers, and no workload runs twice
NoDeleteWithoutEvidence  what is removed was marked before, on a node whose death somebody vouches
                         for and that has shown no life since
ProofAfterBarrier        what a removal rests on was looked at after the pod had been marked
Preconditions            every deletion names uid and resourceVersion
Disarm                   nothing is taken away and no node tainted unless we are armed
TaintBeforeRemoval       nothing is removed from a node that could be given something new
NoHealthyGuestStopped    no guest that runs is stopped
NoBystander              nothing on a living node is touched
=======================  ========================================================================

A person can be wrong, and a node that is cut off cannot object: what is done on the word of a
person, while no sign of life could be seen, is that person's risk and breaks no rule but the
first. ``INVARIANTS`` is a value; more rules are more entries. Each has a deliberate bug in
tests/lab that it catches.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backstay.apis.backstay import CONFIG_NAME, CONFIGS, CONFIRMATIONS
from backstay.kube.resource import LEASES, NODES, PODS
from backstay.lab.witness import Asked, Committed, Happening, Look, Witness, workload_of
from backstay.model.labels import LEASE_NAMESPACE, TAINT, VM_NAME
from backstay.sim.nodes.truth import Entry, Running, What

Json = Mapping[str, Any]
Check = Callable[[Happening, Witness], str | None]


@dataclass(frozen=True)
class Invariant:
    """``code`` is its number in the design; ``check`` says how it was broken, or None."""

    code: str
    name: str
    check: Check


@dataclass(frozen=True)
class Breach:
    """``at`` is true time."""

    at: float
    invariant: str
    sentence: str


class Inspector:
    """Asks every invariant about everything that happens. ``checked`` counts the happenings."""

    def __init__(self, witness: Witness, invariants: Sequence[Invariant] | None = None) -> None:
        self.checked = 0
        self.broken: list[Breach] = []
        self._witness = witness
        self._invariants = INVARIANTS if invariants is None else invariants
        witness.watch(self._look_at)

    @property
    def names_broken(self) -> set[str]:
        return {breach.invariant for breach in self.broken}

    def _look_at(self, happening: Happening) -> None:
        self.checked += 1
        for invariant in self._invariants:
            sentence = invariant.check(happening, self._witness)
            if sentence is not None:
                self.broken.append(Breach(happening.at, invariant.name, sentence))


# I1


def one_writer(happening: Happening, witness: Witness) -> str | None:
    """Every volume here is one workload's: two that write to it are two copies."""
    if not isinstance(happening, Entry) or happening.what not in (What.STARTED, What.WRITING):
        return None
    truth = witness.truth
    for volume in happening.volumes:
        writers = truth.writers(volume)
        if len(writers) > 1:
            return f"{volume} is written to by {_places(writers)}"
    started = workload_of(happening)
    copies = [each for each in truth.running() if workload_of(each) == started]
    return f"{started} runs on {_places(copies)}" if len(copies) > 1 else None


def _places(running: Sequence[Running]) -> str:
    return " and ".join(f"{each.name} on {each.node}" for each in running)


# I2, I13


def no_delete_without_evidence(happening: Happening, witness: Witness) -> str | None:
    removed = _pod_removed(happening)
    if removed is None:
        return None
    meta, node = removed["metadata"], _node_of(removed)
    if not meta.get("deletionTimestamp"):
        return f"{meta['name']} was removed without having been marked before"
    doubt = _doubt(_who(happening), node, witness)
    return f"{meta['name']} was removed although {doubt}" if doubt else None


def proof_after_barrier(happening: Happening, witness: Witness) -> str | None:
    removed = _pod_removed(happening)
    if removed is None:
        return None
    meta, node = removed["metadata"], _node_of(removed)
    marked, lease = witness.marked(meta["uid"]), _lease_look(_who(happening), node, witness)
    if marked is None or (lease is not None and lease.version >= marked):
        return None
    return f"{meta['name']} was removed, and nobody had looked at {node} since it was marked"


def _doubt(user: str, node: str, witness: Witness) -> str:
    """Why nobody may take it that the node is dead; empty if somebody vouches for it and no life
    could be seen since."""
    seen, lease = witness.look(user, NODES.label, node), _lease_look(user, node, witness)
    if seen is None or seen.stored is None or lease is None:
        return f"nobody had looked at {node}"
    body = seen.stored.object
    boot = (body["metadata"]["uid"], body["status"]["nodeInfo"]["bootID"])
    words = [
        word.object
        for word in witness.store.all(CONFIRMATIONS.label)
        if word.object["spec"]["node"] == node and _boot_of(word.object["spec"]) == boot
    ]
    if not words:
        return f"nothing vouches for the death of {node}"
    given = max(witness.confirmed(word["metadata"]["uid"]) for word in words)
    if given < witness.life_shown(node) <= lease.version:
        return f"{node} had shown life since its death was confirmed"
    return ""


def _boot_of(spec: Json) -> tuple[str, str]:
    return spec["nodeUID"], spec["bootID"]


def _lease_look(user: str, node: str, witness: Witness) -> Look | None:
    return witness.look(user, LEASES.label, node, LEASE_NAMESPACE)


# I4


def preconditions(happening: Happening, _witness: Witness) -> str | None:
    if not _asks_to_delete_a_pod(happening):
        return None
    assert isinstance(happening, Asked)
    named = happening.body.get("preconditions") or {}
    missing = [each for each in ("uid", "resourceVersion") if not named.get(each)]
    if not missing:
        return None
    return f"{happening.key[1]} was to be deleted without {' and '.join(missing)}"


# I9


def disarm(happening: Happening, witness: Witness) -> str | None:
    """By the configuration as it was last read: a person who disarms in the very moment between
    reading and writing came too late for that write."""
    if not (_asks_to_delete_a_pod(happening) or _asks_for_our_taint(happening)):
        return None
    assert isinstance(happening, Asked)
    look = witness.look(happening.user, CONFIGS.label, CONFIG_NAME)
    if look is None or look.stored is None:
        return f"{happening.key[1]} was to be changed although nobody has armed us"
    spec = look.stored.object["spec"]
    if spec.get("mode") == "Armed" and not _is_disarmed(spec, witness):
        return None
    return f"{happening.key[1]} was to be changed although we are not armed"


def _is_disarmed(spec: Json, witness: Witness) -> bool:
    until = str((spec.get("disarmed") or {}).get("until") or "")
    return bool(until) and datetime.fromisoformat(until) > witness.wall_now()


# I11


def taint_before_removal(happening: Happening, witness: Witness) -> str | None:
    removed = _pod_removed(happening)
    if removed is None:
        return None
    node = _node_of(removed)
    live = witness.stored(NODES.label, node)
    if live is None or any(each["key"] == TAINT for each in live["spec"].get("taints") or ()):
        return None
    return f"{removed['metadata']['name']} was removed from {node}, which does not have our taint"


# I12, I16


def no_healthy_guest_stopped(happening: Happening, witness: Witness) -> str | None:
    touched = _pod_touched(happening)
    if touched is None:
        return None
    meta, node = touched["metadata"], _node_of(touched)
    runs = any(each.uid == meta["uid"] for each in witness.truth.running(node))
    if not runs or not _doubt(_who(happening), node, witness):
        return None
    kind = "guest" if VM_NAME in (meta.get("labels") or {}) else "pod"
    return f"the {kind} of {meta['name']} runs on {node} and was told to stop"


def no_bystander(happening: Happening, witness: Witness) -> str | None:
    """Also an attempt that the API refuses is one."""
    if not _asks_to_delete_a_pod(happening):
        return None
    assert isinstance(happening, Asked)
    live = witness.stored(PODS.label, happening.key[1], happening.key[0])
    machine = None if live is None else witness.node(_node_of(live))
    if (
        machine is None
        or machine.boot_id is None
        or not _doubt(happening.user, machine.name, witness)
    ):
        return None
    return f"{happening.key[1]} was to be deleted, and {machine.name} lives"


# What happened


def _asks_to_delete_a_pod(happening: Happening) -> bool:
    return (
        isinstance(happening, Asked)
        and happening.storage == PODS.label
        and (happening.method == "DELETE" or happening.subresource == "eviction")
    )


def _asks_for_our_taint(happening: Happening) -> bool:
    if not isinstance(happening, Asked) or happening.storage != NODES.label:
        return False
    taints = (happening.body.get("spec") or {}).get("taints") or ()
    return any(each.get("key") == TAINT for each in taints)


def _pod_touched(happening: Happening) -> Json | None:
    """A pod that one of ours has just marked or removed, as it was before."""
    if not isinstance(happening, Committed) or happening.by is None:
        return None
    commit = happening.commit
    if commit.storage != PODS.label or commit.before is None:
        return None
    return commit.before.object


def _pod_removed(happening: Happening) -> Json | None:
    """A pod that one of ours has just taken out of the API."""
    gone = isinstance(happening, Committed) and happening.commit.deleted
    return _pod_touched(happening) if gone else None


def _who(happening: Happening) -> str:
    """Which one of ours did it."""
    assert isinstance(happening, Committed)
    assert happening.by is not None
    return happening.by.user


def _node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))


INVARIANTS: tuple[Invariant, ...] = (
    Invariant("I1", "OneWriter", one_writer),
    Invariant("I2", "NoDeleteWithoutEvidence", no_delete_without_evidence),
    Invariant("I13", "ProofAfterBarrier", proof_after_barrier),
    Invariant("I4", "Preconditions", preconditions),
    Invariant("I9", "Disarm", disarm),
    Invariant("I11", "TaintBeforeRemoval", taint_before_removal),
    Invariant("I12", "NoHealthyGuestStopped", no_healthy_guest_stopped),
    Invariant("I16", "NoBystander", no_bystander),
)
