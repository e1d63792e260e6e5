"""Blocks and handles, as libcalico changes them. Pure: an object in, a new object out.

A block's ``allocations`` have an entry for each of its addresses: None, or the number of one of its
``attributes``. ``unallocated`` are the free places, in the order in which they are given away; what
is given back goes to its end. An attribute that nobody refers to is dropped, and the others are
counted anew. Every write raises ``sequenceNumber``, which an address keeps from when it was given.
"""

import copy
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Any

Json = dict[str, Any]
Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Taken(Exception):
    """Somebody has the address, or it may not be given to this node."""


def name_of(network: Network) -> str:
    return "".join("-" if letter in ".:/" else letter for letter in str(network))


def network_of(block: Mapping[str, Any]) -> Network:
    return ip_network(block["spec"]["cidr"])


def new_block(network: Network, *, node: str, sequence: int) -> Json:
    """One that belongs to a node, and is empty."""
    return {
        "metadata": {"name": name_of(network)},
        "spec": {
            "cidr": str(network),
            "affinity": f"host:{node}",
            "strictAffinity": False,
            "allocations": [None] * network.num_addresses,
            "unallocated": list(range(network.num_addresses)),
            "attributes": [],
            "sequenceNumber": sequence,
            "sequenceNumberForAllocation": {},
            "deleted": False,
        },
    }


def place(block: Mapping[str, Any], address: Address) -> int:
    return int(address) - int(network_of(block).network_address)


def address_at(block: Mapping[str, Any], ordinal: int) -> Address:
    return network_of(block)[ordinal]


def attribute_of(block: Mapping[str, Any], ordinal: int) -> Mapping[str, Any] | None:
    number = block["spec"]["allocations"][ordinal]
    return None if number is None else block["spec"]["attributes"][number]


def places_of(block: Mapping[str, Any], handle: str) -> list[int]:
    """Those of a handle."""
    spec = block["spec"]
    return [
        ordinal
        for ordinal, number in enumerate(spec["allocations"])
        if number is not None and spec["attributes"][number].get("handle_id") == handle
    ]


def belongs_to(block: Mapping[str, Any], node: str) -> bool:
    return bool(block["spec"].get("affinity") == f"host:{node}")


def given(
    block: Mapping[str, Any],
    ordinal: int,
    *,
    handle: str,
    owner: Mapping[str, str],
    node: str,
    strict: bool,
) -> Json:
    """Raises ``Taken``."""
    if strict and not belongs_to(block, node):
        raise Taken("Block host affinity does not match")
    if block["spec"]["allocations"][ordinal] is not None:
        raise Taken("Address already assigned in block")
    made = copy.deepcopy(dict(block))
    spec = made["spec"]
    attribute = {"handle_id": handle, "secondary": dict(owner)}
    if attribute not in spec["attributes"]:
        spec["attributes"].append(attribute)
    spec["allocations"][ordinal] = spec["attributes"].index(attribute)
    spec["unallocated"].remove(ordinal)
    spec["sequenceNumberForAllocation"][str(ordinal)] = spec["sequenceNumber"]
    spec["sequenceNumber"] += 1
    return made


def taken_back(
    block: Mapping[str, Any], ordinals: Collection[int], *, cooldown: int, now: datetime
) -> Json:
    """Free at once, or after they have rested for ``cooldown`` seconds."""
    made = copy.deepcopy(dict(block))
    spec = made["spec"]
    spec["attributes"].append({"releasedAt": now.strftime("%Y-%m-%dT%H:%M:%SZ")})
    for ordinal in ordinals:
        spec["allocations"][ordinal] = len(spec["attributes"]) - 1
    made = rested(made, cooldown=cooldown, now=now)
    made["spec"]["sequenceNumber"] += 1
    return made


def owned(block: Mapping[str, Any], ordinals: Collection[int], owner: Mapping[str, str]) -> Json:
    """The same addresses with another owner; an empty one if nobody is."""
    made = copy.deepcopy(dict(block))
    spec = made["spec"]
    for ordinal in ordinals:
        attribute = spec["attributes"][spec["allocations"][ordinal]]
        attribute.pop("secondary", None)
        if owner:
            attribute["secondary"] = dict(owner)
    spec["sequenceNumber"] += 1
    return made


def rested(block: Mapping[str, Any], *, cooldown: int, now: datetime) -> Json:
    """The block as whoever reads it sees it: what has rested for long enough is free."""
    made = copy.deepcopy(dict(block))
    spec = made["spec"]
    for ordinal, number in enumerate(spec["allocations"]):
        at = None if number is None else spec["attributes"][number].get("releasedAt")
        if at is None or now - datetime.fromisoformat(at) < timedelta(seconds=cooldown):
            continue
        spec["allocations"][ordinal] = None
        spec["unallocated"].append(ordinal)
        spec["sequenceNumberForAllocation"].pop(str(ordinal), None)
    used = [n for n in range(len(spec["attributes"])) if n in spec["allocations"]]
    spec["attributes"] = [spec["attributes"][number] for number in used]
    spec["allocations"] = [None if n is None else used.index(n) for n in spec["allocations"]]
    return made


def new_handle(handle: str) -> Json:
    return {
        "metadata": {"name": handle.lower()},
        "spec": {"handleID": handle, "block": {}, "deleted": False},
    }


def counted(handle: Mapping[str, Any], cidr: str, change: int) -> Json:
    """With so many more addresses in a block, or fewer."""
    made = copy.deepcopy(dict(handle))
    counts = made["spec"]["block"]
    counts[cidr] = counts.get(cidr, 0) + change
    if counts[cidr] <= 0:
        del counts[cidr]
    return made
