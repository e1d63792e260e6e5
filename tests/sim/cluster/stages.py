"""Where a scenario can be played: in a world under virtual time, or on an ordinary loop.

A scenario is a coroutine function that takes a cluster whose nodes are up.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES, PODS, Resource
from backstay.seam.real import open_seams
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.ground import Ground, WorldGround, on_this_loop
from backstay.sim.cluster.timers import Timers
from backstay.sim.world import World

Json = dict[str, Any]
T = TypeVar("T")
Scenario = Callable[[EmbeddedCluster], Awaitable[T]]

STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)

FAST = Timers().scaled(0.02)
"""A node that is silent for a second is given up."""


def play(scenario: Scenario[T], *, nodes: int = 3, seed: int = 7, **options: Any) -> T:
    """In a world."""
    with World(seed=seed) as world:
        return world.run(_played(scenario, WorldGround(world), nodes, options))


def play_on_a_loop(scenario: Scenario[T], *, nodes: int = 3) -> T:
    """In real time, fast."""

    async def main() -> T:
        async with open_seams() as seams, on_this_loop(seams) as ground:
            return await _played(scenario, ground, nodes, {"timers": FAST})

    return asyncio.run(main())


async def _played(scenario: Scenario[T], ground: Ground, nodes: int, options: dict[str, Any]) -> T:
    cluster = EmbeddedCluster(ground, **options)
    for number in range(1, nodes + 1):
        cluster.add_node(f"n{number}")
    await cluster.settled()
    return await scenario(cluster)


# Objects


def pod(name: str = "web", **spec: Any) -> Json:
    labels = spec.pop("labels", {})
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "none"}]} | spec,
    }


def pod_with_claim(claim: str, name: str = "web", **spec: Any) -> Json:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    return pod(name, volumes=[volume], **spec)


def claim(name: str, *, mode: str = "ReadWriteOnce", **spec: Any) -> Json:
    wanted = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name}, "spec": wanted | spec}


def stateful_set(name: str = "db", *, replicas: int = 1, claims: bool = False, **more: Any) -> Json:
    labels = {"app": name}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod()["spec"]},
            "volumeClaimTemplates": [claim("data")] if claims else [],
        }
        | more,
    }


def patience(seconds: int) -> list[Json]:
    """How long a pod puts up with a node that is not there."""
    return [
        {
            "key": f"node.kubernetes.io/{what}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": seconds,
        }
        for what in ("not-ready", "unreachable")
    ]


# What is asked of a cluster


class Cast:
    """A cluster with shorthands for one namespace."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.client: KubeClient = cluster.client()

    async def create(self, body: Json, resource: Resource = PODS) -> Json:
        namespace = "default" if resource.namespaced else None
        return (await self.client.create(resource, body, namespace=namespace)).json()

    async def delete(
        self, name: str, resource: Resource = PODS, *, grace: int | None = None
    ) -> None:
        namespace = "default" if resource.namespaced else None
        await self.client.delete(resource, name, namespace=namespace, conditions={"grace": grace})

    def get(self, storage: str, name: str) -> Json | None:
        """As it is in the store; None if it is not there."""
        found = self.cluster.api.store
        for namespace in ("default", ""):
            if stored := found.get(storage, (namespace, name)):
                return dict(stored.object)
        return None

    def all(self, storage: str) -> list[Json]:
        return [dict(stored.object) for stored in self.cluster.api.store.all(storage)]

    def pod(self, name: str = "web") -> Json:
        found = self.get("pods", name)
        assert found is not None, name
        return found

    def node(self, name: str) -> Json:
        found = self.get("nodes", name)
        assert found is not None, name
        return found

    def copies(self, name: str = "web") -> list[str]:
        return self.cluster.truth.copies("default", name)

    async def runs(self, name: str = "web", *, on: str | None = None) -> str:
        """Waits until it really runs; says where."""
        await self.cluster.until(
            lambda: bool(self.copies(name)) and on in (None, *self.copies(name))
        )
        return on or self.copies(name)[0]

    async def ready(self, name: str = "web") -> Json:
        await self.cluster.until(lambda: said(self.get("pods", name), "Ready") == "True")
        return self.pod(name)

    async def until(self, holds: Callable[[], bool], timeout: float = 60.0) -> None:
        await self.cluster.until(holds, timeout=timeout)

    def taints(self, node: str) -> list[str]:
        spec = self.node(node)["spec"]
        return [
            f"{t['key'].removeprefix('node.kubernetes.io/')}:{t['effect']}"
            for t in spec.get("taints") or ()
        ]

    def node_says(self, node: str) -> str:
        return said(self.get("nodes", node), "Ready")

    async def cordon(self, node: str, *, on: bool = True) -> None:
        await self.client.merge_patch(NODES, node, {"spec": {"unschedulable": on or None}})

    async def given_up(self, node: str) -> None:
        await self.until(lambda: self.node_says(node) == "Unknown", timeout=120)

    @property
    def now(self) -> float:
        return self.cluster.ground.now()


def said(obj: Json | None, kind: str) -> str:
    conditions = ((obj or {}).get("status") or {}).get("conditions") or ()
    return next((str(c["status"]) for c in conditions if c["type"] == kind), "")


def deleting(obj: Json | None) -> bool:
    return obj is not None and "deletionTimestamp" in obj["metadata"]
