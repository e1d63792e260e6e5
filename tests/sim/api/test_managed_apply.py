"""What server-side apply makes of who owns which field."""

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.sim.api import fieldsets
from backstay.sim.api.kinds import Object
from backstay.sim.api.managed import LAST_APPLIED, ApplyConflicts, apply
from backstay.sim.api.patches import json_patch, merge_patch, strategic_patch
from backstay.sim.api.shapes import shape_of
from backstay.sim.api.status import Refusal
from tests.sim.api.managing import (
    CUSTOM,
    KINDS,
    NODE,
    POD,
    applied,
    at,
    made,
    owned,
    refused,
    times,
    updated,
)


def test_who_applies_an_object_that_is_not_there_creates_it() -> None:
    obj = applied(None, made(apiVersion="v1", kind="ConfigMap", data={"a": "1"}))
    assert obj == {
        "metadata": {
            "name": "x",
            "managedFields": [
                {
                    "manager": "ann",
                    "operation": "Apply",
                    "apiVersion": "v1",
                    "time": at(1),
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:data": {"f:a": {}}},
                }
            ],
        },
        "data": {"a": "1"},
    }


def test_applying_the_same_again_changes_nothing_at_all() -> None:
    live = applied(None, made(data={"a": "1"}, metadata={"finalizers": ["e.x/a"]}))
    again = made(data={"a": "1"}, metadata={"finalizers": ["e.x/a"]})
    assert applied(live, again, now=2) is live


def test_who_agrees_becomes_an_owner_too_and_changes_nothing_else() -> None:
    live = applied(None, made(data={"a": "1", "b": "1"}))
    both = applied(live, made(data={"a": "1"}), "bob", now=2)
    assert owned(both)["bob applied"] == {"f:data": {"f:a": {}}}
    assert times(both) == {"bob": None, "ann": at(1)}
    assert both["data"] is live["data"]


def test_another_value_for_what_somebody_owns_is_a_conflict() -> None:
    live = updated(None, made(data={"a": "1"}))
    conflict = refused(live, made(data={"a": "2"}), "bob")
    assert isinstance(conflict, ApplyConflicts)
    assert (conflict.code, conflict.reason) == (409, "Conflict")
    assert conflict.message == (
        'Apply failed with 1 conflict: conflict with "ann" using v1: .data.a'
    )
    (cause,) = conflict.details["causes"]
    assert (cause.reason, cause.field) == ("FieldManagerConflict", ".data.a")
    assert cause.message == 'conflict with "ann" using v1'


def test_all_conflicts_are_told_by_manager() -> None:
    live = applied(
        None, made(metadata={"finalizers": []}, status={"phase": "A"}), "zoe", schema=NODE
    )
    patch = {"spec": {"unschedulable": True, "providerID": "p"}}
    live = updated(live, merge_patch(live, patch), "bob", schema=NODE)
    live = updated(
        live,
        merge_patch(live, {"spec": {"podCIDR": "c"}}),
        "bob",
        schema=NODE,
        subresource="status",
    )
    config = made(
        spec={"unschedulable": False, "providerID": "q", "podCIDR": "d"}, status={"phase": "B"}
    )
    conflict = refused(live, config, schema=NODE)
    assert conflict.message == (
        'Apply failed with 4 conflicts: conflicts with "bob" with subresource "status" using v1:\n'
        "- .spec.podCIDR\n"
        'conflicts with "bob" using v1:\n'
        "- .spec.providerID\n"
        "- .spec.unschedulable\n"
        'conflicts with "zoe":\n'
        "- .status.phase"
    )


def test_force_takes_what_others_own() -> None:
    live = applied(None, made(data={"a": "1", "b": "1"}))
    forced = applied(live, made(data={"a": "2"}), "bob", force=True, now=2)
    assert forced["data"] == {"a": "2", "b": "1"}
    assert owned(forced) == {
        "ann applied": {"f:data": {"f:b": {}}},
        "bob applied": {"f:data": {"f:a": {}}},
    }
    assert times(forced) == {"ann": at(1), "bob": at(2)}


def test_what_is_applied_no_longer_is_removed() -> None:
    live = applied(None, made(data={"a": "1", "b": "1"}))
    live = updated(live, merge_patch(live, {"data": {"c": "1"}}), "bob")
    assert applied(live, made(data={"a": "1"}))["data"] == {"a": "1", "c": "1"}


