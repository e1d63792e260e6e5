"""AttachDetach and ExternalAttacher: volumes follow the pods that need them.

The attach-detach controller says what should be attached where (VolumeAttachment) and the
attacher of the storage driver does it:

* A volume is attached to a node when a pod with it is there and not over. One that may be used on
  one node only has to be detached elsewhere first (``Multi-Attach``).
* It is detached when no pod needs it any more, its kubelet no longer has it in use, or the node is
  out of service. A node that is not ready and still has it in use is given six minutes; then the
  volume is taken from it by force, whatever may still be writing there.
* The attachment of a volume stays, marked as deleted, until the attacher has done its part.
* One that somebody else deletes is not missed at once: the controller goes by what it has done
  itself, and compares that with what there is once a minute. Until then the volume is attached as
  far as it knows, and nobody else gets it.

Whether a detached volume can still be written to by who had it is the storage's matter. By default
it can, as with most: nobody but the old node's kernel enforces it. ``revokes`` is for storage that
refuses the old node from then on, and a ``Publisher`` is what else a storage does about it.
"""

import asyncio
import hashlib
from collections.abc import Iterable
from typing import Protocol, TypeAlias

from backstay.sim.api.controller import Controller
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations
from backstay.sim.api.store import Commit, Key
from backstay.sim.cluster import taints
from backstay.sim.cluster.claims import DRIVER, claims_of
from backstay.sim.cluster.desk import (
    ATTACHMENTS,
    CLAIMS,
    DRIVERS,
    NODES,
    PODS,
    VOLUMES,
    Desk,
    Json,
    is_deleting,
    is_over,
    is_ready,
    key_of,
    taints_of,
)
from backstay.sim.cluster.timers import Timers
from backstay.sim.nodes.truth import Truth
from backstay.sim.nodes.volumes import device_name

_SHARED = {"ReadWriteMany", "ReadOnlyMany"}
_RETRY = 1.0
"""Seconds after which a storage is asked again that could not."""

Turn: TypeAlias = tuple[str, str]
"""The name of a volume, and why it is its turn: there is something to do about it, somebody's time
is over, or what is thought is to be compared with what is. The name of a node: it is to be told
what is attached. Without a name: there is news, or it is time to act on all that there has been.
"""

_NEWS, _PASS, _ACT, _TIMEOUT, _SYNC = "news", "pass", "act", "timeout", "sync"
_TELL = "tell"


def attachment_name(driver: str, handle: str, node: str) -> str:
    return "csi-" + hashlib.sha256(f"{handle}{driver}{node}".encode()).hexdigest()


