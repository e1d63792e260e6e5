"""A node dies and comes back: one story, told on the embedded cluster and on a real control plane.

Whoever tells it plays the storage's attacher and the person with the out-of-service taint, and
listens as any client does. What is compared is what an object went through, step by step.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import msgspec

from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.projection import Projection
from backstay.kube.reflector import Reflector
from backstay.kube.resource import NODES, PODS, Resource
from backstay.seam.tasks import Tasks
from backstay.sim.chance import Chance
from backstay.sim.nodes.node import Node
from backstay.sim.nodes.truth import Truth

Json = dict[str, Any]
View = Callable[[Json], tuple[Any, ...]]

STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
ATTACHMENTS = Resource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False
)
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
FINALIZER = "external-attacher/csi-example"


@dataclass(frozen=True)
class Stage:
    """Where the story is told: two nodes, a namespace, and how long pods put up with taints."""

    client: KubeClient
    namespace: str
    nodes: Mapping[str, Node]
    truth: Truth
    patience: int
    timeout: float = 150.0

    @property
    def first(self) -> Node:
        return next(iter(self.nodes.values()))

    @property
    def second(self) -> Node:
        return list(self.nodes.values())[1]

    @property
    def volume(self) -> str:
        return f"{self.namespace}-disk"


class _Row(msgspec.Struct, frozen=True):
    key: str
    uid: str
    version: str
    body: Json


def _row(body: Json) -> _Row:
    meta = body["metadata"]
    key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
    return _Row(key, meta["uid"], meta["resourceVersion"], body)


@dataclass(frozen=True)
class Step:
    """What an object had become, and when."""

    at: float
    kind: str
    name: str
    uid: str
    what: tuple[Any, ...]


class Listener:
    """Hears of pods, nodes and attachments through watches, and keeps what is news."""

    def __init__(self, stage: Stage) -> None:
        self.steps: list[Step] = []
        self._stage = stage
        self._last: dict[str, tuple[Any, ...]] = {}
        self._news = asyncio.Event()

    def listen(self, tasks: Tasks) -> None:
        views = {PODS: _pod, NODES: _node, ATTACHMENTS: _attachment}
        for resource, view in views.items():
            cache: Cache[_Row] = Cache()
            cache.subscribe(partial(self._heard, resource, view))
            reflector = Reflector(
                self._stage.client,
                resource,
                Projection(dict, _row),
                cache,
                rng=Chance(1, resource.plural),
                namespace=self._stage.namespace if resource.namespaced else None,
            )
            tasks.spawn(reflector.run(), name=resource.plural)

    def _heard(self, resource: Resource, view: View, old: _Row | None, new: _Row | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._note(resource, old, ("gone",))
        if new is not None:
            self._note(resource, new, view(new.body))

    def _note(self, resource: Resource, row: _Row, what: tuple[Any, ...]) -> None:
        if self._last.get(row.uid) != what:
            self._last[row.uid] = what
            now = asyncio.get_running_loop().time()
            name = row.body["metadata"]["name"]
            self.steps.append(Step(now, resource.plural, name, row.uid, what))
            self._news.set()

    def of(self, kind: str, name: str, *, after: int = 0) -> list[tuple[Any, ...]]:
        """What objects of that name went through; ``web-*`` is all whose names begin so."""
        return [s.what for s in self.steps[after:] if s.kind == kind and fnmatchcase(s.name, name)]

    def when(self, kind: str, name: str, what: tuple[Any, ...]) -> float:
        wanted = (kind, name, what)
        return next(s.at for s in self.steps if (s.kind, s.name, s.what) == wanted)

    def attachments(self, *, after: int = 0) -> list[tuple[str, tuple[Any, ...]]]:
        """In order, each with its node."""
        wanted = {node.name for node in self._stage.nodes.values()}
        return [
            (node, s.what)
            for s in self.steps[after:]
            if s.kind == "volumeattachments" and (node := self._node_of(s)) in wanted
        ]

    def _node_of(self, step: Step) -> str:
        known = (s.what[0] for s in self.steps if s.uid == step.uid and s.what != ("gone",))
        return str(next(known, ""))

    async def until(self, kind: str, name: str, what: tuple[Any, ...], *, after: int = 0) -> None:
        await self._until(lambda: what in self.of(kind, name, after=after), f"{name}: {what}")

    async def until_attachment(self, node: str, what: tuple[Any, ...], *, after: int = 0) -> None:
        await self._until(
            lambda: (node, what) in self.attachments(after=after), f"attachment to {node}: {what}"
        )

    async def _until(self, holds: Callable[[], bool], wish: str) -> None:
        try:
            async with asyncio.timeout(self._stage.timeout):
                while not holds():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            heard = "\n".join(map(str, self.steps[-20:]))
            raise AssertionError(f"{wish} was not heard of; the last steps:\n{heard}") from None


def _pod(pod: Json) -> tuple[Any, ...]:
    """Node, phase, Ready, and what is going to happen to it."""
    conditions = {c["type"]: c for c in pod["status"].get("conditions") or ()}
    going = "deleting" if "deletionTimestamp" in pod["metadata"] else ""
    disrupted = conditions.get("DisruptionTarget", {}).get("reason", "")
    ready = conditions.get("Ready", {}).get("status", "")
    return (pod["spec"].get("nodeName", ""), pod["status"]["phase"], ready, disrupted, going)


def _node(node: Json) -> tuple[Any, ...]:
    ready = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
    taints = tuple(
        f"{t['key'].removeprefix('node.kubernetes.io/')}:{t['effect']}"
        for t in node["spec"].get("taints") or ()
    )
    return (ready["status"], ready.get("reason", ""), taints)


def _attachment(attachment: Json) -> tuple[Any, ...]:
    """Node, whether it is attached, and whether it is going."""
    meta = attachment["metadata"]
    going = "deleting" if "deletionTimestamp" in meta else ""
    attached = bool((attachment.get("status") or {}).get("attached"))
    return (attachment["spec"]["nodeName"], attached, going)


# The objects


def pod_spec(stage: Stage) -> Json:
    return {
        "containers": [{"name": "main", "image": "none"}],
        "terminationGracePeriodSeconds": 10,
        "nodeSelector": {"test": stage.namespace},
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{what}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": stage.patience,
            }
            for what in ("not-ready", "unreachable")
        ],
    }


def database(stage: Stage) -> Json:
    labels = {"app": "db"}
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": stage.volume,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    return {
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 1,
            "serviceName": "db",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(stage)},
            "volumeClaimTemplates": [claim],
        },
    }


def alike(stage: Stage, name: str) -> Json:
    """A Deployment or a DaemonSet."""
    spec, labels = pod_spec(stage), {"app": name}
    if name == "agent":
        # Its own tolerations have no end.
        spec["tolerations"] = []
    return {
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def disk(stage: Stage) -> Json:
    return {
        "metadata": {"name": stage.volume},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": stage.namespace, "name": "data-db-0"},
            "csi": {"driver": "csi.example", "volumeHandle": stage.volume},
        },
    }


# What is done in it


async def set_attachment(stage: Stage, node: str, change: Json, *, status: bool = False) -> None:
    """The attacher's part, played by hand."""
    listed = (await stage.client.list(ATTACHMENTS)).json()["items"]
    (name,) = (
        each["metadata"]["name"]
        for each in listed
        if each["spec"]["nodeName"] == node
        and each["spec"]["source"]["persistentVolumeName"] == stage.volume
    )
    await stage.client.merge_patch(
        ATTACHMENTS, name, change, subresource="status" if status else None
    )


