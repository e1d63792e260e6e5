"""Deletion: at once, by grace, held by finalizers, under conditions (pytest.mark.real)."""

from datetime import datetime

from tests.conformance.objects import config, named, pod
from tests.conformance.targets import Api, Json

OPTIONS: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}


async def test_what_was_deleted_is_gone(api: Api) -> None:
    made = await api.make(api.at("secrets"), named("a"))
    got = await api.delete(api.at("secrets", "a"))
    assert got.status == 200
    assert got.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "secrets", "uid": made["metadata"]["uid"]},
    }
    assert (await api.get(api.at("secrets", "a"))).status == 404


async def test_what_is_gone_cannot_be_deleted(api: Api) -> None:
    got = await api.delete(api.at("secrets", "a"))
    assert got.refusal == (404, "NotFound", 'secrets "a" not found')


async def test_a_deletion_of_another_uid_is_a_conflict(api: Api) -> None:
    made = await api.make(api.at("secrets"), named("a"))
    got = await api.delete(api.at("secrets", "a"), {**OPTIONS, "preconditions": {"uid": "x"}})
    words = (
        'Operation cannot be fulfilled on Secret "a": the UID in the precondition (x) does not '
        f"match the UID in record ({made['metadata']['uid']}). The object might have been "
        "deleted and then recreated"
    )
    assert got.refusal == (409, "Conflict", words)
    assert (await api.get(api.at("secrets", "a"))).status == 200


async def test_a_deletion_of_another_version_is_a_conflict(api: Api) -> None:
    made = await api.make(api.at("secrets"), named("a"))
    conditions = {"preconditions": {"resourceVersion": "1"}}
    got = await api.delete(api.at("secrets", "a"), {**OPTIONS, **conditions})
    words = (
        'Operation cannot be fulfilled on Secret "a": the ResourceVersion in the precondition '
        "(1) does not match the ResourceVersion in record "
        f"({made['metadata']['resourceVersion']}). The object might have been modified"
    )
    assert got.refusal == (409, "Conflict", words)
    assert (await api.get(api.at("secrets", "a"))).status == 200


async def test_a_deletion_whose_conditions_hold_works(api: Api) -> None:
    meta = (await api.make(api.at("secrets"), named("a")))["metadata"]
    conditions = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    got = await api.delete(api.at("secrets", "a"), {**OPTIONS, "preconditions": conditions})
    assert got.status == 200
    assert (await api.get(api.at("secrets", "a"))).status == 404


# Finalizers


async def test_a_finalizer_keeps_what_was_deleted(api: Api) -> None:
    await api.make(api.at("configmaps"), named("a", finalizers=["test.io/hold"]))
    got = await api.delete(api.at("configmaps", "a"))
    assert (got.status, got.json["kind"]) == (200, "ConfigMap")
    meta = (await api.read(api.at("configmaps", "a")))["metadata"]
    assert meta["deletionTimestamp"]
    assert meta["deletionGracePeriodSeconds"] == 0
    await api.change(api.at("configmaps", "a"), {"metadata": {"finalizers": None}})


async def test_the_last_finalizer_lets_it_go(api: Api) -> None:
    await api.make(api.at("configmaps"), named("a", finalizers=["test.io/a", "test.io/b"]))
    await api.delete(api.at("configmaps", "a"))
    path = api.at("configmaps", "a")
    await api.change(path, {"metadata": {"finalizers": ["test.io/b"]}})
    assert (await api.get(path)).status == 200
    await api.change(path, {"metadata": {"finalizers": None}})
    assert (await api.get(path)).status == 404


async def test_no_finalizer_can_be_added_during_a_deletion(api: Api) -> None:
    await api.make(api.at("configmaps"), named("a", finalizers=["test.io/a"]))
    path = api.at("configmaps", "a")
    await api.delete(path)
    got = await api.patch(path, {"metadata": {"finalizers": ["test.io/a", "test.io/b"]}})
    words = (
        'ConfigMap "a" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added '
        'if the object is being deleted, found new finalizers []string{"test.io/b"}'
    )
    assert got.refusal == (422, "Invalid", words)
    await api.change(path, {"metadata": {"finalizers": None}})


async def test_a_finalizer_without_a_domain_is_refused(api: Api) -> None:
    got = await api.post(api.at("configmaps"), named("a", finalizers=["hold"]))
    words = (
        'ConfigMap "a" is invalid: metadata.finalizers[0]: Invalid value: "hold": name is neither '
        "a standard finalizer name nor is it fully qualified"
    )
    assert got.refusal == (422, "Invalid", words)


async def test_a_deletion_cannot_be_taken_back(api: Api) -> None:
    await api.make(api.at("configmaps"), named("a", finalizers=["test.io/a"]))
    path = api.at("configmaps", "a")
    await api.delete(path)
    changed = await api.change(path, {"metadata": {"deletionTimestamp": None}})
    assert changed["metadata"]["deletionTimestamp"]
    await api.change(path, {"metadata": {"finalizers": None}})