class AttachDetach(Controller[Turn]):
    """Works on volumes."""

    hears = frozenset({PODS, NODES, ATTACHMENTS, CLAIMS})

    def __init__(self, operations: Operations, *, timers: Timers) -> None:
        super().__init__(operations.store)
        self._desk = Desk(operations)
        self._timers = timers
        self._unwanted_since: dict[str, float] = {}
        self._refused: set[tuple[str, str]] = set()
        self._to_act: dict[str, None] = {}
        """The volumes that there is news of, which the next pass will act on."""
        self._to_tell: dict[str, list[str]] = {}
        """The devices that each node is to be told of, all that a pass has found at once."""
        self._is_attaching = False
        self._attached: dict[str, set[str]] = {}
        """The nodes that each volume is attached to, as far as it knows."""
        self._detaching: set[str] = set()
        """The uids of the attachments that it has deleted itself."""
        self._syncs_from = 0.0
        self._pods: dict[Key, set[Key]] = {}
        """The pods that name each claim."""
        self._attachments: dict[str, set[str]] = {}
        """The names of the attachments of each volume."""

    def begin(self) -> None:
        self._unwanted_since.clear()
        self._refused.clear()
        self._to_act.clear()
        self._to_tell.clear()
        self._attached.clear()
        self._detaching.clear()
        self._syncs_from = asyncio.get_running_loop().time()
        self._pods.clear()
        self._attachments.clear()
        for pod in self._desk.all(PODS):
            self._index_pod(pod)
        for attachment in self._desk.all(ATTACHMENTS):
            self._index_attachment(attachment)
        for volume in self._desk.all(VOLUMES):
            self._note(volume["metadata"]["name"])

    def hear(self, commit: Commit) -> None:
        after = commit.after.object
        before = commit.before.object if commit.before else None
        if commit.storage == PODS:
            if commit.deleted or before is None:
                self._index_pod(after, gone=commit.deleted)
            if after["spec"].get("nodeName") and (
                commit.deleted or before is None or _need(before) != _need(after)
            ):
                self._note_volumes_of(after)
        elif commit.storage == NODES:
            if commit.deleted or before is None or _lets_go(before, after):
                self._note_volumes_on(after["metadata"]["name"])
        elif commit.storage == ATTACHMENTS:
            if commit.deleted or before is None:
                self._index_attachment(after, gone=commit.deleted)
            if commit.deleted or not (self._is_attaching or _is_as_before(before, after)):
                self._note(_volume_of(after))
        elif self._pods.get(commit.after.key) and after["spec"].get("volumeName"):
            self._note(after["spec"]["volumeName"])

    def _note(self, volume: str) -> None:
        if not self._to_act:
            self.add(("", _NEWS))
        self._to_act[volume] = None

    def _index_pod(self, pod: Object, *, gone: bool = False) -> None:
        """What it names is for good."""
        key = key_of(pod)
        for claim in claims_of(pod):
            pods = self._pods.setdefault((key[0], claim), set())
            pods.discard(key) if gone else pods.add(key)

    def _index_attachment(self, attachment: Object, *, gone: bool = False) -> None:
        names = self._attachments.setdefault(_volume_of(attachment), set())
        name = attachment["metadata"]["name"]
        names.discard(name) if gone else names.add(name)

    def _note_volumes_of(self, pod: Object) -> None:
        for name in claims_of(pod):
            claim = self._desk.get(CLAIMS, name, pod["metadata"]["namespace"])
            if claim is not None and claim["spec"].get("volumeName"):
                self._note(claim["spec"]["volumeName"])

    def _note_volumes_on(self, node: str) -> None:
        for attachment in self._desk.all(ATTACHMENTS):
            if attachment["spec"]["nodeName"] == node:
                self._note(_volume_of(attachment))

    def work(self, key: Turn) -> None:
        name, why = key
        if why == _NEWS:
            self.add_after(("", _PASS), self._timers.attach_pass)
        elif why == _PASS:
            for volume in self._to_act:
                self.add((volume, _ACT))
            self._to_act.clear()
        elif why == _TELL:
            self._report(name, also=self._to_tell.get(name, ()))
            self._to_tell.pop(name, None)
        elif why == _SYNC:
            self._compare(name)
        else:
            self._settle(name)

    def _settle(self, name: str) -> None:
        volume = self._desk.get(VOLUMES, name)
        wanted = self._wanted(volume) if volume is not None else {}
        there = self._there(name)
        missed = self._missed(name, there)
        device = "" if volume is None else _device(volume)
        for node in sorted(missed - wanted.keys()):
            if self._is_free(node, device, out_of_patience=False):
                missed.discard(node)
                self._detached(name, node, device)
        for node, attachment in there.items():
            if node not in wanted:
                self._give_back(node, attachment, volume)
            elif not is_deleting(attachment):
                self._unwanted_since.pop(attachment["metadata"]["uid"], None)
                if _is_attached(attachment):
                    self._to_tell.setdefault(node, []).append(device)
                    self.add((node, _TELL))
        for node, pod in wanted.items():
            if volume is not None and node not in there and node not in missed:
                self._attach(volume, node, pod, taken=bool(there or missed))

    def _there(self, name: str) -> dict[str, Object]:
        """The attachments of a volume, by node."""
        return {
            attachment["spec"]["nodeName"]: attachment
            for each in sorted(self._attachments.get(name, ()))
            if (attachment := self._desk.get(ATTACHMENTS, each)) is not None
        }

    def _missed(self, name: str, there: dict[str, Object]) -> set[str]:
        """The nodes whose attachments somebody else has deleted, which it does not know yet."""
        known = self._attached.setdefault(name, set())
        known |= {
            node
            for node, each in there.items()
            if _is_attached(each) and each["metadata"]["uid"] not in self._detaching
        }
        missed = known - there.keys()
        if missed:
            period = self._timers.attachment_sync
            passed = asyncio.get_running_loop().time() - self._syncs_from
            self.add_after((name, _SYNC), period - passed % period)
        return missed

    def _compare(self, name: str) -> None:
        volume, there = self._desk.get(VOLUMES, name), self._there(name)
        for node in sorted(self._missed(name, there)):
            self._detached(name, node, "" if volume is None else _device(volume))
        self._note(name)

    def _detached(self, name: str, node: str, device: str) -> None:
        self._attached.get(name, set()).discard(node)
        if device in (to_tell := self._to_tell.get(node, [])):
            to_tell.remove(device)
        self._report(node, but=device)

    def _wanted(self, volume: Object) -> dict[str, Object]:
        """The nodes that should have it, each with a pod that needs it there."""
        source, reference = volume["spec"].get("csi"), volume["spec"].get("claimRef")
        if source is None or reference is None or not self._needs_attaching(source["driver"]):
            return {}
        claim = reference["namespace"], reference["name"]
        return {
            pod["spec"]["nodeName"]: pod
            for namespace, name in sorted(self._pods.get(claim, ()))
            if (pod := self._desk.get(PODS, name, namespace)) is not None
            and pod["spec"].get("nodeName")
            and not _has_ended(pod)
        }

    def _needs_attaching(self, driver: str) -> bool:
        found = self._desk.get(DRIVERS, driver) or {}
        return (found.get("spec") or {}).get("attachRequired") is not False

    # Attaching

    def _attach(self, volume: Object, node: str, pod: Object, *, taken: bool) -> None:
        name = volume["metadata"]["name"]
        if taken and not _SHARED & set(volume["spec"].get("accessModes") or ()):
            self._refuse(name, pod)
            return
        source = volume["spec"]["csi"]
        made = {
            "metadata": {"name": attachment_name(source["driver"], source["volumeHandle"], node)},
            "spec": {
                "attacher": source["driver"],
                "nodeName": node,
                "source": {"persistentVolumeName": name},
            },
        }
        # That there is one now is no news to who makes it.
        self._is_attaching = True
        try:
            self._desk.create(ATTACHMENTS, made)
        finally:
            self._is_attaching = False

    def _refuse(self, volume: str, pod: Object) -> None:
        said = (volume, pod["metadata"]["uid"])
        if said not in self._refused:
            self._refused.add(said)
            why = (
                f'Multi-Attach error for volume "{volume}" Volume is already exclusively attached '
                "to one node and can't be attached to another"
            )
            self._desk.event(pod, "Pod", reason="FailedAttachVolume", message=why)

    def _report(self, name: str, *, also: Iterable[str] = (), but: str = "") -> None:
        """In the status of the node: a kubelet uses nothing that is not said to be attached."""
        node = self._desk.get(NODES, name)
        if node is None:
            return
        said = (node.get("status") or {}).get("volumesAttached") or []
        known = {each["name"] for each in said}
        wanted = [each for each in said if each["name"] != but]
        new = (device for device in dict.fromkeys(also) if device not in known)
        wanted += ({"name": device, "devicePath": ""} for device in new)
        if wanted != said:
            self._desk.change(
                NODES,
                ("", name),
                lambda obj: {**obj, "status": {**obj["status"], "volumesAttached": wanted}},
                status=True,
            )

    # Detaching

    def _give_back(self, node: str, attachment: Object, volume: Object | None) -> None:
        meta = attachment["metadata"]
        if meta["uid"] in self._detaching:
            return
        device = _device(volume) if volume is not None else ""
        now = asyncio.get_running_loop().time()
        since = self._unwanted_since.setdefault(meta["uid"], now)
        patience = since + self._timers.force_detach - now
        if not self._is_free(node, device, out_of_patience=patience <= 0):
            if patience > 0:
                self.add_after((_volume_of(attachment), _TIMEOUT), patience)
            return
        self._unwanted_since.pop(meta["uid"], None)
        self._detaching.add(meta["uid"])
        self._detached(_volume_of(attachment), node, device)
        self._desk.delete(ATTACHMENTS, ("", meta["name"]), uid=meta["uid"])

    def _is_free(self, name: str, device: str, *, out_of_patience: bool) -> bool:
        node = self._desk.get(NODES, name)
        if node is None:
            return out_of_patience
        if device not in ((node.get("status") or {}).get("volumesInUse") or ()):
            return True
        if taints.has(taints_of(node), taints.OUT_OF_SERVICE):
            return True
        return out_of_patience and not is_ready(node)


