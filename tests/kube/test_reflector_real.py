"""Caches of a real API server: they follow it, and they find back to it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Generic
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from backstay.apis.core import NODE_PROJECTION, POD_PROJECTION
from backstay.kube import watch
from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.errors import NotFound
from backstay.kube.limits import RateLimit, VerbLimits
from backstay.kube.projection import Meta, Projection, R
from backstay.kube.reflector import Reflector
from backstay.kube.resource import NODES, PODS, Resource
from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.system import SystemRng
from backstay.seam.tasks import Tasks
from backstay.seam.transport import Request, Response, Stream
from harness.cluster import ControlPlane
from harness.connect import access

pytestmark = pytest.mark.real

Json = dict[str, Any]

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False,
)  # fmt: skip
BOTTOMLESS = Resource("test.backstay.dev", "v1", "bottomlesses", "Bottomless")


class ConfigMap(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta
    data: dict[str, str] | None = None


class ConfigRow(msgspec.Struct, frozen=True, gc=False):
    key: str
    uid: str
    version: str
    value: str


def config_row(config: ConfigMap) -> ConfigRow:
    meta = config.metadata
    return ConfigRow(meta.key, meta.uid, meta.resource_version, (config.data or {}).get("v", ""))


CONFIGS: Projection[ConfigMap, ConfigRow] = Projection(ConfigMap, config_row)


class Recorder:
    """A transport that remembers what was asked of it."""

    def __init__(self) -> None:
        self.real = AiohttpTransport()
        self.sent: list[Request] = []
        self._next = asyncio.Event()

    async def request(self, request: Request) -> Response:
        self._note(request)
        return await self.real.request(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        self._note(request)
        return self.real.stream(request)

    async def next_request(self) -> None:
        self._next.clear()
        async with asyncio.timeout(20.0):
            await self._next.wait()

    def _note(self, request: Request) -> None:
        self.sent.append(request)
        self._next.set()


class Attentive(Cache[R]):
    """Says when it has heard something."""

    def __init__(self) -> None:
        super().__init__()
        self._news = asyncio.Event()

    def heard(self, now: float, version: str = "") -> None:
        super().heard(now, version)
        self._news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20.0):
            while not (self.synced and holds()):
                await self._news.wait()
                self._news.clear()


class Mirror(Generic[R]):
    """A reflector at work on the real thing."""

    def __init__(
        self, plane: ControlPlane, resource: Resource, projection: Projection[Any, R], **how: Any
    ) -> None:
        self.recorder = Recorder()
        client = KubeClient(self.recorder, access(plane))
        self.cache: Attentive[R] = Attentive()
        self.reflector = Reflector(client, resource, projection, self.cache, rng=SystemRng(), **how)

    @property
    def keys(self) -> set[str]:
        return {row.key for row in self.cache}

    @property
    def lists(self) -> list[str]:
        """The limits of the lists that were asked for."""
        queries = [parse_qs(urlsplit(request.url).query) for request in self.recorder.sent]
        return [query["limit"][0] for query in queries if "limit" in query]

    async def until(self, holds: Callable[[], bool]) -> None:
        await self.cache.until(holds)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Mirror[R]"]:
        try:
            async with Tasks("mirror") as tasks:
                tasks.spawn(self.reflector.run(), name="run")
                yield self
        finally:
            await self.recorder.real.close()


@asynccontextmanager
async def configs(
    plane: ControlPlane, namespace: str, **how: Any
) -> AsyncIterator[Mirror[ConfigRow]]:
    mirror = Mirror(plane, CONFIG_MAPS, CONFIGS, namespace=namespace, **how)
    async with mirror.running():
        yield mirror


def config(name: str, value: str = "", **labels: str) -> Json:
    return {"metadata": {"name": name, "labels": labels}, "data": {"v": value}}


async def set_value(client: KubeClient, namespace: str, name: str, value: str) -> None:
    await client.merge_patch(CONFIG_MAPS, name, {"data": {"v": value}}, namespace=namespace)


# Following


async def test_what_is_created_changed_and_deleted_is_followed(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    await client.create(CONFIG_MAPS, config("before", "1"), namespace=namespace)
    async with configs(control_plane, namespace) as mirror:
        key = f"{namespace}/before"
        await mirror.until(lambda: key in mirror.keys)
        await set_value(client, namespace, "before", "2")
        await mirror.until(lambda: "2" in {row.value for row in mirror.cache})
        created = await client.create(CONFIG_MAPS, config("after"), namespace=namespace)
        await mirror.until(lambda: f"{namespace}/after" in mirror.keys)
        uid = created.json()["metadata"]["uid"]
        assert mirror.cache.by_uid(uid) is mirror.cache.get(f"{namespace}/after")
        await client.delete(CONFIG_MAPS, "before", namespace=namespace)
        await mirror.until(lambda: key not in mirror.keys)
        # One picture, and it was streamed.
        assert mirror.reflector.pictures == 1
        assert mirror.lists == []
        assert not mirror.cache.quarantine


async def test_pods_are_read_as_a_real_server_shows_them(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    claim = {"persistentVolumeClaim": {"claimName": "c"}}
    template = {"spec": {"accessModes": ["ReadWriteOnce"],
                         "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip
    body = {
        "metadata": {"name": "db-0", "labels": {"b": "2", "a": "1"}},
        "spec": {
            "nodeName": "nowhere",
            "containers": [{"name": "main", "image": "none"}],
            "volumes": [
                {"name": "data", **claim},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}},
                {"name": "empty", "emptyDir": {}},
            ],
        },
    }
    mirror = Mirror(control_plane, PODS, POD_PROJECTION, namespace=namespace)
    async with mirror.running():
        await client.create(PODS, body, namespace=namespace)
        await mirror.until(lambda: mirror.keys == {f"{namespace}/db-0"})
        (row,) = mirror.cache
        assert (row.node, row.phase, row.ready, row.deleting) == (
            "nowhere",
            "Pending",
            False,
            False,
        )
        assert row.claims == ("c", "db-0-scratch")
        assert row.labels == ("a", "1", "b", "2")
        await client.delete(PODS, "db-0", namespace=namespace, conditions={"grace": 30})
        await mirror.until(lambda: all(row.deleting for row in mirror.cache))
        await client.delete(PODS, "db-0", namespace=namespace, conditions={"grace": 0})
        await mirror.until(lambda: not mirror.keys)
        assert not mirror.cache.quarantine


async def test_nodes_are_read_as_a_real_server_shows_them(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    name = f"node-of-{namespace}"
    mirror = Mirror(control_plane, NODES, NODE_PROJECTION, fields=f"metadata.name={name}")
    async with mirror.running():
        await client.create(NODES, {"metadata": {"name": name}, "spec": {"unschedulable": True}})
        try:
            status = {
                "conditions": [{"type": "Ready", "status": "False"}],
                "nodeInfo": {"bootID": "b1", "kubeletVersion": "v1"},
            }
            await client.merge_patch(NODES, name, {"status": status}, subresource="status")
            await mirror.until(lambda: [row.boot_id for row in mirror.cache] == ["b1"])
            (row,) = mirror.cache
            assert (row.key, row.ready, row.kubelet_version) == (name, "False", "v1")
            assert row.unschedulable
            await mirror.until(
                lambda: any(
                    "node.kubernetes.io/unschedulable:NoSchedule" in row.taints
                    for row in mirror.cache
                )
            )
        finally:
            await client.delete(NODES, name)
        await mirror.until(lambda: not mirror.keys)
        assert not mirror.cache.quarantine


async def test_what_leaves_the_selection_leaves_the_cache(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    await client.create(CONFIG_MAPS, config("a", app="db"), namespace=namespace)
    await client.create(CONFIG_MAPS, config("b", app="web"), namespace=namespace)
    async with (
        configs(control_plane, namespace, labels="app=db") as labelled,
        configs(control_plane, namespace, fields="metadata.name=b") as named,
    ):
        await labelled.until(lambda: labelled.keys == {f"{namespace}/a"})
        await named.until(lambda: named.keys == {f"{namespace}/b"})
        for name, app in (("a", "web"), ("b", "db")):
            labels = {"metadata": {"labels": {"app": app}}}
            await client.merge_patch(CONFIG_MAPS, name, labels, namespace=namespace)
        await labelled.until(lambda: labelled.keys == {f"{namespace}/b"})
        assert named.keys == {f"{namespace}/b"}


async def test_pages_show_what_kubectl_shows(control_plane: ControlPlane, namespace: str) -> None:
    plenty = VerbLimits(RateLimit(10_000, 10_000), RateLimit(10_000, 10_000))
    transport = AiohttpTransport()
    maker = KubeClient(transport, access(control_plane), limits=plenty)
    turns = asyncio.Semaphore(16)

    async def create(number: int) -> None:
        async with turns:
            await maker.create(CONFIG_MAPS, config(f"c-{number}"), namespace=namespace)

    async with asyncio.TaskGroup() as group:
        for number in range(1500):
            group.create_task(create(number))
    await transport.close()
    columns = "{.metadata.namespace}/{.metadata.name} {.metadata.uid} {.metadata.resourceVersion}"
    shown = await control_plane.kubectl(
        "get", "configmaps", f"--namespace={namespace}",
        f"--output=jsonpath={{range .items[*]}}{columns}{{'\\n'}}{{end}}",
    )  # fmt: skip
    async with configs(control_plane, namespace, streaming=False, page_size=500) as mirror:
        await mirror.until(lambda: True)
        rows = {f"{row.key} {row.uid} {row.version}" for row in mirror.cache}
        assert rows == set(shown.splitlines())
        # With the one that every namespace has.
        assert len(rows) == 1501
        assert mirror.lists == ["500"] * 4
        assert mirror.cache.replacements == 1


# Finding back


async def test_after_a_restart_of_the_server_everything_is_found_again(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    await client.create(CONFIG_MAPS, config("kept"), namespace=namespace)
    await client.create(CONFIG_MAPS, config("lost"), namespace=namespace)
    async with configs(control_plane, namespace) as mirror:
        await mirror.until(lambda: f"{namespace}/lost" in mirror.keys)
        held = mirror.cache.get(f"{namespace}/kept")
        await control_plane.restart()
        await client.delete(CONFIG_MAPS, "lost", namespace=namespace)
        await client.create(CONFIG_MAPS, config("new"), namespace=namespace)
        await mirror.until(
            lambda: {f"{namespace}/new", f"{namespace}/lost"} & mirror.keys == {f"{namespace}/new"}
        )
        # What had not changed is not even another object.
        assert mirror.cache.get(f"{namespace}/kept") is held
        # A server that has just started knows nothing of what was before: 410.
        assert mirror.cache.replacements == 2
        assert mirror.reflector.rewinds == 0


async def test_a_server_that_falls_silent_is_left_and_found_again(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    async with configs(control_plane, namespace, idle=1.0) as mirror:
        await mirror.until(lambda: True)
        await client.create(CONFIG_MAPS, config("before"), namespace=namespace)
        await mirror.until(lambda: f"{namespace}/before" in mirror.keys)
        control_plane.pause()
        try:
            await mirror.recorder.next_request()
        finally:
            control_plane.resume()
        # It was asked where it stands, and then for what is new.
        assert mirror.lists[:1] == ["1"]
        await client.create(CONFIG_MAPS, config("after"), namespace=namespace)
        await mirror.until(lambda: f"{namespace}/after" in mirror.keys)
        assert mirror.reflector.pictures == 1


async def test_a_version_from_the_future_is_not_waited_for(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    # So it is for those who saw more than the backup from which an API was restored.
    await client.create(CONFIG_MAPS, config("a"), namespace=namespace)
    mirror = Mirror(control_plane, CONFIG_MAPS, CONFIGS, namespace=namespace, idle=1.0)
    mirror.cache.heard(0.0, "9" * 15)
    mirror.reflector.state = watch.Watching("9" * 15)
    async with mirror.running():
        await mirror.until(lambda: f"{namespace}/a" in mirror.keys)
        assert mirror.reflector.rewinds == 1
        assert mirror.lists == ["1"]


# What a tenant can do


@asynccontextmanager
async def bottomless(client: KubeClient) -> AsyncIterator[None]:
    """While this lasts, there is a kind of object that may hold anything."""
    names = {"plural": BOTTOMLESS.plural, "kind": BOTTOMLESS.kind}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    spec = {"scope": "Namespaced", "group": BOTTOMLESS.group, "names": names, "versions": versions}
    await client.create(DEFINITIONS, {"metadata": {"name": BOTTOMLESS.label}, "spec": spec})
    try:
        yield
    finally:
        await client.delete(DEFINITIONS, BOTTOMLESS.label)


async def create_bottomless(client: KubeClient, namespace: str, name: str, depth: int) -> None:
    body = {
        "apiVersion": BOTTOMLESS.api_version,
        "kind": BOTTOMLESS.kind,
        "metadata": {"name": name},
        "depth": msgspec.Raw(b"[" * depth + b"]" * depth),
    }
    async with asyncio.timeout(20.0):
        while True:
            try:
                await client.create(BOTTOMLESS, body, namespace=namespace)
            except NotFound:
                # The definition is not served yet.
                await asyncio.sleep(0.1)
            else:
                return


async def test_an_object_that_nests_without_end_hides_no_other(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    expected = {f"{namespace}/{name}" for name in ("a", "deep", "z")}
    async with bottomless(client):
        for name, depth in (("a", 1), ("deep", 5000), ("z", 1)):
            await create_bottomless(client, namespace, name, depth)
        how = {"namespace": namespace}
        streamed = Mirror(control_plane, BOTTOMLESS, CONFIGS, **how)
        paged = Mirror(control_plane, BOTTOMLESS, CONFIGS, **how, streaming=False)
        async with streamed.running(), paged.running():
            await streamed.until(lambda: streamed.keys == expected)
            await paged.until(lambda: paged.keys == expected)
            assert not streamed.cache.quarantine
            assert not paged.cache.quarantine
