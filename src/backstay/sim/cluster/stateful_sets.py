"""StatefulSets: pods with names of their own, one of each at most.

A name is given again only when the object that had it is gone from the API. That is all that keeps
two copies from running, and it is why a StatefulSet does nothing while a pod is Terminating on a
node that is dead: for all it knows the pod may still run.

Pods are made in order, each when the ones before it are ready, and taken away in the opposite
order; with ``Parallel`` all at once. Each gets claims of its own, which stay when it goes. An
update of the template reaches a pod when somebody deletes it.
"""

from backstay.sim.api.kinds import Object
from backstay.sim.api.store import Key
from backstay.sim.cluster.desk import (
    CLAIMS,
    PODS,
    STATEFUL_SETS,
    Json,
    is_deleting,
    is_over,
    is_ready,
    key_of,
    owned_by,
    template_hash,
)
from backstay.sim.cluster.owners import OwnerController


class StatefulSets(OwnerController):
    """Works on the keys of sets."""

    storage = STATEFUL_SETS
    kind = "StatefulSet"

    def work(self, key: Key) -> None:
        owner = self.owner_of(key)
        if owner is None or is_deleting(owner):
            return
        replicas = owner["spec"].get("replicas", 1)
        in_order = owner["spec"].get("podManagementPolicy", "OrderedReady") == "OrderedReady"
        pods = self._pods_of(owner)
        if self._fill(owner, pods, replicas, in_order=in_order):
            self._shrink(pods, replicas, in_order=in_order)
        self._post_status(owner)

    def _pods_of(self, owner: Object) -> dict[int, Object]:
        """By ordinal."""
        prefix = f"{owner['metadata']['name']}-"
        return {
            int(pod["metadata"]["name"].removeprefix(prefix)): pod for pod in self.made_for(owner)
        }

    def _fill(
        self, owner: Object, pods: dict[int, Object], replicas: int, *, in_order: bool
    ) -> bool:
        """Makes what is missing; whether there is nothing left to wait for."""
        settled = True
        for ordinal in range(replicas):
            pod = pods.get(ordinal)
            if pod is None:
                self._create(owner, ordinal)
            elif is_over(pod) and not is_deleting(pod):
                self._delete(pod)
            elif is_ready(pod) and not is_deleting(pod):
                continue
            settled = False
            if in_order:
                return False
        return settled or not in_order

    def _shrink(self, pods: dict[int, Object], replicas: int, *, in_order: bool) -> None:
        for ordinal in sorted((each for each in pods if each >= replicas), reverse=True):
            if not is_deleting(pods[ordinal]):
                self._delete(pods[ordinal])
            if in_order:
                return

    def _delete(self, pod: Object) -> None:
        self._desk.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"])

    def _create(self, owner: Object, ordinal: int) -> None:
        name = f"{owner['metadata']['name']}-{ordinal}"
        namespace = owner["metadata"]["namespace"]
        if self._desk.get(PODS, name, namespace) is not None:
            # Somebody else's, or one of an earlier set of this name.
            return
        for template in owner["spec"].get("volumeClaimTemplates") or ():
            claim = f"{template['metadata']['name']}-{name}"
            if self._desk.get(CLAIMS, claim, namespace) is None:
                self._desk.create(CLAIMS, _claim(owner, template, claim), namespace)
        self._desk.create(PODS, _pod(owner, name, ordinal), namespace)

    def _post_status(self, owner: Object) -> None:
        pods = [pod for pod in self._pods_of(owner).values() if not is_deleting(pod)]
        before = owner.get("status") or {}
        revision = _revision(owner)
        ready = sum(is_ready(pod) for pod in pods)
        wanted = {
            **before,
            "observedGeneration": owner["metadata"].get("generation", 1),
            "replicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "currentReplicas": len(pods),
            "updatedReplicas": len(pods),
            "currentRevision": revision,
            "updateRevision": revision,
        }
        if wanted != before:
            self._desk.change(
                STATEFUL_SETS, key_of(owner), lambda obj: {**obj, "status": wanted}, status=True
            )


def _claim(owner: Json, template: Json, name: str) -> Object:
    labels = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
    meta = {**template["metadata"], "name": name}
    return {"metadata": {**meta, "labels": {**(meta.get("labels") or {}), **labels}},
            "spec": template["spec"]}  # fmt: skip


def _pod(owner: Json, name: str, ordinal: int) -> Object:
    template = owner["spec"]["template"]
    labels = {
        **((template.get("metadata") or {}).get("labels") or {}),
        "apps.kubernetes.io/pod-index": str(ordinal),
        "controller-revision-hash": _revision(owner),
        "statefulset.kubernetes.io/pod-name": name,
    }
    own = [
        {
            "name": each["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": f"{each['metadata']['name']}-{name}"},
        }
        for each in owner["spec"].get("volumeClaimTemplates") or ()
    ]
    names = {volume["name"] for volume in own}
    others = [v for v in template["spec"].get("volumes") or () if v["name"] not in names]
    annotations = (template.get("metadata") or {}).get("annotations")
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": [owned_by(owner, "StatefulSet")],
        },
        "spec": {**template["spec"], "hostname": name, "volumes": [*own, *others]},
    }


def _revision(owner: Json) -> str:
    return f"{owner['metadata']['name']}-{template_hash(owner)}"
