"""Creating and reading objects, on every target (see conftest; one of them is pytest.mark.real)."""

import re

from tests.conformance.objects import config, named, pod
from tests.conformance.targets import Api

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


async def test_a_created_object_is_answered_whole_and_can_be_read(api: Api) -> None:
    made = await api.make(api.at("configmaps"), config("a", x="1"))
    assert (made["kind"], made["apiVersion"]) == ("ConfigMap", "v1")
    assert await api.read(api.at("configmaps", "a")) == made


async def test_an_object_is_given_a_uid_a_version_and_a_time(api: Api) -> None:
    meta = (await api.make(api.at("secrets"), named("a")))["metadata"]
    assert UUID.fullmatch(meta["uid"])
    assert meta["resourceVersion"].isdecimal()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])


async def test_a_uid_that_a_creator_makes_up_is_not_taken(api: Api) -> None:
    made = await api.make(api.at("secrets"), named("a", uid="mine"))
    assert made["metadata"]["uid"] != "mine"


async def test_a_namespace_that_was_left_out_is_the_one_of_the_path(api: Api) -> None:
    made = await api.make(api.at("secrets"), named("a"))
    assert made["metadata"]["namespace"] == api.namespace


async def test_another_namespace_than_that_of_the_path_is_refused(api: Api) -> None:
    got = await api.post(api.at("secrets"), named("a", namespace="default"))
    words = "the namespace of the provided object does not match the namespace sent on the request"
    assert got.refusal == (400, "BadRequest", words)


async def test_a_namespace_that_does_not_exist_is_not_found(api: Api) -> None:
    got = await api.post("/api/v1/namespaces/no-such/secrets", named("a"))
    assert got.refusal == (404, "NotFound", 'namespaces "no-such" not found')
    assert got.details == {"name": "no-such", "kind": "namespaces"}


async def test_a_name_that_is_taken_is_refused(api: Api) -> None:
    await api.make(api.at("secrets"), named("a"))
    got = await api.post(api.at("secrets"), named("a"))
    assert got.refusal == (409, "AlreadyExists", 'secrets "a" already exists')
    assert got.details == {"name": "a", "kind": "secrets"}


async def test_a_name_is_made_from_its_beginning(api: Api) -> None:
    body = {"metadata": {"generateName": "job-"}}
    first = (await api.make(api.at("secrets"), body))["metadata"]
    second = (await api.make(api.at("secrets"), body))["metadata"]
    assert re.fullmatch(r"job-[a-z0-9]{5}", first["name"])
    assert first["generateName"] == "job-"
    assert first["name"] != second["name"]


async def test_a_long_beginning_of_a_name_is_cut(api: Api) -> None:
    body = {"metadata": {"generateName": "b" * 80}}
    made = await api.make(api.at("secrets"), body)
    assert len(made["metadata"]["name"]) == 63


async def test_a_name_counts_more_than_its_beginning(api: Api) -> None:
    made = await api.make(api.at("secrets"), named("a", generateName="job-"))
    assert made["metadata"]["name"] == "a"


async def test_an_object_without_any_name_is_refused(api: Api) -> None:
    got = await api.post(api.at("secrets"), {"metadata": {}})
    why = "Required value: name or generateName is required"
    assert got.refusal == (422, "Invalid", f'Secret "" is invalid: metadata.name: {why}')
    cause = {"reason": "FieldValueRequired", "message": why, "field": "metadata.name"}
    assert got.details == {"kind": "Secret", "causes": [cause]}


async def test_a_name_that_is_no_subdomain_is_refused(api: Api) -> None:
    got = await api.post(api.at("secrets"), named("A_b"))
    assert got.status == 422
    why = 'Secret "A_b" is invalid: metadata.name: Invalid value: "A_b": a lowercase RFC 1123 subd'
    assert got.message.startswith(why)


async def test_a_name_that_is_too_long_is_refused(api: Api) -> None:
    got = await api.post(api.at("secrets"), named("a" * 254))
    assert got.status == 422
    assert got.message.endswith('": must be no more than 253 characters')


async def test_the_name_of_a_namespace_has_no_dots(api: Api) -> None:
    got = await api.post("/api/v1/namespaces", named("a.b"))
    why = 'metadata.name: Invalid value: "a.b": must not contain dots'
    assert got.refusal == (422, "Invalid", f'Namespace "a.b" is invalid: {why}')


async def test_a_version_cannot_be_given_to_a_new_object(api: Api) -> None:
    got = await api.post(api.at("secrets"), named("a", resourceVersion="5"))
    assert got.refusal == (500, "", "resourceVersion should not be set on objects to be created")


