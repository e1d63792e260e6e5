"""ClaimBinder: joins claims and volumes, and has volumes made for claims that find none.

It stands for the controller that binds them, for the provisioners of two made-up drivers, and for
the finalizers that protect a claim in use:

* ``csi.example``: network storage that has to be attached to a node, as most block storage has;
* ``local.example``: a disk of one node; the volume can be used there and nowhere else.

A volume that was provided for a claim goes with it, or stays, as its class says.
"""

from collections.abc import Iterator
from typing import TypeAlias

from backstay.sim.api.controller import Controller
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations
from backstay.sim.api.store import Commit, Key
from backstay.sim.cluster.desk import (
    CLAIMS,
    CLASSES,
    PODS,
    VOLUMES,
    Desk,
    Json,
    is_deleting,
    is_over,
    key_of,
)

DRIVER = "csi.example"
LOCAL = "local.example"

SELECTED_NODE = "volume.kubernetes.io/selected-node"
_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_CLAIM_FINALIZER = "kubernetes.io/pvc-protection"
_VOLUME_FINALIZER = "kubernetes.io/pv-protection"

Item: TypeAlias = tuple[str, Key]


def storage_class(
    name: str,
    *,
    driver: str = DRIVER,
    waits: bool = False,
    default: bool = False,
    cluster: str = "",
) -> Object:
    """An object to create. With ``waits`` volumes are made when a pod needs them, and where;
    ``cluster`` is which of the driver's own they are in."""
    return {
        **({"parameters": {"clusterID": cluster}} if cluster else {}),
        "metadata": {"name": name, "annotations": {_DEFAULT: "true" if default else "false"}},
        "provisioner": driver,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
    }


def claims_of(pod: Json) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or ():
        if source := volume.get("persistentVolumeClaim"):
            yield source["claimName"]


def class_of(desk: Desk, claim: Json) -> Object | None:
    name = claim["spec"].get("storageClassName")
    if name is not None:
        return desk.get(CLASSES, name)
    for each in desk.all(CLASSES):
        if (each["metadata"].get("annotations") or {}).get(_DEFAULT) == "true":
            return each
    return None


def waits_for_consumer(desk: Desk, claim: Json) -> bool:
    found = class_of(desk, claim)
    return found is not None and found["volumeBindingMode"] == "WaitForFirstConsumer"