def test_what_somebody_else_owns_too_is_not_removed() -> None:
    live = applied(None, made(data={"a": "1", "b": "1"}))
    live = applied(live, made(data={"b": "1"}), "bob")
    left = applied(live, made(data={"a": "1"}))
    assert left["data"] == {"a": "1", "b": "1"}
    assert owned(left)["ann applied"] == {"f:data": {"f:a": {}}}


def test_a_struct_goes_with_its_last_field_and_takes_along_what_is_nobodys() -> None:
    probe = {"httpGet": {"path": "/", "port": 80}}
    spec = {"containers": [{"name": "a", "image": "i", "livenessProbe": probe}]}
    live = applied(None, made(spec=spec), schema=POD)
    live = json_patch(live, [
        {"op": "add", "path": "/spec/containers/0/livenessProbe/periodSeconds", "value": 10},
        {"op": "add", "path": "/spec/containers/0/terminationMessagePath", "value": "/x"},
    ])  # fmt: skip
    without_probe = made(spec={"containers": [{"name": "a", "image": "i"}]})
    assert applied(live, without_probe, schema=POD)["spec"]["containers"] == [
        {"name": "a", "image": "i", "terminationMessagePath": "/x"}
    ]


def test_an_item_that_is_applied_no_longer_is_removed_and_the_others_stay() -> None:
    containers = [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]
    live = applied(None, made(spec={"containers": containers}), schema=POD)
    more = {"spec": {"containers": [*containers, {"name": "c", "image": "i"}]}}
    live = updated(live, merge_patch(live, more), "bob", schema=POD)
    left = applied(live, made(spec={"containers": containers[1:]}), schema=POD)
    assert [c["name"] for c in left["spec"]["containers"]] == ["b", "c"]


@pytest.mark.parametrize(
    ("live", "config", "merged"),
    [
        ("abc", "cb", "acb"),
        ("abc", "xb", "axbc"),
        ("abc", "bx", "abcx"),
        ("abc", "cxa", "bcxa"),
        ("ab", "xy", "abxy"),
        ("", "ba", "ba"),
    ],
)
def test_merged_lists_keep_both_orders_and_prefer_the_applied_one(
    live: str, config: str, merged: str
) -> None:
    before = updated(None, made(metadata={"finalizers": [f"e.x/{c}" for c in live]}))
    after = applied(before, made(metadata={"finalizers": [f"e.x/{c}" for c in config]}), "bob")
    assert after["metadata"]["finalizers"] == [f"e.x/{c}" for c in merged]


def test_an_atomic_list_belongs_to_one_manager_or_to_those_who_agree() -> None:
    live = applied(None, made(spec={"taints": [{"key": "a", "effect": "NoSchedule"}]}), schema=NODE)
    config = made(spec={"taints": [{"key": "b", "effect": "NoSchedule"}]})
    assert refused(live, config, "bob", schema=NODE).message.endswith('"ann": .spec.taints')
    forced = applied(live, config, "bob", schema=NODE, force=True)
    assert forced["spec"]["taints"] == config["spec"]["taints"]
    assert owned(forced) == {"bob applied": {"f:spec": {"f:taints": {}}}}


def test_an_empty_map_is_owned_and_an_empty_list_is_not_and_neither_is_kept() -> None:
    config = made(data={}, metadata={"finalizers": []})
    obj = applied(None, config)
    assert owned(obj) == {"ann applied": {"f:data": {}}}
    assert "data" not in obj
    assert "finalizers" not in obj["metadata"]
    assert applied(obj, config, now=2) is obj


def test_an_empty_struct_is_kept() -> None:
    spec = {"volumes": [{"name": "v", "emptyDir": {}}], "containers": []}
    assert applied(None, made(spec=spec), schema=POD)["spec"]["volumes"] == spec["volumes"]


def test_of_a_custom_resource_everything_is_kept() -> None:
    obj = apply(
        None, made(spec={"a": None, "b": [], "c": {}}), manager="ann", force=False,
        subresource="", now=at(1), api_version="e.x/v1", shape=shape_of(CUSTOM, KINDS.types),
        built_in=False,
    )  # fmt: skip
    assert obj["spec"] == {"a": None, "b": [], "c": {}}


