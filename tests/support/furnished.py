"""A small cluster with things in it: nodes that were heard of some time ago, guests, volumes.

An API server gives uids of its own, so whatever names an owner is made after it, here.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from backstay.apis.maintenance import NODE_MAINTENANCES
from backstay.apis.maintenance_definition import maintenance_definition
from backstay.model.labels import HEARTBEAT
from backstay.seam.system import SystemClock
from backstay.sim.kubevirt.definitions import definitions
from tests.support import objects as some
from tests.support.small_cluster import Json, SmallCluster

LEASES = "/apis/coordination.k8s.io/v1/namespaces"


class Furnished:
    """``cluster`` is what commands run against."""

    def __init__(self, cluster: SmallCluster) -> None:
        self.cluster = cluster
        self._knows_maintenance = False

    async def begin(self, *, kubevirt: bool = True) -> None:
        for definition in definitions() if kubevirt else ():
            await self.cluster.put(definition)
        await self.cluster.put(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": some.NAMESPACE}}
        )

    async def node(
        self, name: str, *, silent: float = 1.0, ready: str = "", heartbeat: float | None = None
    ) -> Json:
        """A node whose lease was renewed so many seconds ago, and virt-handler's heartbeat too."""
        said = ready or ("True" if silent < 40 else "Unknown")
        annotations = {} if heartbeat is None else {"kubevirt.io/heartbeat": past(heartbeat)}
        made = await self.cluster.node(name, ready=said, annotations=annotations)
        path = f"{LEASES}/kube-node-lease/leases/{name}"
        await self.cluster.change(path, {"spec": {"renewTime": past(silent)}})
        return made

    async def machine(
        self,
        name: str,
        *,
        node: str = "n1",
        strategy: str = "Always",
        claims: Sequence[Json] = (),
        volumes: Sequence[Json] = (),
        devices: Json | None = None,
    ) -> None:
        """A virtual machine that runs on a node, with what stands behind it."""
        for each in (*claims, *volumes):
            await self.cluster.put(anew(each))
        machine = await self.cluster.put(anew(some.machine(name, strategy=strategy)))
        owner = some.owned_by(
            "VirtualMachine", name, api="kubevirt.io/v1", uid=machine["metadata"]["uid"]
        )
        guest = some.instance(name, node=node, owners=owner, devices=devices)
        instance = await self.cluster.put(anew(guest))
        names = [each["metadata"]["name"] for each in claims]
        uid = instance["metadata"]["uid"]
        await self.pod(some.launcher(name, uid=uid, node=node, claims=names))

    async def stateful_pod(self, name: str, *, node: str = "n1") -> None:
        """The first pod of a StatefulSet of its own."""
        owner = await self.cluster.put(anew(some.stateful_set(name)))
        owners = some.owned_by("StatefulSet", name, uid=owner["metadata"]["uid"])
        await self.pod(some.pod(f"{name}-0", node=node, owners=owners))

    async def pod(self, body: Json) -> None:
        name, phase = body["metadata"]["name"], body["status"]
        await self.cluster.put(anew(body))
        path = f"/api/v1/namespaces/{some.NAMESPACE}/pods/{name}/status"
        await self.cluster.change(path, {"status": phase})

    def renewal(self, node: str) -> str:
        """What the node's lease says now."""
        leases = self.cluster.storage("leases.coordination.k8s.io")
        said = {each["metadata"]["name"]: each["spec"]["renewTime"] for each in leases}
        return str(said.get(node, ""))

    async def confirmation(self, node: Json, **spec: Any) -> None:
        name = node["metadata"]["name"]
        which = {"node": name, "nodeUID": node["metadata"]["uid"], "bootID": f"boot-of-{name}"}
        await self.cluster.put({
            "apiVersion": "backstay.dev/v1alpha1", "kind": "DeathConfirmation",
            "metadata": {"name": name},
            "spec": which | {
                "by": "carla", "reason": "pulled the plug", "lastRenewal": self.renewal(name),
                "lastHeartbeat": (node["metadata"].get("annotations") or {}).get(HEARTBEAT, ""),
            } | spec,
        })  # fmt: skip

    async def config(self, **spec: Any) -> None:
        await self.cluster.put({
            "apiVersion": "backstay.dev/v1alpha1", "kind": "BackstayConfig",
            "metadata": {"name": "cluster"}, "spec": spec,
        })  # fmt: skip

    async def leader(self, holder: str, *, silent: float = 1.0, **meta: Any) -> None:
        await self.cluster.put({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "backstay-controller", "namespace": "backstay-system", **meta},
            "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 1,
                "renewTime": past(silent), "acquireTime": past(silent + 60),
            },
        })  # fmt: skip

    async def incident(self, node: Json, **status: Any) -> None:
        """An open one, as a controller would have told it."""
        name = node["metadata"]["name"]
        which = {"node": name, "nodeUID": node["metadata"]["uid"], "bootID": f"boot-of-{name}"}
        made = await self.cluster.put({
            "apiVersion": "backstay.dev/v1alpha1", "kind": "Incident",
            "metadata": {"name": f"{name}-1"}, "spec": which,
        })  # fmt: skip
        path = f"/apis/backstay.dev/v1alpha1/incidents/{made['metadata']['name']}/status"
        await self.cluster.change(path, {"status": status})

    async def maintenance(self, node: str, *, reason: str = "new disks", **status: Any) -> None:
        """As whoever serves it would have told it; without a word if nobody has yet."""
        about = {"apiVersion": NODE_MAINTENANCES.api_version, "kind": NODE_MAINTENANCES.kind}
        if not self._knows_maintenance:
            await self.cluster.put(maintenance_definition())
            self._knows_maintenance = True
        await self.cluster.put(about | {
            "metadata": {"name": f"maintain-{node}"}, "spec": {"nodeName": node, "reason": reason},
        })  # fmt: skip
        path = f"/apis/{NODE_MAINTENANCES.api_version}/nodemaintenances/maintain-{node}/status"
        await self.cluster.change(path, {"status": status})


def anew(body: Json) -> Json:
    """Without what an API server gives by itself."""
    meta = {k: v for k, v in body["metadata"].items() if k not in ("uid", "resourceVersion")}
    return {**body, "metadata": meta}


def past(seconds: float) -> str:
    moment = SystemClock().now() - timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