async def attach(stage: Stage, node: str) -> None:
    await set_attachment(stage, node, {"metadata": {"finalizers": [FINALIZER]}})
    await set_attachment(stage, node, {"status": {"attached": True}}, status=True)


async def set_taints(stage: Stage, node: str, *, add: Iterable[Json] = (), drop: str = "") -> None:
    """As a person does with kubectl: read, change, write what was read plus the change."""
    found = (await stage.client.get(NODES, node)).json()
    kept = [t for t in found["spec"].get("taints") or () if t["key"] != drop]
    await stage.client.merge_patch(
        NODES,
        node,
        {
            "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
            "spec": {"taints": [*kept, *add]},
        },
    )


@dataclass(frozen=True)
class Told:
    """The story's turning points, as times and as counts of steps heard before them."""

    listener: Listener
    died_at: float
    before_death: int
    before_service_ended: int
    before_return: int


async def tell(stage: Stage, *, force_delete: bool) -> Told:
    """With ``force_delete`` somebody hurries the garbage collector of pods, which takes up to 20
    seconds for its part on a real control plane."""
    listener, loop = Listener(stage), asyncio.get_running_loop()
    first, second = stage.first, stage.second
    async with Tasks("story") as tasks:
        listener.listen(tasks)
        # The scheduler must have one choice only, as long as the second node is closed.
        await stage.client.merge_patch(NODES, second.name, {"spec": {"unschedulable": True}})
        await listener.until(
            "nodes", second.name, ("True", "KubeletReady", ("unschedulable:NoSchedule",))
        )
        await stage.client.create(VOLUMES, disk(stage))
        await stage.client.create(STATEFUL_SETS, database(stage), namespace=stage.namespace)
        bare = {"metadata": {"name": "bare"}, "spec": pod_spec(stage)}
        await stage.client.create(PODS, bare, namespace=stage.namespace)
        for resource, name in ((DEPLOYMENTS, "web"), (DAEMON_SETS, "agent")):
            await stage.client.create(resource, alike(stage, name), namespace=stage.namespace)
        await listener.until_attachment(first.name, (first.name, False, ""))
        assert stage.truth.writers(stage.volume) == []
        await attach(stage, first.name)
        for name in ("db-0", "bare", "web-*", "agent-*"):
            await listener.until("pods", name, (first.name, "Running", "True", "", ""))
        await stage.client.merge_patch(NODES, second.name, {"spec": {"unschedulable": None}})
        await listener.until("nodes", second.name, ("True", "KubeletReady", ()), after=4)

        before_death, died_at = len(listener.steps), loop.time()
        first.kill()
        gone = (first.name, "Running", "False", "DeletionByTaintManager", "deleting")
        for name in ("db-0", "bare", "web-*"):
            await listener.until("pods", name, gone)
        await listener.until("pods", "web-*", (second.name, "Running", "True", "", ""))

        before_service_ended = len(listener.steps)
        if force_delete:
            # Before the taint: a pod of the same name that came after it could be hit by its
            # eviction, which goes by name.
            for name in ("db-0", "bare"):
                await stage.client.delete(
                    PODS, name, namespace=stage.namespace, conditions={"grace": 0}
                )
        taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
        await set_taints(stage, first.name, add=[taint])
        await listener.until_attachment(first.name, (first.name, True, "deleting"))
        await listener.until("pods", "db-0", (second.name, "Pending", "False", "", ""))
        await set_attachment(stage, first.name, {"metadata": {"finalizers": None}})
        await listener.until_attachment(second.name, (second.name, False, ""))
        await attach(stage, second.name)
        await listener.until("pods", "db-0", (second.name, "Running", "True", "", ""))

        before_return = len(listener.steps)
        first.reboot()
        await listener.until(
            "nodes", first.name, ("True", "KubeletReady", ("out-of-service:NoExecute",))
        )
        await set_taints(stage, first.name, drop=OUT_OF_SERVICE)
        await listener.until("nodes", first.name, ("True", "KubeletReady", ()), after=before_return)
        await listener.until(
            "pods", "agent-*", (first.name, "Running", "True", "", ""), after=before_return
        )
    return Told(listener, died_at, before_death, before_service_ended, before_return)
