"""The real kubectl, against the embedded API over HTTPS and a real server (pytest.mark.real)."""

import asyncio

import pytest

from tests.conformance.objects import config, named, pod
from tests.conformance.targets import STRATEGIC, TIMEOUT, Api, Json

pytestmark = pytest.mark.kubectl

MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: a
data:
  x: "{x}"
"""


async def a_node(api: Api) -> str:
    """A node that is ready, in nobody's way."""
    name = f"node-{api.namespace}"
    await api.make("/api/v1/nodes", named(name))
    return name


async def words(api: Api, *arguments: str) -> list[list[str]]:
    """The cells of the lines that kubectl prints."""
    return [line.split() for line in (await api.kubectl(*arguments)).splitlines()]


async def test_kubectl_get_shows_a_table(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    head, row = await words(api, "get", "pods")
    assert head == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row[:4] == ["a", "0/1", "Pending", "0"]


async def test_kubectl_get_finds_short_names_and_selects(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    await api.make(api.at("pods"), pod("b", labels={"app": "db"}))
    found = await api.kubectl("get", "po", "-l", "app=db", "-o", "name")
    assert found == "pod/b\n"


async def test_kubectl_get_says_what_is_not_there(api: Api) -> None:
    said = await api.kubectl("get", "pod", "nope", fails=True)
    assert said == 'Error from server (NotFound): pods "nope" not found\n'


async def test_kubectl_get_says_what_kind_it_does_not_know(api: Api) -> None:
    said = await api.kubectl("get", "nopes", fails=True)
    assert said == 'error: the server doesn\'t have a resource type "nopes"\n'


async def test_kubectl_describe_tells_about_a_pod(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    described = await api.kubectl("describe", "pod", "a")
    lines = {
        line.partition(":")[0].strip(): line.partition(":")[2] for line in described.splitlines()
    }
    assert lines["Name"].strip() == "a"
    assert lines["Status"].strip() == "Pending"
    assert lines["QoS Class"].strip() == "BestEffort"


async def test_kubectl_create_creates(api: Api) -> None:
    said = await api.kubectl("create", "-f", "-", stdin=MANIFEST.format(x="1"))
    assert said == "configmap/a created\n"
    assert (await api.read(api.at("configmaps", "a")))["data"] == {"x": "1"}


@pytest.mark.differs("no-protobuf")
async def test_kubectl_create_can_make_up_an_object(api: Api) -> None:
    said = await api.kubectl("create", "configmap", "a", "--from-literal=x=1")
    assert said == "configmap/a created\n"


async def test_kubectl_create_is_told_of_unknown_fields(api: Api) -> None:
    text = MANIFEST.format(x="1") + "bogus: 1\n"
    said = await api.kubectl("create", "-f", "-", stdin=text, fails=True)
    assert 'strict decoding error: unknown field "bogus"' in said


async def test_kubectl_apply_creates_configures_and_leaves_alone(api: Api) -> None:
    said = [
        await api.kubectl("apply", "-f", "-", stdin=MANIFEST.format(x=x)) for x in ("1", "2", "2")
    ]
    assert said == [
        "configmap/a created\n",
        "configmap/a configured\n",
        "configmap/a unchanged\n",
    ]
    assert (await api.read(api.at("configmaps", "a")))["data"] == {"x": "2"}


async def test_kubectl_apply_on_the_server_tells_of_conflicts(api: Api) -> None:
    await api.make(api.at("configmaps") + "?fieldManager=ann", config("a", x="0"))
    arguments = ("apply", "--server-side", "-f", "-")
    said = await api.kubectl(*arguments, stdin=MANIFEST.format(x="1"), fails=True)
    assert 'Apply failed with 1 conflict: conflict with "ann" using v1: .data.x' in said
    await api.kubectl(*arguments, "--force-conflicts", stdin=MANIFEST.format(x="1"))
    assert (await api.read(api.at("configmaps", "a")))["data"] == {"x": "1"}


async def test_kubectl_patch_patches(api: Api) -> None:
    await api.make(api.at("configmaps"), config("a", x="0"))
    patch = '{"data":{"x":"1"}}'
    assert await api.kubectl("patch", "cm", "a", "-p", patch) == "configmap/a patched\n"
    said = await api.kubectl("patch", "cm", "a", "-p", patch)
    assert said == "configmap/a patched (no change)\n"


async def test_kubectl_label_and_annotate(api: Api) -> None:
    await api.make(api.at("configmaps"), config("a"))
    assert await api.kubectl("label", "cm", "a", "app=web") == "configmap/a labeled\n"
    assert await api.kubectl("annotate", "cm", "a", "why=so") == "configmap/a annotated\n"
    await api.kubectl("label", "cm", "a", "app-")
    meta = (await api.read(api.at("configmaps", "a")))["metadata"]
    assert "labels" not in meta
    assert meta["annotations"] == {"why": "so"}


async def test_kubectl_taint_and_cordon(api: Api) -> None:
    name = await a_node(api)
    await api.kubectl("taint", "node", name, "test.io/a=b:NoSchedule")
    assert await api.kubectl("cordon", name) == f"node/{name} cordoned\n"
    spec = (await api.read(f"/api/v1/nodes/{name}"))["spec"]
    assert spec["unschedulable"] is True
    assert "test.io/a" in {taint["key"] for taint in spec["taints"]}
    assert await api.kubectl("uncordon", name) == f"node/{name} uncordoned\n"
    await api.kubectl("taint", "node", name, "test.io/a-")
    spec = (await api.read(f"/api/v1/nodes/{name}"))["spec"]
    assert "test.io/a" not in {taint["key"] for taint in spec.get("taints", ())}
    await api.delete(f"/api/v1/nodes/{name}")


async def a_kubelet(api: Api, name: str) -> None:
    """Ends the pod as soon as it is told to."""
    version = (await api.read(api.at("pods")))["metadata"]["resourceVersion"]
    async with api.watch(f"{api.at('pods')}?watch=1&resourceVersion={version}") as events:
        while "deletionTimestamp" not in (await events.next_change())[1]["metadata"]:
            pass
    await api.delete(api.at("pods", name) + "?gracePeriodSeconds=0")


async def test_kubectl_drain_evicts(api: Api) -> None:
    name = await a_node(api)
    await api.make(api.at("pods"), pod("a", nodeName=name))
    async with asyncio.TaskGroup() as group:
        group.create_task(a_kubelet(api, "a"))
        said = await api.kubectl("drain", name, "--force", "--timeout=20s")
    assert f"node/{name} cordoned" in said
    assert "pod/a evicted" in said
    assert f"node/{name} drained" in said
    await api.delete(f"/api/v1/nodes/{name}")


async def test_kubectl_delete_waits_until_it_is_gone(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    async with asyncio.TaskGroup() as group:
        group.create_task(a_kubelet(api, "a"))
        said = await api.kubectl("delete", "pod", "a")
    assert said.startswith('pod "a" deleted')
    assert (await api.get(api.at("pods", "a"))).status == 404


async def test_kubectl_wait_waits_for_a_condition(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    ready: Json = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}

    async def becomes_ready() -> None:
        await asyncio.sleep(0.3)
        await api.change(api.at("pods", "a", "status"), ready, STRATEGIC)

    async with asyncio.TaskGroup() as group:
        group.create_task(becomes_ready())
        said = await api.kubectl("wait", "--for=condition=Ready", "pod/a", "--timeout=20s")
    assert said == "pod/a condition met\n"


async def test_kubectl_watches(api: Api) -> None:
    await api.make(api.at("configmaps"), config("a", x="1"))
    what = ("-o", "jsonpath={.data.x}{'\\n'}", "--field-selector=metadata.name=a")
    process = await api.start_kubectl("get", "cm", *what, "--watch")
    assert process.stdout is not None
    try:
        async with asyncio.timeout(TIMEOUT):
            assert await process.stdout.readline() == b"1\n"
            await api.change(api.at("configmaps", "a"), {"data": {"x": "2"}})
            assert await process.stdout.readline() == b"2\n"
    finally:
        process.kill()
        await process.communicate()