def test_a_null_is_owned_and_is_an_absent_field_or_an_empty_text() -> None:
    live = applied(None, made(data={"a": "1"}))
    nothing = applied(live, made(data={"a": "1", "b": None}, immutable=None), now=2)
    assert nothing["data"] == {"a": "1", "b": ""}
    assert "immutable" not in nothing
    assert owned(nothing)["ann applied"] == {"f:data": {"f:a": {}, "f:b": {}}, "f:immutable": {}}
    again = made(data={"a": "1", "b": None}, immutable=None)
    assert applied(nothing, again, now=3) is nothing


def test_a_null_does_not_empty_a_map_that_others_fill() -> None:
    live = updated(None, made(data={"a": "1"}))
    assert applied(live, made(data=None), "bob")["data"] == {"a": "1"}


def test_without_a_schema_an_apply_merges_maps_and_replaces_lists() -> None:
    live = applied(None, made(spec={"a": {"b": 1}, "l": [1]}), schema=CUSTOM)
    after = applied(live, made(spec={"a": {"c": 1}, "l": [2]}), "bob", schema=CUSTOM, force=True)
    assert after["spec"] == {"a": {"b": 1, "c": 1}, "l": [2]}
    assert owned(after) == {
        "ann applied": {"f:spec": {"f:a": {".": {}, "f:b": {}}}},
        "bob applied": {"f:spec": {"f:a": {".": {}, "f:c": {}}, "f:l": {}}},
    }


def test_a_first_apply_finds_everything_else_owned_by_the_past() -> None:
    live = made(data={"a": "1", "b": "1"})
    assert refused(live, made(data={"a": "2"})).message == (
        'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a'
    )
    forced = applied(live, made(data={"a": "2"}), force=True)
    assert owned(forced)["before-first-apply"] == {"f:data": {".": {}, "f:b": {}}}


def test_an_apply_does_not_own_what_it_cannot_change() -> None:
    reset = fieldsets.of([("status",)])
    config = made(spec={"unschedulable": True}, status={"phase": "Running"})
    obj = applied(None, config, schema=NODE, reset=reset)
    assert owned(obj) == {"ann applied": {"f:spec": {"f:unschedulable": {}}}}


def test_an_apply_shares_what_it_leaves_alone_and_changes_neither_side() -> None:
    spec = {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}
    live = applied(None, made(spec=spec), schema=POD)
    config = made(spec={"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]})
    before = deepcopy((live, config))
    after = applied(live, config, schema=POD, now=2)
    assert after["spec"]["containers"][0] is live["spec"]["containers"][0]
    assert (live, config) == before


def config_error(reason: str) -> tuple[int, str, str]:
    return 500, "", f"failed to create typed patch object (/x; /v1, Kind=ConfigMap): {reason}"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"nosuch": 1}, ".nosuch: field not declared in schema"),
        ({"data": {"a": 1}}, ".data.a: expected string, got &value.valueUnstructured{Value:1}"),
        ({"data": {"a": {"b": "c"}}}, '.data.a: expected string, got &value.valueUnstructured'
                                      '{Value:map[string]interface {}{"b":"c"}}'),
        ({"data": [1]}, ".data: expected map, got &{[1]}"),
        ({"immutable": "s"}, ".immutable: expected boolean, got &{s}"),
        ({"metadata": {"generation": "1"}},
         ".metadata.generation: expected numeric (int or float), got string"),
        ({"metadata": {"finalizers": {}}}, ".metadata.finalizers: expected list, got &{map[]}"),
        ({"metadata": {"finalizers": ["a", "a"]}},
         '.metadata.finalizers: duplicate entries for key [="a"]'),
        ({"metadata": {"finalizers": [1]}},
         ".metadata.finalizers[=1]: expected string, got &value.valueUnstructured{Value:1}"),
        ({"metadata": {"finalizers": [None]}}, ".metadata.finalizers: element 0: associative list "
         "without keys has an element that's an explicit null"),
        ({"metadata": {"finalizers": [{}]}}, ".metadata.finalizers: element 0: associative list "
         "without keys has an element that's a map type"),
        ({"metadata": {"ownerReferences": [{"uid": "u"}, {"uid": "u"}]}},
         '.metadata.ownerReferences: duplicate entries for key [uid="u"]'),
        ({"metadata": {"ownerReferences": ["x"]}}, ".metadata.ownerReferences: element 0: "
         "associative list with keys may not have non-map elements"),
        ({"metadata": {"ownerReferences": [None]}}, ".metadata.ownerReferences: element 0: "
         "associative list with keys may not have a null element"),
        ({"data": {"a": 1}, "immutable": 1}, "errors:\n"
         "  .data.a: expected string, got &value.valueUnstructured{Value:1}\n"
         "  .immutable: expected boolean, got &{1}"),
    ],
)  # fmt: skip
def test_a_configuration_that_does_not_fit_is_refused_in_the_servers_words(
    fields: Object, reason: str
) -> None:
    refusal = refused(None, made(**fields))
    assert (refusal.code, refusal.reason, refusal.message) == config_error(reason)


