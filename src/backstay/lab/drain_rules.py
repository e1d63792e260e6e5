"""Rules about drains: what is taken from a node that lives because somebody has asked for it.

Each is about requests and commits of our controllers, and goes by what people have asked for, by
the budgets as they stand in the API and by what really runs; what the product says of a drain is
not asked. Who drains hears of news a moment late (``maintenances.SLACK``), and is held to nothing
before that.

* **Pdb**: what lives on a node that lives is taken from it by an eviction that the API let through,
  and in no other way; with its grace, against no budget, by its uid, and only where a
  NodeMaintenance asks for that very node.
* **GivesBack**: cordon, taint and label are taken off only where one of ours has put them on, and
  where nobody else asks for a maintenance of that node. (That none of ours is left behind is a
  promise: ``drain_promises.py``.)
* **NoHealthyGuestStopped**: a guest that could be moved live is not stopped.
* **TaintBeforeRemoval**: nothing is evicted from a node to which it could come back.
* **NoBystander**: of the control plane one node is in maintenance at a time.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from backstay.apis.apps import STATEFUL_SETS
from backstay.apis.kubevirt import INSTANCES, VIRTUAL_MACHINES
from backstay.apis.maintenance import NODE_MAINTENANCES
from backstay.kube.resource import NODES, PODS
from backstay.lab.guest_rules import has_stopped
from backstay.lab.happenings import (
    asks_to_delete_a_pod,
    asks_to_evict,
    node_of,
    pod_evicted,
)
from backstay.lab.linstor_rules import may_be_succeeded
from backstay.lab.maintenances import SLACK, Part, parts_on
from backstay.lab.witness import Asked, Committed, Happening, Witness
from backstay.model.labels import CONTROL_PLANE
from backstay.sim.api.label_selectors import selects

Json = Mapping[str, Any]

FINALIZER = "foregroundDeleteNodeMaintenance"
"""By which the end of a maintenance waits until all is given back; the name is another program's,
whose NodeMaintenances these are as well."""

_BUDGETS = "poddisruptionbudgets.policy"
_REPLICA_SETS = "replicasets.apps"
_ENDED = ("Succeeded", "Failed")
_MOVABLE = frozenset({"LiveMigrate", "LiveMigrateIfPossible", "External"})
_STOPPING = frozenset({"restart", "stop"})


# I7


def pdb(happening: Happening, witness: Witness) -> str | None:
    if asks_to_evict(happening):
        assert isinstance(happening, Asked)
        return _uncalled_for(happening, witness)
    if asks_to_delete_a_pod(happening):
        assert isinstance(happening, Asked)
        return _by_deletion(happening, witness)
    evicted = pod_evicted(happening)
    if evicted is None:
        return None
    assert isinstance(happening, Committed)
    return _without_grace(happening, evicted, witness) or _against_a_budget(evicted, witness)


def _uncalled_for(asked: Asked, witness: Witness) -> str | None:
    name = asked.key[1]
    meant = ((asked.body.get("deleteOptions") or {}).get("preconditions") or {}).get("uid")
    if not meant:
        return f"{name} was to be evicted, whichever pod has that name by now"
    pod = witness.stored(PODS.label, name, asked.key[0])
    if pod is None or pod["metadata"]["uid"] != meant:
        return None
    node, slack = node_of(pod), SLACK * witness.factor
    if "DaemonSet" in {each["kind"] for each in pod["metadata"].get("ownerReferences") or ()}:
        return f"{name} was to be evicted, and its DaemonSet has it come back at once"
    if witness.maintenances.is_asked_for(node, asked.sent, slack=slack):
        return None
    return f"{name} was to be evicted, and nobody asks for the maintenance of {node or 'no node'}"


def _by_deletion(asked: Asked, witness: Witness) -> str | None:
    """In a maintenance, of something on a node that nobody could take for dead."""
    pod = witness.stored(PODS.label, asked.key[1], asked.key[0])
    meant = (asked.body.get("preconditions") or {}).get("uid")
    if pod is None or (meant and meant != pod["metadata"]["uid"]):
        return None
    node, uid = node_of(pod), pod["metadata"]["uid"]
    runs = any(each.uid == uid for each in witness.truth.running(node))
    if not runs or not witness.maintenances.is_asked_for(node, asked.sent):
        return None
    if not witness.doubt(asked, node) or witness.is_shut_out(pod):
        return None
    if has_stopped(pod, witness) or may_be_succeeded(pod, asked, witness):
        return None
    return f"{asked.key[1]} was to be deleted from {node}, past every budget, and not evicted"


def _without_grace(happening: Committed, pod: Json, witness: Witness) -> str | None:
    meta, node = pod["metadata"], node_of(pod)
    if not happening.commit.deleted:
        return None
    if not any(each.uid == meta["uid"] for each in witness.truth.running(node)):
        return None
    return f"{meta['name']} was evicted without grace, and still ran on {node}"


def _against_a_budget(pod: Json, witness: Witness) -> str | None:
    if not is_ready(pod) or pod["metadata"].get("deletionTimestamp"):
        # It did not count any more.
        return None
    for budget, pods in _budgets_of(pod, witness):
        healthy = sum(is_ready(each) and not _is_going(each) for each in pods)
        wanted = _wanted(budget["spec"], [*pods, pod], witness)
        if healthy < wanted:
            name = budget["metadata"]["name"]
            return (
                f"{pod['metadata']['name']} was evicted, which leaves {healthy} of the {wanted} "
                f"healthy pods that the budget {name} asks for"
            )
    return None


def _budgets_of(pod: Json, witness: Witness) -> Iterator[tuple[Json, list[Json]]]:
    """With the pods that each of them is about, as they are now."""
    meta = pod["metadata"]
    for stored in witness.store.all(_BUDGETS):
        selector = stored.object["spec"].get("selector")
        if stored.key[0] == meta["namespace"] and selects(selector, meta.get("labels") or {}):
            yield (
                stored.object,
                [
                    each.object
                    for each in witness.store.all(PODS.label)
                    if each.key[0] == stored.key[0]
                    and selects(selector, each.object["metadata"].get("labels") or {})
                ],
            )


def _wanted(spec: Json, pods: list[Json], witness: Witness) -> int:
    """How many have to be healthy. In a lab budgets are numbers, never shares."""
    if spec.get("maxUnavailable") is None:
        return int(spec.get("minAvailable") or 0)
    owners = {
        each["uid"]: _replicas(each, pod["metadata"]["namespace"], witness)
        for pod in pods
        for each in pod["metadata"].get("ownerReferences") or ()
        if each.get("controller")
    }
    return max(0, sum(owners.values()) - int(spec["maxUnavailable"]))


def _replicas(owner: Json, namespace: str, witness: Witness) -> int:
    storage = {"StatefulSet": STATEFUL_SETS.label, "ReplicaSet": _REPLICA_SETS}.get(owner["kind"])
    found = witness.stored(storage, owner["name"], namespace) if storage else None
    return 1 if found is None else int(found["spec"].get("replicas", 1))


def is_ready(obj: Json) -> bool:
    """A pod, or a node."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _is_going(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


