"""Merge, JSON and strategic merge patches, on every target (one is pytest.mark.real)."""

import pytest

from tests.conformance.objects import config, named, pod
from tests.conformance.targets import JSON_PATCH, STRATEGIC, Api, Json

REJECTED = (422, "Invalid", "the server rejected our request due to an error in our request")


async def a_config(api: Api) -> str:
    await api.make(api.at("configmaps"), config("a", x="1", y="2"))
    return api.at("configmaps", "a")


async def test_a_merge_patch_adds_changes_and_removes(api: Api) -> None:
    path = await a_config(api)
    changed = await api.change(path, {"data": {"x": None, "y": "3", "z": "4"}})
    assert changed["data"] == {"y": "3", "z": "4"}


async def test_a_merge_patch_of_nothing_changes_nothing(api: Api) -> None:
    path = await a_config(api)
    assert await api.change(path, {}) == await api.read(path)


async def test_a_merge_patch_replaces_lists(api: Api) -> None:
    path = await a_config(api)
    await api.change(path, {"metadata": {"finalizers": ["test.io/a"]}})
    changed = await api.change(path, {"metadata": {"finalizers": ["test.io/b"]}})
    assert changed["metadata"]["finalizers"] == ["test.io/b"]
    await api.change(path, {"metadata": {"finalizers": None}})


async def test_a_merge_patch_that_is_a_list_is_refused(api: Api) -> None:
    got = await api.patch(await a_config(api), [1])
    words = "json: cannot unmarshal array into Go value of type map[string]interface {}"
    assert got.refusal == (400, "BadRequest", f"error decoding patch: {words}")


async def test_a_merge_patch_that_ends_early_is_refused(api: Api) -> None:
    got = await api.patch(await a_config(api), b"{")
    words = "error decoding patch: unexpected end of JSON input"
    assert got.refusal == (400, "BadRequest", words)


async def test_a_merge_patch_that_is_no_json_is_refused(api: Api) -> None:
    got = await api.patch(await a_config(api), b"zz")
    words = "error decoding patch: invalid character 'z' looking for beginning of value"
    assert got.refusal == (400, "BadRequest", words)


async def test_a_patch_of_what_is_not_there_is_not_found(api: Api) -> None:
    got = await api.patch(api.at("configmaps", "nope"), {"data": {"x": "1"}})
    assert got.refusal == (404, "NotFound", 'configmaps "nope" not found')


async def test_a_patch_cannot_make_another_kind_of_an_object(api: Api) -> None:
    await api.make(api.at("secrets"), named("a"))
    got = await api.patch(api.at("secrets", "a"), {"kind": "ConfigMap"})
    assert got.refusal[:2] == (422, "Invalid")
    assert got.message.startswith(' "" is invalid: patch: Invalid value: "{')
    assert got.message.endswith("converting (v1.ConfigMap) to (core.Secret): unknown conversion")


async def test_a_patch_with_a_value_of_the_wrong_type_is_refused(api: Api) -> None:
    got = await api.patch(await a_config(api), {"data": {"x": 5}})
    assert got.refusal[:2] == (422, "Invalid")
    assert got.message.endswith(
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    )


async def test_fields_of_a_patch_that_nobody_knows_are_dropped(api: Api) -> None:
    path = await a_config(api)
    before = await api.read(path)
    assert await api.change(path, {"bogus": 5}) == before


async def test_a_json_patch_does_one_thing_after_the_other(api: Api) -> None:
    steps = [
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "replace", "path": "/data/x", "value": "9"},
        {"op": "add", "path": "/data/z", "value": "3"},
        {"op": "copy", "from": "/data/z", "path": "/data/c"},
        {"op": "move", "from": "/data/c", "path": "/data/m"},
        {"op": "remove", "path": "/data/y"},
    ]
    changed = await api.change(await a_config(api), steps, JSON_PATCH)
    assert changed["data"] == {"x": "9", "z": "3", "m": "3"}


