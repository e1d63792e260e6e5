"""Rules that a definition states as expressions, on every target (one is pytest.mark.real)."""

from typing import Any

import pytest

from tests.conformance.targets import Api, Json
from tests.conformance.test_custom_resources import DEFINITIONS, Things, define


def ruled(kind: str, *rules: Json, **more: Any) -> Json:
    return {"type": kind, "x-kubernetes-validations": list(rules), **more}


def rule(text: str, **more: str) -> Json:
    return {"rule": text, **more}


SHORT: Json = {"type": "string", "maxLength": 20}
PAIR: Json = {
    "type": "object",
    "required": ["k"],
    "properties": {"k": SHORT, "v": {**SHORT, **ruled("string", rule("self == oldSelf"))}},
}
SPEC = ruled(
    "object",
    rule("!has(self.least) || !has(self.most) || self.least <= self.most"),
    rule("has(self.mode) == has(oldSelf.mode)", message="a mode neither comes nor goes"),
    rule("self.size != 7", reason="FieldValueForbidden", message="not seven", fieldPath=".size"),
    properties={
        "size": {"type": "integer", "default": 1},
        "replicas": {"type": "integer"},
        "least": {"type": "integer"},
        "most": {"type": "integer"},
        "id": {**SHORT, **ruled("string", rule("self == oldSelf", message="it never changes"))},
        "mode": {**SHORT, **ruled("string", rule("self in ['slow', 'fast'] && size(self) == 4"))},
        "names": {
            **ruled("array", rule("size(self) < 3 && !('x' in self)")),
            "maxItems": 5,
            "items": SHORT,
        },
        "counts": {
            "type": "object",
            "maxProperties": 5,
            "additionalProperties": ruled("integer", rule("self >= 0 && self <= 5")),
        },
        "pairs": {
            "type": "array",
            "maxItems": 5,
            "items": PAIR,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
        },
    },
)
STATUS: Json = {
    "type": "object",
    "properties": {"replicas": ruled("integer", rule("self > 0"))},
}
SCHEMA = ruled(
    "object",
    rule("self.metadata.name != 'bad' && !self.metadata.name.startsWith('evil')", message="no"),
    properties={"spec": SPEC, "status": STATUS},
)


@pytest.fixture
async def things(api: Api) -> Things:
    return await define(api, "rules.conformance.test", SCHEMA)


def refused(things: Things, why: str, name: str = "a") -> tuple[int, str, str]:
    return 422, "Invalid", f'Thing.{things.group} "{name}" is invalid: {why}'


NOT_SO: dict[str, tuple[Json, str]] = {
    "two fields that contradict each other": (
        {"least": 5, "most": 3},
        "spec: Invalid value: failed rule: !has(self.least) || !has(self.most) || self.least <= "
        "self.most",
    ),
    "with a reason and a place of its own": ({"size": 7}, "spec.size: Forbidden: not seven"),
    "none of some": (
        {"mode": "calm"},
        "spec.mode: Invalid value: \"calm\": failed rule: self in ['slow', 'fast'] && "
        "size(self) == 4",
    ),
    "too many": (
        {"names": ["a", "b", "c"]},
        "spec.names: Invalid value: failed rule: size(self) < 3 && !('x' in self)",
    ),
    "one too much": (
        {"names": ["x"]},
        "spec.names: Invalid value: failed rule: size(self) < 3 && !('x' in self)",
    ),
    "out of range, by its key": (
        {"counts": {"q": 9}},
        "spec.counts[q]: Invalid value: 9: failed rule: self >= 0 && self <= 5",
    ),
}


@pytest.mark.parametrize("case", NOT_SO)
async def test_a_rule_is_kept(api: Api, things: Things, case: str) -> None:
    spec, why = NOT_SO[case]
    got = await api.post(things.path, things.thing("a", **spec))
    assert got.refusal == refused(things, why)


@pytest.mark.parametrize("name", ["bad", "evil-one"])
async def test_a_rule_may_be_about_the_whole_object(api: Api, things: Things, name: str) -> None:
    got = await api.post(things.path, things.thing(name))
    assert got.refusal == refused(things, "<nil>: Invalid value: no", name)


async def test_what_is_as_it_should_be_passes(api: Api, things: Things) -> None:
    spec: Json = {"id": "x", "least": 1, "most": 3, "mode": "slow", "counts": {"a": 5}}
    made = await api.make(things.path, things.thing("a", **spec))
    assert made["spec"]["id"] == "x"


async def test_a_field_can_be_for_ever(api: Api, things: Things) -> None:
    await api.make(things.path, things.thing("a", id="x"))
    got = await api.patch(f"{things.path}/a", {"spec": {"id": "y"}})
    assert got.refusal == refused(things, 'spec.id: Invalid value: "y": it never changes')
    await api.change(f"{things.path}/a", {"spec": {"size": 2}})


async def test_a_rule_may_compare_what_is_there_with_what_was(api: Api, things: Things) -> None:
    await api.make(things.path, things.thing("a", mode="slow"))
    got = await api.patch(f"{things.path}/a", {"spec": {"mode": None}})
    why = "spec: Invalid value: a mode neither comes nor goes"
    assert got.refusal == refused(things, why)


async def test_items_are_compared_by_their_keys(api: Api, things: Things) -> None:
    await api.make(things.path, things.thing("a", pairs=[{"k": "1", "v": "a"}]))
    more = [{"k": "0", "v": "z"}, {"k": "1", "v": "a"}]
    await api.change(f"{things.path}/a", {"spec": {"pairs": more}})
    got = await api.patch(f"{things.path}/a", {"spec": {"pairs": [{"k": "1", "v": "b"}]}})
    why = 'spec.pairs[0].v: Invalid value: "b": failed rule: self == oldSelf'
    assert got.refusal == refused(things, why)


async def test_a_status_has_rules_too(api: Api, things: Things) -> None:
    await api.make(things.path, things.thing("a"))
    got = await api.patch(f"{things.path}/a/status", {"status": {"replicas": 0}})
    why = "status.replicas: Invalid value: 0: failed rule: self > 0"
    assert got.refusal == refused(things, why)


async def test_rules_are_asked_only_of_what_makes_sense(api: Api, things: Things) -> None:
    got = await api.post(things.path, things.thing("a", id=5))
    assert got.refusal[:2] == (422, "Invalid")
    assert got.causes[-1]["message"] == (
        "Invalid value: null: some validation rules were not checked because the object was "
        "invalid; correct the existing errors to complete validation"
    )


async def test_a_definition_whose_rule_makes_no_sense_is_refused(api: Api) -> None:
    schema = ruled("object", rule("self.metadata.name =="))
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"plural": "others", "kind": "Other"}
    group = "rules.conformance.test"
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    got = await api.post(DEFINITIONS, {"metadata": {"name": f"others.{group}"}, "spec": spec})
    assert got.refusal[:2] == (422, "Invalid")
    place = "spec.validation.openAPIV3Schema.x-kubernetes-validations[0].rule"
    assert [cause["field"] for cause in got.causes] == [place]