# I10


def gives_back(happening: Happening, witness: Witness) -> str | None:
    if not isinstance(happening, Committed) or happening.by is None:
        return None
    commit = happening.commit
    if commit.before is None or commit.storage != NODES.label:
        return None
    node, known = commit.after.key[1], witness.maintenances
    taken = parts_on(commit.before.object) - parts_on(commit.after.object)
    others = [part for part in taken if known.was_put_by_us(node, part) is False]
    if others:
        return f"the {' and the '.join(sorted(others))} of {node} went, which others had put on"
    # What nobody had heard of yet when it left is none.
    before = happening.by.sent - SLACK * witness.factor
    if taken and known.is_asked_for_all_along(node, before, happening.at):
        return f"{node} was given back, and somebody still asks for its maintenance"
    return None


def _finalizers(obj: Json) -> list[str]:
    return list(obj["metadata"].get("finalizers") or ())


def not_ours_in_a_maintenance(asked: Asked, witness: Witness) -> str | None:
    """Of a NodeMaintenance its status is ours, and one finalizer."""
    name, meta = asked.key[1], asked.body.get("metadata") or {}
    if asked.method != "PATCH" or "spec" in asked.body:
        return f"{asked.method} of the NodeMaintenance {name} was asked for, which is a person's"
    if "finalizers" not in meta:
        return None
    live = witness.stored(NODE_MAINTENANCES.label, name)
    known = set() if live is None else set(_finalizers(live))
    others = known.symmetric_difference(meta["finalizers"] or ()) - {FINALIZER}
    return f"the finalizers of {name} were to be changed" if others and live else None


