"""ReplicaSets and Deployments: so many pods, all alike.

A pod that is being deleted or over no longer counts, so a dead node's pods are replaced as soon as
they are evicted. Of too many, those go first that are not ready, and then the youngest.

A Deployment has one ReplicaSet for its template. Another template is rolled out at once, without
the steps of a rolling update.
"""

from backstay.sim.api.kinds import Object
from backstay.sim.api.store import Key
from backstay.sim.cluster.desk import (
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    Json,
    is_deleting,
    is_over,
    is_ready,
    key_of,
    owned_by,
    template_hash,
)
from backstay.sim.cluster.owners import OwnerController

_HASH = "pod-template-hash"


class ReplicaSets(OwnerController):
    """Works on the keys of sets."""

    storage = REPLICA_SETS
    kind = "ReplicaSet"

    def work(self, key: Key) -> None:
        owner = self.owner_of(key)
        if owner is None or is_deleting(owner):
            return
        wanted = owner["spec"].get("replicas", 1)
        pods = self._pods_of(owner)
        for _ in range(wanted - len(pods)):
            self._desk.create(PODS, _pod(owner), key[0])
        # The oldest are kept, so the youngest come first among those that are worth the same.
        youngest_first = sorted(pods, key=_age, reverse=True)
        for pod in sorted(youngest_first, key=_worth)[: max(0, len(pods) - wanted)]:
            self._desk.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"])
        self._post_status(owner)

    def _pods_of(self, owner: Object) -> list[Object]:
        mine = self.made_for(owner)
        return [pod for pod in mine if not is_deleting(pod) and not is_over(pod)]

    def _post_status(self, owner: Object) -> None:
        pods, before = self._pods_of(owner), owner.get("status") or {}
        ready = sum(map(is_ready, pods))
        wanted = {
            **before,
            "observedGeneration": owner["metadata"].get("generation", 1),
            "replicas": len(pods),
            "fullyLabeledReplicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
        }
        if wanted != before:
            self._desk.change(
                REPLICA_SETS, key_of(owner), lambda obj: {**obj, "status": wanted}, status=True
            )


class Deployments(OwnerController):
    """Works on the keys of deployments."""

    storage = DEPLOYMENTS
    kind = "Deployment"
    owned = REPLICA_SETS

    def work(self, key: Key) -> None:
        owner = self.owner_of(key)
        if owner is None or is_deleting(owner):
            return
        current = f"{key[1]}-{template_hash(owner)}"
        if self._desk.get(REPLICA_SETS, current, key[0]) is None:
            self._desk.create(REPLICA_SETS, _replica_set(owner, current), key[0])
        sets = self.made_for(owner)
        for each in sets:
            is_current = each["metadata"]["name"] == current
            self._scale(each, owner["spec"].get("replicas", 1) if is_current else 0)
        self._post_status(owner, sets, current)

    def _scale(self, replica_set: Object, replicas: int) -> None:
        if replica_set["spec"].get("replicas", 1) != replicas:
            self._desk.change(
                REPLICA_SETS,
                key_of(replica_set),
                lambda obj: {**obj, "spec": {**obj["spec"], "replicas": replicas}},
            )

    def _post_status(self, owner: Object, sets: list[Object], current: str) -> None:
        before = owner.get("status") or {}
        said = {each["metadata"]["name"]: each.get("status") or {} for each in sets}
        counts = {
            field: sum(status.get(field, 0) for status in said.values())
            for field in ("replicas", "readyReplicas", "availableReplicas")
        }
        wanted = {
            **before,
            **counts,
            "observedGeneration": owner["metadata"].get("generation", 1),
            "updatedReplicas": said.get(current, {}).get("replicas", 0),
        }
        if wanted != before:
            self._desk.change(
                DEPLOYMENTS, key_of(owner), lambda obj: {**obj, "status": wanted}, status=True
            )


def _age(pod: Json) -> tuple[str, str]:
    return pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


def _worth(pod: Json) -> tuple[bool, bool]:
    return bool(pod["spec"].get("nodeName")), is_ready(pod)


def _pod(owner: Json) -> Object:
    template = owner["spec"]["template"]
    return {
        "metadata": {
            **(template.get("metadata") or {}),
            "generateName": f"{owner['metadata']['name']}-",
            "ownerReferences": [owned_by(owner, "ReplicaSet")],
        },
        "spec": template["spec"],
    }


def _replica_set(owner: Json, name: str) -> Object:
    spec, mark = owner["spec"], {_HASH: template_hash(owner)}
    template = spec["template"]
    meta = template.get("metadata") or {}
    labels = {**(meta.get("labels") or {}), **mark}
    selector = spec["selector"]
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "ownerReferences": [owned_by(owner, "Deployment")],
        },
        "spec": {
            "replicas": spec.get("replicas", 1),
            "selector": {
                **selector,
                "matchLabels": {**(selector.get("matchLabels") or {}), **mark},
            },
            "template": {**template, "metadata": {**meta, "labels": labels}},
        },
    }
