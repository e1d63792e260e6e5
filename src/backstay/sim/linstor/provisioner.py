"""Provisioner: makes a LINSTOR resource, and a volume, for every claim of one of its classes.

What a class means is said by ``Linstor.classes``. The volume is called after its claim, and the
resource like the volume unless the class has another prefix. When the volume is deleted, the
resource goes as well.
"""

from typing import Any

from backstay.sim.api.controller import Controller
from backstay.sim.api.operations import Operations
from backstay.sim.api.store import Commit, Key
from backstay.sim.cluster.desk import CLAIMS, VOLUMES, Desk, Json, is_deleting
from backstay.sim.linstor.storage import DRIVER, NFS_EXPORT, Linstor, Volume

_RETRY = 1.0
_SHARED = {"ReadWriteMany", "ReadOnlyMany"}


class Provisioner(Controller[Key]):
    """Works on claims."""

    hears = frozenset({CLAIMS, VOLUMES})

    def __init__(self, operations: Operations, linstor: Linstor) -> None:
        super().__init__(operations.store)
        self._desk = Desk(operations, DRIVER)
        self._linstor = linstor

    def begin(self) -> None:
        for claim in self.store.all(CLAIMS):
            self.add(claim.key)

    def hear(self, commit: Commit) -> None:
        if commit.storage == CLAIMS and not commit.deleted:
            self.add(commit.after.key)
        elif commit.storage == VOLUMES and commit.deleted:
            self._linstor.drop_volume(commit.after.key[1])

    def work(self, key: Key) -> None:
        claim = self._desk.get(CLAIMS, key[1], key[0])
        if claim is None or is_deleting(claim) or claim["spec"].get("volumeName"):
            return
        placement = self._linstor.classes.get(claim["spec"].get("storageClassName") or "")
        name = f"pvc-{claim['metadata']['uid']}"
        if placement is None or name in self._linstor.volumes:
            return
        if not self._linstor.is_served:
            self.add_after(key, _RETRY)
            return
        group = f"sc-{claim['spec']['storageClassName']}"
        self._linstor.database.add_group(group, placement.group_props)
        shown = f"{placement.prefix}{claim['metadata']['uid']}"
        shared = bool(_SHARED & set(claim["spec"].get("accessModes") or ()))
        self._linstor.add_volume(name, Volume(shown.lower(), shared))
        self._linstor.database.define(shown, placement.replicas, group=group, props=placement.props)
        csi: dict[str, Any] = {"driver": DRIVER, "volumeHandle": f"{shown}{placement.suffix}"}
        if placement.exported_by:
            self._linstor.exports.add(shown.lower(), placement.exported_by)
            csi["volumeAttributes"] = {NFS_EXPORT: "true"}
        self._desk.create(VOLUMES, _volume(name, csi, claim))


def _volume(name: str, csi: Json, claim: Json) -> dict[str, Any]:
    meta, spec = claim["metadata"], claim["spec"]
    return {
        "metadata": {
            "name": name,
            "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER},
        },
        "spec": {
            "accessModes": spec.get("accessModes") or [],
            "capacity": (spec.get("resources") or {}).get("requests") or {},
            "volumeMode": spec.get("volumeMode", "Filesystem"),
            "storageClassName": spec["storageClassName"],
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
            "csi": csi,
        },
    }
