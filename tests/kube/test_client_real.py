"""What a real API server makes of our calls, and what we make of its answers."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trustme

from backstay.kube import errors
from backstay.kube.access import GivenAccess, Grant
from backstay.kube.calls import Call
from backstay.kube.client import KubeClient
from backstay.kube.resource import EVENTS, NODES, PODS, Resource
from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.transport import Tls
from harness import pki
from harness.cluster import ControlPlane
from harness.connect import connect, until
from tests.support.etcd import compact

pytestmark = pytest.mark.real

Json = dict[str, Any]

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
CLUSTER_ROLES = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False
)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[KubeClient]:
    async with connect(control_plane) as client:
        yield client


def config(name: str, value: str = "", **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}, "data": {"value": value}}


def pod(name: str, **spec: Any) -> Json:
    containers = [{"name": "main", "image": "none"}]
    return {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": containers, **spec},
    }


async def value_of(client: KubeClient, name: str, namespace: str) -> str:
    found = (await client.get(CONFIG_MAPS, name, namespace=namespace)).json()
    value: str = found["data"]["value"]
    return value


async def names(client: KubeClient, resource: Resource, namespace: str, **how: Any) -> set[str]:
    listed = (await client.list(resource, namespace=namespace, **how)).json()
    return {item["metadata"]["name"] for item in listed["items"]}


# Writing


async def test_an_object_that_was_created_is_there(client: KubeClient, namespace: str) -> None:
    reply = await client.create(CONFIG_MAPS, config("a", "1"), namespace=namespace, manager="m")
    assert reply.json()["metadata"]["managedFields"][0]["manager"] == "m"
    assert await value_of(client, "a", namespace) == "1"


async def test_a_name_that_is_taken_is_taken(client: KubeClient, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config("a"), namespace=namespace)
    with pytest.raises(errors.AlreadyExists, match='configmaps "a" already exists'):
        await client.create(CONFIG_MAPS, config("a"), namespace=namespace)


async def test_the_server_makes_a_name_where_a_beginning_is_given(
    client: KubeClient, namespace: str
) -> None:
    body = {"metadata": {"generateName": "a-"}}
    made = (await client.create(CONFIG_MAPS, body, namespace=namespace)).json()["metadata"]["name"]
    assert made.startswith("a-")
    assert made in await names(client, CONFIG_MAPS, namespace)


async def test_a_replacement_of_an_old_version_is_a_conflict(
    client: KubeClient, namespace: str
) -> None:
    old = (await client.create(CONFIG_MAPS, config("a", "1"), namespace=namespace)).json()
    new = {**old, "data": {"value": "2"}}
    await client.replace(CONFIG_MAPS, "a", new, namespace=namespace)
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        await client.replace(CONFIG_MAPS, "a", {**old, "data": {}}, namespace=namespace)
    assert await value_of(client, "a", namespace) == "2"


async def test_a_merge_patch_of_an_old_version_is_a_conflict(
    client: KubeClient, namespace: str
) -> None:
    old = (await client.create(CONFIG_MAPS, config("a", "1"), namespace=namespace)).json()
    version = {"resourceVersion": old["metadata"]["resourceVersion"]}
    patch = {"metadata": version, "data": {"value": "2"}}
    await client.merge_patch(CONFIG_MAPS, "a", patch, namespace=namespace)
    with pytest.raises(errors.Conflict):
        await client.merge_patch(CONFIG_MAPS, "a", patch, namespace=namespace)
    assert await value_of(client, "a", namespace) == "2"


async def test_a_json_patch_is_carried_out_only_if_its_test_holds(
    client: KubeClient, namespace: str
) -> None:
    await client.create(CONFIG_MAPS, config("a", "1"), namespace=namespace)

    async def swap(old: str, new: str) -> None:
        operations = [
            {"op": "test", "path": "/data/value", "value": old},
            {"op": "replace", "path": "/data/value", "value": new},
        ]
        await client.json_patch(CONFIG_MAPS, "a", operations, namespace=namespace)

    with pytest.raises(errors.Invalid):
        await swap("0", "2")
    assert await value_of(client, "a", namespace) == "1"
    await swap("1", "2")
    assert await value_of(client, "a", namespace) == "2"


def deployment(**spec: Any) -> Json:
    template = {"metadata": {"labels": {"app": "d"}}, "spec": pod("d")["spec"]}
    selector = {"matchLabels": {"app": "d"}}
    spec = {"replicas": 0, "selector": selector, "template": template, **spec}
    return {"metadata": {"name": "d"}, "spec": spec}


async def test_a_strategic_patch_merges_lists_by_their_keys(
    client: KubeClient, namespace: str
) -> None:
    await client.create(DEPLOYMENTS, deployment(), namespace=namespace)
    more = {"containers": [{"name": "second", "image": "none"}]}
    patch = {"spec": {"template": {"spec": more}}}
    reply = await client.strategic_patch(DEPLOYMENTS, "d", patch, namespace=namespace)
    found = reply.json()["spec"]["template"]["spec"]["containers"]
    assert {container["name"] for container in found} == {"main", "second"}


def applied(value: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", **config("a", value)}


async def test_what_one_manager_applied_another_changes_only_by_force(
    client: KubeClient, namespace: str
) -> None:
    await client.apply(CONFIG_MAPS, "a", applied("1"), namespace=namespace, manager="one")
    with pytest.raises(errors.Conflict) as caught:
        await client.apply(CONFIG_MAPS, "a", applied("2"), namespace=namespace, manager="two")
    assert [cause.field for cause in caught.value.causes] == [".data.value"]
    assert await value_of(client, "a", namespace) == "1"
    await client.apply(
        CONFIG_MAPS, "a", applied("2"), namespace=namespace, manager="two", force=True
    )
    assert await value_of(client, "a", namespace) == "2"


async def test_a_status_is_written_apart_from_the_rest(client: KubeClient, namespace: str) -> None:
    await client.create(PODS, pod("web"), namespace=namespace)
    patch = {
        "metadata": {"labels": {"app": "other"}},
        "spec": {"activeDeadlineSeconds": 5},
        "status": {"phase": "Running", "message": "hello"},
    }
    await client.merge_patch(PODS, "web", patch, namespace=namespace, subresource="status")
    found = (await client.get(PODS, "web", namespace=namespace)).json()
    assert found["status"]["message"] == "hello"
    assert "activeDeadlineSeconds" not in found["spec"]


async def test_a_scale_is_read_and_written_as_a_subresource(
    client: KubeClient, namespace: str
) -> None:
    await client.create(DEPLOYMENTS, deployment(paused=True, replicas=1), namespace=namespace)
    reply = await client.get(DEPLOYMENTS, "d", namespace=namespace, subresource="scale")
    assert (reply.json()["kind"], reply.json()["spec"]["replicas"]) == ("Scale", 1)
    more = {"spec": {"replicas": 3}}
    await client.merge_patch(DEPLOYMENTS, "d", more, namespace=namespace, subresource="scale")
    found = (await client.get(DEPLOYMENTS, "d", namespace=namespace)).json()
    assert found["spec"]["replicas"] == 3


async def test_a_dry_run_leaves_nothing_behind(client: KubeClient, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config("a", "1"), namespace=namespace)
    await client.create(CONFIG_MAPS, config("b"), namespace=namespace, dry_run=True)
    patch = {"data": {"value": "2"}}
    reply = await client.merge_patch(CONFIG_MAPS, "a", patch, namespace=namespace, dry_run=True)
    assert reply.json()["data"] == {"value": "2"}
    await client.delete(CONFIG_MAPS, "a", namespace=namespace, dry_run=True)
    await client.delete_collection(CONFIG_MAPS, namespace=namespace, dry_run=True)
    assert await value_of(client, "a", namespace) == "1"
    assert "b" not in await names(client, CONFIG_MAPS, namespace)


async def test_what_is_not_valid_is_refused_with_the_field(
    client: KubeClient, namespace: str
) -> None:
    with pytest.raises(errors.Invalid, match=r"spec\.containers") as caught:
        await client.create(PODS, pod("web", containers=[]), namespace=namespace)
    assert caught.value.causes[0].field == "spec.containers"


# Deleting


async def test_a_deletion_meant_for_another_object_is_a_conflict(
    client: KubeClient, namespace: str
) -> None:
    old = (await client.create(CONFIG_MAPS, config("a"), namespace=namespace)).json()["metadata"]
    await client.delete(CONFIG_MAPS, "a", namespace=namespace)
    await client.create(CONFIG_MAPS, config("a"), namespace=namespace)
    with pytest.raises(errors.Conflict, match="the UID in the precondition"):
        await client.delete(CONFIG_MAPS, "a", namespace=namespace, conditions={"uid": old["uid"]})
    assert "a" in await names(client, CONFIG_MAPS, namespace)


async def test_a_deletion_of_an_old_version_is_a_conflict(
    client: KubeClient, namespace: str
) -> None:
    old = (await client.create(CONFIG_MAPS, config("a"), namespace=namespace)).json()["metadata"]
    new = await client.merge_patch(CONFIG_MAPS, "a", {"data": {"x": "y"}}, namespace=namespace)
    with pytest.raises(errors.Conflict, match="the ResourceVersion in the precondition"):
        await client.delete(
            CONFIG_MAPS,
            "a",
            namespace=namespace,
            conditions={"uid": old["uid"], "resource_version": old["resourceVersion"]},
        )
    version = new.json()["metadata"]["resourceVersion"]
    await client.delete(
        CONFIG_MAPS,
        "a",
        namespace=namespace,
        conditions={"uid": old["uid"], "resource_version": version},
    )
    assert "a" not in await names(client, CONFIG_MAPS, namespace)


async def test_what_is_gone_cannot_be_deleted(client: KubeClient, namespace: str) -> None:
    with pytest.raises(errors.NotFound, match='configmaps "a" not found'):
        await client.delete(CONFIG_MAPS, "a", namespace=namespace)


async def test_a_pod_on_a_silent_node_goes_only_with_grace_zero(
    client: KubeClient, namespace: str
) -> None:
    await client.create(PODS, pod("web", nodeName="nowhere"), namespace=namespace)
    await client.delete(PODS, "web", namespace=namespace)
    leaving = (await client.get(PODS, "web", namespace=namespace)).json()["metadata"]
    assert leaving["deletionGracePeriodSeconds"] == 30
    await client.delete(PODS, "web", namespace=namespace, conditions={"grace": 0})
    assert await names(client, PODS, namespace) == set()


async def test_a_deletion_can_wait_for_the_dependents(client: KubeClient, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config("a"), namespace=namespace)
    reply = await client.delete(
        CONFIG_MAPS, "a", namespace=namespace, conditions={"propagation": "Foreground"}
    )
    assert reply.json()["metadata"]["finalizers"] == ["foregroundDeletion"]


async def test_a_collection_is_deleted_as_far_as_the_selectors_match(
    client: KubeClient, namespace: str
) -> None:
    for name, color in (("a", "red"), ("b", "red"), ("c", "blue")):
        body = config(name, labels={"color": color})
        await client.create(CONFIG_MAPS, body, namespace=namespace)
    await client.delete_collection(
        CONFIG_MAPS, namespace=namespace, labels="color=red", fields="metadata.name!=b"
    )
    assert await names(client, CONFIG_MAPS, namespace, labels="color") == {"b", "c"}


# Evicting


async def running_pod(client: KubeClient, namespace: str, *, budget: int | None) -> str:
    """A ready pod called ``web``, of which ``budget`` must stay; returns its uid."""
    made = await client.create(PODS, pod("web", nodeName="nowhere"), namespace=namespace)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await client.merge_patch(
        PODS, "web", {"status": status}, namespace=namespace, subresource="status"
    )
    if budget is not None:
        spec = {"minAvailable": budget, "selector": {"matchLabels": {"app": "web"}}}
        body = {"metadata": {"name": "keep"}, "spec": spec}
        await client.create(BUDGETS, body, namespace=namespace)
        await until(client, BUDGETS, _seen_by_its_controller, namespace=namespace)
    uid: str = made.json()["metadata"]["uid"]
    return uid


def _seen_by_its_controller(budgets: list[Json]) -> bool:
    return all(b.get("status", {}).get("currentHealthy") == 1 for b in budgets)


async def test_an_eviction_that_a_budget_allows_is_a_deletion(
    client: KubeClient, namespace: str
) -> None:
    await running_pod(client, namespace, budget=0)
    await client.evict("web", namespace=namespace)
    found = (await client.get(PODS, "web", namespace=namespace)).json()
    assert "deletionTimestamp" in found["metadata"]


async def test_an_eviction_that_a_budget_forbids_names_the_budget(
    client: KubeClient, namespace: str
) -> None:
    await running_pod(client, namespace, budget=1)
    with pytest.raises(
        errors.TooManyRequests, match="The disruption budget keep needs 1 healthy pods"
    ) as caught:
        await client.evict("web", namespace=namespace)
    assert [cause.reason for cause in caught.value.causes] == ["DisruptionBudget"]
    found = (await client.get(PODS, "web", namespace=namespace)).json()
    assert "deletionTimestamp" not in found["metadata"]


async def test_an_eviction_meant_for_another_pod_is_a_conflict(
    client: KubeClient, namespace: str
) -> None:
    await running_pod(client, namespace, budget=None)
    with pytest.raises(errors.Conflict, match="the UID in the precondition"):
        await client.evict("web", namespace=namespace, conditions={"uid": "another"})


async def test_a_dry_run_of_an_eviction_tells_what_a_budget_would_say(
    client: KubeClient, namespace: str
) -> None:
    uid = await running_pod(client, namespace, budget=1)
    with pytest.raises(errors.TooManyRequests):
        await client.evict("web", namespace=namespace, dry_run=True)
    await client.merge_patch(BUDGETS, "keep", {"spec": {"minAvailable": 0}}, namespace=namespace)
    await until(
        client, BUDGETS, lambda found: found[0]["status"]["disruptionsAllowed"] == 1,
        namespace=namespace,
    )  # fmt: skip
    await client.evict("web", namespace=namespace, dry_run=True)
    found = (await client.get(PODS, "web", namespace=namespace)).json()["metadata"]
    assert (found["uid"], found.get("deletionTimestamp")) == (uid, None)


# Reading


async def test_a_list_is_narrowed_by_labels_and_fields(client: KubeClient, namespace: str) -> None:
    for name, node in (("a", "n1"), ("b", "n2")):
        await client.create(PODS, pod(name, nodeName=node), namespace=namespace)
    assert await names(client, PODS, namespace, fields="spec.nodeName=n2") == {"b"}
    assert await names(client, PODS, namespace, labels="app in (web, x),!none") == {"a", "b"}
    assert await names(client, PODS, namespace, labels="app=x") == set()


async def test_a_list_is_read_page_by_page(client: KubeClient, namespace: str) -> None:
    for number in range(5):
        await client.create(
            CONFIG_MAPS, config(f"c{number}", labels={"p": "q"}), namespace=namespace
        )
    found, token, pages = [], None, 0
    while pages == 0 or token:
        reply = await client.list(
            CONFIG_MAPS, namespace=namespace, labels="p=q", limit=2, token=token
        )
        page = reply.json()
        found += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue")
        pages += 1
    assert (found, pages) == (["c0", "c1", "c2", "c3", "c4"], 3)


async def test_a_page_that_was_asked_for_too_late_is_gone(
    client: KubeClient, namespace: str, control_plane: ControlPlane
) -> None:
    # Events, because other kinds are read from memory, which remembers longer than etcd.
    for number in range(3):
        about = {"kind": "Pod", "namespace": namespace, "name": "web"}
        body = {"metadata": {"name": f"e{number}"}, "involvedObject": about}
        last = await client.create(EVENTS, body, namespace=namespace)
    page = (await client.list(EVENTS, namespace=namespace, limit=1)).json()["metadata"]
    last = await client.merge_patch(EVENTS, "e2", {"message": "x"}, namespace=namespace)
    await compact(control_plane, last.json()["metadata"]["resourceVersion"])
    with pytest.raises(errors.Gone, match="continue parameter is too old"):
        await client.list(EVENTS, namespace=namespace, limit=1, token=page["continue"])


async def test_a_watch_begins_after_the_version_that_is_known(
    client: KubeClient, namespace: str
) -> None:
    made = (await client.create(CONFIG_MAPS, config("a", "1"), namespace=namespace)).json()
    async with client.watch(
        CONFIG_MAPS,
        namespace=namespace,
        fields="metadata.name=a",
        resource_version=made["metadata"]["resourceVersion"],
    ) as lines:
        patch = {"data": {"value": "2"}}
        await client.merge_patch(CONFIG_MAPS, "a", patch, namespace=namespace)
        batch = await lines.read(10.0)
    assert batch is not None
    event = msgspec.json.decode(batch[0])
    assert (event["type"], event["object"]["data"]) == ("MODIFIED", {"value": "2"})


async def test_a_watch_ends_when_its_time_is_over(client: KubeClient, namespace: str) -> None:
    async with client.watch(
        CONFIG_MAPS, namespace=namespace, fields="metadata.name=x", seconds=1
    ) as lines:
        while (batch := await lines.read(10.0)) is not None:
            assert all(b'"type":"BOOKMARK"' in line for line in batch)


async def test_a_name_with_a_colon_is_found(client: KubeClient) -> None:
    found = (await client.get(CLUSTER_ROLES, "system:node")).json()
    assert found["metadata"]["name"] == "system:node"


async def test_a_quoted_slash_would_lead_to_a_subresource(
    client: KubeClient, namespace: str
) -> None:
    # This is why a name with a slash is refused before it is sent.
    await client.create(PODS, pod("web"), namespace=namespace)
    path = PODS.path(namespace=namespace, name="web")
    assert (await client.send(Call(method="GET", path=f"{path}%2Fstatus"))).json()["kind"] == "Pod"


# Bad input


@asynccontextmanager
async def stranger(server: str, grant: Grant) -> AsyncIterator[KubeClient]:
    transport = AiohttpTransport()
    try:
        yield KubeClient(transport, GivenAccess(server, grant))
    finally:
        await transport.close()


async def test_a_token_that_nobody_knows_is_unauthorized(control_plane: ControlPlane) -> None:
    grant = Grant(
        headers={"Authorization": "Bearer hunter2"}, tls=Tls(ca=control_plane.identities.ca)
    )
    async with stranger(control_plane.url, grant) as client:
        with pytest.raises(errors.Unauthorized) as caught:
            await client.list(NODES)
    assert str(caught.value) == (
        "GET /api/v1/nodes: Unauthorized; the credentials are those of given credentials: "
        "renew or correct them"
    )


async def test_what_somebody_may_not_do_is_named(control_plane: ControlPlane) -> None:
    async with connect(control_plane, pki.ORDINARY) as client:
        with pytest.raises(errors.Forbidden) as caught:
            await client.delete(PODS, "web", namespace="default")
    assert str(caught.value) == (
        'DELETE /api/v1/namespaces/default/pods/web: pods "web" is forbidden: User "ordinary" '
        'cannot delete resource "pods" in API group "" in the namespace "default"'
    )


async def test_a_certificate_of_another_authority_is_not_trusted(
    control_plane: ControlPlane,
) -> None:
    grant = Grant(tls=Tls(ca=trustme.CA().cert_pem.bytes()))
    async with stranger(control_plane.url, grant) as client:
        with pytest.raises(errors.Untrusted) as caught:
            await client.list(NODES)
    assert str(caught.value).startswith(
        f"GET /api/v1/nodes: the certificate of {control_plane.url} cannot be trusted: "
    )
    assert str(caught.value).endswith(
        "; check the certificate authority, the server name and the client certificate of "
        "given credentials"
    )


async def test_a_certificate_for_another_name_is_not_trusted(control_plane: ControlPlane) -> None:
    tls = Tls(ca=control_plane.identities.ca, server_name="elsewhere.example")
    async with stranger(control_plane.url, Grant(tls=tls)) as client:
        with pytest.raises(errors.Untrusted, match=r"elsewhere\.example"):
            await client.list(NODES)


async def test_an_api_that_is_not_there_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Nobody listens, and nobody else can.
        server = f"https://127.0.0.1:{taken.getsockname()[1]}"
        async with stranger(server, Grant()) as client:
            with pytest.raises(errors.Unreachable, match=rf"^GET /version: {server} cannot be"):
                await client.send(Call(method="GET", path="/version"))
