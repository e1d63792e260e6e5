"""Custom resources: kinds that come and go with their definition, and what their schema does."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from backstay.sim.api.formats import fits
from tests.support.both_apis import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    BothApis,
    Embedded,
    Json,
    Reply,
)
from tests.support.definitions import DEFINITIONS, FOOS, definition, foo, with_spec


async def define(api: Embedded, **what: Any) -> None:
    reply = await api.call("POST", DEFINITIONS, definition(**what))
    assert reply.status == 201, reply.body


# Definitions


async def test_a_kind_is_served_as_soon_as_it_is_defined(api: Embedded) -> None:
    assert (await api.call("GET", FOOS)).status == 404
    await define(api)
    assert (await api.call("POST", FOOS, foo())).status == 201


async def test_a_definition_says_that_it_is_established(api: Embedded) -> None:
    await define(api)
    status = (await api.call("GET", f"{DEFINITIONS}/foos.example.com")).body["status"]
    assert [(c["type"], c["status"]) for c in status["conditions"]] == [
        ("NamesAccepted", "True"),
        ("Established", "True"),
    ]
    assert status["storedVersions"] == ["v1"]
    assert status["acceptedNames"]["listKind"] == "FooList"


async def test_names_that_are_taken_are_accepted_when_their_owner_is_gone(api: Embedded) -> None:
    await define(api, names={"shortNames": ["fo"]})
    await define(api, plural="bars", names={"shortNames": ["fo"]})
    bars = f"{DEFINITIONS}/bars.example.com"
    refused = (await api.call("GET", bars)).body["status"]["conditions"]
    assert [(c["type"], c["status"], c["reason"]) for c in refused] == [
        ("NamesAccepted", "False", "ShortNamesConflict"),
        ("Established", "False", "NotAccepted"),
    ]
    await api.call("DELETE", f"{DEFINITIONS}/foos.example.com")
    accepted = (await api.call("GET", bars)).body["status"]
    assert {c["status"] for c in accepted["conditions"]} == {"True"}
    assert accepted["acceptedNames"]["shortNames"] == ["fo"]


async def test_objects_go_with_their_definition(api: Embedded) -> None:
    await define(api)
    await api.call("POST", FOOS, foo())
    await api.call("DELETE", f"{DEFINITIONS}/foos.example.com")
    assert (await api.call("GET", FOOS)).body == "404 page not found\n"
    await define(api)
    assert (await api.call("GET", FOOS)).body["items"] == []


async def test_a_finalizer_keeps_the_definition_too(api: Embedded) -> None:
    await define(api)
    kept = foo()
    kept["metadata"]["finalizers"] = ["example.com/kept"]
    await api.call("POST", FOOS, kept)
    await api.call("DELETE", f"{DEFINITIONS}/foos.example.com")
    still = (await api.call("GET", f"{DEFINITIONS}/foos.example.com")).body["metadata"]
    assert still["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    refused = await api.call("POST", FOOS, foo("late"))
    assert refused.status == 403
    assert refused.message.endswith(
        "create not allowed while custom resource definition is terminating"
    )
    await api.call("PATCH", f"{FOOS}/f", {"metadata": {"finalizers": None}}, content=MERGE)
    assert (await api.call("GET", f"{DEFINITIONS}/foos.example.com")).status == 404


async def test_who_owns_what_goes_by_the_definition_of_now(api: Embedded) -> None:
    async def owned(name: str) -> Json:
        made = (await api.call("POST", FOOS, foo(name, spec={"marks": ["a"]}))).body
        fields: Json = made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
        return fields

    marks = {"type": "array", "items": {"type": "string"}}
    await define(api, schema=with_spec(marks=marks))
    as_one = await owned("f")
    a_set = with_spec(marks={**marks, "x-kubernetes-list-type": "set"})
    versions = definition(schema=a_set)["spec"]["versions"]
    path = f"{DEFINITIONS}/foos.example.com"
    await api.call("PATCH", path, {"spec": {"versions": versions}}, content=MERGE)
    one_by_one = await owned("g")
    assert as_one == {".": {}, "f:marks": {}}
    assert one_by_one == {".": {}, "f:marks": {".": {}, 'v:"a"': {}}}


async def test_a_watch_ends_when_its_kind_goes(api: Embedded) -> None:
    await define(api)
    await api.call("POST", FOOS, foo())
    lines = await api.watch(f"{FOOS}?watch=1")
    assert b'"ADDED"' in await anext(lines)
    await api.call("DELETE", f"{DEFINITIONS}/foos.example.com")
    assert [b'"DELETED"' in chunk async for chunk in lines] == [True]


async def test_a_server_that_starts_later_serves_what_is_defined_already(api: Embedded) -> None:
    await define(api)
    await api.call("POST", FOOS, foo())
    late = Embedded(store=api.server.store)
    assert (await late.call("GET", f"{FOOS}/f")).status == 200


async def test_servers_that_share_a_store_serve_the_same_kinds(api: Embedded) -> None:
    other = Embedded(store=api.server.store)
    await define(api)
    assert (await other.call("POST", FOOS, foo())).status == 201
    assert (await api.call("GET", f"{FOOS}/f")).status == 200
    await other.call("DELETE", f"{DEFINITIONS}/foos.example.com")
    assert (await api.call("GET", FOOS)).status == 404


async def test_a_watch_sees_a_definition_before_it_is_established(api: Embedded) -> None:
    lines = await api.watch(f"{DEFINITIONS}?watch=1")
    await define(api)
    events = [msgspec.json.decode(line) for line in (await anext(lines)).splitlines()]
    await lines.aclose()
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)


async def test_versions_are_listed_with_the_stable_one_first(api: Embedded) -> None:
    def version(name: str, *, storage: bool = False) -> Json:
        schema = {"openAPIV3Schema": with_spec(x={"type": "string", "description": name})}
        return {"name": name, "served": True, "storage": storage, "schema": schema}

    names = ["v1beta1", "v2alpha1", "v1", "v2", "odd"]
    await define(api, versions=[version(name, storage=name == "v1") for name in names])
    group = (await api.call("GET", "/apis/example.com")).body
    listed = [version["version"] for version in group["versions"]]
    assert listed == ["v2", "v1", "v1beta1", "v2alpha1", "odd"]


async def test_all_versions_are_the_same_objects(api: Embedded) -> None:
    def version(name: str, *, storage: bool) -> Json:
        schema = {"openAPIV3Schema": with_spec(a={"type": "string"}, **{name: {"type": "string"}})}
        return {"name": name, "served": True, "storage": storage, "schema": schema}

    await define(api, versions=[version("v1", storage=True), version("v2", storage=False)])
    beta = FOOS.replace("/v1/", "/v2/")
    sent = foo(version="v2", spec={"a": "x", "v2": "only here"})
    assert (await api.call("POST", beta, sent)).status == 201
    seen = (await api.call("GET", f"{FOOS}/f")).body
    assert (seen["apiVersion"], seen["spec"]) == ("example.com/v1", {"a": "x"})


# Schemas


async def test_what_the_schema_does_not_mention_is_not_kept(api: Embedded) -> None:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    await define(api, schema=with_spec(a={"type": "integer"}, free=free))
    sent = foo(spec={"a": 1, "b": 2, "free": {"any": {"thing": None}}}, extra=True)
    made = (await api.call("POST", FOOS, sent)).body
    assert made["spec"] == {"a": 1, "free": {"any": {"thing": None}}}
    assert "extra" not in made


async def test_a_strict_client_is_told_about_unknown_fields(api: Embedded) -> None:
    await define(api, schema=with_spec(a={"type": "integer"}))
    refused = await api.call("POST", f"{FOOS}?fieldValidation=Strict", foo(spec={"b": 2}, x=1))
    assert (refused.status, refused.message) == (
        400,
        'Foo in version "v1" cannot be handled as a Foo: strict decoding error: '
        'unknown field "spec.b", unknown field "x"',
    )
    patched = await api.call("POST", FOOS, foo())
    assert patched.status == 201
    path = f"{FOOS}/f?fieldValidation=Strict"
    refused = await api.call("PATCH", path, {"spec": {"b": 2}}, content=MERGE)
    assert refused.status == 422
    assert 'unknown field "spec.b"' in refused.message


async def test_defaults_are_filled_in_at_every_depth(api: Embedded) -> None:
    inner = {"type": "object", "properties": {"k": {"type": "integer", "default": 3}}}
    schema = with_spec(
        deep={**inner, "default": {}}, given=inner, list={"type": "array", "items": inner}
    )
    await define(api, schema=schema)
    sent = foo(spec={"given": {"k": None}, "list": [{}, {"k": 1}]})
    made = (await api.call("POST", FOOS, sent)).body
    assert made["spec"] == {"given": {"k": 3}, "list": [{"k": 3}, {"k": 1}], "deep": {"k": 3}}


async def test_the_status_is_written_on_its_own(api: Embedded) -> None:
    schema = with_spec(a={"type": "integer"})
    schema["properties"]["status"] = with_spec()["properties"]["spec"] | {
        "properties": {"ready": {"type": "boolean"}}
    }
    await define(api, schema=schema, version={"subresources": {"status": {}}})
    made = (await api.call("POST", FOOS, foo(spec={"a": 1}, status={"ready": True}))).body
    assert "status" not in made
    assert made["metadata"]["generation"] == 1
    told = {"spec": {"a": 9}, "status": {"ready": True}}
    patched = (await api.call("PATCH", f"{FOOS}/f/status", told, content=MERGE)).body
    assert (patched["spec"], patched["status"]) == ({"a": 1}, {"ready": True})
    assert patched["metadata"]["generation"] == 1
    told = {"spec": {"a": 9}, "status": {"ready": False}}
    patched = (await api.call("PATCH", f"{FOOS}/f", told, content=MERGE)).body
    assert (patched["spec"], patched["status"]) == ({"a": 9}, {"ready": True})
    assert patched["metadata"]["generation"] == 2


async def test_what_was_wrong_already_may_stay_as_it_is(api: Embedded) -> None:
    await define(api, schema=with_spec(a={"type": "string"}, b={"type": "string"}))
    await api.call("POST", FOOS, foo(spec={"a": "long", "b": "x"}))
    stricter = with_spec(a={"type": "string", "maxLength": 2}, b={"type": "string"})
    version = definition(schema=stricter)["spec"]["versions"]
    path = f"{DEFINITIONS}/foos.example.com"
    await api.call("PATCH", path, {"spec": {"versions": version}}, content=MERGE)
    kept = await api.call("PATCH", f"{FOOS}/f", {"spec": {"b": "y"}}, content=MERGE)
    assert kept.status == 200
    refused = await api.call("PATCH", f"{FOOS}/f", {"spec": {"a": "longer"}}, content=MERGE)
    assert refused.causes == [
        ("FieldValueTooLong", "spec.a", "Too long: may not be more than 2 bytes")
    ]


async def test_the_alternative_that_came_closest_is_explained(api: Embedded) -> None:
    one = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a", "b"]}, {"properties": {"a": {"minLength": 9}}}],
    }
    await define(api, schema=with_spec(one=one))
    refused = await api.call("POST", FOOS, foo(spec={"one": {"a": "x"}}))
    assert [field for _, field, _ in refused.causes] == ["<nil>", "spec.one.a"]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date-time", "2030-01-01T00:00:00.5+02:00", "2030-01-01 00:00:00"),
        ("date", "2030-02-28", "2030-02-30"),
        ("duration", "1h30m", "soon"),
        ("ipv4", "10.0.0.1", "::1"),
        ("ipv6", "::1", "10.0.0.1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("mac", "00:11:22:33:44:55", "00:11:22:33:44"),
        ("hostname", "a.example.com", "-a.example.com"),
        ("uri", "https://example.com/x", "example.com/x"),
        ("uuid", "0749ea3c-b374-4bd0-8808-d50c3bd6af63", "0749ea3c"),
        ("byte", "aGVsbG8=", "not base64!"),
        ("k8s-short-name", "a-b", "a.b"),
        ("k8s-long-name", "a.b", "A.b"),
    ],
)
def test_a_format_tells_good_from_bad(name: str, good: str, bad: str) -> None:
    assert fits(name, good)
    assert not fits(name, bad)


def test_a_format_that_nobody_knows_fits_everything() -> None:
    assert fits("no-such-format", "anything")


# Beside a real server


def wrong_definitions(group: str) -> Iterator[Json]:
    """One thing wrong with each (or a few that come together)."""

    def wrong(**what: Any) -> Json:
        return definition(group, **what)

    def field(**schema: Any) -> Json:
        return wrong(schema={"type": "object", "properties": {"a": schema}})

    named = wrong()
    named["metadata"]["name"] = f"others.{group}"
    yield named
    groupless = wrong()
    groupless["spec"]["group"] = ""
    yield groupless
    yield definition("dotless")
    yield wrong(scope="")
    yield wrong(scope="Zone")
    yield wrong(versions=[])
    yield wrong(version={"storage": False})
    yield wrong(versions=[{"name": "v1", "served": True, "storage": True}])
    yield wrong(version={"name": "V1"})
    for names in ({"kind": ""}, {"plural": ""}, {"kind": "Foo_"}, {"singular": "Foo"},
                  {"listKind": "Foo"}, {"shortNames": ["F"]}, {"categories": ["F"]}):  # fmt: skip
        yield wrong(names=names)
    yield wrong(schema={"type": "string"})
    yield wrong(schema={"properties": {"a": {"type": "string"}}})
    yield field()
    yield field(type="text")
    yield field(type="array")
    yield field(type="array", uniqueItems=True, items={"type": "string"})
    yield field(type="string", default=5)
    yield field(**{"$ref": "x"})
    yield field(type="object", additionalProperties={"type": "string"}, properties={"b": {}})
    item = {"type": "object", "properties": {"n": {"type": "string"}}}
    as_map: Json = {"type": "array", "items": item, "x-kubernetes-list-type": "map"}
    yield field(**as_map)
    yield field(**as_map, **{"x-kubernetes-list-map-keys": ["n"]})
    yield wrong(schema={"type": "object", "additionalProperties": False})
    metadata = {"type": "object", "properties": {"labels": {"type": "object"}}}
    yield wrong(schema={"type": "object", "properties": {"metadata": metadata}})
    columns = [{"name": "A", "type": "text", "jsonPath": ".a"}, {"name": "", "type": ""}]
    yield wrong(version={"additionalPrinterColumns": columns})
    yield wrong(version={"selectableFields": [{"jsonPath": ".spec.nowhere.at.all"}]})
    yield wrong(conversion={"strategy": "Some"})
    yield wrong(conversion={"strategy": "Webhook"})
    yield wrong(preserveUnknownFields=True)
    scale = {"specReplicasPath": "spec.x", "statusReplicasPath": ".spec.b",
             "labelSelectorPath": ".x"}  # fmt: skip
    yield wrong(version={"subresources": {"scale": scale}})
    yield definition("something.k8s.io")


@pytest.mark.real
async def test_definitions_are_refused_as_by_a_real_server(both: BothApis) -> None:
    for wrong in wrong_definitions(f"{both.namespace}.example.com"):
        reply = await both.same("POST", f"{DEFINITIONS}?dryRun=All", wrong)
        assert reply.status == 422, wrong


_PAIR = {"a": {"type": "string"}, "b": {"type": "string"}}
_NAMED = {"type": "object", "required": ["name"],
          "properties": {"name": {"type": "string"}, "v": {"type": "integer"}}}  # fmt: skip
FIELDS: Json = {
    "int": {"type": "integer", "minimum": 2, "maximum": 5},
    "open": {"type": "integer", "minimum": 2, "maximum": 5, "exclusiveMinimum": True,
             "exclusiveMaximum": True},
    "num": {"type": "number", "minimum": 1.5, "multipleOf": 0.5},
    "str": {"type": "string", "minLength": 2, "maxLength": 4},
    "pat": {"type": "string", "pattern": "^[a-z]+$"},
    "enum": {"type": "string", "enum": ["a", "b"]},
    "nums": {"type": "integer", "enum": [1, 2]},
    "list": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}},
    "map": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1,
            "maxProperties": 2},
    "obj": {"type": "object", "required": ["x"],
            "properties": {"x": {"type": "string"}, "y": {"type": "string", "default": "why"}}},
    "bool": {"type": "boolean"},
    "null": {"type": "string", "nullable": True},
    "either": {"x-kubernetes-int-or-string": True},
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
    "keyed": {"type": "array", "x-kubernetes-list-type": "map",
              "x-kubernetes-list-map-keys": ["name"], "items": _NAMED},
    "keyed2": {"type": "array", "x-kubernetes-list-type": "map",
               "x-kubernetes-list-map-keys": ["a", "b"],
               "items": {"type": "object", "required": ["a"],
                         "properties": {"a": {"type": "string"},
                                        "b": {"type": "integer", "default": 1}}}},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "one": {"type": "object", "properties": _PAIR,
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "some": {"type": "object", "properties": _PAIR,
             "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "not": {"type": "object", "properties": _PAIR, "not": {"required": ["a"]}},
    "all": {"type": "object", "properties": _PAIR,
            "allOf": [{"required": ["a"]}, {"properties": {"b": {"minLength": 3}}}]},
    "moment": {"type": "string", "format": "date-time"},
    "day": {"type": "string", "format": "date"},
    "ip": {"type": "string", "format": "ipv4"},
    "int32": {"type": "integer", "format": "int32"},
    "span": {"type": "string", "format": "duration"},
    "uri": {"type": "string", "format": "uri"},
    "byte": {"type": "string", "format": "byte"},
    "inner": {"type": "object", "x-kubernetes-embedded-resource": True,
              "x-kubernetes-preserve-unknown-fields": True},
    "def": {"type": "object", "default": {},
            "properties": {"k": {"type": "integer", "default": 3}}},
}  # fmt: skip

VALUES: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("int", (1, 6, 2.0, 2.5, "x")),
    ("open", (2, 3, 5)),
    ("num", (1, 1.7, 2, 2.5)),
    ("str", ("a", "abcde", 5, True, None, ["a"], {"a": 1})),
    ("pat", ("A", "a")),
    ("enum", ("a", "c", 5)),
    ("nums", (1, 3, "1")),
    ("list", ([], ["a", "b", "c"], ["a", 5], "x", {"a": 1})),
    ("map", ({}, {"a": 1, "b": 2, "c": 3}, {"a": "x"}, {"a": None})),
    ("obj", ({}, {"x": "1"}, {"x": 1}, None)),
    ("bool", (True, "true", 1)),
    ("null", (None,)),
    ("either", (1, "1", True, 1.5)),
    ("free", ({"a": {"b": None}}, 5)),
    ("any", (5, {"q": {"r": 1}})),
    ("keyed", ([{"name": "a"}, {"name": "a", "v": 1}], [{"v": 1}], [{"name": "a", "w": 1}])),
    ("keyed2", ([{"a": "x"}, {"a": "x", "b": 1}], [{"a": "x"}, {"a": "x", "b": 2}])),
    ("set", (["a", "b", "a"], ["a", "b"])),
    ("one", ({}, {"a": "1", "b": "2"}, {"a": 1}, {"b": "1"})),
    ("some", ({}, {"a": "1"})),
    ("not", ({"a": "1"}, {"b": "1"})),
    ("all", ({"b": "x"}, {"a": "x", "b": "x"}, {"a": "x", "b": "xyz"})),
    ("moment", ("x", "2020-01-01T00:00:00Z", 5)),
    ("day", ("2020-13-01", "2020-12-01")),
    ("ip", ("::1", "1.2.3.4")),
    ("int32", (3_000_000_000, 1.5, 1)),
    ("span", ("5x", "5m", "1h30m", "3 days")),
    ("uri", ("foo", "http://a/b")),
    ("byte", ("%%", "aGk=")),
    ("inner", ({"a": 1}, {"apiVersion": "v1", "kind": "Pod",
                          "metadata": {"name": "x", "foo": "bar"}, "q": 1})),
    ("def", ({}, {"k": None}, None)),
    ("unknown", (1,)),
)  # fmt: skip


@pytest.mark.real
async def test_values_are_checked_pruned_and_filled_as_by_a_real_server(both: BothApis) -> None:
    group = f"{both.namespace}.example.com"
    await both.same("POST", DEFINITIONS, definition(group, schema=with_spec(**FIELDS)))
    await _established(both, f"foos.{group}")
    path = f"/apis/{group}/v1/namespaces/{both.namespace}/foos?dryRun=All"
    for field, values in VALUES:
        for value in values:
            await both.same("POST", path, foo(group=group, spec={field: value}))
    await both.real.call("DELETE", f"{DEFINITIONS}/foos.{group}")


def setting(field: str, value: Any) -> Callable[[Json], None]:
    def change(obj: Json) -> None:
        obj[field] = value

    return change


async def _established(both: BothApis, name: str) -> None:
    def done(reply: Reply) -> bool:
        conditions = reply.body["status"]["conditions"] or ()
        return [c["status"] for c in conditions] == ["True", "True"]

    await both.until_real(f"{DEFINITIONS}/{name}", done)
    await both.same("GET", f"{DEFINITIONS}/{name}")


COLUMNS = [
    {"name": name, "type": kind, "jsonPath": path}
    for name, kind, path in (
        ("String", "string", ".spec.name"),
        ("Integer", "integer", ".spec.replicas"),
        ("Number", "number", ".spec.replicas"),
        ("List", "string", ".spec.list"),
        ("One", "string", '.spec.list[?(@.name=="b")].name'),
        ("Nothing", "string", ".spec.nothing"),
        ("Odd", "boolean", ".spec.name"),
        ("Age", "date", ".metadata.creationTimestamp"),
    )
]


@pytest.mark.real
async def test_a_custom_resource_lives_as_on_a_real_server(both: BothApis) -> None:
    group = f"{both.namespace}.example.com"
    schema = with_spec(
        replicas={"type": "integer", "default": 2}, name={"type": "string"}, list=FIELDS["keyed"]
    )
    schema["properties"]["status"] = {
        "type": "object", "required": ["replicas"],
        "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}},
    }  # fmt: skip
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
             "labelSelectorPath": ".status.selector"}  # fmt: skip
    version = {"subresources": {"status": {}, "scale": scale},
               "selectableFields": [{"jsonPath": ".spec.name"}],
               "additionalPrinterColumns": COLUMNS}  # fmt: skip
    await both.same("POST", DEFINITIONS, definition(group, schema=schema, version=version))
    await _established(both, f"foos.{group}")
    foos = f"/apis/{group}/v1/namespaces/{both.namespace}/foos"

    def some(name: str = "f", **more: Any) -> Json:
        return foo(name, group=group, **more)

    await both.same("POST", foos, some(spec={"name": "x", "no": 1}, status={"replicas": 1}))
    await both.same("GET", f"{foos}/f", managed=True)
    await both.same("POST", foos, some())
    await both.same("PUT", f"{foos}/f", some(spec={"name": "y"}))
    await both.same_update(f"{foos}/f", lambda obj: obj["spec"].update(name="z"))
    await both.same_update(f"{foos}/f", lambda obj: obj.update(status={"replicas": 5}))
    for status in ({"replicas": 5}, {"replicas": "x"}, {}, {"replicas": -1}):
        await both.same_update(f"{foos}/f/status", setting("status", status))
    for patch in ({"replicas": 4, "no": 1}, {"replicas": None}, {"replicas": "x"},
                  {"list": [{"name": "a"}, {"name": "a"}]}):  # fmt: skip
        await both.same("PATCH", f"{foos}/f", {"spec": patch}, content=MERGE)
    await both.same("PATCH", f"{foos}/f", {"spec": {"replicas": 1}}, content=STRATEGIC)
    renamed = [{"op": "replace", "path": "/spec/name", "value": "j"}]
    await both.same("PATCH", f"{foos}/f", renamed, content=JSON_PATCH)
    first = some("ap", spec={"list": [{"name": "a", "v": 1}]})
    second = some("ap", spec={"list": [{"name": "b"}], "replicas": 1})
    await both.same("PATCH", f"{foos}/ap?fieldManager=one", first, content=APPLY, managed=True)
    await both.same("PATCH", f"{foos}/ap?fieldManager=two", second, content=APPLY, managed=True)
    third = some("ap", spec={"replicas": 7})
    await both.same("PATCH", f"{foos}/ap?fieldManager=one", third, content=APPLY)
    await both.same("GET", f"{foos}?fieldSelector=spec.name%3Dj")
    await both.same("GET", f"{foos}?fieldSelector=spec.none%3Dj")
    await both.same_table(foos)
    await both.same("GET", f"{foos}/f/scale")
    await both.same("PATCH", f"{foos}/f/scale", {"spec": {"replicas": 9}}, content=MERGE)
    await both.same_update(f"{foos}/f/scale", lambda obj: obj["spec"].update(replicas=-3))
    await both.same("DELETE", f"{foos}/ap")
    await both.same("DELETE", f"{foos}/none")
    await both.same("POST", foos, {**some("other"), "kind": "Bar"})
    await both.same("POST", foos, some("Not_A_Name"))
    path = f"{DEFINITIONS}/foos.{group}"
    await both.same("PATCH", path, {"spec": {"scope": "Cluster"}}, content=MERGE)
    await both.same("PATCH", path, {"spec": {"names": {"kind": "Zoo"}}}, content=MERGE)
    await both.same("DELETE", path)
    await both.until_real(path, lambda reply: reply.status == 404)
    await both.same("GET", path)
    await both.same("GET", foos)
