"""StatefulSets: whether they still want a pod of theirs. And ReplicaSets, which make another."""

import msgspec

from backstay.apis.pods import OwnedMeta
from backstay.kube.projection import Projection
from backstay.kube.resource import Resource

STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")


class _Ordinals(msgspec.Struct, frozen=True, gc=False):
    start: int = 0


class _Spec(msgspec.Struct, frozen=True, gc=False):
    replicas: int | None = None
    ordinals: _Ordinals | None = None


class StatefulSet(msgspec.Struct, frozen=True, gc=False):
    metadata: OwnedMeta
    spec: _Spec = _Spec()


class StatefulSetRow(msgspec.Struct, frozen=True):
    """``first`` is the number of its first pod."""

    key: str
    uid: str
    version: str
    deleting: bool
    first: int
    replicas: int

    def wants(self, pod: str) -> bool:
        """Whether it would create the pod anew: one beyond its present size it would not."""
        number = pod.rpartition("-")[2]
        inside = number.isdecimal() and self.first <= int(number) < self.first + self.replicas
        return inside and not self.deleting


def stateful_set_row(found: StatefulSet) -> StatefulSetRow:
    meta, spec = found.metadata, found.spec
    return StatefulSetRow(
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        deleting=meta.deletion_timestamp is not None,
        first=spec.ordinals.start if spec.ordinals else 0,
        replicas=1 if spec.replicas is None else spec.replicas,
    )


STATEFUL_SET_PROJECTION: Projection[StatefulSet, StatefulSetRow] = Projection(
    StatefulSet, stateful_set_row
)
