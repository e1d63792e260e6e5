"""The parser of server-sent events: bytes cut anywhere, whole events out."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.drivers.linstor.sse import Parser, ServerSent

CHANGE = "may-promote-change"
A, B = b'{"resource_name":"a"}', b'{"resource_name":"b"}'

STREAM = (
    b"\xef\xbb\xbf: a comment\n"
    b"event: may-promote-change\ndata: " + A + b"\n\n"
    b"event:may-promote-change\r\nid: 7\r\nretry: 10\r\ndata:" + B + b"\r\n\r\n"
    b"data: one\rdata:  two\rdata\r\r"
    b"event: nothing to tell\n\n\n"
    b"unknown: field\ndata:\n\n"
    b"data: cut off"
)
EVENTS = [
    ServerSent(CHANGE, A),
    ServerSent(CHANGE, B),
    ServerSent("message", b"one\n two\n"),
    ServerSent("message", b""),
]


def parsed(*chunks: bytes, at_most: int = 1024) -> list[ServerSent]:
    parser = Parser(at_most=at_most)
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_events_are_read_whatever_ends_their_lines() -> None:
    assert parsed(STREAM) == EVENTS


def test_a_cut_at_any_byte_changes_nothing() -> None:
    for cut in range(len(STREAM) + 1):
        assert parsed(STREAM[:cut], STREAM[cut:]) == EVENTS


def test_byte_by_byte_changes_nothing() -> None:
    assert parsed(*(STREAM[i : i + 1] for i in range(len(STREAM)))) == EVENTS


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_an_event_is_there_as_soon_as_its_empty_line_has_come(end: bytes) -> None:
    parser = Parser()
    assert parser.feed(b"data: x" + end) == []
    assert parser.feed(end[:1]) == [ServerSent("message", b"x")]
    assert parser.feed(end[1:] + b"data: y" + end + end) == [ServerSent("message", b"y")]


@given(
    st.lists(
        st.sampled_from([b"data: x", b"data", b"event: e", b": c", b"", b"\r", b"\n", b"\r\n"]),
        max_size=30,
    ),
    st.data(),
)
def test_any_stream_cut_in_any_way_is_the_same_stream(
    lines: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(lines)
    whole = parsed(stream, at_most=16)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    assert parsed(*pieces, at_most=16) == whole


@pytest.mark.parametrize("step", [1, 7, 5000])
@pytest.mark.parametrize(
    "oversized",
    [
        b"data: " + b"x" * 2000 + b"\n\n",
        b"data: " + b"x" * 600 + b"\n" + b"data: " + b"x" * 600 + b"\n\n",
        b"data: small\nevent: " + b"x" * 2000 + b"\n\n",
        b"data: small\n: " + b"x" * 2000 + b"\ndata: more\n\n",
    ],
)
def test_an_event_that_is_too_large_is_counted_and_those_after_it_are_whole(
    oversized: bytes, step: int
) -> None:
    stream = b"data: before\n\n" + oversized + b"data: after\n\n"
    parser = Parser(at_most=1024)
    events = [
        event for at in range(0, len(stream), step) for event in parser.feed(stream[at : at + step])
    ]
    assert [event.data for event in events] == [b"before", b"after"]
    assert parser.oversized == 1


def test_a_line_that_never_ends_takes_no_memory() -> None:
    parser = Parser(at_most=1024)
    for _ in range(1000):
        parser.feed(b"x" * 1000)
        assert len(parser._line) <= 1024
    assert parser.feed(b"\n\ndata: after\n\n") == [ServerSent("message", b"after")]
