"""Addresses in disasters: whose they are is looked at, and what is proven decides."""

from backstay.lab import cases
from backstay.lab.broken import HearsOfFences
from backstay.lab.play import play


def test_that_a_node_cannot_write_frees_none_of_its_addresses() -> None:
    played = play(cases.ADDRESS_IN_USE, observer=HearsOfFences)
    assert "AddressMayBeUsed" in played.says
    assert "OneAddress" not in played.broken
    assert "10.244.200.5" in played.addresses["till"]
