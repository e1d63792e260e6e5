"""StatefulSets, their scale, and pods that are given a node (one target: pytest.mark.real)."""

from tests.conformance.objects import named, pod
from tests.conformance.targets import Api, Json

APPS = "apps/v1"


def stateful_set(name: str, **spec: object) -> Json:
    """With no replicas, so that no controller has anything to do."""
    template = {"metadata": {"labels": {"app": "db"}}, "spec": pod("x")["spec"]}
    selector = {"matchLabels": {"app": "db"}}
    usual = {"replicas": 0, "serviceName": "db", "selector": selector, "template": template}
    return {**named(name), "spec": {**usual, **spec}}


async def test_a_stateful_set_is_filled(api: Api) -> None:
    made = await api.make(api.at("statefulsets", group=APPS), stateful_set("a"))
    spec = made["spec"]
    assert spec["podManagementPolicy"] == "OrderedReady"
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    assert spec["updateStrategy"] == rolling
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    assert made["status"] == {"replicas": 0, "availableReplicas": 0}


async def test_the_claims_of_a_stateful_set_are_filled(api: Api) -> None:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = stateful_set("a", volumeClaimTemplates=[{**named("data"), "spec": asked}])
    made = await api.make(api.at("statefulsets", group=APPS), body)
    (claim,) = made["spec"]["volumeClaimTemplates"]
    assert (claim["kind"], claim["apiVersion"]) == ("PersistentVolumeClaim", "v1")
    assert claim["spec"]["volumeMode"] == "Filesystem"
    assert claim["status"] == {"phase": "Pending"}


async def test_a_template_must_be_selected(api: Api) -> None:
    body = stateful_set("a", selector={"matchLabels": {"app": "other"}})
    got = await api.post(api.at("statefulsets", group=APPS), body)
    why = (
        'spec.template.metadata.labels: Invalid value: {"app":"db"}: `selector` does not match '
        "template `labels`"
    )
    assert got.refusal == (422, "Invalid", f'StatefulSet.apps "a" is invalid: {why}')


async def test_most_of_a_stateful_set_never_changes(api: Api) -> None:
    await api.make(api.at("statefulsets", group=APPS), stateful_set("a"))
    path = api.at("statefulsets", "a", group=APPS)
    got = await api.patch(path, {"spec": {"serviceName": "other"}})
    why = (
        "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', "
        "'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', "
        "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
    )
    assert got.refusal == (422, "Invalid", f'StatefulSet.apps "a" is invalid: {why}')


async def test_a_stateful_set_is_scaled_by_its_scale(api: Api) -> None:
    await api.make(api.at("statefulsets", group=APPS), stateful_set("a"))
    path = api.at("statefulsets", "a", "scale", group=APPS)
    scale = await api.read(path)
    assert (scale["spec"], scale["status"]["selector"]) == ({}, "app=db")
    scaled = await api.change(path, {"spec": {"replicas": 1}})
    assert scaled["spec"] == {"replicas": 1}
    found = await api.read(api.at("statefulsets", "a", group=APPS))
    assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (1, 2)
    # Before somebody makes a pod of it that would stay.
    await api.delete(api.at("statefulsets", "a", group=APPS))


async def test_the_status_of_a_stateful_set_is_written_apart(api: Api) -> None:
    await api.make(api.at("statefulsets", group=APPS), stateful_set("a"))
    patch = {"status": {"replicas": 1, "readyReplicas": 1}, "spec": {"replicas": 5}}
    changed = await api.change(api.at("statefulsets", "a", "status", group=APPS), patch)
    assert changed["spec"]["replicas"] == 0
    assert changed["status"]["readyReplicas"] == 1


# Binding


def binding(name: str, **more: object) -> Json:
    return {**named(name), "target": {"kind": "Node", "name": "n1"}, **more}


async def waiting(api: Api, name: str) -> None:
    body = pod(name)
    del body["spec"]["nodeName"]
    await api.make(api.at("pods"), body)


async def test_a_scheduler_gives_a_pod_its_node(api: Api) -> None:
    await waiting(api, "a")
    got = await api.post(api.at("pods", "a", "binding"), binding("a"))
    assert (got.status, got.json["status"]) == (201, "Success")
    found = await api.read(api.at("pods", "a"))
    assert found["spec"]["nodeName"] == "n1"
    (scheduled,) = found["status"]["conditions"]
    assert (scheduled["type"], scheduled["status"]) == ("PodScheduled", "True")


async def test_a_binding_by_its_old_address_binds_too(api: Api) -> None:
    await waiting(api, "a")
    got = await api.post(api.at("bindings"), binding("a"))
    assert (got.status, got.json["status"]) == (201, "Success")
    assert (await api.read(api.at("pods", "a")))["spec"]["nodeName"] == "n1"


async def test_a_pod_is_bound_once(api: Api) -> None:
    await waiting(api, "a")
    await api.post(api.at("pods", "a", "binding"), binding("a"))
    got = await api.post(api.at("bindings"), binding("a"))
    why = 'pod a is already assigned to node "n1"'
    words = f'Operation cannot be fulfilled on pods/binding "a": {why}'
    assert got.refusal == (409, "Conflict", words)


async def test_what_is_not_there_is_not_bound(api: Api) -> None:
    got = await api.post(api.at("bindings"), binding("nope"))
    assert got.refusal == (404, "NotFound", 'pods "nope" not found')


async def test_bindings_cannot_be_listed(api: Api) -> None:
    assert (await api.get(api.at("bindings"))).status == 405
