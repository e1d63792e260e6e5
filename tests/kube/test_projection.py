"""From JSON to rows: what is tolerated, what is set aside, and what is no answer at all."""

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backstay.kube import errors
from backstay.kube.projection import Change, Meta, Page, Projection, Unreadable, share, shared_part

Json = dict[str, Any]


class Spec(msgspec.Struct, frozen=True, gc=False):
    size: int | None = None
    place: str | None = None


class Thing(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta
    spec: Spec | None = None


class ThingRow(msgspec.Struct, frozen=True, gc=False):
    key: str
    uid: str
    version: str
    size: int
    place: str


def thing_row(thing: Thing) -> ThingRow:
    meta, spec = thing.metadata, thing.spec or Spec()
    return ThingRow(
        meta.key, meta.uid, meta.resource_version, spec.size or 0, share(spec.place or "")
    )


THINGS: Projection[Thing, ThingRow] = Projection(Thing, thing_row)


def thing(name: str = "a", *, version: str = "5", **spec: Any) -> Json:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": version}
    return {"kind": "Thing", "metadata": meta, "spec": {"size": 1, **spec}, "status": {"x": [1]}}


def encoded_list(*items: object, **metadata: Any) -> bytes:
    meta = {"resourceVersion": "9", **metadata}
    return msgspec.json.encode({"kind": "ThingList", "metadata": meta, "items": items})


def read(*items: object, **metadata: Any) -> Page[ThingRow]:
    return THINGS.page(encoded_list(*items, **metadata), call="GET /things")


def event(kind: str, body: object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": body})


def nested(levels: int, *, bracket: bytes = b"[]") -> bytes:
    opening, closing = (b'{"x":', b"}") if bracket == b"{}" else (b"[", b"]")
    return opening * levels + b"1" + closing * levels


def with_field(name: str, raw: bytes) -> bytes:
    """An object with one more field, whose JSON is given."""
    return msgspec.json.encode(thing(name))[:-1] + b',"more":' + raw + b"}"


# Pages


def test_a_page_has_its_rows_its_version_and_the_way_on() -> None:
    page = read(thing("a", size=3, place="here"), {"metadata": {**thing("b")["metadata"]}},
                **{"continue": "t1"})  # fmt: skip
    assert page.rows == [
        ThingRow("ns/a", "uid-a", "5", 3, "here"), ThingRow("ns/b", "uid-b", "5", 0, ""),
    ]  # fmt: skip
    assert (page.unreadable, page.version, page.token) == ([], "9", "t1")


@pytest.mark.parametrize("token", [{}, {"continue": ""}, {"continue": None}])
def test_a_page_without_a_token_is_the_last(token: Json) -> None:
    assert read(thing(), **token).token is None


def test_a_server_may_say_null_where_it_has_no_items() -> None:
    body = b'{"metadata":{"resourceVersion":"9"},"items":null}'
    assert THINGS.page(body, call="GET /things") == Page([], [], "9", None)


def test_a_key_without_a_namespace_is_the_name() -> None:
    cluster_wide = thing("a")
    cluster_wide["metadata"]["namespace"] = None
    assert read(cluster_wide).rows[0].key == "a"


NO_LIST: dict[str, bytes] = {
    "nothing": b"",
    "cut off": encoded_list(thing())[:-10],
    "a page of HTML": b"<html>login</html>",
    "a JSON array": b"[]",
    "a Status": b'{"kind":"Status","metadata":{},"status":"Success"}',
    "a single object": msgspec.json.encode(thing()),
    "no items": b'{"metadata":{"resourceVersion":"9"}}',
    "no metadata": b'{"items":[]}',
    "no version": b'{"metadata":{},"items":[]}',
    "an empty version": b'{"metadata":{"resourceVersion":""},"items":[]}',
    "a version of another type": b'{"metadata":{"resourceVersion":9},"items":[]}',
    "items of another type": b'{"metadata":{"resourceVersion":"9"},"items":{}}',
    "an item that is none": encoded_list(thing(), None),
    "an item without metadata": encoded_list(thing(), {"spec": {}}),
    "an item without a name": encoded_list({"metadata": {"resourceVersion": "5"}}),
    "an item with an empty name": encoded_list(thing("")),
    "not UTF-8": b'{"metadata":{"resourceVersion":"\xff"},"items":[]}',
    "brackets without end": b'{"metadata":{"resourceVersion":"9"},"items":' + b"[" * 5000,
    "depths, and brackets without end": (
        b'{"metadata":{"resourceVersion":"9"},"items":[' + nested(5000) + b"," + b"[" * 5000
    ),
}


@pytest.mark.parametrize("body", NO_LIST.values(), ids=NO_LIST.keys())
def test_what_is_no_list_of_named_objects_is_undecodable(body: bytes) -> None:
    # Each of these would look like "everything is gone" if it passed for a list.
    with pytest.raises(errors.Undecodable, match=r"^GET /things: the answer is not a list \("):
        THINGS.page(body, call="GET /things")


def test_one_bad_object_of_500_is_set_aside_and_the_others_keep_their_order() -> None:
    objects = [thing(f"{n:03}") for n in range(500)]
    objects[217]["spec"]["size"] = "large"
    page = read(*objects, **{"continue": "t1"})
    assert [row.key for row in page.rows] == [f"ns/{n:03}" for n in range(500) if n != 217]
    why = "Expected `int | null`, got `str` - at `$.spec.size`"
    assert page.unreadable == [Unreadable("ns/217", "5", why)]
    assert (page.version, page.token) == ("9", "t1")


@pytest.mark.parametrize("version", [None, 5, "", ["5"]])
def test_an_object_without_a_proper_version_is_set_aside_by_its_name(version: object) -> None:
    bad = thing("b")
    bad["metadata"]["resourceVersion"] = version
    page = read(thing("a"), bad)
    assert [row.key for row in page.rows] == ["ns/a"]
    assert [(bad.key, bad.version) for bad in page.unreadable] == [("ns/b", "")]


def refuse_large(thing: Thing) -> ThingRow:
    row = thing_row(thing)
    if row.size > 9:
        raise ERRORS[row.size - 10]("too large")
    return row


ERRORS: tuple[Callable[[str], Exception], ...] = (ValueError, TypeError, KeyError, AttributeError)


@pytest.mark.parametrize("size", range(10, 14))
def test_an_object_that_makes_no_row_is_set_aside_too(size: int) -> None:
    projection = Projection(Thing, refuse_large)
    body = encoded_list(thing("a"), thing("b", size=size), thing("c"))
    page = projection.page(body, call="GET /things")
    assert [row.key for row in page.rows] == ["ns/a", "ns/c"]
    assert [(bad.key, bad.version) for bad in page.unreadable] == [("ns/b", "5")]
    change = projection.change(event("ADDED", thing("b", size=size)), call="GET /things")
    assert change.unreadable == page.unreadable[0]


def test_a_bug_that_has_nothing_to_do_with_the_object_is_seen() -> None:
    def broken(thing: Thing) -> ThingRow:
        raise ZeroDivisionError(thing.metadata.name)

    with pytest.raises(ZeroDivisionError):
        Projection(Thing, broken).page(encoded_list(thing()), call="GET /things")


# Objects that nest deeper than a decoder goes


@pytest.mark.parametrize("bracket", [b"[]", b"{}"])
def test_an_object_that_nests_too_deep_is_read_without_its_depths(bracket: bytes) -> None:
    deep = with_field("deep", nested(9000, bracket=bracket))
    body = b'{"metadata":{"resourceVersion":"9"},"items":[%b,%b,%b]}' % (
        with_field("a", b'"]}"'), deep, with_field("b", b'["\\"]", {"\\\\": "}"}]'),
    )  # fmt: skip
    page = THINGS.page(body, call="GET /things")
    assert [row.key for row in page.rows] == ["ns/a", "ns/deep", "ns/b"]
    assert page.unreadable == []
    change = THINGS.change(b'{"type":"ADDED","object":%b}' % deep, call="GET /things")
    assert change.row == page.rows[1]


def test_a_bad_object_before_one_that_nests_too_deep_is_the_only_one_set_aside() -> None:
    body = b'{"metadata":{"resourceVersion":"9"},"items":[%b,%b]}' % (
        msgspec.json.encode(thing("bad", size="large")), with_field("deep", nested(5000)),
    )  # fmt: skip
    page = THINGS.page(body, call="GET /things")
    assert [row.key for row in page.rows] == ["ns/deep"]
    assert [bad.key for bad in page.unreadable] == ["ns/bad"]


def test_brackets_in_strings_are_no_depth() -> None:
    body = b'{"metadata":{"resourceVersion":"9"},"items":[%b,%b]}' % (
        with_field("a", b'"\\"' + b"[" * 200 + b'"'), with_field("deep", nested(5000)),
    )  # fmt: skip
    page = THINGS.page(body, call="GET /things")
    assert [row.key for row in page.rows] == ["ns/a", "ns/deep"]


def test_a_field_of_ours_that_nests_too_deep_makes_its_object_unreadable() -> None:
    deep = msgspec.json.encode(thing("deep")).replace(b'{"size":1}', nested(5000))
    body = b'{"metadata":{"resourceVersion":"9"},"items":[%b]}' % deep
    assert [bad.key for bad in THINGS.page(body, call="GET /things").unreadable] == ["ns/deep"]


# Changes


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_an_event_has_its_kind_its_row_and_its_version(kind: str) -> None:
    change = THINGS.change(event(kind, thing("a", size=2)), call="GET /things")
    assert change.row == ThingRow("ns/a", "uid-a", "5", 2, "")
    assert (change.kind, change.version, change.key) == (kind, "5", "ns/a")
    assert (change.unreadable, change.complete) == (None, False)


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_an_event_whose_object_is_bad_still_has_a_key_and_a_version(kind: str) -> None:
    change = THINGS.change(event(kind, thing("a", size="large")), call="GET /things")
    assert change.row is None
    assert change.unreadable is not None
    assert (change.kind, change.version, change.key) == (kind, "5", "ns/a")


@pytest.mark.parametrize(
    ("annotations", "complete"),
    [
        ({}, False),
        ({"annotations": None}, False),
        ({"annotations": {"k8s.io/initial-events-end": "true"}}, True),
        ({"annotations": {"k8s.io/initial-events-end": "false"}}, False),
    ],
)
def test_a_bookmark_has_a_version_and_may_end_the_initial_events(
    annotations: Json, complete: bool
) -> None:
    # A real server sends the other fields of the kind as well, empty.
    body = {"kind": "Thing", "metadata": {"resourceVersion": "7", **annotations}, "spec": {}}
    change = THINGS.change(event("BOOKMARK", body), call="GET /things")
    assert (change.kind, change.version, change.complete) == ("BOOKMARK", "7", complete)
    assert (change.row, change.unreadable, change.key) == (None, None, "")


def test_a_bookmark_is_one_wherever_its_line_says_so() -> None:
    line = b'{"object":{"metadata":{"resourceVersion":"7"}},"type":"BOOKMARK"}\n'
    assert THINGS.change(line, call="GET /things") == Change("BOOKMARK", "7")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"code": 410, "reason": "Expired", "message": "too old"}, errors.Gone),
        ({"code": 410, "reason": "Gone"}, errors.Gone),
        ({"code": 410}, errors.Gone),
        ({"code": 504, "reason": "Timeout", "message": "too large"}, errors.ServerTimeout),
        ({"code": 500, "reason": "InternalError"}, errors.InternalError),
        ({"code": 429, "details": {"retryAfterSeconds": 3}}, errors.TooManyRequests),
        ({"status": "Failure", "metadata": {}}, errors.UnexpectedStatus),
    ],
)
def test_an_error_event_is_the_error_that_it_describes(
    status: Json, expected: type[errors.KubeError]
) -> None:
    line = event("ERROR", {"kind": "Status", "apiVersion": "v1", **status})
    with pytest.raises(expected, match=r"^GET /things: "):
        THINGS.change(line, call="GET /things")


