from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.kube.errors import KubeError, OutcomeUnknown, Undecodable
from backstay.kube.lines import MAX_LINE, Lines
from backstay.seam.errors import ConnectionLost, TransportError
from backstay.sim.loop import run
from tests.support.virtual import virtual_time


class Chunks:
    """A stream that ends properly after its chunks, or with an error if the last one is one.

    A list of chunks is what arrives at once.
    """

    status = 200
    headers: dict[str, str] = {}  # noqa: RUF012 - the seam's shape, never written to

    def __init__(self, *chunks: bytes | list[bytes] | TransportError) -> None:
        self._chunks = list(chunks)
        self.timeouts: list[float] = []

    async def pieces(self, timeout: float) -> list[bytes]:
        self.timeouts.append(timeout)
        chunks = self._chunks.pop(0) if self._chunks else []
        if isinstance(chunks, TransportError):
            raise chunks
        return [chunks] if isinstance(chunks, bytes) else chunks

    async def read(self, timeout: float) -> bytes:
        return b"".join(await self.pieces(timeout))


def failed(error: TransportError) -> KubeError:
    return OutcomeUnknown(f"GET /pods: {error}")


def reader(*chunks: bytes | list[bytes] | TransportError, max_line: int = MAX_LINE) -> Lines:
    return Lines(Chunks(*chunks), call="GET /pods", failed=failed, max_line=max_line)


async def everything(lines: Lines) -> list[bytes]:
    found = []
    while (batch := await lines.read(1.0)) is not None:
        assert batch
        assert all(line.endswith(b"\n") for line in batch)
        found += [line[:-1] for line in batch]
    return found


@virtual_time
async def test_lines_that_came_together_are_handed_out_together() -> None:
    lines = reader(b"a\nb\nc", b"c\nd\n")
    assert await lines.read(1.0) == [b"a\n", b"b\n"]
    assert await lines.read(1.0) == [b"cc\n", b"d\n"]
    assert await lines.read(1.0) is None


@virtual_time
async def test_pieces_that_came_together_are_read_together_wherever_they_are_cut() -> None:
    lines = reader([b"a\n", b"b", b"b\nc\n", b"\n", b"d"], b"d\n")
    assert await lines.read(1.0) == [b"a\n", b"bb\n", b"c\n"]
    assert await lines.read(1.0) == [b"dd\n"]
    assert await lines.read(1.0) is None


@virtual_time
async def test_a_line_that_came_as_one_piece_is_not_copied() -> None:
    line = b"a long line\n"
    [got] = await reader([line]).read(1.0) or []
    assert got is line


@settings(deadline=None)
@given(
    content=st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b"")), max_size=20),
    cuts=st.lists(st.integers(0, 400), max_size=30),
)
def test_it_does_not_matter_where_the_network_cuts(content: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(line + b"\n" for line in content)
    edges = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    chunks = [whole[a:b] for a, b in pairwise(edges)]
    assert run(everything(reader(*chunks))) == [line for line in content if line]


@virtual_time
async def test_a_large_object_arrives_whole() -> None:
    large = bytes(range(32, 127)) * 16_000
    assert len(large) > 1_500_000
    pieces = [large[at : at + 65_536] for at in range(0, len(large), 65_536)]
    assert await everything(reader(b"a\n", *pieces, b"\nb\n")) == [b"a", large, b"b"]


@virtual_time
async def test_a_line_without_end_is_given_up() -> None:
    lines = reader(b"12345", b"67890", b"1", max_line=10)
    with pytest.raises(Undecodable, match=r"^GET /pods: one line of the answer is over 10 bytes"):
        await lines.read(1.0)


@virtual_time
async def test_only_a_single_line_counts_as_too_long() -> None:
    chunks = [b"12345678", b"\n12345678", b"\n"]
    assert await everything(reader(*chunks, max_line=10)) == [b"12345678", b"12345678"]


@virtual_time
async def test_a_last_line_that_is_not_finished_is_dropped() -> None:
    assert await everything(reader(b'{"a":1}\n{"b":')) == [b'{"a":1}']


@virtual_time
async def test_an_empty_stream_has_no_lines() -> None:
    assert await reader().read(1.0) is None


@virtual_time
async def test_a_carriage_return_is_left_in_place_as_the_white_space_it_is_to_json() -> None:
    assert await everything(reader(b'{"a":1}\r\n{"b":2}\n')) == [b'{"a":1}\r', b'{"b":2}']


@virtual_time
async def test_a_stream_that_breaks_off_says_what_broke_off() -> None:
    lines = reader(b"a\nhalf", ConnectionLost("the connection was lost"))
    assert await lines.read(1.0) == [b"a\n"]
    with pytest.raises(OutcomeUnknown, match=r"^GET /pods: the connection was lost$"):
        await lines.read(1.0)


@virtual_time
async def test_every_wait_for_bytes_has_the_bound_that_was_asked_for() -> None:
    stream = Chunks(b"a", b"b\n")
    assert await Lines(stream, call="", failed=failed).read(7.0) == [b"ab\n"]
    assert stream.timeouts == [7.0, 7.0]
