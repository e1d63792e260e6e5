"""The quick look at a custom resource finds it in order exactly where the long one does."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.sim.api.schema_check import Checker

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "on": {"type": "boolean", "nullable": True},
        "count": {"type": "integer", "minimum": 0, "maximum": 1},
        "width": {"type": "integer", "format": "int32"},
        "code": {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^[ab]*$"},
        "day": {"type": "string", "format": "date"},
        "mode": {"type": "string", "enum": ["a", "b"]},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "maxItems": 2,
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
            },
        },
        "free": {"x-kubernetes-preserve-unknown-fields": True},
    },
}
# With a word that forbids nothing here, and that only the long way knows.
LONG = Checker({**SCHEMA, "maxProperties": 1000})
QUICK = Checker(SCHEMA)

LEAVES = (
    None, True, False, -(2**31) - 1, -1, 0, 1, 2, 2**31, 2**63, 1.5,
    "", "a", "b", "c", "abba", "2026-01-31",
)  # fmt: skip

_leaf = st.sampled_from(LEAVES)
_item = st.dictionaries(st.sampled_from(["name", "size", "x"]), _leaf, max_size=3)
_value = st.fixed_dictionaries(
    {},
    optional={
        "name": _leaf,
        "on": _leaf,
        "count": _leaf,
        "width": _leaf,
        "code": _leaf,
        "day": _leaf,
        "mode": _leaf,
        "labels": st.one_of(_leaf, st.dictionaries(st.sampled_from(["a", "b"]), _leaf)),
        "items": st.one_of(_leaf, st.lists(st.one_of(_leaf, _item), max_size=3)),
        "free": st.one_of(_leaf, _item),
        "unknown": _leaf,
    },
)


@settings(max_examples=150, deadline=None)
@given(st.one_of(_leaf, _value))
def test_what_is_created_is_judged_alike(value: Any) -> None:
    assert QUICK.check(value) == LONG.check(value)


@settings(max_examples=150, deadline=None)
@given(_value, _value)
def test_what_is_changed_is_judged_alike(old: Any, value: Any) -> None:
    assert QUICK.check(value, old) == LONG.check(value, old)


@pytest.mark.parametrize("field", SCHEMA["properties"])
def test_one_field_is_judged_alike_where_nothing_else_is_wrong(field: str) -> None:
    items = ([{"name": str(each)} for each in range(count)] for count in (2, 3))
    for value in (*LEAVES, *items):
        whole = {"name": "a", field: value}
        assert QUICK.check(whole) == LONG.check(whole)


def test_what_was_wrong_before_may_stay_so() -> None:
    wrong = {"name": "a", "count": -1}
    assert QUICK.check(wrong) != []
    assert QUICK.check({**wrong, "mode": "a"}, wrong) == []
