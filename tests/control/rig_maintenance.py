"""A cluster with Backstay and node maintenances on it, under virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from backstay.apis.backstay import CONFIG_NAME, CONFIGS
from backstay.apis.drains import BUDGETS
from backstay.apis.maintenance import (
    NODE_MAINTENANCES,
    MaintenanceRow,
    NodeMaintenance,
    maintenance_row,
)
from backstay.apis.maintenance_definition import maintenance_definition
from backstay.kube.client import KubeClient
from backstay.kube.errors import NotFound
from backstay.kube.resource import EVENTS, NODES, PODS, Resource
from backstay.model.labels import DRAIN_TAINT, EXCLUDE, MAINTENANCE
from backstay.sim.process import Process
from tests.control.rig import DEFINITIONS, Scene

Json = dict[str, Any]

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")


class Place(Protocol):
    """A cluster in which things can be waited for."""

    @property
    def client(self) -> KubeClient: ...

    async def eventually(
        self, holds: Callable[[], Awaitable[bool]], *, within: float = 120.0
    ) -> None: ...


async def serve_maintenances(scene: Place) -> None:
    await scene.client.create(DEFINITIONS, maintenance_definition())


async def maintain(scene: Place, node: str, *, name: str = "", reason: str = "new disks") -> None:
    body = {
        "apiVersion": NODE_MAINTENANCES.api_version,
        "kind": NODE_MAINTENANCES.kind,
        "metadata": {"name": name or f"maintain-{node}"},
        "spec": {"nodeName": node, "reason": reason},
    }
    await scene.client.create(NODE_MAINTENANCES, body)


async def end(scene: Place, node: str, *, name: str = "") -> None:
    await scene.client.delete(NODE_MAINTENANCES, name or f"maintain-{node}")


async def maintenance(scene: Place, name: str) -> MaintenanceRow | None:
    try:
        reply = await scene.client.get(NODE_MAINTENANCES, name)
    except NotFound:
        return None
    return maintenance_row(reply.into(NodeMaintenance))


async def until_told(scene: Place, name: str, *codes: str, within: float = 120.0) -> MaintenanceRow:
    found: list[MaintenanceRow] = []

    async def told() -> bool:
        row = await maintenance(scene, name)
        if row is not None and row.status.code in codes:
            found.append(row)
        return bool(found)

    await scene.eventually(told, within=within)
    return found[-1]


async def until_gone(scene: Place, name: str, *, within: float = 120.0) -> None:
    async def gone() -> bool:
        return await maintenance(scene, name) is None

    await scene.eventually(gone, within=within)


async def marks_on(scene: Place, node: str) -> tuple[bool, bool, bool, bool]:
    """Cordon, taint, label, and our annotation."""
    live = (await scene.client.get(NODES, node)).json()
    meta, spec = live["metadata"], live["spec"]
    return (
        bool(spec.get("unschedulable")),
        any(taint["key"] == DRAIN_TAINT for taint in spec.get("taints") or ()),
        EXCLUDE in (meta.get("labels") or {}),
        MAINTENANCE in (meta.get("annotations") or {}),
    )


ALL = (True, True, True, True)
NONE = (False, False, False, False)


def deployment(name: str, replicas: int, **pod: Any) -> Json:
    labels = {"app": name}
    spec = {"containers": [{"name": "main", "image": "example/web"}], **pod}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


async def start_deployment(scene: Place, name: str, replicas: int, **pod: Any) -> None:
    await scene.client.create(DEPLOYMENTS, deployment(name, replicas, **pod), namespace="default")

    async def ready() -> bool:
        return len(await running(scene, name)) == replicas

    await scene.eventually(ready)


async def running(scene: Place, app: str) -> list[str]:
    """The nodes of its ready pods."""
    reply = await scene.client.list(PODS, namespace="default", labels=f"app={app}")
    return [
        pod["spec"]["nodeName"]
        for pod in reply.json()["items"]
        if not pod["metadata"].get("deletionTimestamp")
        and any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in pod["status"].get("conditions") or ()
        )
    ]


async def budget(scene: Place, app: str, **spec: Any) -> None:
    body = {
        "metadata": {"name": app},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }
    await scene.client.create(BUDGETS, body, namespace="default")


def claim(name: str, mode: str = "ReadWriteOnce") -> Json:
    """For one node at a time, so that no guest that has it can be moved while it runs."""
    resources = {"requests": {"storage": "1Gi"}}
    return {"metadata": {"name": name}, "spec": {"accessModes": [mode], "resources": resources}}


async def events(scene: Place, about: str) -> list[str]:
    reply = await scene.client.list(EVENTS)
    items: Sequence[Json] = reply.json()["items"]
    return [each["reason"] for each in items if each["involvedObject"]["name"] == about]


async def set_up(s: Scene, *, armed: bool = True, **spec: Any) -> Process:
    await s.boot("n1", "n2", "n3")
    await serve_maintenances(s)
    controller = s.start_controller()
    if armed:
        await s.arm(**spec)
    await asyncio.sleep(30)
    return controller


async def cordon(s: Scene, node: str, *, cordoned: bool) -> None:
    spec = {"unschedulable": True if cordoned else None}
    await s.client.merge_patch(NODES, node, {"spec": spec})


async def configure(s: Scene, **spec: Any) -> None:
    await s.client.merge_patch(CONFIGS, CONFIG_NAME, {"spec": spec})
