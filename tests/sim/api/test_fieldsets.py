"""Field sets: their algebra beside plain sets of paths, and how they are written down."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.sim.api.fieldsets import (
    EMPTY,
    SELF,
    FieldSet,
    difference,
    intersection,
    is_member,
    key_element,
    of,
    ordered,
    paths,
    read,
    union,
    value_element,
    without,
)

Path = tuple[str, ...]

PATHS = st.sets(st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple), max_size=6)


def members(fields: FieldSet, way: Path = ()) -> Iterator[Path]:
    for element, node in fields.items():
        if element != SELF:
            here = (*way, element[2:])
            if is_member(node):
                yield here
            yield from members(node, here)


@given(PATHS)
def test_a_set_has_the_paths_that_it_was_made_of(some: set[Path]) -> None:
    assert set(members(of(some))) == some


@given(PATHS, PATHS)
def test_a_union_has_the_members_of_both(left: set[Path], right: set[Path]) -> None:
    assert union(of(left), of(right)) == of(left | right)


@given(PATHS, PATHS)
def test_a_difference_has_the_members_of_the_first_alone(left: set[Path], right: set[Path]) -> None:
    assert difference(of(left), of(right)) == of(left - right)


@given(PATHS, PATHS)
def test_an_intersection_has_what_both_have(left: set[Path], right: set[Path]) -> None:
    assert intersection(of(left), of(right)) == of(left & right)


@given(PATHS, PATHS)
def test_what_is_taken_away_takes_along_what_is_below(left: set[Path], right: set[Path]) -> None:
    kept = {p for p in left if not any(p[: len(gone)] == gone for gone in right)}
    assert without(of(left), of(right)) == of(kept)


@given(PATHS, PATHS)
def test_sets_stay_in_order(left: set[Path], right: set[Path]) -> None:
    for combined in (
        union(of(left), of(right)),
        difference(of(left), of(right)),
        intersection(of(left), of(right)),
        without(of(left), of(right)),
    ):
        assert msgspec.json.encode(combined) == msgspec.json.encode(combined, order="sorted")


@given(PATHS, PATHS)
def test_no_operation_changes_its_arguments(left: set[Path], right: set[Path]) -> None:
    ours, theirs = of(left), of(right)
    for operation in (union, difference, intersection, without):
        operation(ours, theirs)
    assert (ours, theirs) == (of(left), of(right))


def test_what_an_operation_does_not_change_is_the_same_set() -> None:
    ours = of([("a", "b"), ("c",)])
    assert union(ours, of([("a", "b")])) is ours
    assert union(ours, EMPTY) is ours
    assert difference(ours, of([("d",), ("a",)])) is ours
    assert union(ours, of([("d",)]))["f:a"] is ours["f:a"]


def test_a_member_with_members_below_is_marked_by_a_dot() -> None:
    assert of([("a",), ("a", "b"), ("c", "d")]) == {
        "f:a": {".": {}, "f:b": {}},
        "f:c": {"f:d": {}},
    }


def test_elements_of_items_are_json_that_is_safe_for_html() -> None:
    assert value_element("e.x/a") == 'v:"e.x/a"'
    assert value_element("<&>") == 'v:"\\u003c\\u0026\\u003e"'
    assert key_element("protocol", "TCP", "port", 80) == 'k:{"port":80,"protocol":"TCP"}'


def test_elements_tell_numbers_from_truths_and_texts() -> None:
    assert [value_element(v) for v in (1, True, "1")] == ["v:1", "v:true", 'v:"1"']
    assert key_element("k", 1) != key_element("k", True)


def test_elements_are_ordered_as_the_server_orders_them() -> None:
    nodes: FieldSet = {
        "v:10": {}, 'v:"a"': {}, "v:9": {}, "v:true": {}, 'k:{"port":443}': {}, "f:b": {},
        'k:{"port":80}': {}, "f:a": {}, "i:0": {}, ".": {},
    }  # fmt: skip
    assert list(ordered(nodes)) == [
        ".", "f:a", "f:b", 'k:{"port":80}', 'k:{"port":443}', "v:9", "v:10", 'v:"a"', "v:true",
        "i:0",
    ]  # fmt: skip


def test_paths_are_readable_and_those_above_come_first() -> None:
    fields: FieldSet = {
        "f:metadata": {"f:finalizers": {'v:"e.x/a"': {}}},
        "f:spec": {
            "f:containers": {'k:{"name":"web"}': {".": {}, "f:image": {}}},
            "f:ports": {'k:{"port":80,"protocol":"TCP"}': {}},
            "f:z": {},
        },
    }
    assert list(paths(fields)) == [
        '.metadata.finalizers[="e.x/a"]',
        ".spec.z",
        '.spec.containers[name="web"]',
        '.spec.containers[name="web"].image',
        '.spec.ports[port=80,protocol="TCP"]',
    ]


def test_a_set_that_a_client_sent_is_put_in_order() -> None:
    sent = {"f:b": {"f:y": {}, ".": {}}, "f:a": {'k:{"p":1,"n":"x"}': {".": {}}}, "?:new": {}}
    assert msgspec.json.encode(read(sent)) == (
        b'{"f:a":{"k:{\\"n\\":\\"x\\",\\"p\\":1}":{}},"f:b":{".":{},"f:y":{}}}'
    )


@pytest.mark.parametrize("sent", [None, [], {"f:a": 1}, {"nocolon": {}}, {"v:{": {}}, {"k:x": {}}])
def test_what_is_no_set_is_refused(sent: Any) -> None:
    with pytest.raises(ValueError, match=r"JSON object|missing colon|not a path element"):
        read(sent)
