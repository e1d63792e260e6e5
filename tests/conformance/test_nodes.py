"""Nodes, their leases and their taints, on every target (one is pytest.mark.real).

A real cluster has controllers that write to nodes, so what is compared is what they leave alone.
"""

from collections.abc import AsyncIterator

import pytest

from tests.conformance.objects import named
from tests.conformance.targets import STRATEGIC, Api, Json

NODES = "/api/v1/nodes"
LEASES = "coordination.k8s.io/v1"
READY = {"type": "Ready", "status": "True", "reason": "Fine", "message": "all is well"}


@pytest.fixture
async def node(api: Api) -> AsyncIterator[str]:
    """The path of one that is ready."""
    body = {**named(api.namespace), "status": {"conditions": [READY]}}
    async with api.for_a_while(NODES, body) as path:
        yield path


def conditions(node: Json) -> dict[str, Json]:
    return {condition["type"]: condition for condition in node["status"]["conditions"]}


async def test_a_node_registers_with_a_status(api: Api) -> None:
    body = {**named(api.namespace), "status": {"nodeInfo": {"bootID": "b1"}}}
    made = (await api.post(f"{NODES}?dryRun=All", body)).json
    assert made["status"]["nodeInfo"]["bootID"] == "b1"
    assert made["status"]["nodeInfo"]["kubeletVersion"] == ""
    assert made["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}


async def test_a_node_begins_as_not_ready(api: Api) -> None:
    made = (await api.post(f"{NODES}?dryRun=All", named(api.namespace))).json
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    assert made["spec"]["taints"] == [taint]


async def test_a_condition_is_patched_by_its_type(api: Api, node: str) -> None:
    pressure = {"type": "DiskPressure", "status": "False"}
    await api.change(f"{node}/status", {"status": {"conditions": [pressure]}}, STRATEGIC)
    unknown = {"type": "Ready", "status": "Unknown"}
    changed = await api.change(f"{node}/status", {"status": {"conditions": [unknown]}}, STRATEGIC)
    found = conditions(changed)
    assert set(found) == {"Ready", "DiskPressure"}
    assert (found["Ready"]["status"], found["Ready"]["reason"]) == ("Unknown", "Fine")


async def test_a_condition_says_that_its_times_are_unknown(api: Api, node: str) -> None:
    pressure = {"type": "DiskPressure", "status": "False"}
    patch = {"status": {"conditions": [pressure]}}
    changed = await api.change(f"{node}/status", patch, STRATEGIC)
    unknown = {"lastHeartbeatTime": None, "lastTransitionTime": None}
    assert conditions(changed)["DiskPressure"] == {**pressure, **unknown}


async def test_a_merge_patch_replaces_all_conditions(api: Api, node: str) -> None:
    pressure = {"type": "DiskPressure", "status": "False"}
    changed = await api.change(f"{node}/status", {"status": {"conditions": [pressure]}})
    assert set(conditions(changed)) == {"DiskPressure"}


async def test_a_write_to_a_node_does_not_touch_its_status(api: Api, node: str) -> None:
    patch = {"status": {"conditions": []}, "spec": {"unschedulable": True}}
    changed = await api.change(node, patch)
    assert changed["spec"]["unschedulable"] is True
    assert conditions(changed)["Ready"]["reason"] == "Fine"


async def test_a_patch_of_taints_replaces_all_of_them(api: Api, node: str) -> None:
    async def put(**taint: str) -> Json:
        return await api.change(node, {"spec": {"taints": [taint]}}, STRATEGIC)

    await put(key="x.test/a", effect="NoSchedule")
    changed = await put(key="x.test/b", effect="NoExecute", value="v")
    assert changed["spec"]["taints"] == [{"key": "x.test/b", "effect": "NoExecute", "value": "v"}]


WRONG_TAINTS: dict[str, tuple[list[Json], str]] = {
    "twice": (
        [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}],
        'metadata.taints[1]: Duplicate value: {"Key":"a","Value":"","Effect":"NoSchedule",'
        '"TimeAdded":null}: taints must be unique by key and effect pair',
    ),
    "of no known effect": (
        [{"key": "a", "effect": "Bad"}],
        'metadata.taints[0].effect: Unsupported value: "Bad": supported values: "NoSchedule", '
        '"PreferNoSchedule", "NoExecute"',
    ),
    "without an effect": ([{"key": "a"}], "metadata.taints[0].effect: Required value"),
}


@pytest.mark.parametrize("case", WRONG_TAINTS)
async def test_a_taint_is_checked(api: Api, node: str, case: str) -> None:
    taints, why = WRONG_TAINTS[case]
    got = await api.patch(node, {"spec": {"taints": taints}})
    words = f'Node "{api.namespace}" is invalid: {why}'
    assert got.refusal == (422, "Invalid", words)


async def test_taints_of_a_stale_node_are_a_conflict(api: Api, node: str) -> None:
    seen = await api.read(node)
    await api.change(node, {"metadata": {"labels": {"x": "y"}}})
    got = await api.put(node, seen)
    assert got.refusal[:2] == (409, "Conflict")


async def test_a_lease_is_renewed_with_microseconds(api: Api) -> None:
    path = api.at("leases", group=LEASES)
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 40}
    await api.make(path, {**named("a"), "spec": spec})
    when = "2026-01-02T03:04:05.000006Z"
    changed = await api.change(f"{path}/a", {"spec": {"renewTime": when}})
    assert changed["spec"] == {**spec, "renewTime": when}


WRONG_LEASES: dict[str, tuple[Json, int, str]] = {
    "for no time": (
        {"leaseDurationSeconds": 0},
        422,
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
    ),
    "renewed at no time": (
        {"renewTime": "yesterday"},
        400,
        'parsing time "yesterday" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "yesterday" '
        'as "2006"',
    ),
    "renewed at a whole second": (
        {"renewTime": "2026-01-01T00:00:00Z"},
        400,
        'parsing time "2026-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse '
        '"Z" as ".000000"',
    ),
}


@pytest.mark.parametrize("case", WRONG_LEASES)
async def test_a_lease_is_checked(api: Api, case: str) -> None:
    spec, code, why = WRONG_LEASES[case]
    got = await api.post(api.at("leases", group=LEASES), {**named("a"), "spec": spec})
    assert got.status == code
    assert got.message.endswith(why)


async def test_a_lease_that_says_nothing_is_empty(api: Api) -> None:
    made = await api.make(api.at("leases", group=LEASES), named("a"))
    assert made["spec"] == {}