async def test_deleting_twice_changes_nothing(api: Api) -> None:
    await api.make(api.at("configmaps"), named("a", finalizers=["test.io/a"]))
    path = api.at("configmaps", "a")
    first, second = (await api.delete(path)).json, (await api.delete(path)).json
    assert first == second
    await api.change(path, {"metadata": {"finalizers": None}})


# Pods


def seconds_left(meta: Json) -> float:
    """From the moment of creation, which is nearly that of the deletion."""
    ends, began = (
        datetime.fromisoformat(meta[field]) for field in ("deletionTimestamp", "creationTimestamp")
    )
    return (ends - began).total_seconds()


async def test_a_pod_on_a_node_is_given_its_grace(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    meta = (await api.delete(api.at("pods", "a"))).json["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 30
    assert 30 <= seconds_left(meta) <= 45
    assert meta["generation"] == 2
    assert (await api.get(api.at("pods", "a"))).status == 200


async def test_the_grace_of_a_pod_can_be_asked_for(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    got = await api.delete(api.at("pods", "a"), {**OPTIONS, "gracePeriodSeconds": 5})
    assert got.json["metadata"]["deletionGracePeriodSeconds"] == 5


async def test_a_deletion_can_be_hurried(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    await api.delete(api.at("pods", "a"))
    meta = (await api.delete(api.at("pods", "a") + "?gracePeriodSeconds=5")).json["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 5
    assert 5 <= seconds_left(meta) <= 20


async def test_hurrying_a_deletion_is_no_new_generation(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    await api.delete(api.at("pods", "a"))
    got = await api.delete(api.at("pods", "a") + "?gracePeriodSeconds=5")
    assert got.json["metadata"]["generation"] == 2


async def test_a_deletion_cannot_be_delayed(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    first = (await api.delete(api.at("pods", "a") + "?gracePeriodSeconds=5")).json
    assert (await api.delete(api.at("pods", "a") + "?gracePeriodSeconds=50")).json == first


async def test_no_grace_is_the_end(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    await api.delete(api.at("pods", "a"))
    got = await api.delete(api.at("pods", "a") + "?gracePeriodSeconds=0")
    assert (got.status, got.json["kind"]) == (200, "Pod")
    assert (await api.get(api.at("pods", "a"))).status == 404


async def test_a_pod_without_a_node_needs_no_grace(api: Api) -> None:
    await api.make(api.at("pods"), pod("a", nodeName=""))
    got = await api.delete(api.at("pods", "a"))
    assert got.json["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await api.get(api.at("pods", "a"))).status == 404


async def test_a_pod_that_has_ended_needs_no_grace(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    await api.change(api.at("pods", "a", "status"), {"status": {"phase": "Succeeded"}})
    await api.delete(api.at("pods", "a"))
    assert (await api.get(api.at("pods", "a"))).status == 404


async def test_a_finalizer_keeps_a_pod_beyond_its_grace(api: Api) -> None:
    body = pod("a")
    body["metadata"]["finalizers"] = ["test.io/a"]
    await api.make(api.at("pods"), body)
    path = api.at("pods", "a")
    await api.delete(path + "?gracePeriodSeconds=0")
    assert (await api.read(path))["metadata"]["deletionGracePeriodSeconds"] == 0
    await api.change(path, {"metadata": {"finalizers": None}})
    assert (await api.get(path)).status == 404


# Collections and propagation


async def test_a_collection_is_deleted_as_far_as_it_is_selected(api: Api) -> None:
    for name, app in (("a", "web"), ("b", "web"), ("c", "db")):
        await api.make(api.at("secrets"), named(name, labels={"app": app}))
    got = await api.delete(api.at("secrets") + "?labelSelector=app%3Dweb")
    assert (got.status, len(got.json["items"])) == (200, 2)
    assert await api.names(api.at("secrets")) == ["c"]


async def test_a_policy_that_does_not_exist_is_refused(api: Api) -> None:
    await api.make(api.at("configmaps"), config("a"))
    got = await api.delete(api.at("configmaps", "a"), {**OPTIONS, "propagationPolicy": "Bogus"})
    words = (
        'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Bogus": '
        'supported values: "Foreground", "Background", "Orphan", "nil"'
    )
    assert got.refusal == (422, "Invalid", words)


async def test_options_that_are_not_json_are_refused(api: Api) -> None:
    await api.make(api.at("configmaps"), config("a"))
    got = await api.delete(api.at("configmaps", "a"), b"zz")
    words = (
        "couldn't get version/kind; json parse error: invalid character 'z' looking for beginning "
        "of value"
    )
    assert got.refusal == (400, "BadRequest", words)
    assert (await api.get(api.at("configmaps", "a"))).status == 200