def test_a_live_object_that_does_not_fit_is_told_apart() -> None:
    live = made(metadata={"finalizers": [None]})
    refusal = refused(live, made(metadata={"finalizers": ["a"]}))
    assert refusal.message == (
        "failed to create typed live object (/x; /v1, Kind=ConfigMap): .metadata.finalizers: "
        "element 0: associative list without keys has an element that's an explicit null"
    )


@pytest.mark.parametrize("meta", [None, "x", []])
def test_metadata_can_be_anything_at_first(meta: Any) -> None:
    if meta is None:
        assert applied(None, {"metadata": meta, "data": {"a": "1"}})["data"] == {"a": "1"}
    else:
        assert refused(None, {"metadata": meta}).code == 500


def test_what_is_inside_an_atomic_list_must_fit_too() -> None:
    config = made(spec={"taints": [{"key": "a", "nosuch": 1}]})
    refusal = refused(None, config, schema=NODE, kind="Node")
    assert refusal.message.endswith(".spec.taints[0].nosuch: field not declared in schema")


def test_nobody_applies_managed_fields() -> None:
    refusal = refused(None, made(metadata={"managedFields": []}))
    assert (refusal.code, refusal.message) == (400, "metadata.managedFields must be nil")


WORDS = st.sampled_from((
    "metadata", "spec", "containers", "name", "env", "finalizers", "ports", "labels", "taints",
    "containerPort", "protocol", "resources", "managedFields", "$patch", "$retainKeys",
    "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers",
))  # fmt: skip
GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers(0, 1) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
)
CONTAINERS = st.lists(st.fixed_dictionaries({"name": st.sampled_from("ab"), "env": GARBAGE}))
BODIES = st.fixed_dictionaries(
    {"metadata": st.dictionaries(WORDS, GARBAGE, max_size=3)},
    optional={"spec": GARBAGE | st.fixed_dictionaries({"containers": CONTAINERS | GARBAGE})},
)


CHANGES: tuple[Callable[[Object, Object], Object], ...] = (
    merge_patch,
    lambda live, sent: strategic_patch(live, sent, POD, KINDS.types),
    lambda live, sent: applied(live, sent, schema=POD, force=True),
)


@pytest.mark.parametrize("change", CHANGES, ids=["merge", "strategic", "apply"])
@given(live=BODIES, body=BODIES)
def test_whatever_is_sent_is_either_done_or_refused(
    change: Callable[[Object, Object], Object], live: Object, body: Object
) -> None:
    live["metadata"].pop("managedFields", None)
    before = deepcopy((live, body))
    with suppress(Refusal):
        updated(live, change(live, body), "bob", schema=POD)
    assert (live, body) == before


# Client-side apply


def client_side(data: Object) -> Object:
    text = '{"apiVersion":"v1","data":{"a":"1"},"kind":"ConfigMap","metadata":{"name":"x"}}'
    body = made(data=data, metadata={"annotations": {LAST_APPLIED: text}})
    return updated(None, body, "kubectl-client-side-apply")


def test_kubectl_takes_over_what_it_applied_without_the_server() -> None:
    live = client_side({"a": "1"})
    after = applied(live, made(data={"a": "2"}), "kubectl", now=2)
    assert after["data"] == {"a": "2"}
    assert after["metadata"]["annotations"][LAST_APPLIED] == (
        '{"apiVersion":"v1","data":{"a":"2"},"kind":"ConfigMap","metadata":{"name":"x"}}\n'
    )


def test_kubectl_does_not_take_over_what_was_changed_since() -> None:
    live = client_side({"a": "3"})
    assert refused(live, made(data={"a": "2"}), "kubectl").message.endswith(".data.a")


def test_others_take_over_nothing() -> None:
    assert refused(client_side({"a": "1"}), made(data={"a": "2"}), "bob").code == 409
