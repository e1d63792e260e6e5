"""Events on a real API server: it accepts what we send, and people see it once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from backstay.kube.client import KubeClient
from backstay.kube.errors import Json
from backstay.kube.events import EventRecorder, ObjectRef
from backstay.kube.resource import EVENTS, NODES, Resource
from backstay.seam.system import SystemClock, SystemRng
from backstay.seam.tasks import Tasks
from harness import pki
from harness.cluster import ControlPlane
from harness.connect import connect

pytestmark = pytest.mark.real

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")


@asynccontextmanager
async def recording(client: KubeClient) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(
        client, component="backstay", instance="backstay-0", wall=SystemClock(), rng=SystemRng()
    )
    async with Tasks("events") as tasks:
        tasks.spawn(recorder.run(), name="sender")
        yield recorder


async def config_map(client: KubeClient, namespace: str, *, held: bool = False) -> ObjectRef:
    """Something to talk about; ``held`` by a finalizer, it keeps its namespace from going."""
    metadata: Json = {"name": "settings", "finalizers": ["example.com/held"] if held else []}
    created = (
        await client.create(CONFIG_MAPS, {"metadata": metadata}, namespace=namespace)
    ).json()["metadata"]
    return ObjectRef(
        api_version="v1",
        kind="ConfigMap",
        namespace=namespace,
        name=created["name"],
        uid=created["uid"],
    )


def say(
    recorder: EventRecorder, about: ObjectRef, message: str = "it broke", *, times: int = 1
) -> None:
    for _ in range(times):
        recorder.record(
            about=about, type="Warning", reason="Broken", message=message, action="Repair"
        )


async def events_about(client: KubeClient, about: ObjectRef) -> list[Json]:
    reply = await client.list(
        EVENTS,
        namespace=about.namespace or "default",
        fields=f"involvedObject.kind={about.kind},involvedObject.name={about.name}",
    )
    items: list[Json] = reply.json()["items"]
    return items


async def test_kubectl_describe_shows_a_repeated_event_once_with_its_count(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    about = await config_map(client, namespace)
    async with recording(client) as recorder:
        say(recorder, about, times=3)
        assert await recorder.flush(10)
        say(recorder, about, times=4)
        assert await recorder.flush(10)
    shown = await control_plane.kubectl("describe", "configmap", about.name, "-n", namespace)
    lines = [line.split() for line in shown.splitlines() if "it broke" in line]
    assert len(lines) == 1
    assert lines[0][:2] == ["Warning", "Broken"]
    assert "(x7" in lines[0]
    assert lines[0][-3:] == ["backstay", "it", "broke"]


async def test_an_event_that_is_gone_is_created_anew(client: KubeClient, namespace: str) -> None:
    about = await config_map(client, namespace)
    async with recording(client) as recorder:
        say(recorder, about)
        assert await recorder.flush(10)
        (event,) = await events_about(client, about)
        await client.delete(EVENTS, event["metadata"]["name"], namespace=namespace)
        say(recorder, about)
        assert await recorder.flush(10)
    (event,) = await events_about(client, about)
    assert event["count"] == 2


async def test_an_event_about_a_node_is_accepted_in_default(client: KubeClient) -> None:
    reply = await client.create(NODES, {"metadata": {"generateName": "talked-about-"}})
    node = reply.json()["metadata"]
    about = ObjectRef(api_version="v1", kind="Node", name=node["name"], uid=node["uid"])
    async with recording(client) as recorder:
        say(recorder, about, "the node is lost")
        assert await recorder.flush(10)
    (event,) = [e for e in await events_about(client, about) if e["reason"] == "Broken"]
    assert event["metadata"]["namespace"] == "default"
    assert event["message"] == "the node is lost"
    await client.delete(NODES, node["name"])


async def test_the_longest_texts_and_the_oddest_name_are_accepted(
    client: KubeClient, namespace: str
) -> None:
    about = ObjectRef(
        api_version="rbac.authorization.k8s.io/v1",
        kind="Role",
        namespace=namespace,
        name="system:Röle:" + "x" * 300,
    )
    async with recording(client) as recorder:
        recorder.record(
            about=about, type="Normal", reason="R" * 200, message="é" * 2000, action="A" * 200
        )
        assert await recorder.flush(10)
        assert (recorder.sent, recorder.refused) == (1, 0)
    (event,) = (await client.list(EVENTS, namespace=namespace)).json()["items"]
    assert event["message"] == "é" * 512


async def test_without_permission_events_are_dropped_and_said_once(
    control_plane: ControlPlane,
    client: KubeClient,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    about = await config_map(client, namespace)
    async with (
        connect(control_plane, pki.ORDINARY) as powerless,
        recording(powerless) as recorder,
    ):
        say(recorder, about, "one")
        say(recorder, about, "two")
        assert await recorder.flush(10)
        assert recorder.refused == 2
    (said,) = [record for record in caplog.records if record.name == "backstay.events"]
    assert "forbidden" in said.getMessage()


async def test_an_event_in_a_namespace_that_does_not_exist_is_dropped(client: KubeClient) -> None:
    about = ObjectRef(api_version="v1", kind="Pod", namespace="no-such-namespace", name="web")
    async with recording(client) as recorder:
        say(recorder, about)
        assert await recorder.flush(10)
        assert (recorder.sent, recorder.refused) == (0, 1)


async def test_an_event_in_a_namespace_that_is_going_away_is_dropped(
    control_plane: ControlPlane, client: KubeClient
) -> None:
    created = await control_plane.call(
        "POST", "/api/v1/namespaces", {"metadata": {"generateName": "going-"}}
    )
    namespace = created["metadata"]["name"]
    about = await config_map(client, namespace, held=True)
    await control_plane.call("DELETE", f"/api/v1/namespaces/{namespace}")
    async with recording(client) as recorder:
        say(recorder, about)
        assert await recorder.flush(10)
        assert (recorder.sent, recorder.refused) == (0, 1)
    await client.merge_patch(
        CONFIG_MAPS, about.name, {"metadata": {"finalizers": None}}, namespace=namespace
    )
