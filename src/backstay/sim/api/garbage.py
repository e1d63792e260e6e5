"""The garbage collector and the life of namespaces.

``GarbageCollector``: what is owned goes with its last owner. An owner is known by its uid, so
another object of the same name is not it.

* Background: the owner is gone, and then its dependents are deleted.
* Foreground: the owner waits (``foregroundDeletion``) until those dependents are gone that block
  its deletion.
* Orphan: the owner waits (``orphan``) until nobody refers to it any more.

``NamespaceController``: a namespace that is being deleted is emptied, pods first, and lets go of
its own finalizer when nothing is left in it.

Both act as controllers do, a little later and step by step (see ``controller``).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from backstay.sim.api.controller import Controller
from backstay.sim.api.kinds import KindInfo, Object
from backstay.sim.api.operations import DeleteOptions, Operations, Write
from backstay.sim.api.requests import Target
from backstay.sim.api.status import Refusal
from backstay.sim.api.store import Commit, Key, Stored

Json = Mapping[str, Any]

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
NAMESPACES = "namespaces"
PODS = "pods"
DEFAULT_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")

_CONTROLLERS = Write("kube-controller-manager")
_LOOK_AGAIN = 5.0


class Thing(msgspec.Struct, frozen=True):
    """An object, wherever it is kept."""

    storage: str
    key: Key


class GarbageCollector(Controller[Thing]):
    """Keeps, for each uid, who refers to it."""

    def __init__(self, operations: Operations) -> None:
        super().__init__(operations.store)
        self._operations = operations
        self._dependents: dict[str, dict[Thing, None]] = {}

    # Hearing

    def begin(self) -> None:
        self._dependents.clear()
        for info in self._operations.kinds:
            for stored in self.store.all(info.storage):
                thing = Thing(info.storage, stored.key)
                self._note(thing, None, stored.object)
                if _owners(stored.object) or _deletion(stored.object):
                    self.add(thing)

    def hear(self, commit: Commit) -> None:
        before = commit.before.object if commit.before is not None else None
        if before is not None and _is_the_same_to_us(before["metadata"], commit):
            return
        thing = Thing(commit.storage, commit.after.key)
        if commit.deleted:
            self._note(thing, before, None)
            self._heard_end(commit.after.object)
            return
        after = commit.after.object
        self._note(thing, before, after)
        owners_changed = _owners(before) != _owners(after)
        if owners_changed or _deletion(before) != _deletion(after):
            self.add(thing)
        if before is not None and owners_changed:
            self._add_owners(before)

    def _note(self, thing: Thing, before: Object | None, after: Object | None) -> None:
        for owner in _owners(before):
            known = self._dependents.get(owner["uid"], {})
            known.pop(thing, None)
            if not known:
                self._dependents.pop(owner["uid"], None)
        for owner in _owners(after):
            self._dependents.setdefault(owner["uid"], {})[thing] = None

    def _heard_end(self, last: Object) -> None:
        """What it owned has lost an owner, and who waited for it may wait no longer."""
        for dependent in self._dependents.get(last["metadata"]["uid"], ()):
            self.add(dependent)
        self._add_owners(last)

    def _add_owners(self, obj: Object) -> None:
        for owner in _owners(obj):
            found = self._owner(obj, owner)
            if found is not None:
                self.add(found[0])

    # Working

    def work(self, key: Thing) -> None:
        stored = self.store.get(key.storage, key.key)
        info = self._info(key.storage)
        if stored is None or info is None:
            return
        meta = stored.object["metadata"]
        finalizers = meta.get("finalizers") or ()
        target = Target(info, *key.key)
        if not meta.get("deletionTimestamp"):
            self._collect(target, stored)
        elif ORPHAN in finalizers:
            self._orphan(target, meta["uid"])
        elif FOREGROUND in finalizers:
            self._wait(target, meta["uid"])

    def _collect(self, target: Target, stored: Stored) -> None:
        """Deletes what has no owner left. Among several, it forgets those that are gone."""
        owners = _owners(stored.object)
        if not owners:
            return
        solid, waiting, gone = [], [], []
        for owner in owners:
            if self._is_unknowable(target.info, owner):
                return
            found = self._owner(stored.object, owner)
            if found is None:
                gone.append(owner["uid"])
            elif _is_waiting(found[1].object):
                waiting.append(owner["uid"])
            else:
                solid.append(owner["uid"])
        if solid:
            if gone or waiting:
                self._disown(target, {*gone, *waiting})
        elif waiting and self._dependents.get(stored.object["metadata"]["uid"]):
            self._delete(target, stored, "Foreground")
        else:
            self._delete(target, stored, _usual_policy(stored.object))

    def _delete(self, target: Target, stored: Stored, policy: str) -> None:
        meta = stored.object["metadata"]
        options = DeleteOptions(
            uid=meta["uid"], resource_version=meta["resourceVersion"], propagation=policy
        )
        self._operations.delete(target, options, _CONTROLLERS)

    def _orphan(self, target: Target, uid: str) -> None:
        for dependent in list(self._dependents.get(uid, ())):
            info = self._info(dependent.storage)
            if info is not None:
                self._disown(Target(info, *dependent.key), {uid})
        self._remove_finalizer(target, ORPHAN)

    def _wait(self, target: Target, uid: str) -> None:
        """Lets an owner go when nothing that blocks its deletion is left."""
        blocking = [each for each in self._dependents.get(uid, ()) if self._blocks(each, uid)]
        if not blocking:
            self._remove_finalizer(target, FOREGROUND)
        for dependent in self._dependents.get(uid, ()):
            stored = self.store.get(dependent.storage, dependent.key)
            if stored is not None and not _deletion(stored.object):
                self.add(dependent)

    def _blocks(self, thing: Thing, uid: str) -> bool:
        stored = self.store.get(thing.storage, thing.key)
        owners = _owners(stored.object if stored is not None else None)
        return any(o["uid"] == uid and o.get("blockOwnerDeletion") for o in owners)

    def _disown(self, target: Target, uids: set[str]) -> None:
        def without(obj: Object) -> Object:
            kept = [owner for owner in _owners(obj) if owner["uid"] not in uids]
            return {**obj, "metadata": {**obj["metadata"], "ownerReferences": kept}}

        self._operations.patch(target, without, _CONTROLLERS)

    def _remove_finalizer(self, target: Target, finalizer: str) -> None:
        def without(obj: Object) -> Object:
            kept = [each for each in obj["metadata"]["finalizers"] if each != finalizer]
            return {**obj, "metadata": {**obj["metadata"], "finalizers": kept}}

        self._operations.patch(target, without, _CONTROLLERS)

    # Looking up

    def _info(self, storage: str) -> KindInfo | None:
        return next((i for i in self._operations.kinds if i.storage == storage), None)

    def _owner(self, obj: Object, owner: Json) -> tuple[Thing, Stored] | None:
        """The owner that a reference means; None if there is none, or another one by now."""
        group = owner["apiVersion"].rpartition("/")[0]
        for info in self._operations.kinds.of_kind(group, owner["kind"]):
            namespace = obj["metadata"].get("namespace", "") if info.namespaced else ""
            thing = Thing(info.storage, (namespace, owner["name"]))
            stored = self.store.get(thing.storage, thing.key)
            if stored is not None and stored.object["metadata"]["uid"] == owner["uid"]:
                return thing, stored
        return None

    def _is_unknowable(self, info: KindInfo, owner: Json) -> bool:
        """A kind that nobody serves may come back, and a namespaced owner of something outside
        of namespaces cannot be looked for: both are reasons to leave everything as it is."""
        group = owner["apiVersion"].rpartition("/")[0]
        known = list(self._operations.kinds.of_kind(group, owner["kind"]))
        return not known or (known[0].namespaced and not info.namespaced)


def _is_the_same_to_us(before: Json, commit: Commit) -> bool:
    """As most changes leave it: with the owners that it had, and nobody wants it to go."""
    if commit.deleted or "deletionTimestamp" in before:
        return False
    after = commit.after.object["metadata"]
    if "deletionTimestamp" in after:
        return False
    if "ownerReferences" not in after:
        return "ownerReferences" not in before
    return "ownerReferences" in before and before["ownerReferences"] == after["ownerReferences"]


def _owners(obj: Object | None) -> list[Json]:
    if obj is None:
        return []
    return obj["metadata"].get("ownerReferences") or []


def _deletion(obj: Object | None) -> tuple[str, ...]:
    """How far its deletion has come; empty if it has not begun."""
    meta = obj["metadata"] if obj is not None else {}
    began = meta.get("deletionTimestamp")
    return (began, *(meta.get("finalizers") or ())) if began else ()


def _is_waiting(owner: Object) -> bool:
    meta = owner["metadata"]
    return bool(meta.get("deletionTimestamp")) and FOREGROUND in (meta.get("finalizers") or ())


def _usual_policy(obj: Object) -> str:
    finalizers = obj["metadata"].get("finalizers") or ()
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else "Background"


class NamespaceController(Controller[str]):
    """Empties namespaces that are being deleted."""

    def __init__(self, operations: Operations) -> None:
        super().__init__(operations.store)
        self._operations = operations
        namespaces = operations.kinds.find("", "v1", NAMESPACES)
        assert namespaces is not None
        self._namespaces = namespaces

    def begin(self) -> None:
        for stored in self.store.all(NAMESPACES):
            self.add(stored.key[1])

    def hear(self, commit: Commit) -> None:
        if commit.storage == NAMESPACES:
            self.add(commit.after.key[1])
        elif commit.deleted and commit.after.key[0]:
            namespace = self.store.get(NAMESPACES, ("", commit.after.key[0]))
            if namespace is not None and _deletion(namespace.object):
                self.add(namespace.key[1])

    def work(self, key: str) -> None:
        stored = self.store.get(NAMESPACES, ("", key))
        if stored is None or not stored.object["metadata"].get("deletionTimestamp"):
            return
        if "kubernetes" not in stored.object["spec"].get("finalizers", ()):
            return
        left = self._empty(key)
        self._report(stored, left)
        if left:
            self.add_after(key, _LOOK_AGAIN)
        else:
            self._finalize(key)

    def _empty(self, namespace: str) -> list[tuple[KindInfo, Stored]]:
        """Deletes what is in it; what is left of that. Nothing else goes before the pods are
        gone, because they may need it until then."""
        content = list(self._content(namespace))
        first = [each for each in content if each[0].storage == PODS] or content
        for info, stored in first:
            if not stored.object["metadata"].get("deletionTimestamp"):
                self._delete(Target(info, *stored.key))
        return list(self._content(namespace))

    def _delete(self, target: Target) -> None:
        try:
            self._operations.delete(target, DeleteOptions(propagation="Background"), _CONTROLLERS)
        except Refusal as refusal:
            if refusal.code != 404:
                raise

    def _content(self, namespace: str) -> Iterator[tuple[KindInfo, Stored]]:
        seen: set[str] = set()
        for info in list(self._operations.kinds):
            if info.namespaced and "delete" in info.verbs and info.storage not in seen:
                seen.add(info.storage)
                for stored in self.store.all(info.storage):
                    if stored.key[0] == namespace:
                        yield info, stored

    def _report(self, stored: Stored, left: list[tuple[KindInfo, Stored]]) -> None:
        before = stored.object["status"].get("conditions") or []
        conditions = _conditions(before, left, self._operations.now())
        if conditions == before:
            return
        target = Target(self._namespaces, "", stored.key[1], "status")
        self._operations.patch(
            target, lambda obj: {**obj, "status": {**obj["status"], "conditions": conditions}},
            _CONTROLLERS,
        )  # fmt: skip

    def _finalize(self, name: str) -> None:
        def without(obj: Object) -> Object:
            kept = [each for each in obj["spec"]["finalizers"] if each != "kubernetes"]
            return {**obj, "spec": {**obj["spec"], "finalizers": kept}}

        target = Target(self._namespaces, "", name, "finalize")
        self._operations.patch(target, without, _CONTROLLERS)


_FINE = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered",
     "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions",
     "All legacy kube types successfully parsed"),
    ("NamespaceDeletionContentFailure", "ContentDeleted",
     "All content successfully deleted, may be waiting on finalization"),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers",
     "All content-preserving finalizers finished"),
)  # fmt: skip


def _conditions(
    before: list[Object], left: list[tuple[KindInfo, Stored]], now: str
) -> list[Object]:
    """What a namespace says of its end. While pods are left, it does not look at the rest."""
    since = {c["type"]: (c["status"], c["lastTransitionTime"]) for c in before}
    waits_for_pods = any(info.storage == PODS for info, _ in left)
    made = []
    for kind, reason, message in _FINE:
        status = "False"
        if not waits_for_pods and left and kind == "NamespaceContentRemaining":
            status, reason, message = "True", "SomeResourcesRemain", _remaining(left)
        holding = _holding(left)
        if not waits_for_pods and holding and kind == "NamespaceFinalizersRemaining":
            status, reason, message = "True", "SomeFinalizersRemain", holding
        then = since.get(kind, ("", now))
        made.append({
            "type": kind, "status": status,
            "lastTransitionTime": then[1] if then[0] == status else now,
            "reason": reason, "message": message,
        })  # fmt: skip
    return made


def _remaining(left: list[tuple[KindInfo, Stored]]) -> str:
    counts = _counted(f"{info.plural}.{info.group}" for info, _ in left)
    listed = ", ".join(sorted(f"{name} has {n} resource instances" for name, n in counts.items()))
    return f"Some resources are remaining: {listed}"


def _holding(left: list[tuple[KindInfo, Stored]]) -> str:
    finalizers = (each for _, s in left for each in s.object["metadata"].get("finalizers") or ())
    counts = _counted(finalizers)
    if not counts:
        return ""
    listed = ", ".join(sorted(f"{name} in {n} resource instances" for name, n in counts.items()))
    return f"Some content in the namespace has finalizers remaining: {listed}"


def _counted(names: Iterator[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


def create_default_namespaces(operations: Operations) -> None:
    """Those that every cluster has; what is there already stays."""
    info = operations.kinds.find("", "v1", NAMESPACES)
    assert info is not None
    for name in DEFAULT_NAMESPACES:
        if operations.store.get(NAMESPACES, ("", name)) is None:
            sent: Object = {"metadata": {"name": name}}
            operations.create(Target(info), sent, Write("kube-apiserver"))