class Publisher(Protocol):
    """A storage that has something to do on its side, and may not be able to at the moment."""

    def publish(self, node: str, volume: str) -> bool: ...

    def unpublish(self, node: str, volume: str) -> bool: ...


class ExternalAttacher(Controller[Key]):
    """The storage driver's side of it. Works on attachments."""

    hears = frozenset({ATTACHMENTS})

    def __init__(
        self,
        operations: Operations,
        *,
        timers: Timers,
        truth: Truth,
        revokes: bool = False,
        driver: str = DRIVER,
        publisher: Publisher | None = None,
    ) -> None:
        super().__init__(operations.store)
        self._desk = Desk(operations, "csi-attacher")
        self._timers = timers
        self._truth = truth
        self._revokes = revokes
        self._driver = driver
        self._finalizer = f"external-attacher/{driver.replace('.', '-')}"
        self._publisher = publisher
        self._ends: dict[tuple[str, bool], float] = {}

    def begin(self) -> None:
        self._ends.clear()
        for attachment in self.store.all(ATTACHMENTS):
            self.add(attachment.key)

    def hear(self, commit: Commit) -> None:
        after = commit.after.object
        if not commit.deleted and (is_deleting(after) or not _is_attached(after)):
            self.add(commit.after.key)

    def work(self, key: Key) -> None:
        attachment = self._desk.get(ATTACHMENTS, key[1])
        if attachment is None or attachment["spec"]["attacher"] != self._driver:
            return
        has_finalizer = self._finalizer in (attachment["metadata"].get("finalizers") or ())
        if is_deleting(attachment):
            if has_finalizer and self._is_done(key, attachment, self._timers.detach):
                self._detach(key, attachment)
        elif not has_finalizer:
            self._desk.change(ATTACHMENTS, key, lambda obj: self._finalized(obj, there=True))
        elif not _is_attached(attachment) and self._is_done(key, attachment, self._timers.attach):
            self._attach(key, attachment)

    def _is_done(self, key: Key, attachment: Object, seconds: float) -> bool:
        """Whether the storage has had its time; if not, it is asked again when it has."""
        work = (attachment["metadata"]["uid"], is_deleting(attachment))
        now = asyncio.get_running_loop().time()
        due = self._ends.setdefault(work, now + seconds)
        if now < due:
            self.add_after(key, due - now)
            return False
        del self._ends[work]
        return True

    def _attach(self, key: Key, attachment: Object) -> None:
        if self._publisher is not None:
            node, (volume,) = _what(attachment)
            if not self._publisher.publish(node, volume):
                self.add_after(key, _RETRY)
                return
        if self._revokes:
            self._truth.admit(*_what(attachment), why="attached")
        self._desk.change(
            ATTACHMENTS, key, lambda obj: {**obj, "status": {"attached": True}}, status=True
        )

    def _detach(self, key: Key, attachment: Object) -> None:
        if self._publisher is not None:
            node, (volume,) = _what(attachment)
            if not self._publisher.unpublish(node, volume):
                self.add_after(key, _RETRY)
                return
        if self._revokes:
            self._truth.bar(*_what(attachment), why="detached")
        self._desk.change(ATTACHMENTS, key, lambda obj: self._finalized(obj, there=False))

    def _finalized(self, obj: Object, *, there: bool) -> Object:
        meta = obj["metadata"]
        others = [each for each in meta.get("finalizers") or () if each != self._finalizer]
        own = [self._finalizer] if there else []
        return {**obj, "metadata": {**meta, "finalizers": [*others, *own]}}


