"""What an API says of itself, and tables (one target: pytest.mark.real)."""

from datetime import timedelta
from email.utils import parsedate_to_datetime

import pytest

from tests.conformance.objects import named, pod
from tests.conformance.targets import Api, Json

ALL_AT_ONCE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
PODS_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
async def test_a_healthy_api_says_so(api: Api, path: str) -> None:
    got = await api.get(path)
    assert (got.status, got.body) == (200, b"ok")


async def test_an_api_says_its_version(api: Api) -> None:
    version = await api.read("/version")
    assert version["gitVersion"].startswith(f"v{version['major']}.{version['minor']}.")


@pytest.mark.parametrize("path", ["/version", "/api/v1/nodes", "/api/v1/nodes/nobody"])
async def test_every_answer_tells_how_late_it_is(api: Api, path: str) -> None:
    said = (await api.get(path)).headers["date"]
    assert parsedate_to_datetime(said).utcoffset() == timedelta()


async def test_the_core_group_has_one_version(api: Api) -> None:
    found = await api.read("/api")
    assert (found["kind"], found["versions"]) == ("APIVersions", ["v1"])


async def test_groups_are_listed_with_their_versions(api: Api) -> None:
    groups = {group["name"]: group for group in (await api.read("/apis"))["groups"]}
    version = {"groupVersion": "policy/v1", "version": "v1"}
    assert groups["policy"]["versions"] == [version]
    assert groups["policy"]["preferredVersion"] == version


async def test_a_group_can_be_asked_for(api: Api) -> None:
    found = await api.read("/apis/policy")
    assert (found["kind"], found["apiVersion"], found["name"]) == ("APIGroup", "v1", "policy")


async def test_a_version_lists_its_resources(api: Api) -> None:
    found = await api.read("/api/v1")
    assert (found["kind"], found["groupVersion"]) == ("APIResourceList", "v1")
    entries = {entry["name"]: entry for entry in found["resources"]}
    pods = entries["pods"]
    assert (pods["kind"], pods["singularName"], pods["namespaced"]) == ("Pod", "pod", True)
    assert (pods["shortNames"], pods["categories"]) == (["po"], ["all"])
    assert pods["verbs"] == PODS_VERBS
    assert entries["pods/status"]["verbs"] == ["get", "patch", "update"]
    assert not entries["nodes"]["namespaced"]


async def test_everything_can_be_discovered_at_once(api: Api) -> None:
    headers = {"accept": f"{ALL_AT_ONCE},application/json"}
    got = await api.request("GET", "/api", None, headers)
    assert got.headers["content-type"] == ALL_AT_ONCE
    assert got.json["kind"] == "APIGroupDiscoveryList"
    (group,) = got.json["items"]
    (pods,) = [r for r in group["versions"][0]["resources"] if r["resource"] == "pods"]
    assert pods["scope"] == "Namespaced"
    assert pods["responseKind"]["kind"] == "Pod"
    assert pods["verbs"] == PODS_VERBS
    assert "eviction" in {sub["subresource"] for sub in pods["subresources"]}


async def test_a_version_that_a_group_does_not_have_is_not_found(api: Api) -> None:
    got = await api.get("/apis/apps/v9")
    words = "the server could not find the requested resource"
    assert got.refusal == (404, "NotFound", words)


async def table(api: Api, path: str) -> Json:
    got = await api.request("GET", path, None, TABLE)
    assert (got.status, got.json["kind"]) == (200, "Table"), got.body
    assert got.json["apiVersion"] == "meta.k8s.io/v1"
    return got.json


async def test_a_list_can_be_a_table(api: Api) -> None:
    await api.make(api.at("secrets"), {**named("a"), "data": {"x": "YQ=="}})
    shown = await table(api, api.at("secrets"))
    columns = [column["name"] for column in shown["columnDefinitions"]]
    assert columns == ["Name", "Type", "Data", "Age"]
    (row,) = shown["rows"]
    assert row["cells"][:3] == ["a", "Opaque", 1]
    assert row["object"]["kind"] == "PartialObjectMetadata"


async def test_one_object_can_be_a_table(api: Api) -> None:
    await api.make(api.at("secrets"), named("a"))
    (row,) = (await table(api, api.at("secrets", "a")))["rows"]
    assert row["cells"][:3] == ["a", "Opaque", 0]


async def test_a_table_can_have_the_objects_with_it(api: Api) -> None:
    await api.make(api.at("secrets"), named("a"))
    (row,) = (await table(api, api.at("secrets", "a") + "?includeObject=Object"))["rows"]
    assert row["object"]["type"] == "Opaque"


async def test_the_table_of_pods_has_what_people_look_for(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    shown = await table(api, api.at("pods"))
    cells = dict(
        zip(
            (column["name"] for column in shown["columnDefinitions"]),
            shown["rows"][0]["cells"],
            strict=True,
        )
    )
    assert (cells["Name"], cells["Ready"], cells["Status"]) == ("a", "0/1", "Pending")
    assert (cells["Restarts"], cells["Node"]) == ("0", "nowhere")


async def test_what_is_not_there_is_no_table(api: Api) -> None:
    got = await api.request("GET", api.at("pods", "nope"), None, TABLE)
    assert got.refusal == (404, "NotFound", 'pods "nope" not found')