async def test_an_object_that_is_not_there_is_not_found(api: Api) -> None:
    got = await api.get(api.at("secrets", "nope"))
    assert got.refusal == (404, "NotFound", 'secrets "nope" not found')
    assert got.details == {"name": "nope", "kind": "secrets"}


async def test_a_group_is_part_of_what_is_not_found(api: Api) -> None:
    got = await api.get(api.at("leases", "nope", group="coordination.k8s.io/v1"))
    assert got.refusal == (404, "NotFound", 'leases.coordination.k8s.io "nope" not found')
    assert got.details == {"name": "nope", "group": "coordination.k8s.io", "kind": "leases"}


async def test_a_spec_begins_with_generation_one(api: Api) -> None:
    made = await api.make(api.at("pods"), pod("a"))
    assert made["metadata"]["generation"] == 1


async def test_an_object_without_a_spec_has_no_generation(api: Api) -> None:
    made = await api.make(api.at("configmaps"), config("a"))
    assert "generation" not in made["metadata"]


async def test_the_defaults_of_a_pod_are_filled_in(api: Api) -> None:
    spec = (await api.make(api.at("pods"), pod("a")))["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"


async def test_a_new_pod_is_pending_whatever_its_creator_says(api: Api) -> None:
    made = await api.make(api.at("pods"), {**pod("a"), "status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"


async def test_a_pod_without_containers_is_refused(api: Api) -> None:
    got = await api.post(api.at("pods"), {"metadata": {"name": "a"}, "spec": {}})
    words = 'Pod "a" is invalid: spec.containers: Required value'
    assert got.refusal == (422, "Invalid", words)


async def test_text_in_a_secret_is_kept_as_base64(api: Api) -> None:
    made = await api.make(api.at("secrets"), {**named("a"), "stringData": {"key": "text"}})
    assert made["data"] == {"key": "dGV4dA=="}
    assert made["type"] == "Opaque"
    assert "stringData" not in made


async def test_fields_that_a_kind_does_not_have_are_dropped(api: Api) -> None:
    made = await api.make(api.at("configmaps"), {**config("a"), "bogus": 1})
    assert "bogus" not in made


async def test_one_who_wants_to_know_is_told_of_unknown_fields(api: Api) -> None:
    got = await api.post(
        api.at("configmaps") + "?fieldValidation=Strict", {**config("a"), "bogus": 1, "more": 2}
    )
    words = (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
        'unknown field "bogus", unknown field "more"'
    )
    assert got.refusal == (400, "BadRequest", words)


async def test_unknown_fields_can_be_a_warning(api: Api) -> None:
    path = api.at("configmaps") + "?fieldValidation=Warn"
    got = await api.post(path, {**config("a"), "bogus": 1})
    assert got.status == 201
    assert got.headers["warning"] == '299 - "unknown field \\"bogus\\""'


async def test_a_lease_is_made_by_replacing_what_is_not_there(api: Api) -> None:
    path = api.at("leases", "a", group="coordination.k8s.io/v1")
    got = await api.put(path, {**named("a"), "spec": {"holderIdentity": "me"}})
    assert got.status == 201
    assert (await api.read(path))["spec"] == {"holderIdentity": "me"}


async def test_most_kinds_are_not_made_by_replacing(api: Api) -> None:
    got = await api.put(api.at("secrets", "a"), named("a"))
    assert got.refusal == (404, "NotFound", 'secrets "a" not found')


async def test_an_object_is_listed_in_its_namespace_and_in_all(api: Api) -> None:
    await api.make(api.at("secrets"), named("a"))
    listed = await api.read(api.at("secrets"))
    assert (listed["kind"], listed["apiVersion"]) == ("SecretList", "v1")
    assert "kind" not in listed["items"][0]
    everywhere = (await api.read("/api/v1/secrets"))["items"]
    assert api.namespace in {item["metadata"]["namespace"] for item in everywhere}


async def test_a_list_is_in_the_order_of_names(api: Api) -> None:
    for name in ("b", "c", "a"):
        await api.make(api.at("secrets"), named(name))
    assert await api.names(api.at("secrets")) == ["a", "b", "c"]


async def test_who_made_an_object_is_written_down(api: Api) -> None:
    path = api.at("configmaps")
    made = (await api.post(path + "?fieldManager=ann", config("a", x="1"))).json
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("ann", "Update")
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:x": {}}}


async def test_a_name_of_a_manager_that_is_too_long_is_refused(api: Api) -> None:
    got = await api.post(api.at("configmaps") + "?fieldManager=" + "m" * 129, config("a"))
    words = (
        'CreateOptions.meta.k8s.io "" is invalid: fieldManager: Too long: may not be more than '
        "128 bytes"
    )
    assert got.refusal == (422, "Invalid", words)
