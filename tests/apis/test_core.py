"""Pods and nodes as rows: every field from where a real server puts it, and every null it sends."""

import gc
from typing import Any

import msgspec
import pytest

from backstay.apis.core import (
    NODE_PROJECTION,
    POD_PROJECTION,
    Node,
    NodeRow,
    PodRow,
    node_row,
)

Json = dict[str, Any]


def pod(**changes: Any) -> Json:
    body: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "db-0",
            "namespace": "shop",
            "uid": "u1",
            "resourceVersion": "17",
            "labels": {"tier": "data", "app": "db"},
            "ownerReferences": [
                {"kind": "Note", "name": "by-the-way", "uid": "o0"},
                {"kind": "StatefulSet", "name": "db", "uid": "o1", "controller": True},
            ],
        },
        "spec": {
            "nodeName": "n1",
            "priority": 100,
            "containers": [{"name": "main", "image": "db"}],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
                {"name": "host", "hostPath": {"path": "/var"}},
            ],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "True", "lastTransitionTime": None},
            ],
        },
    }
    return merged(body, changes)


def node(**changes: Any) -> Json:
    body: Json = {
        "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "17", "labels": {"a": "b"}},
        "spec": {
            "unschedulable": True,
            "taints": [
                {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "x"},
                {"key": "gpu", "value": "a100", "effect": "NoSchedule"},
            ],
        },
        "status": {
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "Unknown"},
            ],
            "nodeInfo": {
                "bootID": "b1",
                "kubeletVersion": "v1.36.3",
                "machineID": "m1",
                "containerRuntimeVersion": "containerd://2.1.4",
            },
        },
    }
    return merged(body, changes)


def merged(body: Json, changes: Json) -> Json:
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(body.get(key), dict)
        body[key] = merged(body[key], value) if nested else value
    return body


def rows_of_pods(*pods: Json) -> list[PodRow]:
    body = {"metadata": {"resourceVersion": "20"}, "items": pods}
    page = POD_PROJECTION.page(msgspec.json.encode(body), call="GET /pods")
    assert page.unreadable == []
    return page.rows


def row_of_node(body: Json) -> NodeRow:
    line = msgspec.json.encode({"type": "ADDED", "object": body})
    change = NODE_PROJECTION.change(line, call="GET /nodes")
    row = change.row
    assert row is not None
    return row


def test_a_pod_has_every_field_in_its_place() -> None:
    assert rows_of_pods(pod()) == [
        PodRow(
            key="shop/db-0",
            uid="u1",
            version="17",
            namespace="shop",
            node="n1",
            phase="Running",
            ready=True,
            deleting=False,
            priority=100,
            owner_kind="StatefulSet",
            owner_name="db",
            owner_uid="o1",
            claims=("data-db-0", "db-0-scratch"),
            labels=("app", "db", "tier", "data"),
        )
    ]
    assert rows_of_pods(pod())[0].name == "db-0"


BARE_POD = PodRow(
    key="shop/db-0",
    uid="u1",
    version="17",
    namespace="shop",
    node="",
    phase="",
    ready=False,
    deleting=False,
    priority=0,
    owner_kind="",
    owner_name="",
    owner_uid="",
    claims=(),
    labels=(),
)


def test_a_pod_may_have_nulls_wherever_it_has_nothing_to_say() -> None:
    silent = pod(
        metadata={"labels": None, "ownerReferences": None, "deletionTimestamp": None},
        spec={"nodeName": None, "volumes": None, "priority": None},
        status={"phase": None, "conditions": None},
    )
    assert rows_of_pods(silent) == [BARE_POD]


def test_a_pod_may_leave_out_what_it_has_nothing_to_say_about() -> None:
    identity = {key: pod()["metadata"][key] for key in ("name", "namespace", "uid")}
    assert rows_of_pods({"metadata": {**identity, "resourceVersion": "17"}}) == [BARE_POD]


def test_a_volume_may_have_nulls_for_what_it_is_not() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": None, "ephemeral": None, "emptyDir": {}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "c"}, "ephemeral": None},
    ]
    assert rows_of_pods(pod(spec={"volumes": volumes}))[0].claims == ("c",)


@pytest.mark.parametrize("controller", [None, False])
def test_an_owner_that_does_not_control_does_not_count(controller: bool | None) -> None:
    owner = {"kind": "Note", "name": "x", "uid": "o", "controller": controller}
    row = rows_of_pods(pod(metadata={"ownerReferences": [owner]}))[0]
    assert (row.owner_kind, row.owner_name, row.owner_uid) == ("", "", "")


