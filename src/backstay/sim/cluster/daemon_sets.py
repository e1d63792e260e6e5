"""DaemonSets: one pod on each node that wants it.

Its pods put up with nodes that are cordoned, not ready or unreachable, so they stay where others
are evicted. Where a taint is not tolerated none is made; where it is a ``NoExecute`` one, the pod
that is there is deleted. There is no update of pods that run.
"""

from backstay.sim.api.kinds import Object
from backstay.sim.api.store import Commit, Key
from backstay.sim.cluster import taints
from backstay.sim.cluster.desk import (
    DAEMON_SETS,
    NODES,
    PODS,
    Json,
    is_deleting,
    is_over,
    is_ready,
    key_of,
    owned_by,
    taints_of,
)
from backstay.sim.cluster.owners import OwnerController

_TOLERATED = (
    (taints.NOT_READY, taints.NO_EXECUTE),
    (taints.UNREACHABLE, taints.NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", taints.NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", taints.NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", taints.NO_SCHEDULE),
    (taints.UNSCHEDULABLE, taints.NO_SCHEDULE),
)
_BOTH = (taints.NO_SCHEDULE, taints.NO_EXECUTE)


class DaemonSets(OwnerController):
    """Works on the keys of sets."""

    storage = DAEMON_SETS
    kind = "DaemonSet"
    heard_too = (NODES,)

    def hear(self, commit: Commit) -> None:
        super().hear(commit)
        if commit.storage == NODES:
            before = commit.before.object if commit.before else {"metadata": {}}
            if commit.deleted or _matters(before) != _matters(commit.after.object):
                self.begin()

    def work(self, key: Key) -> None:
        owner = self.owner_of(key)
        if owner is None or is_deleting(owner):
            return
        pods = self._pods_of(owner)
        template = _pod(owner, "")
        wanted = 0
        for node in self._desk.all(NODES):
            there = pods.get(node["metadata"]["name"])
            if _is_open(template, node, effects=_BOTH):
                wanted += 1
                if there is None:
                    self._desk.create(PODS, _pod(owner, node["metadata"]["name"]), key[0])
            elif there and not _is_open(template, node, effects=(taints.NO_EXECUTE,)):
                self._delete(there)
            if there is not None and is_over(there):
                self._delete(there)
        self._post_status(owner, wanted)

    def _pods_of(self, owner: Object) -> dict[str, Object]:
        """By the node that they are for."""
        return {_meant_for(pod): pod for pod in self.made_for(owner)}

    def _delete(self, pod: Object) -> None:
        if not is_deleting(pod):
            self._desk.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"])

    def _post_status(self, owner: Object, wanted: int) -> None:
        before = owner.get("status") or {}
        pods = [pod for pod in self._pods_of(owner).values() if not is_deleting(pod)]
        ready = sum(map(is_ready, pods))
        status = {
            **before,
            "observedGeneration": owner["metadata"].get("generation", 1),
            "desiredNumberScheduled": wanted,
            "currentNumberScheduled": len(pods),
            "updatedNumberScheduled": len(pods),
            "numberMisscheduled": 0,
            "numberReady": ready,
            "numberAvailable": ready,
        }
        if status != before:
            self._desk.change(
                DAEMON_SETS, key_of(owner), lambda obj: {**obj, "status": status}, status=True
            )


def _matters(node: Json) -> tuple[object, ...]:
    return node["metadata"].get("labels"), taints_of(node)


def _is_open(pod: Json, node: Json, *, effects: tuple[str, ...]) -> bool:
    """A taint that says no more than that the node is not ready does not count."""
    spec = pod["spec"]
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    tolerations = [*spec["tolerations"], {"key": taints.NOT_READY, "operator": "Exists"}]
    return not taints.untolerated(tolerations, taints_of(node), effects=effects)


def _meant_for(pod: Json) -> str:
    rules = pod["spec"]["affinity"]["nodeAffinity"]
    (term,) = rules["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(term["matchFields"][0]["values"][0])


def _pod(owner: Json, node: str) -> Object:
    template = owner["spec"]["template"]
    spec = template["spec"]
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [here]}]}
    given = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
    return {
        "metadata": {
            **(template.get("metadata") or {}),
            "generateName": f"{owner['metadata']['name']}-",
            "ownerReferences": [owned_by(owner, "DaemonSet")],
        },
        "spec": {
            **spec,
            "affinity": {
                **(spec.get("affinity") or {}),
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms},
            },
            "tolerations": [*(spec.get("tolerations") or ()), *given],
        },
    }
