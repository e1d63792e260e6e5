import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.kube.discovery import Catalogue, Kind, discover, server_version
from backstay.kube.resource import LEASES, NODES, PODS, Resource
from backstay.seam.serve import Answer, Inbound
from harness.cluster import ControlPlane
from harness.connect import connect
from tests.support.scripted import World, json, refusal, world
from tests.support.virtual import virtual_time


async def serving(paths: dict[str, Any]) -> World:
    """An API server that knows these paths; an ``Answer`` is one, anything else becomes one."""

    async def at(inbound: Inbound) -> Answer:
        found = paths.get(inbound.path, refusal(404))
        return found if isinstance(found, Answer) else json(found)

    api = await world()
    api.server().script = [at]
    return api


def aggregated(*groups: tuple[str, list[dict[str, Any]]]) -> dict[str, Any]:
    items = [{"metadata": {"name": name}, "versions": versions} for name, versions in groups]
    return {"kind": "APIGroupDiscoveryList", "items": items}


def entry(plural: str, kind: str | None = None, **more: Any) -> dict[str, Any]:
    named = {"responseKind": {"kind": kind}} if kind else {}
    return {"resource": plural, "scope": "Namespaced", "verbs": ["get"], **named, **more}


@virtual_time
async def test_all_kinds_are_learned_from_two_requests() -> None:
    core = {
        "version": "v1",
        "resources": [entry("pods", "Pod"), entry("nodes", "Node", scope="Cluster")],
    }
    leases = {"version": "v1", "resources": [entry("leases", "Lease")]}
    api = await serving(
        {"/api": aggregated(("", [core])), "/apis": aggregated(("coordination.k8s.io", [leases]))}
    )
    catalogue = await discover(api.client)
    assert [kind.resource for kind in catalogue.kinds] == [PODS, NODES, LEASES]
    assert catalogue.silent_groups == ()
    assert [seen.path for seen in api.server().seen] == ["/api", "/apis"]
    assert (
        api.server()
        .seen[0]
        .headers["accept"]
        .startswith("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,")
    )


@virtual_time
async def test_what_can_be_done_to_a_kind_is_told_with_it() -> None:
    pods = entry(
        "pods",
        "Pod",
        shortNames=["po"],
        subresources=[{"subresource": "eviction"}, {"subresource": "status"}],
    )
    api = await serving(
        {"/api": aggregated(("", [{"version": "v1", "resources": [pods]}])), "/apis": aggregated()}
    )
    assert (await discover(api.client)).kinds == (
        Kind(PODS, ("get",), ("po",), ("eviction", "status")),
    )


@virtual_time
async def test_a_kind_counts_in_the_first_version_that_has_it() -> None:
    versions = [
        {"version": "v1", "resources": [entry("virtualmachines", "VirtualMachine")]},
        {
            "version": "v1alpha3",
            "resources": [entry("virtualmachines", "VirtualMachine"), entry("olds", "Old")],
        },
    ]
    api = await serving({"/api": aggregated(), "/apis": aggregated(("kubevirt.io", versions))})
    catalogue = await discover(api.client)
    assert catalogue.find("virtualmachines.kubevirt.io") == Kind(
        Resource("kubevirt.io", "v1", "virtualmachines", "VirtualMachine"), ("get",), (), ()
    )
    versions_of = [(kind.resource.plural, kind.resource.version) for kind in catalogue.kinds]
    assert versions_of == [("virtualmachines", "v1"), ("olds", "v1alpha3")]


@virtual_time
async def test_a_group_whose_server_is_down_is_named() -> None:
    versions = [{"version": "v1", "resources": [], "freshness": "Stale"}]
    api = await serving({"/api": aggregated(), "/apis": aggregated(("metrics.k8s.io", versions))})
    assert (await discover(api.client)).silent_groups == ("metrics.k8s.io/v1",)


@virtual_time
async def test_a_kind_without_a_name_does_not_spoil_the_rest() -> None:
    resources = [entry("odds"), {**entry("ends"), "responseKind": None}, entry("pods", "Pod")]
    core = {"version": "v1", "resources": resources}
    api = await serving({"/api": aggregated(("", [core])), "/apis": aggregated()})
    assert [k.resource.kind for k in (await discover(api.client)).kinds] == ["", "", "Pod"]


def test_what_is_not_there_is_not_found() -> None:
    assert Catalogue((), ()).find("pods") is None


# Servers that cannot tell all at once


def group(name: str, *versions: str) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def resources(*items: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "APIResourceList", "resources": list(items)}


POD_KINDS = resources(
    {"name": "pods", "namespaced": True, "kind": "Pod", "verbs": ["get"], "shortNames": ["po"]},
    {"name": "pods/eviction", "namespaced": True, "kind": "Eviction", "verbs": ["create"]},
    {"name": "nodes", "namespaced": False, "kind": "Node", "verbs": ["list"]},
)
CORE = {"kind": "APIVersions", "versions": ["v1"]}


