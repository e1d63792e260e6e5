"""Versions, preconditions and what may not change, on every target (one is pytest.mark.real)."""

from tests.conformance.objects import config, named
from tests.conformance.targets import Api

STALE = (
    'Operation cannot be fulfilled on secrets "a": the object has been modified; please apply '
    "your changes to the latest version and try again"
)


async def test_each_change_gives_a_later_version(api: Api) -> None:
    made = await api.make(api.at("configmaps"), config("a", x="1"))
    changed = await api.change(api.at("configmaps", "a"), {"data": {"x": "2"}})
    before, after = (int(o["metadata"]["resourceVersion"]) for o in (made, changed))
    assert before < after


async def test_a_change_of_nothing_keeps_the_version(api: Api) -> None:
    made = await api.make(api.at("configmaps"), config("a", x="1"))
    assert await api.change(api.at("configmaps", "a"), {"data": {"x": "1"}}) == made


async def test_versions_are_shared_by_all_kinds(api: Api) -> None:
    first = await api.make(api.at("configmaps"), config("a"))
    second = await api.make(api.at("secrets"), named("a"))
    before, after = (int(o["metadata"]["resourceVersion"]) for o in (first, second))
    assert before < after


async def test_a_replacement_of_an_old_version_is_a_conflict(api: Api) -> None:
    made = await api.make(api.at("secrets"), named("a"))
    await api.change(api.at("secrets", "a"), {"data": {"x": "YQ=="}})
    got = await api.put(api.at("secrets", "a"), made)
    assert got.refusal == (409, "Conflict", STALE)
    assert got.details == {"name": "a", "kind": "secrets"}


async def test_a_replacement_of_the_current_version_works(api: Api) -> None:
    made = await api.make(api.at("secrets"), named("a"))
    got = await api.put(api.at("secrets", "a"), {**made, "data": {"x": "YQ=="}})
    assert (got.status, got.json["data"]) == (200, {"x": "YQ=="})


async def test_a_replacement_without_a_version_asks_no_questions(api: Api) -> None:
    await api.make(api.at("configmaps"), config("a", x="1"))
    got = await api.put(api.at("configmaps", "a"), config("a", x="2"))
    assert (got.status, got.json["data"]) == (200, {"x": "2"})


async def test_a_lease_is_not_replaced_without_a_version(api: Api) -> None:
    path = api.at("leases", group="coordination.k8s.io/v1")
    await api.make(path, named("a"))
    got = await api.put(path + "/a", named("a"))
    why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    assert got.refusal == (422, "Invalid", f'leases.coordination.k8s.io "a" is invalid: {why}')


async def test_a_version_that_is_no_number_is_refused(api: Api) -> None:
    await api.make(api.at("secrets"), named("a"))
    got = await api.put(api.at("secrets", "a"), named("a", resourceVersion="x"))
    assert got.refusal == (500, "", 'strconv.ParseUint: parsing "x": invalid syntax')


async def test_a_replacement_of_another_uid_is_a_conflict(api: Api) -> None:
    made = await api.make(api.at("secrets"), named("a"))
    got = await api.put(api.at("secrets", "a"), named("a", uid="1"))
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/secrets/{api.namespace}/a, "
        "ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: 1, "
        f"UID in object meta: {made['metadata']['uid']}"
    )
    assert got.refusal[:2] == (409, "Conflict")
    assert got.message == f'Operation cannot be fulfilled on secrets "a": {why}'


async def test_a_patch_of_another_version_is_a_conflict(api: Api) -> None:
    await api.make(api.at("secrets"), named("a"))
    patch = {"metadata": {"resourceVersion": "1"}, "data": {"x": "YQ=="}}
    got = await api.patch(api.at("secrets", "a"), patch)
    assert got.refusal == (409, "Conflict", STALE)


async def test_a_patch_of_the_current_version_works(api: Api) -> None:
    made = await api.make(api.at("secrets"), named("a"))
    version = made["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "data": {"x": "YQ=="}}
    assert (await api.change(api.at("secrets", "a"), patch))["data"] == {"x": "YQ=="}


async def test_a_patch_cannot_change_a_uid(api: Api) -> None:
    await api.make(api.at("secrets"), named("a"))
    got = await api.patch(api.at("secrets", "a"), {"metadata": {"uid": "1"}})
    why = 'Secret "a" is invalid: metadata.uid: Invalid value: "1": field is immutable'
    assert got.refusal == (422, "Invalid", why)


async def test_a_patch_cannot_change_a_name(api: Api) -> None:
    await api.make(api.at("secrets"), named("a"))
    got = await api.patch(api.at("secrets", "a"), {"metadata": {"name": "b"}})
    words = "the name of the object (b) does not match the name on the URL (a)"
    assert got.refusal == (400, "BadRequest", words)


async def test_a_replacement_that_names_another_object_is_refused(api: Api) -> None:
    await api.make(api.at("secrets"), named("a"))
    got = await api.put(api.at("secrets", "a"), named("b"))
    words = "the name of the object (b) does not match the name on the URL (a)"
    assert got.refusal == (400, "BadRequest", words)


async def test_a_replacement_that_names_no_object_is_refused(api: Api) -> None:
    await api.make(api.at("secrets"), named("a"))
    got = await api.put(api.at("secrets", "a"), {"metadata": {}})
    words = "the name of the object (a based on URL) was undeterminable: name must be provided"
    assert got.refusal == (400, "BadRequest", words)


async def test_a_replacement_in_another_namespace_is_refused(api: Api) -> None:
    await api.make(api.at("secrets"), named("a"))
    got = await api.put(api.at("secrets", "a"), named("a", namespace="default"))
    words = "the namespace of the provided object does not match the namespace sent on the request"
    assert got.refusal == (400, "BadRequest", words)


async def test_what_was_declared_immutable_stays(api: Api) -> None:
    await api.make(api.at("configmaps"), {**config("a", x="1"), "immutable": True})
    got = await api.patch(api.at("configmaps", "a"), {"data": {"x": "2"}})
    words = "data: Forbidden: field is immutable when `immutable` is set"
    assert got.refusal == (422, "Invalid", f'ConfigMap "a" is invalid: {words}')


async def test_the_time_of_creation_cannot_be_changed(api: Api) -> None:
    made = await api.make(api.at("secrets"), named("a"))
    body = named("a", creationTimestamp="2001-01-01T00:00:00Z", labels={"x": "y"})
    got = await api.put(api.at("secrets", "a"), body)
    assert got.status == 200
    assert got.json["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


async def test_two_who_saw_the_same_version_cannot_both_win(api: Api) -> None:
    made = await api.make(api.at("configmaps"), config("a", x="0"))
    path = api.at("configmaps", "a")
    codes = [(await api.put(path, {**made, "data": {"x": str(n)}})).status for n in (1, 2)]
    assert codes == [200, 409]
    assert (await api.read(path))["data"] == {"x": "1"}


async def test_what_a_creator_leaves_empty_of_the_metadata_is_not_there(api: Api) -> None:
    body = named("a", labels={}, annotations=None, finalizers=[])
    made = await api.make(api.at("secrets"), body)
    assert made["metadata"].keys().isdisjoint(("labels", "annotations", "finalizers"))