def calls_off(asked: Asked, witness: Witness) -> bool:
    """Whether KubeVirt is to forget that a guest was to leave a node, where a drain of ours can
    have asked for that."""
    if (asked.storage, asked.subresource) != (INSTANCES.label, "evacuate/cancel"):
        return False
    vmi = witness.stored(INSTANCES.label, asked.key[1], asked.key[0]) or {}
    leaves = str((vmi.get("status") or {}).get("evacuationNodeName") or "")
    return not leaves or witness.maintenances.was_asked_for(leaves)


# I16


def is_of_the_control_plane(node: Json) -> bool:
    return not (node["metadata"].get("labels") or {}).keys().isdisjoint(CONTROL_PLANE)


def takes_another_of_the_control_plane(happening: Committed, witness: Witness) -> str | None:
    """While one is in maintenance. That another dies in that very moment nobody can know."""
    commit = happening.commit
    if happening.by is None or commit.deleted or commit.before is None:
        return None
    new = parts_on(commit.after.object) - parts_on(commit.before.object)
    if Part.TAINT not in new or not is_of_the_control_plane(commit.after.object):
        return None
    name = commit.after.key[1]
    for stored in witness.store.all(NODES.label):
        other = stored.key[1]
        if other == name or not is_of_the_control_plane(stored.object):
            continue
        if witness.maintenances.is_away(other, happening.by.sent):
            return f"{name} was to be drained while {other} is, and both bear the control plane"
    return None


# I11, I12


def comes_back(happening: Happening, witness: Witness) -> str | None:
    """What is evicted from a node that is open to all may be put there again at once."""
    if not asks_to_evict(happening):
        return None
    assert isinstance(happening, Asked)
    pod = witness.stored(PODS.label, happening.key[1], happening.key[0])
    node = "" if pod is None else node_of(pod)
    if not node or witness.maintenances.open_for(node, happening.sent) <= SLACK * witness.factor:
        return None
    return f"{happening.key[1]} was to be evicted from {node}, which is not cordoned"


def stops_what_could_move(happening: Happening, witness: Witness) -> str | None:
    """By an eviction that was let through, or by what KubeVirt is asked for."""
    if isinstance(happening, Asked):
        if happening.storage != VIRTUAL_MACHINES.label or happening.subresource not in _STOPPING:
            return None
        vmi = witness.stored(INSTANCES.label, happening.key[1], happening.key[0])
        node = "" if vmi is None else str((vmi.get("status") or {}).get("nodeName", ""))
        drained = bool(node) and witness.maintenances.is_asked_for(node, happening.sent)
        return _stopped(vmi) if drained else None
    evicted = pod_evicted(happening)
    if evicted is None:
        return None
    meta, node = evicted["metadata"], node_of(evicted)
    owners = [each for each in meta.get("ownerReferences") or () if each["kind"] == INSTANCES.kind]
    here = any(each.uid == meta["uid"] for each in witness.truth.running(node))
    if not owners or not here or witness.truth.is_held_back(node, meta["uid"]):
        return None
    vmi = witness.stored(INSTANCES.label, owners[0]["name"], meta["namespace"])
    return _stopped(vmi) if vmi and vmi["metadata"]["uid"] == owners[0]["uid"] else None


def _stopped(vmi: Json | None) -> str | None:
    if vmi is None or not could_move(vmi):
        return None
    return f"the guest {vmi['metadata']['name']} was to be stopped, and could be moved live"


def could_move(vmi: Json) -> bool:
    """Whether its owner wants it moved, and KubeVirt can do that."""
    status = vmi.get("status") or {}
    movable = any(
        each["type"] == "LiveMigratable" and each["status"] == "True"
        for each in status.get("conditions") or ()
    )
    wanted = vmi["spec"].get("evictionStrategy") in _MOVABLE
    return movable and wanted and status.get("phase") not in _ENDED
