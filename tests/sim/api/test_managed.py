"""Who owns which field after create, update and patch."""

from copy import deepcopy
from typing import Any

import pytest

from backstay.sim.api import fieldsets
from backstay.sim.api.patches import json_patch, merge_patch
from tests.sim.api.managing import (
    CUSTOM,
    NODE,
    POD,
    applied,
    at,
    made,
    owned,
    schema_of,
    times,
    updated,
)


def test_whoever_creates_an_object_owns_what_it_says() -> None:
    obj = updated(None, made(data={"b": "2", "a": "1"}, metadata={"labels": {"l": "1"}}))
    assert obj["metadata"]["managedFields"] == [
        {
            "manager": "ann",
            "operation": "Update",
            "apiVersion": "v1",
            "time": at(1),
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:data": {".": {}, "f:a": {}, "f:b": {}},
                "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
            },
        }
    ]
    assert list(obj["metadata"]["managedFields"][0]["fieldsV1"]["f:data"]) == [".", "f:a", "f:b"]


def test_nobody_owns_what_the_server_sets() -> None:
    meta = {
        "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1, "selfLink": "s",
        "creationTimestamp": at(0),
    }  # fmt: skip
    assert owned(updated(None, made(metadata=meta))) == {}
    before = updated(None, made(data={"a": "1"}))
    after = merge_patch(before, {"metadata": {"resourceVersion": "2", "generation": 2}})
    assert updated(before, after, "bob") is after


def test_a_changed_value_changes_hands() -> None:
    before = updated(None, made(data={"a": "1", "b": "1"}))
    after = updated(before, merge_patch(before, {"data": {"b": "2", "c": "2"}}), "bob")
    assert owned(after) == {
        "ann": {"f:data": {".": {}, "f:a": {}}},
        "bob": {"f:data": {"f:b": {}, "f:c": {}}},
    }


def test_a_value_that_stays_the_same_stays_with_its_owner() -> None:
    before = updated(None, made(data={"a": "1"}))
    after = deepcopy(before)
    assert updated(before, after, "bob", now=2) is after


def test_a_removed_field_is_nobodys_and_who_owns_nothing_is_forgotten() -> None:
    before = updated(None, made(data={"a": "1"}))
    before = updated(before, merge_patch(before, {"data": {"b": "1"}}), "bob")
    after = updated(before, merge_patch(before, {"data": {"b": None}}), "eve", now=2)
    assert owned(after) == {"ann": {"f:data": {".": {}, "f:a": {}}}}
    assert times(after) == {"ann": at(1)}


def test_the_time_of_an_entry_is_when_its_manager_last_wrote() -> None:
    before = updated(None, made(data={"a": "1"}))
    before = updated(before, merge_patch(before, {"data": {"b": "1"}}), "bob", now=2)
    after = updated(before, merge_patch(before, {"data": {"a": "2"}}), "ann", now=3)
    assert times(after) == {"bob": at(2), "ann": at(3)}


def test_an_entry_that_loses_nothing_is_the_same_entry() -> None:
    before = updated(None, made(data={"a": "1"}))
    after = updated(before, merge_patch(before, {"data": {"b": "1"}}), "bob", now=2)
    assert owned(after)["ann"] is owned(before)["ann"]


def test_entries_are_in_order_of_operation_time_and_name() -> None:
    obj = updated(None, made(data={"a": "1"}), "zoe")
    obj = updated(obj, merge_patch(obj, {"data": {"b": "1"}}), "ann")
    obj = applied(obj, made(data={"c": "1"}), "bob", now=2)
    obj = updated(obj, merge_patch(obj, {"data": {"d": "1"}}), "eve", now=0)
    managers = [entry["manager"] for entry in obj["metadata"]["managedFields"]]
    assert managers == ["bob", "eve", "ann", "zoe"]


def test_every_subresource_has_an_entry_of_its_own() -> None:
    before = updated(None, made(spec={"unschedulable": True}), schema=NODE)
    patch = {"status": {"phase": "Running"}}
    after = updated(before, merge_patch(before, patch), schema=NODE, subresource="status")
    first, second = after["metadata"]["managedFields"]
    assert first["fieldsV1"] == owned(before)["ann"]
    assert (second["subresource"], list(second)[-1]) == ("status", "subresource")


def test_a_write_without_a_manager_is_by_somebody_unknown() -> None:
    assert list(owned(updated(None, made(data={"a": "1"}), ""))) == ["unknown"]


def test_items_of_keyed_lists_are_owned_one_by_one_and_atomic_lists_as_one() -> None:
    ports = [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 9, "protocol": "TCP"}]
    spec = {
        "containers": [{"name": "a", "image": "i", "ports": ports, "args": ["x"]}],
        "tolerations": [{"key": "k"}],
    }
    meta = {"finalizers": ["e.x/b", "e.x/a"]}
    before = updated(None, made(spec={"hostIPC": True}), schema=POD)
    after = merge_patch(before, {"spec": spec, "metadata": meta})
    assert owned(updated(before, after, "bob", schema=POD))["bob"] == {
        "f:metadata": {"f:finalizers": {".": {}, 'v:"e.x/a"': {}, 'v:"e.x/b"': {}}},
        "f:spec": {
            "f:containers": {
                ".": {},
                'k:{"name":"a"}': {
                    ".": {},
                    "f:args": {},
                    "f:image": {},
                    "f:name": {},
                    "f:ports": {
                        ".": {},
                        'k:{"containerPort":9,"protocol":"TCP"}': {
                            ".": {}, "f:containerPort": {}, "f:protocol": {},
                        },
                        'k:{"containerPort":80,"protocol":"TCP"}': {
                            ".": {}, "f:containerPort": {}, "f:protocol": {},
                        },
                    },
                },
            },
            "f:tolerations": {},
        },
    }  # fmt: skip