NO_CHANGE: dict[str, bytes] = {
    "cut off": event("ADDED", thing())[:-4],
    "HTML": b"<html>",
    "no type": msgspec.json.encode({"object": thing()}),
    "no object": b'{"type":"ADDED"}',
    "an unknown kind": event("RENAMED", thing()),
    "a kind of another type": event("ADDED", thing()).replace(b'"ADDED"', b"1"),
    "an object without a name": event("ADDED", {"metadata": {"resourceVersion": "5"}}),
    "a deleted object without a name": event("DELETED", {"metadata": {"resourceVersion": "5"}}),
    "an object without a version": event("ADDED", {"metadata": {"name": "a"}}),
    "an object with an empty version": event("ADDED", thing(version="")),
    "a bad object without a version": event("MODIFIED", {"metadata": {"name": "a"}, "spec": 1}),
    "an object that is none": event("DELETED", None),
    "a bookmark without a version": event("BOOKMARK", {"metadata": {}}),
    "a bookmark with an empty version": event("BOOKMARK", {"metadata": {"resourceVersion": ""}}),
    "an error without a status": event("ERROR", "too old"),
    "brackets without end": b'{"type":"ADDED","object":' + b"[" * 5000,
}


@pytest.mark.parametrize("line", NO_CHANGE.values(), ids=NO_CHANGE.keys())
def test_what_is_no_event_with_a_name_and_a_version_is_undecodable(line: bytes) -> None:
    with pytest.raises(errors.Undecodable, match=r"^GET /things: "):
        THINGS.change(line, call="GET /things")


