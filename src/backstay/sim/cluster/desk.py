"""Desk: what a controller reads and writes with, and what several of them keep in common.

A controller works on the store itself. What it writes goes through the same operations as
everybody's requests, under its own name as a field manager.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from backstay.sim.api.kinds import KindInfo, Object
from backstay.sim.api.operations import DeleteOptions, Operations, Write
from backstay.sim.api.requests import Target
from backstay.sim.api.store import Commit, Key, Stored

Json = Mapping[str, Any]

PODS = "pods"
NODES = "nodes"
CLAIMS = "persistentvolumeclaims"
VOLUMES = "persistentvolumes"
EVENTS = "events"
CLASSES = "storageclasses.storage.k8s.io"
ATTACHMENTS = "volumeattachments.storage.k8s.io"
DRIVERS = "csidrivers.storage.k8s.io"
LEASES = "leases.coordination.k8s.io"
STATEFUL_SETS = "statefulsets.apps"
REPLICA_SETS = "replicasets.apps"
DEPLOYMENTS = "deployments.apps"
DAEMON_SETS = "daemonsets.apps"
JOBS = "jobs.batch"

MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"


class PodsByNode:
    """Which pods the API has for each node."""

    def __init__(self, operations: Operations) -> None:
        self._store = operations.store
        self._keys: dict[str, dict[Key, None]] = {}
        self.count_anew()
        self._store.follow(PODS, self._hear)

    def count_anew(self) -> None:
        self._keys.clear()
        for pod in self._store.all(PODS):
            self._note(pod, here=True)

    def __call__(self, node: str) -> list[Stored]:
        found = (self._store.get(PODS, key) for key in self._keys.get(node, ()))
        return [pod for pod in found if pod is not None]

    def count(self, node: str) -> int:
        """How many of them are not over."""
        return sum(not is_over(pod.object) for pod in self(node))

    def _hear(self, commit: Commit) -> None:
        if commit.before is not None:
            self._note(commit.before, here=False)
        if not commit.deleted:
            self._note(commit.after, here=True)

    def _note(self, pod: Stored, *, here: bool) -> None:
        node = pod.object["spec"].get("nodeName")
        if not node:
            return
        keys = self._keys.setdefault(node, {})
        if here:
            keys[pod.key] = None
        else:
            keys.pop(pod.key, None)


class Desk:
    """One controller's. Whatever it is refused is a ``Refusal``, as for everybody. ``version`` is
    that of the kinds that it writes."""

    def __init__(
        self, operations: Operations, manager: str = MANAGER, *, version: str = "v1"
    ) -> None:
        self.operations = operations
        self.store = operations.store
        self.manager = manager
        self._write = Write(manager)
        self._version = version

    def now(self) -> str:
        return self.operations.now()

    def get(self, storage: str, name: str, namespace: str = "") -> Object | None:
        found = self.store.get(storage, (namespace, name))
        return found.object if found else None

    def all(self, storage: str) -> Iterator[Object]:
        return (stored.object for stored in self.store.all(storage))

    def create(self, storage: str, obj: Object, namespace: str = "") -> Object:
        target = Target(self._info(storage), namespace)
        return self.operations.create(target, obj, self._write).object

    def change(
        self, storage: str, key: Key, change: Callable[[Object], Object], *, status: bool = False
    ) -> Object:
        """Writes what ``change`` makes of the object as it is now."""
        target = Target(self._info(storage), *key, "status" if status else "")
        return self.operations.patch(target, change, self._write).object

    def delete(
        self, storage: str, key: Key, *, uid: str | None = None, grace: int | None = None
    ) -> None:
        target = Target(self._info(storage), *key)
        self.operations.delete(target, DeleteOptions(grace=grace, uid=uid), self._write)

    def event(self, about: Object, kind: str, *, reason: str, message: str) -> None:
        """A warning about a namespaced object of the core group."""
        meta = about["metadata"]
        now = self.now()
        event = {
            "metadata": {"generateName": f"{meta['name']}."},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": kind,
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
            "type": "Warning",
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": self.manager},
        }
        self.create(EVENTS, event, meta["namespace"])

    def _info(self, storage: str) -> KindInfo:
        plural, _, group = storage.partition(".")
        info = self.operations.kinds.find(group, self._version, plural)
        assert info is not None, storage
        return info


# What objects say


def key_of(obj: Json) -> Key:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def condition(obj: Json, kind: str) -> Json:
    """The condition of that type, or nothing."""
    for each in (obj.get("status") or {}).get("conditions") or ():
        if each["type"] == kind:
            found: Json = each
            return found
    return {}


def is_ready(obj: Json) -> bool:
    return condition(obj, "Ready").get("status") == "True"


def is_deleting(obj: Json) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_over(pod: Json) -> bool:
    """It is in a phase that no pod ever leaves."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def taints_of(node: Json) -> list[Json]:
    return list((node.get("spec") or {}).get("taints") or ())


def controller_of(obj: Json) -> Json | None:
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: Json = owner
            return found
    return None


def owned_by(owner: Json, kind: str) -> Json:
    """The reference by which an object of the ``apps`` group controls another."""
    meta = owner["metadata"]
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def template_hash(owner: Json) -> str:
    """Short, and another one for another pod template."""
    template = msgspec.json.encode(owner["spec"]["template"], order="sorted")
    return hashlib.sha256(template).hexdigest()[:9]


def with_condition(obj: Object, new: Json, *, now: str) -> Object:
    """The object with this condition in its status; it has held since ``now`` if it is news."""
    status = obj.get("status") or {}
    before = condition(obj, new["type"])
    since = now if before.get("status") != new["status"] else before.get("lastTransitionTime", now)
    made = {**new, "lastTransitionTime": since}
    conditions = list(status.get("conditions") or ())
    if before:
        conditions[conditions.index(before)] = made
    else:
        conditions.append(made)
    return {**obj, "status": {**status, "conditions": conditions}}
