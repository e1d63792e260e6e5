"""Addresses in a lab: what a write to one of Calico's blocks has taken from whom."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backstay.apis.calico import V1, V3
from backstay.sim.api.store import Commit
from backstay.sim.calico.blocks import address_at, attribute_of, network_of

BLOCKS = frozenset({V1.blocks.label, V3.blocks.label})
HANDLES = frozenset({V1.handles.label, V3.handles.label})


@dataclass(frozen=True)
class Held:
    """An address, the handle under which it is held, and whose it is."""

    address: str
    handle: str
    pod: str
    node: str


def released(commit: Commit) -> list[Held]:
    """What nobody has any more, or somebody else, after something was written."""
    if commit.storage not in BLOCKS or commit.before is None:
        return []
    left = {} if commit.deleted else _held(commit.after.object)
    before = _held(commit.before.object)
    return [
        held
        for address, held in before.items()
        if address not in left or left[address].handle != held.handle
    ]


def _held(block: Mapping[str, Any]) -> dict[str, Held]:
    found = {}
    for ordinal in range(network_of(block).num_addresses):
        attribute = attribute_of(block, ordinal)
        if attribute is not None and attribute.get("handle_id"):
            owner, address = attribute.get("secondary") or {}, str(address_at(block, ordinal))
            found[address] = Held(
                address, attribute["handle_id"], owner.get("pod", ""), owner.get("node", "")
            )
    return found