# Memory


def test_rows_share_what_they_repeat() -> None:
    one, other = read(thing("a", place="rack-7"), thing("b", place="rack-7")).rows
    line = event("ADDED", thing("c", place="rack-7"))
    later = THINGS.change(line, call="GET /things").row
    assert later is not None
    assert one.place is other.place is later.place


def test_the_garbage_collector_does_not_track_rows() -> None:
    assert [gc.is_tracked(row) for row in read(thing("a"), thing("b")).rows] == [False, False]


# Junk

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text()
NAMES = st.sampled_from(
    ["type", "object", "metadata", "items", "name", "namespace", "uid", "resourceVersion",
     "continue", "annotations", "spec", "size", "place", "code", "reason", "details"]
)  # fmt: skip
VALUES = SCALARS | st.sampled_from(["ADDED", "DELETED", "BOOKMARK", "ERROR"])
JUNK = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=6)
)
NEARLY_OBJECTS = st.fixed_dictionaries(
    {"metadata": st.fixed_dictionaries({}, optional={"name": VALUES, "resourceVersion": VALUES})},
    optional={"spec": JUNK},
)
BODIES = st.one_of(
    st.binary(max_size=40),
    JUNK.map(msgspec.json.encode),
    st.lists(NEARLY_OBJECTS, max_size=4).map(lambda items: encoded_list(*items)),
    st.builds(event, st.sampled_from(["ADDED", "DELETED", "BOOKMARK", "ERROR"]), NEARLY_OBJECTS),
)