class ClaimBinder(Controller[Item]):
    """Works on claims and volumes."""

    hears = frozenset({CLAIMS, VOLUMES, CLASSES, PODS})

    def __init__(self, operations: Operations) -> None:
        super().__init__(operations.store)
        self._desk = Desk(operations)
        self._is_binding = False

    def begin(self) -> None:
        for storage in (CLAIMS, VOLUMES):
            for stored in self.store.all(storage):
                self.add((storage, stored.key))

    def hear(self, commit: Commit) -> None:
        if self._is_binding:
            # What it binds itself is done with.
            return
        after = commit.after.object
        if commit.storage == CLAIMS:
            self.add((CLAIMS, commit.after.key))
            if volume := after["spec"].get("volumeName"):
                self.add((VOLUMES, ("", volume)))
        elif commit.storage == VOLUMES:
            self.add((VOLUMES, commit.after.key))
            self._add_unbound()
        elif commit.storage == CLASSES:
            self._add_unbound()
        elif commit.storage == PODS and (commit.deleted or is_over(after)):
            for name in claims_of(after):
                self.add((CLAIMS, (commit.after.key[0], name)))

    def _add_unbound(self) -> None:
        for claim in self._desk.all(CLAIMS):
            if (claim.get("status") or {}).get("phase") != "Bound":
                self.add((CLAIMS, key_of(claim)))

    def work(self, key: Item) -> None:
        storage, place = key
        found = self.store.get(storage, place)
        if found is None:
            return
        if storage == CLAIMS:
            self._settle_claim(place, found.object)
        else:
            self._settle_volume(place[1], found.object)

    # Claims

    def _settle_claim(self, key: Key, claim: Object) -> None:
        if is_deleting(claim):
            if not self._is_used(key):
                self._desk.change(CLAIMS, key, lambda obj: _without(obj, _CLAIM_FINALIZER))
            return
        if (claim.get("status") or {}).get("phase") == "Bound":
            return
        self._is_binding = True
        try:
            volume = self._volume_for(claim) or self._provided(claim)
            if volume is not None:
                self._bind(key, claim, volume)
        finally:
            self._is_binding = False

    def _is_used(self, key: Key) -> bool:
        return any(
            key[1] in claims_of(pod) and not is_over(pod)
            for pod in self._desk.all(PODS)
            if pod["metadata"]["namespace"] == key[0]
        )

    def _volume_for(self, claim: Object) -> Object | None:
        named = claim["spec"].get("volumeName")
        for volume in self._desk.all(VOLUMES):
            if named and volume["metadata"]["name"] != named:
                continue
            reference = volume["spec"].get("claimRef")
            if reference is not None and _refers(reference, claim):
                return volume
            if reference is None and not is_deleting(volume) and _suits(volume, claim):
                return volume
        return None

    def _provided(self, claim: Object) -> Object | None:
        """A new volume, if its class is one that we provide for, and its time has come."""
        found = class_of(self._desk, claim)
        if found is None or found["provisioner"] not in (DRIVER, LOCAL):
            return None
        meta, spec = claim["metadata"], claim["spec"]
        node = (meta.get("annotations") or {}).get(SELECTED_NODE, "")
        if not node and found["volumeBindingMode"] == "WaitForFirstConsumer":
            return None
        name = f"pvc-{meta['uid']}"
        volume: Object = {
            "metadata": {"name": name, "annotations": {_PROVISIONED_BY: found["provisioner"]}},
            "spec": {
                "accessModes": spec.get("accessModes") or [],
                "capacity": (spec.get("resources") or {}).get("requests") or {},
                "volumeMode": spec.get("volumeMode", "Filesystem"),
                "storageClassName": found["metadata"]["name"],
                "persistentVolumeReclaimPolicy": found["reclaimPolicy"],
                "claimRef": _reference(claim),
                **_source(found, name, node),
            },
        }
        return self._desk.create(VOLUMES, volume)

    def _bind(self, key: Key, claim: Object, volume: Object) -> None:
        name, spec = volume["metadata"]["name"], volume["spec"]
        reference = _reference(claim)
        place = ("", name)
        if spec.get("claimRef") != reference:
            self._desk.change(VOLUMES, place, lambda obj: _with_spec(obj, claimRef=reference))
        self._desk.change(VOLUMES, place, lambda obj: _with_status(obj, phase="Bound"), status=True)
        self._desk.change(
            CLAIMS,
            key,
            lambda obj: _with_spec(
                obj, volumeName=name, storageClassName=spec.get("storageClassName", "")
            ),
        )
        self._desk.change(
            CLAIMS,
            key,
            lambda obj: _with_status(
                obj,
                phase="Bound",
                accessModes=spec.get("accessModes") or [],
                capacity=spec.get("capacity") or {},
            ),
            status=True,
        )

    # Volumes

    def _settle_volume(self, name: str, volume: Object) -> None:
        place, spec = ("", name), volume["spec"]
        phase = (volume.get("status") or {}).get("phase")
        reference = spec.get("claimRef") or {}
        if reference and self._holder(reference) is not None:
            return
        if is_deleting(volume):
            self._desk.change(VOLUMES, place, lambda obj: _without(obj, _VOLUME_FINALIZER))
        elif not reference.get("uid"):
            # Nobody's yet, or kept for a claim that is still to come.
            if phase != "Available":
                self._set_phase(place, "Available")
        elif phase == "Bound":
            self._set_phase(place, "Released")
        elif spec["persistentVolumeReclaimPolicy"] == "Delete":
            self._desk.delete(VOLUMES, place)

    def _holder(self, reference: Json) -> Object | None:
        claim = self._desk.get(CLAIMS, reference["name"], reference["namespace"])
        return claim if claim is not None and _refers(reference, claim) else None

    def _set_phase(self, place: Key, phase: str) -> None:
        self._desk.change(VOLUMES, place, lambda obj: _with_status(obj, phase=phase), status=True)


def _source(found: Json, name: str, node: str) -> Object:
    if found["provisioner"] == DRIVER:
        noted = {"volumeAttributes": found["parameters"]} if found.get("parameters") else {}
        return {"csi": {"driver": DRIVER, "volumeHandle": name, **noted}}
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    terms = [{"matchExpressions": [here]}]
    return {
        "local": {"path": f"/disks/{name}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }


def _reference(claim: Json) -> Object:
    meta = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
    }


def _refers(reference: Json, claim: Json) -> bool:
    """A reference without a uid keeps a volume for the first claim of that name."""
    meta = claim["metadata"]
    return (
        (reference["namespace"], reference["name"]) == (meta["namespace"], meta["name"])
        and reference.get("uid") in (None, "", meta["uid"])
    )  # fmt: skip


def _suits(volume: Json, claim: Json) -> bool:
    offered, wanted = volume["spec"], claim["spec"]
    return (
        offered.get("storageClassName", "") == (wanted.get("storageClassName") or "")
        and set(wanted.get("accessModes") or ()) <= set(offered.get("accessModes") or ())
        and offered.get("volumeMode", "Filesystem") == wanted.get("volumeMode", "Filesystem")
    )


def _with_spec(obj: Object, **changes: object) -> Object:
    return {**obj, "spec": {**obj["spec"], **changes}}


def _with_status(obj: Object, **changes: object) -> Object:
    return {**obj, "status": {**(obj.get("status") or {}), **changes}}


def _without(obj: Object, finalizer: str) -> Object:
    meta = dict(obj["metadata"])
    meta["finalizers"] = [each for each in meta.get("finalizers") or () if each != finalizer]
    return {**obj, "metadata": meta}
