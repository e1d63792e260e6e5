"""Scale, binding, finalize and status: the parts of an object that have a URL of their own."""

from typing import Any

import pytest

from tests.support.both_apis import APPLY, JSON_PATCH, MERGE, STRATEGIC, BothApis, Embedded, Json

PODS = "/api/v1/namespaces/default/pods"
SETS = "/apis/apps/v1/namespaces/default/replicasets"


def template() -> Json:
    containers = [{"name": "c", "image": "i"}]
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}


def workload(**spec: Any) -> Json:
    """Of any kind that has pods made from a template."""
    selector = {"matchLabels": {"app": "web"}}
    return {
        "metadata": {"name": "w"},
        "spec": {"selector": selector, "template": template(), **spec},
    }


def pod(name: str = "p", **spec: Any) -> Json:
    tolerations = [{"operator": "Exists"}]
    containers = [{"name": "c", "image": "i"}]
    spec = {"schedulerName": "none", "tolerations": tolerations, "containers": containers, **spec}
    return {"metadata": {"name": name}, "spec": spec}


def binding(name: str = "p", node: str = "n", **meta: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **meta},
            "target": {"kind": "Node", "name": node}}  # fmt: skip


# Scale


async def test_a_scale_shows_what_is_wanted_and_what_is_there(api: Embedded) -> None:
    await api.call("POST", SETS, workload(replicas=3))
    status = {"status": {"replicas": 2}}
    await api.call("PATCH", f"{SETS}/w/status", status, content=MERGE)
    scale = (await api.call("GET", f"{SETS}/w/scale")).body
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 2, "selector": "app=web"}


async def test_to_write_a_scale_is_to_write_the_object(api: Embedded) -> None:
    made = (await api.call("POST", SETS, workload(replicas=3))).body
    scaled = await api.call("PATCH", f"{SETS}/w/scale", {"spec": {"replicas": 5}}, content=MERGE)
    assert scaled.body["spec"] == {"replicas": 5}
    after = (await api.call("GET", f"{SETS}/w")).body
    assert after["spec"] == {**made["spec"], "replicas": 5}
    assert after["metadata"]["generation"] == 2


async def test_a_scale_of_an_older_version_is_a_conflict(api: Embedded) -> None:
    await api.call("POST", SETS, workload(replicas=3))
    old = (await api.call("GET", f"{SETS}/w/scale")).body
    await api.call("PATCH", f"{SETS}/w/scale", {"spec": {"replicas": 5}}, content=MERGE)
    assert (await api.call("PUT", f"{SETS}/w/scale", old)).status == 409


async def test_a_scale_can_be_applied(api: Embedded) -> None:
    await api.call("POST", SETS, workload(replicas=3))
    wanted = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "w"},
              "spec": {"replicas": 7}}  # fmt: skip
    path = f"{SETS}/w/scale?fieldManager=scaler"
    assert (await api.call("PATCH", path, wanted, content=APPLY)).status == 409
    applied = await api.call("PATCH", f"{path}&force=true", wanted, content=APPLY)
    assert applied.body["spec"] == {"replicas": 7}


# Binding


async def test_a_binding_gives_a_pod_its_node(api: Embedded) -> None:
    await api.call("POST", PODS, pod())
    assert (await api.call("POST", f"{PODS}/p/binding", binding())).status == 201
    bound = (await api.call("GET", f"{PODS}/p")).body
    assert bound["spec"]["nodeName"] == "n"
    assert [(c["type"], c["status"]) for c in bound["status"]["conditions"]] == [
        ("PodScheduled", "True")
    ]


async def test_a_pod_is_bound_once(api: Embedded) -> None:
    await api.call("POST", PODS, pod())
    await api.call("POST", f"{PODS}/p/binding", binding())
    refused = await api.call("POST", f"{PODS}/p/binding", binding(node="other"))
    assert refused.status == 409
    assert refused.message.endswith('pod p is already assigned to node "n"')


async def test_a_dry_binding_binds_nothing(api: Embedded) -> None:
    await api.call("POST", PODS, pod())
    assert (await api.call("POST", f"{PODS}/p/binding?dryRun=All", binding())).status == 201
    assert "nodeName" not in (await api.call("GET", f"{PODS}/p")).body["spec"]


# Finalize