@given(BODIES)
@example(b'{"type":"ADDED","object":{"metadata":{"name":"\\ud800","resourceVersion":"1"}}}')
@example(b'{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"},"spec":1e999}]}')
def test_no_junk_raises_anything_but_our_own_errors(body: bytes) -> None:
    with suppress(errors.KubeError):
        THINGS.page(body, call="GET /things")
    with suppress(errors.KubeError):
        THINGS.change(body, call="GET /things")


@given(BODIES)
def test_whatever_passes_has_a_version_and_names(body: bytes) -> None:
    try:
        page = THINGS.page(body, call="GET /things")
    except errors.KubeError:
        pass
    else:
        assert page.version
        assert all(row.key and row.version for row in page.rows)
        assert all(bad.key for bad in page.unreadable)
    try:
        change = THINGS.change(body, call="GET /things")
    except errors.KubeError:
        pass
    else:
        assert change.version
        assert bool(change.key) is (change.kind != "BOOKMARK")


DEEP = st.recursive(
    st.text(alphabet='[]{}"\\,:x', max_size=6) | st.integers(0, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=30,
)


class Free(msgspec.Struct):
    metadata: Meta
    beside: Any = None


class FreeRow(msgspec.Struct):
    key: str
    uid: str
    version: str
    beside: Any


def free_row(free: Free) -> FreeRow:
    meta = free.metadata
    return FreeRow(meta.key, meta.uid, meta.resource_version, free.beside)


FREE: Projection[Free, FreeRow] = Projection(Free, free_row)


@settings(max_examples=50)
@given(DEEP, st.integers(1100, 3000))
def test_what_is_beside_the_depths_comes_out_unharmed(beside: object, levels: int) -> None:
    deep = with_field("a", nested(levels))[:-1] + b',"beside":%b}' % msgspec.json.encode(beside)
    body = b'{"metadata":{"resourceVersion":"9"},"items":[%b]}' % deep
    assert FREE.page(body, call="GET /things").rows[0].beside == beside


def test_one_bad_object_among_many_lines_is_set_aside_alone() -> None:
    things = (thing("a"), thing("b", size="large"), thing("c"))
    found = [THINGS.change(event("ADDED", each), call="GET /things") for each in things]
    assert [(change.key, change.row is None) for change in found] == [
        ("ns/a", False),
        ("ns/b", True),
        ("ns/c", False),
    ]


# Managed fields, which are passed over

OWNED = [{"manager": "kubelet", "fieldsV1": {"f:spec": {"f:size": {}, 'k:{"a":"b"}': {".": {}}}}}]


def managed(fields: object, *, last: bool = True) -> Json:
    """A thing with managed fields, where a server puts them for most kinds or in the middle."""
    body = thing("a", size=2, place="here")
    meta = {**body["metadata"], "managedFields": fields}
    if not last:
        meta["uid"] = meta.pop("uid")
    return {**body, "metadata": meta}


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(
    "fields",
    [OWNED, [], None, {"of": "another shape"}, [[]], [["a"], ["b"]], ["]"], ["]}"], ["[]", "]["]],
)
def test_managed_fields_of_whatever_shape_change_nothing(fields: object, last: bool) -> None:
    change = THINGS.change(event("ADDED", managed(fields, last=last)), call="GET /things")
    assert change.row == ThingRow("ns/a", "uid-a", "5", 2, "here")


class Bookkeeping(Meta, frozen=True, rename="camel"):
    managed_fields: Any = None


class Booked(msgspec.Struct, frozen=True):
    metadata: Bookkeeping


def booked_row(booked: Booked) -> FreeRow:
    meta = booked.metadata
    return FreeRow(meta.key, meta.uid, meta.resource_version, meta.managed_fields)


@pytest.mark.parametrize("last", [True, False])
def test_managed_fields_are_not_even_decoded(last: bool) -> None:
    line = event("ADDED", managed(OWNED, last=last))
    change = Projection(Booked, booked_row).change(line, call="GET /things")
    assert change.row == FreeRow("ns/a", "uid-a", "5", None)


TRICKY = st.text(alphabet='[]{}",:\\ x1', max_size=12) | st.sampled_from(
    ['],"uid":"u2', ']},"spec":{"size":9', '"managedFields":[', ',"managedFields":[]', "]}}"]
)
ENTRIES = st.recursive(
    TRICKY | st.integers(0, 9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TRICKY, inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(ENTRIES, max_size=3), TRICKY, ENTRIES, st.booleans())
def test_what_stands_in_managed_fields_cannot_pass_for_anything_else(
    fields: object, place: str, beside: object, last: bool
) -> None:
    body = managed(fields, last=last)
    body["spec"]["place"] = place
    body["metadata"] = {"annotations": {place: place}, **body["metadata"], "more": beside}
    for each in (body, {**body, "beside": beside}):
        change = THINGS.change(event("MODIFIED", each), call="GET /things")
        assert change.row == ThingRow("ns/a", "uid-a", "5", 2, place)


def test_a_line_that_is_cut_in_its_managed_fields_is_undecodable() -> None:
    line = event("ADDED", managed(OWNED))
    for end in range(line.index(b"managedFields"), len(line)):
        with pytest.raises(errors.Undecodable, match=r"^GET /things: "):
            THINGS.change(line[:end], call="GET /things")


# Parts that objects share


def counted_part() -> tuple[Callable[[msgspec.Raw], tuple[str, ...]], list[object]]:
    decoded: list[object] = []

    def part(names: list[str]) -> tuple[str, ...]:
        decoded.append(names)
        return tuple(names)

    return shared_part(list[str], part), decoded


def test_the_same_bytes_are_decoded_once_and_give_the_very_same_part() -> None:
    part, decoded = counted_part()
    one, other = part(msgspec.Raw(b'["a"]')), part(msgspec.Raw(b'["a"]'))
    assert one == ("a",)
    assert one is other
    assert len(decoded) == 1


def test_what_differs_in_one_byte_is_another_part() -> None:
    part, decoded = counted_part()
    assert part(msgspec.Raw(b'["a"]')) == part(msgspec.Raw(b'["a" ]'))
    assert part(msgspec.Raw(b'["b"]')) == ("b",)
    assert len(decoded) == 3


def test_a_part_of_a_size_that_is_not_repeated_is_not_remembered() -> None:
    part, decoded = counted_part()
    large = msgspec.json.encode(["x" * 1024])
    assert part(msgspec.Raw(large)) == part(msgspec.Raw(large)) == ("x" * 1024,)
    assert len(decoded) == 2


def test_only_so_many_parts_are_remembered() -> None:
    part, decoded = counted_part()
    first = msgspec.Raw(b'["first"]')
    part(first)
    for number in range(2048):
        part(msgspec.Raw(b'["%d"]' % number))
    part(first)
    assert decoded.count(["first"]) == 2


def test_a_part_that_does_not_decode_is_refused_each_time() -> None:
    part, _ = counted_part()
    for _ in range(2):
        with pytest.raises(msgspec.ValidationError):
            part(msgspec.Raw(b"[1]"))