@pytest.mark.parametrize("status", ["False", "Unknown", ""])
def test_a_pod_is_ready_only_when_it_says_so(status: str) -> None:
    conditions = [
        {"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": status},
    ]  # fmt: skip
    assert not rows_of_pods(pod(status={"conditions": conditions}))[0].ready


def test_a_pod_with_a_deletion_timestamp_is_being_deleted() -> None:
    doomed = pod(metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"})
    assert rows_of_pods(doomed)[0].deleting


def test_a_node_has_every_field_in_its_place() -> None:
    assert row_of_node(node()) == NodeRow(
        key="n1",
        uid="u1",
        version="17",
        boot_id="b1",
        ready="Unknown",
        unschedulable=True,
        taints=("node.kubernetes.io/unreachable:NoExecute", "gpu:NoSchedule"),
        kubelet_version="v1.36.3",
        heartbeat="",
        exempt=False,
        runtime="containerd://2.1.4",
    )


BARE_NODE = NodeRow(
    key="n1",
    uid="u1",
    version="17",
    boot_id="",
    ready="Unknown",
    unschedulable=False,
    taints=(),
    kubelet_version="",
    heartbeat="",
    exempt=False,
)


@pytest.mark.parametrize("role", ["control-plane", "master"])
def test_a_node_tells_which_machine_it_is_and_whether_it_bears_the_cluster(role: str) -> None:
    told = node(status={"nodeInfo": {"systemUUID": "4C4C4544"}})
    told["metadata"]["labels"] = {f"node-role.kubernetes.io/{role}": ""}
    row = row_of_node(told)
    assert (row.system_uuid, row.control_plane) == ("4C4C4544", True)


def test_a_node_may_have_nulls_or_nothing() -> None:
    silent = node(
        spec={"unschedulable": None, "taints": None}, status={"conditions": None, "nodeInfo": None}
    )
    assert row_of_node(silent) == BARE_NODE
    assert row_of_node({"metadata": node()["metadata"]}) == BARE_NODE


@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
def test_a_node_is_as_ready_as_its_condition_says(status: str) -> None:
    conditions = [{"type": "Ready", "status": status}]
    assert row_of_node(node(status={"conditions": conditions})).ready == status


def test_a_node_is_asked_at_all_of_its_internal_addresses() -> None:
    addresses = [
        {"type": "Hostname", "address": "n1"},
        {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "ExternalIP", "address": "192.0.2.1"},
        {"type": "InternalIP", "address": "fd00::1"},
        {"type": "InternalIP", "address": "n1.example"},
    ]
    endpoints = {"kubeletEndpoint": {"Port": 10250}}
    row = row_of_node(node(status={"addresses": addresses, "daemonEndpoints": endpoints}))
    assert row.ports == ("10.0.0.1:10250", "[fd00::1]:10250")


@pytest.mark.parametrize("endpoints", [None, {}, {"kubeletEndpoint": {"Port": 70000}}])
def test_a_node_without_a_port_of_its_kubelet_is_asked_nowhere(endpoints: object) -> None:
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
    row = row_of_node(node(status={"addresses": addresses, "daemonEndpoints": endpoints}))
    assert row.ports == ()


def test_pods_share_what_they_repeat() -> None:
    one, other = rows_of_pods(pod(), pod(metadata={"name": "db-1"}))
    assert one.namespace is other.namespace
    assert one.node is other.node
    assert one.phase is other.phase
    assert one.owner_uid is other.owner_uid
    assert one.labels is other.labels


def test_nodes_share_what_they_repeat() -> None:
    one, other = row_of_node(node()), row_of_node(node(metadata={"name": "n2"}))
    assert one.ready is other.ready
    assert one.kubelet_version is other.kubelet_version
    assert all(a is b for a, b in zip(one.taints, other.taints, strict=True))


def test_the_garbage_collector_tracks_neither() -> None:
    assert not gc.is_tracked(rows_of_pods(pod())[0])
    assert not gc.is_tracked(row_of_node(node()))


def test_what_the_kubelet_posted_last_is_that_of_its_ready_condition() -> None:
    conditions = [
        {"type": "DiskPressure", "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:09Z"},
        {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": "2026-01-01T00:00:01Z"},
    ]
    meta = {"name": "n1", "uid": "u", "resourceVersion": "1"}
    node = {"metadata": meta, "status": {"conditions": conditions}}
    row = node_row(msgspec.convert(node, Node))
    assert (row.ready, row.posted) == ("Unknown", "2026-01-01T00:00:01Z")
