"""What a server adds to a pod, and to services, by what else there is (one is pytest.mark.real)."""

import pytest

from tests.conformance.objects import named, pod
from tests.conformance.targets import Api, Json

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
GONE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def priority_class(name: str, **more: object) -> Json:
    return {**named(name), "value": 1000, **more}


async def test_a_pod_leaves_a_node_that_is_gone(api: Api) -> None:
    made = await api.make(api.at("pods"), pod("a"))
    found = [(t["key"], t["operator"], t["effect"]) for t in made["spec"]["tolerations"]]
    assert found == [(key, "Exists", "NoExecute") for key in GONE]
    assert all(type(t["tolerationSeconds"]) is int for t in made["spec"]["tolerations"])


async def test_a_pod_that_says_how_long_it_stays_is_left_alone(api: Api) -> None:
    said = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 7}
        for key in GONE
    ]
    made = await api.make(api.at("pods"), pod("a", tolerations=said))
    assert made["spec"]["tolerations"] == said


async def test_a_pod_that_tolerates_everything_is_left_alone(api: Api) -> None:
    said = [{"operator": "Exists"}]
    made = await api.make(api.at("pods"), pod("a", tolerations=said))
    assert made["spec"]["tolerations"] == said


async def test_tolerations_that_a_change_drops_are_added_again(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    patch = {"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}}
    changed = await api.change(api.at("pods", "a"), patch)
    assert [t["key"] for t in changed["spec"]["tolerations"]] == ["x", *GONE]


async def test_a_pod_has_the_priority_of_its_class(api: Api) -> None:
    name = api.namespace
    never = priority_class(name, preemptionPolicy="Never")
    async with api.for_a_while(CLASSES, never):
        made = await api.make(api.at("pods"), pod("a", priorityClassName=name))
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (1000, "Never")


async def test_a_pod_without_a_class_has_no_priority(api: Api) -> None:
    spec = (await api.make(api.at("pods"), pod("a")))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert "priorityClassName" not in spec


async def test_what_the_system_needs_comes_first(api: Api) -> None:
    made = await api.make(api.at("pods"), pod("a", priorityClassName="system-node-critical"))
    assert made["spec"]["priority"] == 2_000_001_000


WRONG_PRIORITIES: dict[str, tuple[Json, str]] = {
    "of no class": (
        {"priorityClassName": "nope"},
        "no PriorityClass with name nope was found",
    ),
    "of its own": (
        {"priority": 5},
        "the integer value of priority (5) must not be provided in pod spec; priority admission "
        "controller computed 0 from the given PriorityClass name",
    ),
}


@pytest.mark.parametrize("case", WRONG_PRIORITIES)
async def test_a_priority_is_checked(api: Api, case: str) -> None:
    spec, why = WRONG_PRIORITIES[case]
    got = await api.post(api.at("pods"), pod("a", **spec))
    assert got.refusal == (403, "Forbidden", f'pods "a" is forbidden: {why}')


async def test_the_value_of_a_priority_class_never_changes(api: Api) -> None:
    name = api.namespace
    async with api.for_a_while(CLASSES, priority_class(name)) as path:
        got = await api.patch(path, {"value": 1001})
        fine = await api.change(path, {"description": "for tests"})
    why = "value: Forbidden: may not be changed in an update."
    words = f'PriorityClass.scheduling.k8s.io "{name}" is invalid: {why}'
    assert got.refusal == (422, "Invalid", words)
    assert fine["description"] == "for tests"


async def test_nobody_may_be_more_important_than_the_system(api: Api) -> None:
    got = await api.post(CLASSES, priority_class(api.namespace, value=2_000_000_000))
    why = "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"
    words = f'PriorityClass.scheduling.k8s.io "{api.namespace}" is invalid: {why}'
    assert got.refusal == (422, "Invalid", words)


async def test_what_admission_adds_is_nobodys(api: Api) -> None:
    made = await api.make(api.at("pods"), pod("a"))
    (entry,) = made["metadata"]["managedFields"]
    spec = entry["fieldsV1"]["f:spec"]
    assert {"f:containers", "f:nodeName", "f:restartPolicy"} <= set(spec)
    assert not {"f:tolerations", "f:priority", "f:preemptionPolicy"} & set(spec)
    assert "f:status" not in entry["fieldsV1"]


async def test_what_is_limited_is_asked_for(api: Api) -> None:
    container = {"name": "main", "image": "none:1", "resources": {"limits": {"cpu": "1000m"}}}
    made = await api.make(api.at("pods"), pod("a", containers=[container]))
    resources = made["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    assert made["status"]["qosClass"] == "Burstable"


async def test_a_service_account_has_two_names_in_a_pod(api: Api) -> None:
    spec = (await api.make(api.at("pods"), pod("a", serviceAccountName="me")))["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("me", "me")


async def test_nothing_is_made_in_a_namespace_that_ends(api: Api) -> None:
    name = f"{api.namespace}-ending"
    await api.make("/api/v1/namespaces", named(name))
    path = f"/api/v1/namespaces/{name}/configmaps"
    await api.make(path, named("held", finalizers=["x.test/hold"]))
    await api.delete(f"/api/v1/namespaces/{name}")
    try:
        got = await api.post(path, {"metadata": {"generateName": "late-"}})
    finally:
        await api.change(f"{path}/held", {"metadata": {"finalizers": None}})
    why = f"unable to create new content in namespace {name} because it is being terminated"
    assert got.refusal == (403, "Forbidden", f'configmaps "late-" is forbidden: {why}')
    assert [cause["reason"] for cause in got.causes] == ["NamespaceTerminating"]


async def test_a_missing_namespace_is_noticed_first(api: Api) -> None:
    got = await api.post("/api/v1/namespaces/nope/configmaps", named("Not A Name"))
    assert got.refusal == (404, "NotFound", 'namespaces "nope" not found')


# Services


def service(name: str, *ports: Json, **spec: object) -> Json:
    return {**named(name), "spec": {"ports": list(ports), **spec}}


async def test_a_service_has_an_address(api: Api) -> None:
    spec = (await api.make(api.at("services"), service("a", {"port": 80})))["spec"]
    address = spec.pop("clusterIP")
    assert address.startswith("10.0.0.")
    assert spec == {
        "clusterIPs": [address],
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
    }


async def test_two_services_have_two_addresses(api: Api) -> None:
    made = [await api.make(api.at("services"), service(n, {"port": 80})) for n in ("a", "b")]
    assert made[0]["spec"]["clusterIP"] != made[1]["spec"]["clusterIP"]


async def test_a_headless_service_has_no_address(api: Api) -> None:
    body = service("a", clusterIP="None", selector={"app": "web"})
    spec = (await api.make(api.at("services"), body))["spec"]
    assert (spec["clusterIP"], spec["clusterIPs"]) == ("None", ["None"])


async def test_an_address_stays(api: Api) -> None:
    await api.make(api.at("services"), service("a", {"port": 80}))
    got = await api.patch(api.at("services", "a"), {"spec": {"clusterIP": "10.0.0.9"}})
    why = 'spec.clusterIPs[0]: Invalid value: ["10.0.0.9"]: may not change once set'
    assert got.refusal == (422, "Invalid", f'Service "a" is invalid: {why}')


async def test_ports_that_a_change_brings_are_filled_too(api: Api) -> None:
    await api.make(api.at("services"), service("a", {"port": 80}))
    changed = await api.change(api.at("services", "a"), {"spec": {"ports": [{"port": 81}]}})
    assert changed["spec"]["ports"] == [{"port": 81, "protocol": "TCP", "targetPort": 81}]


async def test_a_port_on_every_node_comes_and_goes_with_the_type(api: Api) -> None:
    path = api.at("services", "a")
    await api.make(api.at("services"), service("a", {"port": 80}, type="NodePort"))
    (port,) = (await api.read(path))["spec"]["ports"]
    assert 30000 <= port["nodePort"] <= 32767
    changed = await api.change(path, {"spec": {"type": "ClusterIP"}})
    assert "nodePort" not in changed["spec"]["ports"][0]
    assert "externalTrafficPolicy" not in changed["spec"]


async def test_a_service_must_have_ports(api: Api) -> None:
    got = await api.post(api.at("services"), named("a"))
    words = 'Service "a" is invalid: spec.ports: Required value'
    assert got.refusal == (422, "Invalid", words)


async def test_ports_must_have_names_if_there_are_several(api: Api) -> None:
    got = await api.post(api.at("services"), service("a", {"port": 80}, {"port": 81}))
    assert got.refusal[:2] == (422, "Invalid")
    assert [cause["field"] for cause in got.causes] == [
        "spec.ports[0].name",
        "spec.ports[1].name",
    ]
