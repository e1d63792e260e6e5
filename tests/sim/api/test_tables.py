"""Tables: what ``kubectl get`` shows, and that it is what it shows of a real cluster."""

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from backstay.sim.api import jsonpath
from backstay.sim.api.columns import human
from backstay.sim.api.pod_columns import pod_cells
from backstay.sim.clock import LoopClock
from tests.support.both_apis import JSON, MERGE, TABLE, BothApis, Embedded, Json
from tests.support.definitions import DEFINITIONS, FOOS, definition, foo
from tests.support.virtual import virtual_time

MAPS = "/api/v1/namespaces/default/configmaps"
BARE = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
BARE_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


# Words


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-3, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (185, "3m5s"),
        (600, "10m"), (10799, "179m"), (10800, "3h"), (11000, "3h3m"), (28800, "8h"),
        (172799, "47h"), (172800, "2d"), (180000, "2d2h"), (691200, "8d"), (63072000, "2y"),
        (63158400, "2y1d"), (252288000, "8y"), (315360000, "10y"),
    ],
)  # fmt: skip
def test_a_duration_is_told_in_few_figures(seconds: int, shown: str) -> None:
    assert human(seconds) == shown


CONDITIONS = [{"type": "Ready", "status": "True"}, {"type": "Ready", "status": "False"}]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        (".a.none", []),
        (".list[0].name", ["x"]),
        (".list[-1].name", ["y"]),
        (".list[*].name", ["x", "y"]),
        ('.list[?(@.name=="y")].v', [2]),
        (".list[?(@.v!=2)].name", ["x"]),
        (".labels.a\\.b/c", ["dotted"]),
        (".labels['a.b/c']", ["dotted"]),
        (".", []),
    ],
)
def test_a_path_finds_what_it_leads_to(path: str, found: list[Any]) -> None:
    listed = [{"name": "x", "v": 1}, {"name": "y", "v": 2}]
    obj = {"a": {"b": 1}, "list": listed, "labels": {"a.b/c": "dotted"}}
    if path == ".":
        with pytest.raises(jsonpath.PathError):
            jsonpath.find(path, obj)
    else:
        assert jsonpath.find(path, obj) == found


def container(name: str = "c", **status: Any) -> Json:
    return {"name": name, "ready": False, "restartCount": 0, **status}


def ended(code: int, **more: Any) -> Json:
    return {"terminated": {"exitCode": code, **more}}


RUNNING: Json = {"running": {}}


@pytest.mark.parametrize(
    ("status", "cells"),
    [
        ({"phase": "Pending"}, ("0/2", "Pending", "0")),
        ({"phase": "Failed", "reason": "Evicted"}, ("0/2", "Evicted", "0")),
        ({"conditions": [{"type": "PodScheduled", "status": "False",
                          "reason": "SchedulingGated"}]}, ("0/2", "SchedulingGated", "0")),
        ({"phase": "Running", "containerStatuses": [container(ready=True, state=RUNNING)]},
         ("1/2", "Running", "0")),
        ({"phase": "Running", "containerStatuses": [
            container(state={"waiting": {"reason": "CrashLoopBackOff"}}, restartCount=4,
                      lastState=ended(1, finishedAt="2030-01-01T00:00:00Z"))]},
         ("0/2", "CrashLoopBackOff", "4 (then ago)")),
        ({"phase": "Running", "containerStatuses": [container(state=ended(0, reason="Completed")),
                                                    container(ready=True, state=RUNNING)]},
         ("1/2", "NotReady", "0")),
        ({"phase": "Running", "conditions": CONDITIONS[:1], "containerStatuses": [
            container(state=ended(0, reason="Completed")), container(ready=True, state=RUNNING)]},
         ("1/2", "Running", "0")),
        ({"phase": "Failed", "containerStatuses": [container(state=ended(137, signal=9))]},
         ("0/2", "Signal:9", "0")),
        ({"phase": "Failed", "containerStatuses": [container(state=ended(3))]},
         ("0/2", "ExitCode:3", "0")),
        ({"phase": "Pending", "initContainerStatuses": [
            container("side", started=True, ready=True, state=RUNNING), container("init")]},
         ("1/2", "Init:1/2", "0")),
        ({"phase": "Pending", "initContainerStatuses": [
            container("side", started=True, state=RUNNING), container("init", state=ended(2))]},
         ("0/2", "Init:ExitCode:2", "0")),
        ({"phase": "Pending", "initContainerStatuses": [
            container("side", state={"waiting": {"reason": "ImagePullBackOff"}})]},
         ("0/2", "Init:ImagePullBackOff", "0")),
    ],
)  # fmt: skip
def test_a_pod_tells_the_most_telling_thing(status: Json, cells: tuple[str, str, str]) -> None:
    inits = [{"name": "side", "restartPolicy": "Always"}, {"name": "init"}]
    pod = {"spec": {"containers": [{"name": "c"}], "initContainers": inits}, "status": status}
    assert pod_cells(pod, lambda stamp: "then") == cells


