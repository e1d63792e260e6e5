"""Server-side apply: who owns what, and what a conflict says (one target: pytest.mark.real)."""

from tests.conformance.objects import applied
from tests.conformance.targets import APPLY, Api, Got, Json


async def apply(api: Api, manager: str, body: object, *, more: str = "") -> Got:
    path = f"{api.at('configmaps', 'a')}?fieldManager={manager}{more}"
    return await api.patch(path, body, APPLY)


def owners(obj: Json) -> dict[str, object]:
    return {e["manager"]: e["fieldsV1"] for e in obj["metadata"]["managedFields"]}


async def test_applying_what_is_not_there_creates_it(api: Api) -> None:
    got = await apply(api, "ann", applied("a", x="1"))
    assert got.status == 201
    (entry,) = got.json["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("ann", "Apply")
    assert entry["fieldsV1"] == {"f:data": {"f:x": {}}}


async def test_applying_the_same_again_changes_nothing(api: Api) -> None:
    first = await apply(api, "ann", applied("a", x="1"))
    second = await apply(api, "ann", applied("a", x="1"))
    assert (second.status, second.json) == (200, first.json)


async def test_two_managers_can_each_own_their_fields(api: Api) -> None:
    await apply(api, "ann", applied("a", x="1"))
    made = (await apply(api, "bob", applied("a", y="2"))).json
    assert made["data"] == {"x": "1", "y": "2"}
    assert owners(made) == {"ann": {"f:data": {"f:x": {}}}, "bob": {"f:data": {"f:y": {}}}}


async def test_a_value_that_both_want_has_two_owners(api: Api) -> None:
    await apply(api, "ann", applied("a", x="1"))
    made = (await apply(api, "bob", applied("a", x="1"))).json
    assert owners(made) == {"ann": {"f:data": {"f:x": {}}}, "bob": {"f:data": {"f:x": {}}}}


async def test_another_value_for_a_field_of_somebody_else_is_a_conflict(api: Api) -> None:
    await apply(api, "ann", applied("a", x="1"))
    got = await apply(api, "bob", applied("a", x="2"))
    words = 'Apply failed with 1 conflict: conflict with "ann": .data.x'
    assert got.refusal == (409, "Conflict", words)
    cause = {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "ann"',
        "field": ".data.x",
    }
    assert got.details == {"causes": [cause]}


async def test_a_conflict_names_every_field(api: Api) -> None:
    await apply(api, "ann", applied("a", x="1", y="1"))
    got = await apply(api, "bob", applied("a", x="2", y="2"))
    assert got.message == (
        'Apply failed with 2 conflicts: conflicts with "ann":\n- .data.x\n- .data.y'
    )


async def test_one_who_wrote_without_applying_owns_it_too(api: Api) -> None:
    await apply(api, "ann", applied("a", x="1"))
    await api.change(api.at("configmaps", "a") + "?fieldManager=bob", {"data": {"x": "2"}})
    got = await apply(api, "ann", applied("a", x="3"))
    assert got.status == 409
    assert 'conflict with "bob" using v1' in got.message


async def test_force_takes_the_field(api: Api) -> None:
    await apply(api, "ann", applied("a", x="1", y="1"))
    made = (await apply(api, "bob", applied("a", x="2"), more="&force=true")).json
    assert made["data"] == {"x": "2", "y": "1"}
    assert owners(made) == {"ann": {"f:data": {"f:y": {}}}, "bob": {"f:data": {"f:x": {}}}}


async def test_what_is_no_longer_applied_is_removed(api: Api) -> None:
    await apply(api, "ann", applied("a", x="1", y="1"))
    made = (await apply(api, "ann", applied("a", x="1"))).json
    assert made["data"] == {"x": "1"}


async def test_what_somebody_else_owns_too_stays(api: Api) -> None:
    await apply(api, "ann", applied("a", x="1"))
    await apply(api, "bob", applied("a", x="1"))
    made = (await apply(api, "ann", applied("a"))).json
    assert made["data"] == {"x": "1"}


async def test_applying_needs_a_manager(api: Api) -> None:
    got = await api.patch(api.at("configmaps", "a"), applied("a"), APPLY)
    words = "fieldManager: Required value: is required for apply patch"
    assert got.refusal == (422, "Invalid", f'PatchOptions.meta.k8s.io "" is invalid: {words}')


async def test_what_is_applied_says_what_it_is(api: Api) -> None:
    got = await apply(api, "ann", {"metadata": {"name": "a"}})
    assert got.refusal == (400, "BadRequest", "invalid object type: /, Kind=")


async def test_another_kind_cannot_be_applied(api: Api) -> None:
    got = await apply(api, "ann", {**applied("a"), "kind": "Secret"})
    assert got.refusal == (400, "BadRequest", "invalid object type: /v1, Kind=Secret")


async def test_another_name_cannot_be_applied(api: Api) -> None:
    got = await apply(api, "ann", applied("b"))
    words = "the name of the object (b) does not match the name on the URL (a)"
    assert got.refusal == (400, "BadRequest", words)


async def test_ownership_cannot_be_applied(api: Api) -> None:
    body = applied("a")
    body["metadata"]["managedFields"] = [{"manager": "x"}]
    got = await apply(api, "ann", body)
    assert got.refusal == (400, "BadRequest", "metadata.managedFields must be nil")


async def test_yaml_can_be_applied(api: Api) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: '1'\n"
    got = await apply(api, "ann", text)
    assert (got.status, got.json["data"]) == (201, {"x": "1"})


async def test_an_unknown_field_cannot_be_applied(api: Api) -> None:
    got = await apply(api, "ann", {**applied("a"), "bogus": 1})
    words = (
        "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .bogus: field not "
        "declared in schema"
    )
    assert got.refusal == (500, "", words)


async def test_an_apply_of_a_uid_that_is_not_there_is_a_conflict(api: Api) -> None:
    body = applied("a")
    body["metadata"]["uid"] = "1"
    got = await apply(api, "ann", body)
    words = (
        'Operation cannot be fulfilled on configmaps "a": uid mismatch: the provided object '
        "specified uid 1, and no existing object was found"
    )
    assert got.refusal == (409, "Conflict", words)