def test_moving_items_of_a_keyed_list_changes_no_owner() -> None:
    containers = [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]
    before = updated(None, made(spec={"containers": containers}), schema=POD)
    after = merge_patch(before, {"spec": {"containers": containers[::-1]}})
    assert updated(before, after, "bob", schema=POD) is after


def test_items_with_the_same_key_are_owned_as_a_whole() -> None:
    before = updated(None, made(metadata={"finalizers": ["e.x/a"]}))
    twice = merge_patch(before, {"metadata": {"finalizers": ["e.x/a", "e.x/a"]}})
    after = updated(before, twice, "bob")
    assert owned(after) == {
        "ann": {"f:metadata": {"f:finalizers": {}}},
        "bob": {"f:metadata": {"f:finalizers": {'v:"e.x/a"': {}}}},
    }


def test_items_that_differ_again_are_owned_one_by_one_again() -> None:
    before = updated(None, made(metadata={"finalizers": ["e.x/a", "e.x/a", "e.x/b"]}))
    once = merge_patch(before, {"metadata": {"finalizers": ["e.x/a", "e.x/b"]}})
    assert owned(updated(before, once, "bob")) == {
        "ann": {"f:metadata": {"f:finalizers": {".": {}, 'v:"e.x/b"': {}}}},
        "bob": {"f:metadata": {"f:finalizers": {'v:"e.x/a"': {}}}},
    }


def test_of_a_list_that_nobody_can_tell_apart_no_account_is_kept() -> None:
    before = updated(None, made(metadata={"finalizers": ["e.x/a"]}))
    after = merge_patch(before, {"metadata": {"finalizers": [None]}})
    assert owned(updated(before, after)) == {}


def test_an_atomic_map_is_owned_as_one_thing() -> None:
    schema = schema_of("deployments")
    before = updated(None, made(spec={"selector": {"matchLabels": {"a": "1"}}}), schema=schema)
    after = merge_patch(before, {"spec": {"selector": {"matchLabels": {"b": "1"}}}})
    assert owned(updated(before, after, "bob", schema=schema))["bob"] == {
        "f:spec": {"f:selector": {}}
    }


def test_without_a_schema_maps_have_parts_and_lists_are_one_thing() -> None:
    before = updated(None, made(spec={"a": {"b": 1}, "l": [{"x": 1}]}), schema=CUSTOM)
    after = merge_patch(before, {"spec": {"a": {"c": 1}, "l": [{"x": 2}]}})
    assert owned(updated(before, after, "bob", schema=CUSTOM)) == {
        "ann": {"f:spec": {".": {}, "f:a": {".": {}, "f:b": {}}}},
        "bob": {"f:spec": {"f:a": {"f:c": {}}, "f:l": {}}},
    }


@pytest.mark.parametrize(("old", "new"), [(1, True), ({"b": 1}, "text"), ([], {}), (None, 1)])
def test_without_a_schema_a_value_can_become_anything(old: Any, new: Any) -> None:
    before = updated(None, made(spec={"a": old}), schema=CUSTOM)
    after = updated(before, {**before, "spec": {"a": new}}, "bob", schema=CUSTOM)
    assert owned(after)["bob"] == {"f:spec": {"f:a": {}}}


def test_what_a_request_cannot_change_it_does_not_own() -> None:
    reset = fieldsets.of([("status",)])
    body = made(spec={"unschedulable": True}, status={"phase": "Running"})
    obj = updated(None, body, schema=NODE, reset=reset)
    assert list(owned(obj)["ann"]) == ["f:spec"]


@pytest.mark.parametrize("sent", [None, [{"manager": "?"}], [{"operation": "Update"}], "x"])
def test_who_sends_no_valid_managed_fields_keeps_what_there_were(sent: Any) -> None:
    before = updated(None, made(data={"a": "1"}))
    after = json_patch(before, [{"op": "add", "path": "/metadata/managedFields", "value": sent}])
    tracked = updated(before, json_patch(after, [
        {"op": "add", "path": "/data/b", "value": "1"},
    ]), "bob")  # fmt: skip
    assert set(owned(tracked)) == {"ann", "bob"}


@pytest.mark.parametrize("sent", [[], [{}]])
def test_managed_fields_can_be_emptied_and_are_not_kept_from_then_on(sent: Any) -> None:
    before = updated(None, made(data={"a": "1"}))
    emptied = updated(before, {**before, "metadata": {"name": "x", "managedFields": sent}})
    assert emptied["metadata"] == {"name": "x"}
    after = merge_patch(emptied, {"data": {"a": "2"}})
    assert updated(emptied, after) is after


def test_managed_fields_can_be_edited() -> None:
    before = updated(None, made(data={"a": "1"}))
    edited = deepcopy(before)
    edited["metadata"]["managedFields"][0]["manager"] = "bob"
    assert set(owned(updated(before, edited, "eve"))) == {"bob"}


def test_the_oldest_updaters_become_one() -> None:
    obj = updated(None, made(data={"a": "0"}), "m00", now=0)
    for number in range(1, 12):
        patch = {"data": {f"k{number:02d}": "1"}}
        obj = updated(obj, merge_patch(obj, patch), f"m{number:02d}", now=number)
    assert list(owned(obj)) == ["ancient-changes", *(f"m{number:02d}" for number in range(3, 12))]
    assert owned(obj)["ancient-changes"] == {
        "f:data": {".": {}, "f:a": {}, "f:k01": {}, "f:k02": {}}
    }
