"""Merge patches, JSON patches and strategic merge patches, in the words of a real server."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.sim.api.kinds import ANY, Kinds, Object, Schema
from backstay.sim.api.patches import json_patch, merge_patch, same, strategic_patch
from backstay.sim.api.status import Refusal

KINDS = Kinds()
INAPPLICABLE = "the server rejected our request due to an error in our request"

SCALARS = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from("ab")
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), JSON)


def obj() -> Object:
    return {
        "metadata": {"name": "x", "labels": {"a": "1"}},
        "spec": {"ports": [80, 443], "on": True},
    }


def refusal(attempt: Any) -> tuple[int, str, str]:
    with pytest.raises(Refusal) as caught:
        attempt()
    return caught.value.code, caught.value.reason, caught.value.message


# Values


@pytest.mark.parametrize(("left", "right"), [(True, 1), ([{"a": False}], [{"a": 0}]), (0, None)])
def test_a_truth_is_not_a_number(left: Any, right: Any) -> None:
    assert not same(left, right)


@given(JSON)
def test_a_value_is_the_same_as_itself(value: Any) -> None:
    assert same(value, value)


# Merge patches


def test_a_merge_patch_merges_maps_and_replaces_everything_else() -> None:
    patch = {"metadata": {"labels": {"b": "2"}}, "spec": {"ports": [22]}}
    assert merge_patch(obj(), patch) == {
        "metadata": {"name": "x", "labels": {"a": "1", "b": "2"}},
        "spec": {"ports": [22], "on": True},
    }


def test_a_null_in_a_merge_patch_deletes() -> None:
    patched = merge_patch(obj(), {"metadata": {"labels": {"a": None}}, "spec": {"ports": None}})
    assert patched == {"metadata": {"name": "x", "labels": {}}, "spec": {"on": True}}


def test_a_null_in_what_a_merge_patch_adds_is_nothing() -> None:
    patched = merge_patch({"a": 1}, {"a": {"x": None, "y": [{"z": None}]}, "b": {"c": None}})
    assert patched == {"a": {"y": [{}]}, "b": {}}


def test_a_merge_patch_copies_the_way_to_a_change_and_nothing_else() -> None:
    original = obj()
    patched = merge_patch(original, {"metadata": {"labels": {"b": "2"}}})
    assert patched["spec"] is original["spec"]
    assert original == obj()


def test_a_merge_patch_that_changes_nothing_gives_the_same_object() -> None:
    original = obj()
    assert merge_patch(original, {"spec": {"ports": [80, 443], "no": None}}) is original


def test_a_merge_patch_tells_true_from_one() -> None:
    assert merge_patch({"a": {"b": 1}}, {"a": {"b": True}})["a"]["b"] is True


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_does_not_touch_what_it_is_given(original: Object, patch: Object) -> None:
    before = repr((original, patch))
    merge_patch(original, patch)
    assert repr((original, patch)) == before


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (None, "Invalid JSON Patch"),
        ([], "error decoding patch: json: cannot unmarshal array into Go value of type "
             "map[string]interface {}"),
        ("x", "error decoding patch: json: cannot unmarshal string into Go value of type "
              "map[string]interface {}"),
        (1, "error decoding patch: json: cannot unmarshal number into Go value of type "
            "map[string]interface {}"),
    ],
)  # fmt: skip
def test_a_merge_patch_must_be_a_map(patch: Any, message: str) -> None:
    assert refusal(lambda: merge_patch(obj(), patch)) == (400, "BadRequest", message)


# JSON patches


def op(name: str, path: str, **more: Any) -> Object:
    return {"op": name, "path": path, **more}


@pytest.mark.parametrize(
    ("operation", "spec"),
    [
        (op("add", "/spec/new", value=1), {"ports": [80, 443], "on": True, "new": 1}),
        (op("add", "/spec/ports/1", value=22), {"ports": [80, 22, 443], "on": True}),
        (op("add", "/spec/ports/-", value=22), {"ports": [80, 443, 22], "on": True}),
        (op("add", "/spec/ports/-1", value=22), {"ports": [80, 443, 22], "on": True}),
        (op("remove", "/spec/ports/0"), {"ports": [443], "on": True}),
        (op("remove", "/spec/ports/-1"), {"ports": [80], "on": True}),
        (op("remove", "/spec/on"), {"ports": [80, 443]}),
        (op("replace", "/spec/ports/1", value=22), {"ports": [80, 22], "on": True}),
        (op("replace", "/spec/new", value=1), {"ports": [80, 443], "on": True, "new": 1}),
        (op("move", "/spec/off", **{"from": "/spec/on"}), {"ports": [80, 443], "off": True}),
        (op("copy", "/spec/off", **{"from": "/spec/on"}),
         {"ports": [80, 443], "on": True, "off": True}),
        (op("copy", "/spec/off", **{"from": "/spec/none"}),
         {"ports": [80, 443], "on": True, "off": None}),
        (op("test", "/spec/ports", value=[80, 443]), {"ports": [80, 443], "on": True}),
        (op("test", "/spec/none", value=None), {"ports": [80, 443], "on": True}),
        (op("test", "", value=obj()), {"ports": [80, 443], "on": True}),
    ],
)  # fmt: skip
def test_an_operation_of_a_json_patch(operation: Object, spec: Object) -> None:
    assert json_patch(obj(), [operation])["spec"] == spec


def test_a_path_of_a_json_patch_can_name_any_key() -> None:
    patched = json_patch({"a/b": {"c~d": 1}}, [op("replace", "/a~1b/c~0d", value=2)])
    assert patched == {"a/b": {"c~d": 2}}


def test_a_json_patch_can_replace_the_whole_document() -> None:
    assert json_patch(obj(), [op("replace", "", value={"a": 1})]) == {"a": 1}


def test_a_json_patch_happens_as_a_whole_or_not_at_all() -> None:
    original = obj()
    operations = [op("remove", "/spec"), op("test", "/metadata/name", value="y")]
    assert refusal(lambda: json_patch(original, operations)) == (422, "Invalid", INAPPLICABLE)
    assert original == obj()


def test_a_json_patch_copies_the_way_to_a_change_and_nothing_else() -> None:
    original = obj()
    patched = json_patch(original, [op("add", "/metadata/labels/b", value="2")])
    assert patched["spec"] is original["spec"]
    assert original == obj()


def test_a_json_patch_that_only_tests_gives_the_same_object() -> None:
    original = obj()
    assert json_patch(original, [op("test", "/spec/on", value=True)]) is original
    assert json_patch(original, None) is original


@pytest.mark.parametrize(
    "operation",
    [
        {},
        {"op": "add"},
        op("invent", "/x"),
        op("test", "/spec/on", value=1),
        op("test", "/none/x", value=1),
        op("remove", "/spec/none"),
        op("remove", ""),
        op("remove", "spec"),
        op("remove", "/spec/ports/2"),
        op("remove", "/spec/ports/-3"),
        op("remove", "/spec/ports/x"),
        op("remove", "/spec/ports/²"),
        op("remove", "/spec/on/x"),
        op("replace", "/spec/ports/2", value=1),
        op("replace", "/none/x", value=1),
        op("replace", "", value=1),
        op("add", "/none/x", value=1),
        op("add", "/spec/ports/4", value=1),
        op("add", "", value={}),
        op("move", "/spec/x"),
        op("move", "/spec/x", **{"from": "/spec/none"}),
        op("copy", "/none/x", **{"from": "/spec/on"}),
    ],
    ids=str,
)
def test_an_operation_that_does_not_apply_is_refused_without_a_reason(operation: Object) -> None:
    expected = (422, "Invalid", INAPPLICABLE)
    assert refusal(lambda: json_patch(obj(), [operation])) == expected


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ({}, "object into Go value of type []handlers.jsonPatchOp"),
        ([1], "number into Go value of type handlers.jsonPatchOp"),
        ([{"op": 1}], "number into Go struct field jsonPatchOp.op of type string"),
        ([{"op": "add", "path": []}], "array into Go struct field jsonPatchOp.path of type string"),
    ],
)
def test_a_json_patch_must_be_a_list_of_operations(operations: Any, message: str) -> None:
    expected = (400, "BadRequest", f"error decoding patch: json: cannot unmarshal {message}")
    assert refusal(lambda: json_patch(obj(), operations)) == expected


def test_a_json_patch_has_an_end() -> None:
    operations = [op("test", "/spec/on", value=True)] * 10_001
    code, reason, message = refusal(lambda: json_patch(obj(), operations))
    assert (code, reason) == (413, "RequestEntityTooLarge")
    assert message.endswith("maximum operations in a JSON patch is 10000, got 10001")


# Strategic merge patches


def pod(**spec: Any) -> Object:
    containers = [
        {"name": "a", "image": "i", "env": [{"name": "X", "value": "1"}]},
        {"name": "b", "image": "i"},
    ]
    meta = {"name": "p", "finalizers": ["e.x/a", "e.x/b"], "labels": {"l": "1"}}
    return {"metadata": meta, "spec": {"containers": containers, **spec}}


def patched(original: Object, patch: Any) -> Object:
    info = KINDS.find("", "v1", "pods")
    assert info is not None
    return strategic_patch(original, patch, KINDS.schema(info), KINDS.types)


def names(original: Object, *containers: Object, **more: Any) -> list[str]:
    changed = patched(original, {"spec": {"containers": list(containers), **more}})
    return [c["name"] for c in changed["spec"]["containers"]]


def test_lists_merge_by_their_merge_key() -> None:
    containers = patched(pod(), {"spec": {"containers": [{"name": "b", "image": "j"}]}})["spec"]
    assert containers["containers"] == [pod()["spec"]["containers"][0], {"name": "b", "image": "j"}]


def test_lists_in_list_items_merge_too() -> None:
    env = [{"name": "Y", "value": "2"}]
    changed = patched(pod(), {"spec": {"containers": [{"name": "a", "env": env}]}})
    merged = changed["spec"]["containers"][0]["env"]
    assert merged == [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]


def test_new_items_come_before_those_that_they_were_patched_before() -> None:
    assert names(pod(), {"name": "c", "image": "i"}) == ["c", "a", "b"]
    assert names(pod(), {"name": "a"}, {"name": "c", "image": "i"}) == ["a", "c", "b"]
    assert names(pod(), {"name": "b"}, {"name": "a"}) == ["b", "a"]


def test_lists_without_a_merge_strategy_are_replaced() -> None:
    original = pod(tolerations=[{"key": "a"}])
    changed = patched(original, {"spec": {"tolerations": [{"key": "b", "$patch": "delete"}]}})
    assert changed["spec"]["tolerations"] == [{"key": "b"}]


def test_lists_of_values_merge_as_sets() -> None:
    changed = patched(pod(), {"metadata": {"finalizers": ["e.x/c", "e.x/a"]}})
    assert changed["metadata"]["finalizers"] == ["e.x/c", "e.x/a", "e.x/b"]


def test_values_are_deleted_from_a_list_by_a_list_beside_it() -> None:
    changed = patched(pod(), {"metadata": {"$deleteFromPrimitiveList/finalizers": ["e.x/a"]}})
    assert changed["metadata"]["finalizers"] == ["e.x/b"]


def test_an_item_is_deleted_by_its_merge_key() -> None:
    assert names(pod(), {"name": "a", "$patch": "delete"}) == ["b"]


def test_a_list_is_replaced_where_the_patch_says_so() -> None:
    assert names(pod(), {"$patch": "replace"}, {"name": "c", "image": "i"}) == ["c"]


def test_a_map_is_replaced_or_deleted_where_the_patch_says_so() -> None:
    replaced = patched(pod(), {"metadata": {"labels": {"$patch": "replace", "m": "2"}}})
    deleted = patched(pod(), {"metadata": {"labels": {"$patch": "delete"}}})
    assert replaced["metadata"]["labels"] == {"m": "2"}
    assert deleted["metadata"]["labels"] == {}


def test_the_order_of_a_list_can_be_set() -> None:
    def order(*keys: str) -> Object:
        return {"$setElementOrder/containers": [{"name": key} for key in keys]}

    assert names(pod(), **order("b", "a")) == ["b", "a"]
    assert names(pod(), {"name": "c", "image": "i"}, **order("b", "c", "a")) == ["b", "c", "a"]
    assert names(pod(), {"name": "c", "image": "i"}, **order("b", "c")) == ["a", "b", "c"]


def test_only_retained_keys_stay() -> None:
    original = pod(volumes=[{"name": "v", "emptyDir": {}}])
    volume = {"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}
    changed = patched(original, {"spec": {"volumes": [volume]}})
    assert changed["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]


def test_a_null_deletes_and_adds_nothing() -> None:
    patch = {
        "metadata": {"labels": {"l": None, "m": None}},
        "spec": {"volumes": None, "x": {"y": None}},
    }
    changed = patched(pod(), patch)
    assert changed["metadata"]["labels"] == {}
    assert changed["spec"]["x"] == {}


def test_what_was_not_there_cannot_be_deleted() -> None:
    original: Object = {"spec": {}}
    env = [{"name": "X", "$patch": "delete"}, {"name": "Y"}]
    changed = patched(original, {"spec": {"containers": [{"name": "a", "env": env}]}})
    assert changed["spec"]["containers"] == [{"name": "a", "env": [{"name": "Y"}]}]


def test_a_strategic_patch_copies_the_way_to_a_change_and_nothing_else() -> None:
    original = pod()
    changed = patched(original, {"spec": {"containers": [{"name": "b", "image": "j"}]}})
    assert changed["metadata"] is original["metadata"]
    assert changed["spec"]["containers"][0] is original["spec"]["containers"][0]
    assert original == pod()


def test_a_strategic_patch_that_changes_nothing_gives_the_same_object() -> None:
    original = pod()
    containers = [{"name": "a", "image": "i"}, {"name": "b"}]
    assert patched(original, {"spec": {"containers": containers}}) is original
    assert patched(original, None) is original


def test_a_field_may_be_declared_to_be_replaced_as_a_whole() -> None:
    schema = Schema(fields={"selector": Schema(map=ANY, patch="replace")})
    original = {"selector": {"a": "1"}}
    changed = strategic_patch(original, {"selector": {"b": "2"}}, schema, KINDS.types)
    assert changed == {"selector": {"b": "2"}}


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        ([], 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ({"$patch": "foo"}, 500, "unknown patch type: foo in map: map[$patch:foo]"),
        ({"spec": {"containers": [{"image": "x"}]}}, 500,
         "map: map[image:x] does not contain declared merge key: name"),
        ({"spec": {"containers": [{"$patch": "delete"}]}}, 500,
         "map: map[$patch:delete] does not contain declared merge key: name"),
        ({"spec": {"containers": [{"$patch": "merge", "name": "a"}]}}, 500,
         "merging lists cannot yet be specified in the patch"),
        ({"spec": {"containers": [{"name": "a", "$patch": "foo"}]}}, 500,
         "unknown patch type: foo in map: map[$patch:foo name:a]"),
        ({"spec": {"containers": [{"name": "a", "$retainKeys": "x"}]}}, 400,
         "invalid patch format of retainKeys"),
        ({"spec": {"containers": [{"name": "a", "image": "j", "$retainKeys": ["name"]}]}}, 400,
         "invalid patch format of retainKeys"),
        ({"spec": {"$setElementOrder/containers": "x"}}, 500,
         "expected a []interface {}, but received a string"),
        ({"spec": {"$setElementOrder": []}}, 400, "invalid patch format of setElementOrder list"),
        ({"spec": {"$setElementOrder/containers": [1]}}, 500, "value for key 0 is not a map"),
        ({"spec": {"$setElementOrder/containers": [{"name": "b"}],
                   "containers": [{"name": "a"}]}}, 500,
         "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n"
         "[map[name:b]]\n"),
        ({"spec": {"$setElementOrder/nosuch": []}}, 500,
         'unable to find api field in struct PodSpec for the json field "nosuch"'),
        ({"metadata": {"$deleteFromPrimitiveList": ["x"]}}, 400,
         "invalid patch format of primitive list"),
        ({"spec": {"containers": [{"name": []}]}}, 500,
         "runtime error: hash of unhashable type []interface {}"),
        ({"metadata": {"finalizers": [1]}}, 500,
         "list element types are not identical: [[e.x/a e.x/b] [1]]"),
    ],
)  # fmt: skip
def test_a_strategic_patch_is_refused_in_the_servers_words(
    patch: Any, code: int, message: str
) -> None:
    reason = "BadRequest" if code == 400 else ""
    assert refusal(lambda: patched(pod(), patch)) == (code, reason, message)