WRONG_STEPS: dict[str, list[Json]] = {
    "a test fails": [{"op": "test", "path": "/data/x", "value": "2"}],
    "a test of nothing": [{"op": "test", "path": "/data/q", "value": "2"}],
    "removing nothing": [{"op": "remove", "path": "/data/q"}],
    "adding below nothing": [{"op": "add", "path": "/a/b/c", "value": "1"}],
    "no operation": [{"op": "bogus", "path": "/data/q", "value": "1"}],
}


@pytest.mark.parametrize("case", WRONG_STEPS)
async def test_a_json_patch_happens_entirely_or_not_at_all(api: Api, case: str) -> None:
    path = await a_config(api)
    steps = [{"op": "replace", "path": "/data/x", "value": "1"}, *WRONG_STEPS[case]]
    got = await api.patch(path, steps, JSON_PATCH)
    assert got.refusal == REJECTED
    assert (await api.read(path))["data"] == {"x": "1", "y": "2"}


async def test_a_json_patch_that_is_no_list_is_refused(api: Api) -> None:
    got = await api.patch(await a_config(api), {"op": "add"}, JSON_PATCH)
    words = "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
    assert got.refusal == (400, "BadRequest", f"error decoding patch: {words}")


async def test_a_json_patch_of_too_many_steps_is_refused(api: Api) -> None:
    steps = [{"op": "test", "path": "/data/x", "value": "1"}] * 10_001
    got = await api.patch(await a_config(api), steps, JSON_PATCH)
    words = "The allowed maximum operations in a JSON patch is 10000, got 10001"
    refusal = (413, "RequestEntityTooLarge", f"Request entity too large: {words}")
    assert got.refusal == refusal


async def test_a_strategic_patch_merges_lists_by_their_keys(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    patch = {"spec": {"containers": [{"name": "main", "image": "none:2"}]}}
    containers = (await api.change(api.at("pods", "a"), patch, STRATEGIC))["spec"]["containers"]
    assert [(c["name"], c["image"]) for c in containers] == [("main", "none:2")]
    assert containers[0]["terminationMessagePolicy"] == "File"


async def test_a_strategic_patch_can_replace_a_map(api: Api) -> None:
    path = await a_config(api)
    changed = await api.change(path, {"data": {"$patch": "replace", "k": "1"}}, STRATEGIC)
    assert changed["data"] == {"k": "1"}


async def test_a_strategic_patch_can_delete_from_a_list(api: Api) -> None:
    containers = [{"name": "a", "image": "none"}, {"name": "b", "image": "none"}]
    template = {"spec": {"containers": containers}}
    await api.make(api.at("podtemplates"), {**named("t"), "template": template})
    gone = {"template": {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}}
    changed = await api.change(api.at("podtemplates", "t"), gone, STRATEGIC)
    assert [c["name"] for c in changed["template"]["spec"]["containers"]] == ["b"]


async def test_a_strategic_patch_with_an_unknown_directive_is_refused(api: Api) -> None:
    got = await api.patch(await a_config(api), {"data": {"$patch": "bogus"}}, STRATEGIC)
    assert got.refusal == (500, "", "unknown patch type: bogus in map: map[$patch:bogus]")


async def test_a_patch_of_no_known_type_is_refused(api: Api) -> None:
    got = await api.patch(await a_config(api), {}, "application/json")
    assert got.refusal == (415, "UnsupportedMediaType", "415: Unsupported Media Type")


async def test_the_type_of_a_patch_may_have_parameters(api: Api) -> None:
    path = await a_config(api)
    kind = "application/merge-patch+json; charset=utf-8"
    assert (await api.change(path, {"data": {"x": "5"}}, kind))["data"]["x"] == "5"


async def test_force_is_for_applying_only(api: Api) -> None:
    got = await api.patch(await a_config(api) + "?force=true", {"data": {"x": "9"}})
    words = "force: Forbidden: may not be specified for non-apply patch"
    assert got.refusal == (422, "Invalid", f'PatchOptions.meta.k8s.io "" is invalid: {words}')