@virtual_time
async def test_an_old_server_is_asked_group_by_group() -> None:
    api = await serving(
        {
            "/api": CORE,
            "/api/v1": POD_KINDS,
            "/apis": {"kind": "APIGroupList", "groups": [group("coordination.k8s.io", "v1")]},
            "/apis/coordination.k8s.io/v1": resources(
                {"name": "leases", "namespaced": True, "kind": "Lease", "verbs": ["get"]}
            ),
        }
    )
    assert await discover(api.client) == Catalogue(
        (
            Kind(PODS, ("get",), ("po",), ("eviction",)),
            Kind(NODES, ("list",), (), ()),
            Kind(LEASES, ("get",), (), ()),
        ),
        (),
    )


@virtual_time
async def test_an_old_server_is_also_asked_for_versions_that_it_does_not_prefer() -> None:
    both = {"name": "snapshots", "namespaced": True, "kind": "Snapshot", "verbs": ["get"]}
    only_old = {"name": "classes", "namespaced": False, "kind": "Class", "verbs": ["get"]}
    api = await serving(
        {
            "/api": {"versions": []},
            "/apis": {"groups": [group("s.io", "v1", "v1beta1")]},
            "/apis/s.io/v1": resources(both),
            "/apis/s.io/v1beta1": resources(both, only_old),
        }
    )
    found = [kind.resource for kind in (await discover(api.client)).kinds]
    assert [(r.plural, r.version) for r in found] == [("snapshots", "v1"), ("classes", "v1beta1")]


@pytest.mark.parametrize("broken", [refusal(503), Answer(body=b"<html>")], ids=["503", "html"])
@virtual_time
async def test_a_group_that_an_old_server_cannot_reach_is_named(broken: Answer) -> None:
    api = await serving(
        {
            "/api": CORE,
            "/api/v1": POD_KINDS,
            "/apis": {"groups": [group("metrics.k8s.io", "v1beta1")]},
            "/apis/metrics.k8s.io/v1beta1": broken,
        }
    )
    catalogue = await discover(api.client)
    assert catalogue.silent_groups == ("metrics.k8s.io/v1beta1",)
    assert catalogue.find("pods") is not None


@virtual_time
async def test_a_server_that_answers_with_something_else_is_not_taken_for_an_empty_one() -> None:
    api = await serving({"/api": Answer(body=b"<html>log in</html>")})
    with pytest.raises(errors.Undecodable, match=r"^GET /api: the answer is not what"):
        await discover(api.client)


@virtual_time
async def test_the_version_is_told_as_the_server_tells_it() -> None:
    said = {"gitVersion": "v1.30.2-gke.1", "major": "1", "minor": "30+", "platform": "linux/amd64"}
    api = await serving({"/version": said})
    version = await server_version(api.client)
    assert (version.git_version, version.major, version.minor) == ("v1.30.2-gke.1", "1", "30+")


# The real server


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[KubeClient]:
    async with connect(control_plane) as client:
        yield client


@pytest.mark.real
async def test_a_real_server_tells_its_kinds(client: KubeClient) -> None:
    catalogue = await discover(client)
    assert catalogue.silent_groups == ()
    pods, nodes, leases = (
        catalogue.find(label) for label in ("pods", "nodes", "leases.coordination.k8s.io")
    )
    assert pods is not None
    assert nodes is not None
    assert leases is not None
    assert (pods.resource, nodes.resource, leases.resource) == (PODS, NODES, LEASES)
    assert {"eviction", "status", "binding"} <= set(pods.subresources)
    assert {"watch", "deletecollection"} <= set(pods.verbs)
    assert "po" in pods.short_names


@pytest.mark.real
async def test_a_real_server_tells_its_version(client: KubeClient) -> None:
    version = await server_version(client)
    assert version.git_version.startswith(f"v{version.major}.{version.minor}.")


UNSERVED = {
    "apiVersion": "apiregistration.k8s.io/v1",
    "kind": "APIService",
    "metadata": {"name": "v1.unserved.backstay.dev"},
    "spec": {
        "group": "unserved.backstay.dev",
        "version": "v1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"name": "nobody", "namespace": "default"},
    },
}
API_SERVICES = Resource(
    "apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False
)


@pytest.mark.real
async def test_a_real_server_tells_whose_server_is_down(client: KubeClient) -> None:
    await client.create(API_SERVICES, UNSERVED)
    try:
        async with asyncio.timeout(10):
            while True:
                catalogue = await discover(client)
                if catalogue.silent_groups:
                    break
    finally:
        await client.delete(API_SERVICES, "v1.unserved.backstay.dev")
    assert catalogue.silent_groups == ("unserved.backstay.dev/v1",)
    assert catalogue.find("pods") is not None