def test_a_pod_that_goes_says_so_unless_it_is_over() -> None:
    def status_of(**status: Any) -> str:
        going = {"deletionTimestamp": "2030-01-01T00:00:00Z"}
        return pod_cells({"metadata": going, "status": status}, lambda stamp: "")[1]

    assert status_of(phase="Running") == "Terminating"
    assert status_of(phase="Failed") == "Failed"
    assert status_of(phase="Running", reason="NodeLost") == "Unknown"


# Tables


@virtual_time
async def test_a_row_has_cells_and_what_was_asked_for_beside_them() -> None:
    api = Embedded(wall=LoopClock())
    await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
    await api.call("POST", MAPS, {"metadata": {"name": "m"}, "data": {"a": "1", "b": "2"}})
    await asyncio.sleep(300)
    table = (await api.call("GET", MAPS, accept=TABLE)).body
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    (row,) = table["rows"]
    assert row["cells"] == ["m", 2, "5m"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    whole = (await api.call("GET", f"{MAPS}/m?includeObject=Object", accept=TABLE)).body
    assert whole["rows"][0]["object"]["data"] == {"a": "1", "b": "2"}
    none = (await api.call("GET", f"{MAPS}?includeObject=None", accept=TABLE)).body
    assert none["rows"][0]["object"] is None


async def test_a_watch_names_its_columns_once(api: Embedded) -> None:
    for name in "ab":
        await api.call("POST", MAPS, {"metadata": {"name": name}})
    lines = await api.watch(f"{MAPS}?watch=1&includeObject=None", accept=TABLE)
    events = [msgspec.json.decode(line) for line in (await anext(lines)).splitlines()]
    await lines.aclose()
    assert [event["type"] for event in events] == ["ADDED", "ADDED"]
    assert [event["object"]["columnDefinitions"] is None for event in events] == [False, True]
    assert [event["object"]["rows"][0]["cells"][0] for event in events] == ["a", "b"]


async def test_a_closed_table_watch_follows_nothing_any_more(api: Embedded) -> None:
    await api.call("POST", MAPS, {"metadata": {"name": "a"}})
    lines = await api.watch(f"{MAPS}?watch=1", accept=TABLE)
    await anext(lines)
    await lines.aclose()
    assert not api.server.store._followers["configmaps"]


async def test_metadata_alone_can_be_had(api: Embedded) -> None:
    await api.call("POST", MAPS, {"metadata": {"name": "a"}, "data": {"x": "y"}})
    bare = (await api.call("GET", f"{MAPS}/a", accept=BARE)).body
    assert set(bare) == {"kind", "apiVersion", "metadata"}
    listed = (await api.call("GET", MAPS, accept=BARE_LIST)).body
    assert [item["kind"] for item in listed["items"]] == ["PartialObjectMetadata"]


async def test_a_custom_resource_has_the_columns_that_its_definition_names(api: Embedded) -> None:
    columns = [
        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
        {"name": "Ready", "type": "string", "priority": 1,
         "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Fine", "type": "boolean", "jsonPath": ".spec.fine"},
    ]  # fmt: skip
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    made = definition(schema=free, version={"additionalPrinterColumns": columns})
    await api.call("POST", DEFINITIONS, made)
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    await api.call("POST", FOOS, foo(spec={"replicas": 3, "fine": "no"}, status=status))
    table = (await api.call("GET", FOOS, accept=TABLE)).body
    assert [(c["name"], c["priority"]) for c in table["columnDefinitions"]] == [
        ("Name", 0), ("Replicas", 0), ("Ready", 1), ("Since", 0), ("Fine", 0),
    ]  # fmt: skip
    assert table["rows"][0]["cells"] == ["f", 3, "True", "0s", None]


@pytest.mark.parametrize("accept", ["application/json;as=Foo;v=v1;g=meta.k8s.io", "text/html"])
async def test_a_view_that_does_not_exist_is_refused(api: Embedded, accept: str) -> None:
    assert (await api.call("GET", MAPS, accept=accept)).status == 406


async def test_a_client_gets_the_first_view_that_there_is(api: Embedded) -> None:
    accept = f"application/json;as=Foo;v=v1;g=meta.k8s.io,{JSON}"
    assert (await api.call("GET", MAPS, accept=accept)).body["kind"] == "ConfigMapList"


# Beside a real server


def template(**spec: Any) -> Json:
    containers = [{"name": "c", "image": "i:1"}, {"name": "d", "image": "j"}]
    labels = {"app": "web", "z": "q"}
    return {"metadata": {"labels": labels}, "spec": {"containers": containers, **spec}}


def objects(namespace: str) -> Iterator[tuple[str, Json]]:
    """Where to create what; nothing that a controller would touch before it is looked at."""
    selector = {"matchLabels": {"app": "web"}}
    picky = {**selector, "matchExpressions": [
        {"key": "z", "operator": "In", "values": ["q", "p"]}, {"key": "app", "operator": "Exists"},
    ]}  # fmt: skip

    def inside(group: str, plural: str, **obj: Any) -> tuple[str, Json]:
        root = f"/apis/{group}" if group else "/api/v1"
        return f"{root}/namespaces/{namespace}/{plural}", {"metadata": {"name": "x"}, **obj}

    def outside(group: str, plural: str, **obj: Any) -> tuple[str, Json]:
        root = f"/apis/{group}" if group else "/api/v1"
        return f"{root}/{plural}", {"metadata": {"name": namespace}, **obj}

    tolerations = [{"operator": "Exists"}]
    containers = [{"name": "c", "image": "i"}]
    pod = {"schedulerName": "none", "tolerations": tolerations, "containers": containers}
    yield inside("", "pods", spec=pod)
    ready = {"conditions": [{"type": "Ready", "status": "True"}],
             "addresses": [{"type": "InternalIP", "address": "1.2.3.4"}]}  # fmt: skip
    yield outside("", "nodes", spec={"unschedulable": True}, status=ready)
    apps = "apps/v1"
    still = {"replicas": 0, "template": template()}
    yield inside(apps, "deployments", spec={**still, "paused": True, "selector": selector})
    yield inside(apps, "statefulsets", spec={**still, "serviceName": "s", "selector": selector})
    yield inside(apps, "replicasets", spec={**still, "selector": picky})
    nowhere = template(nodeSelector={"no": "where"})
    yield inside(apps, "daemonsets", spec={"selector": selector, "template": nowhere})
    yield inside("", "configmaps", data={"a": "b"}, binaryData={"c": "aGk="})
    yield inside("", "secrets", stringData={"a": "b"})
    about = {"namespace": namespace, "kind": "Pod", "name": "p", "fieldPath": "x"}
    yield inside("", "events", involvedObject=about, reason="r", message=" m\n", type="Normal",
                 source={"component": "c", "host": "h"}, firstTimestamp="2020-01-01T00:00:00Z",
                 lastTimestamp="2020-01-02T00:00:00Z", count=5)  # fmt: skip
    yield inside("coordination.k8s.io/v1", "leases", spec={"holderIdentity": "h"})
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "s", "volumeName": "none",
             "resources": {"requests": {"storage": "1Gi"}}}  # fmt: skip
    yield inside("", "persistentvolumeclaims", spec=claim)
    storage = "storage.k8s.io/v1"
    yield outside(storage, "storageclasses", provisioner="p", reclaimPolicy="Retain",
                  allowVolumeExpansion=True)  # fmt: skip
    source = {"persistentVolumeName": "pv"}
    yield outside(storage, "volumeattachments",
                  spec={"attacher": "a", "nodeName": "n", "source": source})  # fmt: skip
    yield outside(storage, "csinodes", spec={"drivers": [{"name": "d", "nodeID": "n"}]})
    budget = {"minAvailable": "50%", "selector": {"matchLabels": {"no": "body"}}}
    yield inside("policy/v1", "poddisruptionbudgets", spec=budget)
    yield inside("discovery.k8s.io/v1", "endpointslices", addressType="IPv4",
                 ports=[{"name": "a", "port": 80}, {"name": "b"}],
                 endpoints=[{"addresses": [f"1.1.1.{n}"]} for n in range(1, 6)])  # fmt: skip
    yield outside("scheduling.k8s.io/v1", "priorityclasses", value=5)
    yield inside("networking.k8s.io/v1", "networkpolicies", spec={"podSelector": {}})
    rbac = "rbac.authorization.k8s.io/v1"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    account = {"kind": "ServiceAccount", "name": "s", "namespace": "n"}
    yield inside(rbac, "rolebindings", roleRef=role, subjects=[account])
    yield inside(rbac, "roles", rules=[])
    yield inside("", "serviceaccounts")
    yield outside("", "namespaces", metadata={"name": f"{namespace}-t"})
    yield (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        definition(f"{namespace}.example.com"),
    )


@pytest.mark.real
async def test_tables_are_as_on_a_real_server(both: BothApis) -> None:
    paths = []
    for path, obj in objects(both.namespace):
        replies = [await api.call("POST", path, obj) for api in (both.real, both.embedded)]
        assert [reply.status for reply in replies] == [201, 201], (path, replies)
        paths.append(f"{path}/{obj['metadata']['name']}")
    for path in paths:
        await both.same_table(path)
    await both.same("GET", f"{paths[0]}?includeObject=Foo", accept=TABLE)
    await both.same("GET", f"{paths[0]}-none", accept=TABLE)
    secret = next(path for path in paths if "/secrets/" in path)
    await both.same("GET", secret, accept=BARE)
    await both.same("GET", secret.rpartition("/")[0], accept=BARE_LIST)
    await both.same("GET", secret, accept="application/json;as=Foo;v=v1;g=meta.k8s.io")
    running = {"status": {"phase": "Succeeded"}}
    await both.same("PATCH", f"{paths[0]}/status", running, content=MERGE)
    await both.same_table(paths[0])
    for path in paths:
        if f"/namespaces/{both.namespace}/" not in path:
            await both.real.call("DELETE", path)
