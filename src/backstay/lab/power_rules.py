"""Rules about power (I15, and what other rules say of it): who is switched off, and on again.

Like all rules (``invariants.py``) these look at what is really there, and at what whoever asks
could have known when the request *left*. To switch a node off is to kill all that it runs, so it is
held to more than a fence: nothing of the node was heard on any channel, its lease had been silent
for long, nobody keeps it from us, and it is no storm.

* **PowerOrder**: no ``off`` of ours lands after the ``on`` of the same incident, be it held up on
  its way or sent by one who leads no longer; ``on`` comes only when nothing of the incident is left
  there, and only where one of ours had announced ``off``.
* **LastCopy**: what has the last good copy of a volume that somebody waits for is not switched off.

A request can leave until its sender's term ends, and whoever sent it waits for it for a while
(``DEADLINE``). What lands later than both, nobody who switches on can have waited for: it is the
network that has kept it, after its sender had given it up.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from backstay.apis.storage import VOLUMES
from backstay.drivers.power import DEADLINE
from backstay.kube.resource import NODES, PODS
from backstay.lab.policy_rules import as_read, configured, kept_from_us
from backstay.lab.powers import POWER
from backstay.lab.silence_rules import is_lifted, many_silent
from backstay.lab.witness import Asked, Happening, Witness, workload_in
from backstay.model.labels import CONTROL_PLANE, DRAIN_TAINT, EXEMPT
from backstay.sim.bmc import Reset
from backstay.sim.linstor.replicas import Kind, Resource

Json = Mapping[str, Any]

OFF_STEP, ON_STEP = "PowerOff", "PowerOn"
_STEPS = {Reset.OFF.value: OFF_STEP, Reset.ON.value: ON_STEP}
_KINDS = frozenset({"VirtualMachineInstance", "StatefulSet"})


_STRANDED = 280.0
_HOSTNAME = "kubernetes.io/hostname"
_SLACK = 5.0
"""Seconds by which one of ours may be behind with what it has heard: a node is lost long before it
is switched off, and is knocked at all the while."""


def asks_to_switch(happening: Happening) -> bool:
    return isinstance(happening, Asked) and happening.storage == POWER


def asks_for(happening: Happening, reset: Reset) -> bool:
    return (
        isinstance(happening, Asked)
        and happening.storage == POWER
        and happening.subresource == reset.value
    )


# I15


def power_order(happening: Happening, witness: Witness) -> str | None:
    if not isinstance(happening, Asked) or not asks_to_switch(happening):
        return None
    node = happening.key[1]
    boot = witness.terms.boot_announced(happening.user, node, happening.sent)
    if asks_for(happening, Reset.OFF):
        return _off_after_on(happening, node, boot, witness)
    if not asks_for(happening, Reset.ON):
        return None
    if not witness.terms.has_announced(node, boot, OFF_STEP, by=happening.sent):
        return f"{node} was to be switched on, and none of us had switched it off"
    return _on_too_soon(happening, node, witness)


def _off_after_on(asked: Asked, node: str, boot: str, witness: Witness) -> str | None:
    if asked.at > witness.terms.ended(asked.user, asked.sent) + DEADLINE:
        return None
    for before in witness.powers.before(node, boot, on=True):
        since = asked.at - before.at
        return f"{node} was switched off {since:.0f} s after it had been switched on again"
    return None


def _on_too_soon(asked: Asked, node: str, witness: Witness) -> str | None:
    """What is to go is still there, or what was taken from it has not come up anywhere yet; unless
    it has been looking for a place for so long that there may be none but this node."""
    awaited = {
        workload
        for workload, at in witness.powers.awaited.get(node, {}).items()
        if asked.sent - at < _STRANDED * witness.factor
    }
    for stored in witness.store.all(PODS.label):
        pod = stored.object
        name = pod["metadata"]["name"]
        if pod["spec"].get("nodeName") == node and _is_ours_to_move(pod, witness):
            return f"{node} was to be switched on, and {name} is still there"
        if workload_in(pod) in awaited and not _is_over(pod):
            return f"{node} was to be switched on, and {name} does not run yet"
    return None


def _is_ours_to_move(pod: Json, witness: Witness) -> bool:
    """Beyond any doubt: what can run nowhere else waits for its node."""
    meta, spec = pod["metadata"], pod["spec"]
    owners = {each["kind"] for each in meta.get("ownerReferences") or ()}
    kept = kept_from_us(pod, configured(witness), witness)
    bound = _HOSTNAME in (spec.get("nodeSelector") or ()) or any(
        "nodeAffinity" in (witness.stored(VOLUMES.label, each) or {"spec": {}})["spec"]
        for each in witness.volumes_of(pod)
    )
    return bool(owners & _KINDS) and not (_is_over(pod) or kept or bound)


def _is_over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


# I8


def last_copy_power(happening: Happening, witness: Witness) -> str | None:
    """Unless LINSTOR is wrong about it: while it is away nobody can know, and has to wait."""
    linstor = witness.linstor
    if not isinstance(happening, Asked) or not asks_for(happening, Reset.OFF) or linstor is None:
        return None
    late = happening.at - happening.sent > witness.times.fresh
    if late or linstor.faults.trouble is not None or linstor.hearing.stale:
        return None
    node = str(happening.body["machine"])
    mine = list(_volumes_there(node, witness))
    lost = [
        volume
        for volume in mine
        if (known := linstor.volumes.get(volume)) is not None
        and _has_only_copy(node, linstor.drbd.resources[known.resource])
    ]
    # Where something else waits that can be moved, it is not left for what cannot.
    if not lost or len(lost) < len(mine):
        return None
    return f"{node} was to be switched off, and has the last good copy of {lost[0]}"


def _has_only_copy(node: str, resource: Resource) -> bool:
    own = resource.replicas.get(node)
    others = [each for name, each in resource.replicas.items() if name != node]
    with_disks = [each for each in others if each.kind is Kind.DISKFUL]
    return own is not None and own.has_data and not any(each.has_data for each in with_disks)


def _volumes_there(node: str, witness: Witness) -> Iterator[str]:
    for stored in witness.store.all(PODS.label):
        pod = stored.object
        if pod["spec"].get("nodeName") == node and _is_ours_to_move(pod, witness):
            yield from witness.volumes_of(pod)


# What other rules say of it


def unannounced_switch(asked: Asked, witness: Witness) -> str | None:
    """Epoch: a request that its sender had not announced, or in another term."""
    node, step = asked.key[1], _STEPS.get(asked.subresource, "")
    if not step or not witness.terms.boot_announced(asked.user, node, asked.sent, step=step):
        return f"{node} was to be switched, and {asked.user} had not announced it"
    announced = witness.terms.announced(asked.user, f"{POWER}/{node}", asked.sent)
    term = witness.terms.epoch(asked.user, asked.sent)
    if term in announced:
        return None
    return f"{node} was to be switched under epoch {term}, and announced under another"


def kills_guests(asked: Asked, witness: Witness) -> str | None:
    """NoHealthyGuestStopped: a node is to be switched off of which something was heard."""
    node, machine = asked.key[1], str(asked.body["machine"])
    sign = witness.signs.late(asked.user, node, sent=asked.sent, slack=_SLACK)
    if sign and witness.truth.running(machine):
        return f"{machine} was to be switched off, where guests run, although {sign}"
    return None


def hits_a_bystander(asked: Asked, witness: Witness) -> str | None:
    """NoBystander: the wrong machine is switched, or one that is there, or that is kept from us."""
    node, machine = asked.key[1], str(asked.body["machine"])
    if machine != node:
        return f"{node} was to be switched, and it is {machine} that hangs on that device"
    if not asks_for(asked, Reset.OFF):
        return None
    silent = asked.sent - witness.signs.seen_renewed_at(asked.user, node, sent=asked.sent)
    # Whose death somebody vouches for need not be silent for as long, though that may be too little
    # proof for what waits for it.
    vouched = not witness.doubt(asked, node, strong=True)
    if silent < (witness.times.confirmed if vouched else witness.times.suspect):
        return f"{node} was to be switched off, and was heard of {silent:.0f} s before"
    because = _kept(asked, node, witness) or _needed(asked, node, witness)
    return f"{node} was to be switched off, and {because}" if because else None


def _needed(asked: Asked, node: str, witness: Witness) -> str:
    """Whether the control plane has no majority without it, by who renews its lease."""
    nodes = (stored.object["metadata"] for stored in witness.store.all(NODES.label))
    bearing = [
        meta["name"] for meta in nodes if set(CONTROL_PLANE) & (meta.get("labels") or {}).keys()
    ]
    window = witness.times.lost + _SLACK * witness.factor
    left = [
        name
        for name in bearing
        if name != node and asked.sent - witness.signs.renewed_at(name) <= window
    ]
    if node not in bearing or 2 * len(left) > len(bearing):
        return ""
    return f"without it {len(left)} of {len(bearing)} are left of the control plane"


def _kept(asked: Asked, node: str, witness: Witness) -> str:
    """By the node as it was last read: its labels and taints can change in the very next moment."""
    seen = witness.look(asked, NODES.label, node)
    if seen is None or seen.stored is None:
        return "nobody had looked at it"
    live = seen.stored.object
    if (live["metadata"].get("labels") or {}).get(EXEMPT) == "true":
        return "is exempt"
    taints = {each["key"] for each in live["spec"].get("taints") or ()}
    return "is in maintenance" if DRAIN_TAINT in taints else ""


def switched_off_in_a_storm(asked: Asked, witness: Witness) -> str | None:
    """Storm: several that are switched off are an outage."""
    node = asked.key[1]
    spec = as_read(asked, witness)
    silent = many_silent(node, spec, asked.sent, witness)
    if not silent or is_lifted(spec, witness):
        return None
    return f"{node} was to be switched off, and so many are silent: {', '.join(silent)}"
