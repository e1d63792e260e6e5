"""Calico's records are read as Calico writes them, and nothing else passes for one."""

from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from backstay.apis.calico import Block, Handle, Malformed, block_name

Json = dict[str, Any]


def block(**changes: Any) -> Json:
    spec = {
        "cidr": "10.244.3.0/30",
        "affinity": "host:n1",
        "allocations": [None, 0, 1, None],
        "unallocated": [0, 3],
        "attributes": [
            {"handle_id": "net.a", "secondary": {"pod": "p", "namespace": "s", "node": "n1"}},
            {"releasedAt": "2026-03-01T12:00:00Z"},
        ],
        "sequenceNumber": 1_700_000_000_000_000_000,
        "sequenceNumberForAllocation": {"1": 1_699_999_999_999_999_999},
    }
    return {"metadata": {"name": "10-244-3-0-30"}, "spec": {**spec, **changes}}


def test_a_block_says_whose_each_address_is() -> None:
    found = Block(block())
    assert found.ordinal(ip_address("10.244.3.1")) == 1
    assert found.ordinal(ip_address("10.244.3.9")) is None
    assert found.ordinal(ip_address("fd00::1")) is None
    assert found.attribute(0) is None
    mine = found.attribute(1)
    assert mine is not None
    assert (mine.handle, mine.owner) == ("net.a", ("s", "p", "n1"))
    assert found.sequence(1) == 1_699_999_999_999_999_999
    assert [str(found.address(each)) for each in found.held_by("net.a")] == ["10.244.3.1"]


def test_a_handle_with_a_line_break_is_read_as_calico_reads_it() -> None:
    found = Block(block(attributes=[{"handle_id": "net.a\r\neth0"}, {}]))
    assert found.held_by("net.a") == [1]


def test_what_calico_reserves_for_itself_does_not_fill_a_block() -> None:
    own = [{"handle_id": "Windows-Reserved-IPAM-Handle"}, {"handle_id": "x"}]
    assert Block(block(attributes=own, allocations=[0, 0, None, None])).is_empty
    assert not Block(block(attributes=own, allocations=[0, 1, None, None])).is_empty


@pytest.mark.parametrize("field", ["affinity", "hostAffinity"])
def test_a_block_has_an_owner_in_the_old_way_and_in_the_new(field: str) -> None:
    assert Block(block(affinity=None)).has_affinity is False
    assert Block(block(**{"affinity": None, field: "host:n1"})).has_affinity


def test_blocks_are_named_after_their_ranges() -> None:
    assert block_name(ip_network("10.244.235.128/26")) == "10-244-235-128-26"
    assert block_name(ip_network("fd00:10:244::40/122")) == "fd00-10-244--40-122"


_JUNK = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(max_size=3),
    lambda inner: (
        some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    field=some.sampled_from(["cidr", "allocations", "unallocated", "attributes", "affinity"]),
    junk=_JUNK,
)
def test_a_block_of_any_other_shape_is_malformed_and_nothing_worse(field: str, junk: Any) -> None:
    with suppress(Malformed):
        found = Block(block(**{field: junk}))
        assert len(found.held_by("net.a")) <= found.network.num_addresses


@pytest.mark.parametrize(
    "live", [{}, {"metadata": 7}, {"metadata": {"name": "a"}, "spec": None}, {"spec": {}}], ids=str
)
def test_what_is_no_object_at_all_is_malformed(live: Json) -> None:
    with pytest.raises(Malformed):
        Block(live)
    with pytest.raises(Malformed):
        Handle(live)


def test_a_handle_says_in_which_blocks_its_addresses_are() -> None:
    spec = {"handleID": "net.a", "block": {"10.244.3.0/26": 1, "fd00::/122": 2}}
    found = Handle({"metadata": {"name": "net.a"}, "spec": spec})
    assert found.blocks == {"10.244.3.0/26": "10-244-3-0-26", "fd00::/122": "fd00---122"}
    assert found.counts == {"10.244.3.0/26": 1, "fd00::/122": 2}


def test_a_handle_that_names_no_range_is_malformed() -> None:
    spec = {"handleID": "net.a", "block": {"everything": 1}}
    with pytest.raises(Malformed, match=r"IPAMHandle net\.a is not as Calico writes it"):
        Handle({"metadata": {"name": "net.a"}, "spec": spec})