def _what(attachment: Json) -> tuple[str, tuple[str]]:
    return attachment["spec"]["nodeName"], (_volume_of(attachment),)


def _volume_of(attachment: Json) -> str:
    return str((attachment["spec"].get("source") or {}).get("persistentVolumeName", ""))


def _is_attached(attachment: Json) -> bool:
    return bool((attachment.get("status") or {}).get("attached"))


def _is_as_before(before: Json | None, attachment: Json) -> bool:
    return before is not None and (
        (is_deleting(before), _is_attached(before))
        == (is_deleting(attachment), _is_attached(attachment))
    )  # fmt: skip


def _device(volume: Json) -> str:
    source = volume["spec"].get("csi") or {}
    return device_name(source.get("driver", ""), source.get("volumeHandle", ""))


def _need(pod: Json) -> tuple[object, ...]:
    return pod["spec"].get("nodeName"), _has_ended(pod)


def _lets_go(before: Json, node: Json) -> bool:
    """Whether there may be something to detach from a node that there was not before."""
    used, uses = ((each.get("status") or {}).get("volumesInUse") or () for each in (before, node))
    return (used != uses and not set(used) <= set(uses)) or _state(before) != _state(node)


def _state(node: Json) -> tuple[bool, bool]:
    return is_ready(node), taints.has(taints_of(node), taints.OUT_OF_SERVICE)


def _has_ended(pod: Json) -> bool:
    """It is over, or it is going and none of its containers runs."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    runs = any("running" in (each.get("state") or {}) for each in statuses)
    return is_over(pod) or (is_deleting(pod) and not runs)