async def test_a_namespace_goes_when_its_last_finalizer_does(api: Embedded) -> None:
    spaces = "/api/v1/namespaces"
    await api.call("POST", spaces, {"metadata": {"name": "s"}})
    going = (await api.call("DELETE", f"{spaces}/s")).body
    assert going["status"]["phase"] == "Terminating"
    await api.call("PUT", f"{spaces}/s", {**going, "spec": {}})
    assert (await api.call("GET", f"{spaces}/s")).body["spec"] == {"finalizers": ["kubernetes"]}
    latest = (await api.call("GET", f"{spaces}/s")).body
    assert (await api.call("PUT", f"{spaces}/s/finalize", {**latest, "spec": {}})).status == 200
    assert (await api.call("GET", f"{spaces}/s")).status == 404


async def test_some_namespaces_may_not_go(api: Embedded) -> None:
    refused = await api.call("DELETE", "/api/v1/namespaces/default")
    assert (refused.status, refused.message) == (
        403,
        'namespaces "default" is forbidden: this namespace may not be deleted',
    )


async def test_what_only_a_kubelet_knows_is_not_there(api: Embedded) -> None:
    await api.call("POST", PODS, pod())
    assert (await api.call("GET", f"{PODS}/p/log")).status == 404


# Beside a real server


@pytest.mark.real
@pytest.mark.parametrize("kind", ["replicasets", "deployments", "statefulsets"])
async def test_scales_are_as_on_a_real_server(both: BothApis, kind: str) -> None:
    path = f"/apis/apps/v1/namespaces/{both.namespace}/{kind}"
    # Controllers that have something to do would write in between.
    paused = {"paused": True} if kind == "deployments" else {}
    named = {"serviceName": "s"} if kind == "statefulsets" else {}
    for api in (both.real, both.embedded):
        await api.call("POST", path, workload(replicas=0, **paused, **named))
    await both.until_real(f"{path}/w", lambda reply: "observedGeneration" in reply.body["status"])
    await both.same("GET", f"{path}/w/scale")
    await both.same("GET", f"{path}/none/scale")
    scaled = {"spec": {"replicas": 0}}
    await both.same("PATCH", f"{path}/w/scale", scaled, content=MERGE)
    await both.same("PATCH", f"{path}/w/scale", scaled, content=STRATEGIC)
    one = [{"op": "replace", "path": "/spec/replicas", "value": -1}]
    await both.same("PATCH", f"{path}/w/scale?dryRun=All", one, content=JSON_PATCH)
    more = {"spec": {"replicas": 4}}
    await both.same("PATCH", f"{path}/w/scale?dryRun=All", more, content=MERGE)
    less = {"spec": {"replicas": -4}}
    await both.same("PATCH", f"{path}/w/scale?dryRun=All", less, content=MERGE)
    await both.same_update(f"{path}/w/scale", lambda scale: scale["spec"].update(replicas=-3))
    await both.same_update(f"{path}/w/scale", lambda scale: scale["metadata"].update(name="x"))
    old = {"resourceVersion": "1"}
    await both.same_update(f"{path}/w/scale", lambda scale: scale["metadata"].update(old))


@pytest.mark.real
async def test_bindings_are_answered_as_by_a_real_server(both: BothApis) -> None:
    pods = f"/api/v1/namespaces/{both.namespace}/pods"
    for name in "pqr":
        await both.same("POST", pods, pod(name))
    bind = f"{pods}/p/binding"
    noted = binding(annotations={"a": "b"}, labels={"l": "m"})
    await both.same("POST", f"{bind}?dryRun=All", noted)
    await both.same("GET", f"{pods}/p")
    await both.same("POST", bind, noted)
    await both.same("GET", f"{pods}/p")
    await both.same("POST", bind, binding(node="other"))
    await both.same("POST", bind, binding("q"))
    await both.same("POST", f"{pods}/none/binding", binding("none"))
    await both.same("POST", f"{pods}/q/binding", binding("q", node=""))
    await both.same("POST", f"{pods}/q/binding", binding("q", uid="other"))
    odd = {**binding("q"), "target": {"kind": "Pod", "name": "n"}}
    await both.same("POST", f"{pods}/q/binding", odd)
    await both.same("GET", bind)
    await both.same("DELETE", f"{pods}/q")
    gated = pod("gated", schedulingGates=[{"name": "a.b/c"}])
    for api in (both.real, both.embedded):
        await api.call("POST", pods, gated)
    await both.same("POST", f"{pods}/gated/binding", binding("gated"))
