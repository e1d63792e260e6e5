"""Calico's address management (IPAM), as far as an address has to be taken back from a dead node.

Calico keeps three kinds of objects, in one of two API groups. A *block* is a range of addresses
with an entry for each: free, or the number of an *attribute*, which names the *handle* (of one
container) and the owner (pod, namespace, node). A *handle* counts its addresses in each block.
The *configuration* says whether one node may use addresses of another's block.

* ``Block`` and ``Handle`` are views of the live object, which is what is written back: a field that
  we do not know of must survive us.
* What others wrote is not believed. Whatever has another shape than Calico gives it is
  ``Malformed``, with a sentence that names the object and what is wrong.
* An object that says ``deleted`` is one that Calico is about to delete: it counts as gone.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Any, TypeVar

import msgspec

from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.kube.discovery import serves
from backstay.kube.resource import Resource

T = TypeVar("T")

Json = dict[str, Any]
Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

PREFIX = "cni.projectcalico.org/"
CONTAINER = f"{PREFIX}containerID"
POD_IP = f"{PREFIX}podIP"
POD_IPS = f"{PREFIX}podIPs"
ASKED = f"{PREFIX}ipAddrs"
"""The addresses that a pod is to have, as a JSON list; people write it."""

DEFAULT_NETWORK = "k8s-pod-network"
"""What Calico calls its network unless somebody has named it otherwise."""

_RESERVED = "windows-reserved-ipam-handle"
_CONFIGURATION = "default"
_TIMEOUT = 10.0


class Malformed(Exception):
    """One sentence: which object, and what is wrong with it."""


class Ipam(msgspec.Struct, frozen=True):
    """The kinds of one API group."""

    blocks: Resource
    handles: Resource
    settings: Resource


def _ipam(group: str, version: str, settings: tuple[str, str]) -> Ipam:
    def kind(plural: str, kind: str) -> Resource:
        return Resource(group, version, plural, kind, namespaced=False)

    return Ipam(kind("ipamblocks", "IPAMBlock"), kind("ipamhandles", "IPAMHandle"), kind(*settings))


V1 = _ipam("crd.projectcalico.org", "v1", ("ipamconfigs", "IPAMConfig"))
V3 = _ipam("projectcalico.org", "v3", ("ipamconfigurations", "IPAMConfiguration"))


async def find_ipam(client: KubeClient, *, timeout: float = _TIMEOUT) -> Ipam | None:
    """Where Calico keeps its addresses; None if not in this API. Raises ``KubeError``.

    Where both groups are served, the older one is what is stored, and the newer one a view of it.
    """
    for ipam in (V1, V3):
        if await serves(client, ipam.blocks, timeout=timeout):
            return ipam
    return None


# The configuration


class Settings(msgspec.Struct, frozen=True, rename="camel"):
    """``strict_affinity``: a node takes addresses of its own blocks only.
    ``ip_cooldown_seconds``: how long an address rests after it was released."""

    strict_affinity: bool = False
    ip_cooldown_seconds: int = 0


class _SettingsWire(msgspec.Struct, frozen=True):
    spec: Settings = Settings()


async def read_settings(client: KubeClient, ipam: Ipam, *, timeout: float = _TIMEOUT) -> Settings:
    """Calico's own defaults where nobody has set anything. Raises ``KubeError``, ``Malformed``."""
    try:
        live = (await client.get(ipam.settings, _CONFIGURATION, timeout=timeout)).json()
    except errors.NotFound:
        return Settings()
    return _read(live, ipam.settings.kind, _SettingsWire).spec


# Blocks


class Attribute(msgspec.Struct, frozen=True, rename="camel"):
    """Whose an address is. ``secondary`` is who has it now, ``alternate_owner_attrs`` who had it
    before or is to have it next, while a guest is migrated."""

    handle_id: str | None = msgspec.field(name="handle_id", default=None)
    secondary: dict[str, str] | None = None
    alternate_owner_attrs: dict[str, str] | None = None
    released_at: str | None = None

    @property
    def handle(self) -> str:
        """Calico itself has written handles with a line break in them."""
        return (self.handle_id or "").split("\r")[0]

    @property
    def owner(self) -> tuple[str, str, str]:
        """Namespace, pod and node."""
        said = self.secondary or {}
        return said.get("namespace", ""), said.get("pod", ""), said.get("node", "")


class _BlockSpec(msgspec.Struct, frozen=True, rename="camel"):
    cidr: str
    allocations: list[int | None]
    unallocated: list[int]
    attributes: list[Attribute]
    affinity: str | None = None
    host_affinity: str | None = None
    sequence_number: int = 0
    sequence_number_for_allocation: dict[str, int] | None = None
    deleted: bool = False


class _BlockWire(msgspec.Struct, frozen=True):
    spec: _BlockSpec


class Block:
    """A view of a live block. Raises ``Malformed`` for what no block can be."""

    def __init__(self, live: Json) -> None:
        self.live = live
        self._spec = _read(live, "IPAMBlock", _BlockWire).spec
        try:
            self.network: Network = ip_network(self._spec.cidr)
        except ValueError as error:
            raise _malformed(live, "IPAMBlock", str(error)) from None
        self._check()

    @property
    def deleted(self) -> bool:
        return self._spec.deleted

    @property
    def has_affinity(self) -> bool:
        return bool(self._spec.affinity or self._spec.host_affinity)

    @property
    def is_empty(self) -> bool:
        """What Calico itself has reserved does not count."""
        handles = (self._spec.attributes[each].handle for each in self._used())
        return all(handle.lower() == _RESERVED for handle in handles)

    def ordinal(self, address: Address) -> int | None:
        """Its place in the block; None if it is not in it."""
        if address.version != self.network.version or address not in self.network:
            return None
        return int(address) - int(self.network.network_address)

    def address(self, ordinal: int) -> Address:
        return self.network[ordinal]

    def attribute(self, ordinal: int) -> Attribute | None:
        """None if the address is free."""
        number = self._spec.allocations[ordinal]
        return None if number is None else self._spec.attributes[number]

    def sequence(self, ordinal: int) -> int:
        """A number that is another one after the address was given away anew."""
        return (self._spec.sequence_number_for_allocation or {}).get(str(ordinal), 0)

    def held_by(self, handle: str) -> list[int]:
        """The places of all addresses of a handle."""
        return [
            ordinal
            for ordinal, number in enumerate(self._spec.allocations)
            if number is not None and self._spec.attributes[number].handle == handle
        ]

    def _used(self) -> Iterable[int]:
        return (number for number in self._spec.allocations if number is not None)

    def _check(self) -> None:
        spec, size = self._spec, self.network.num_addresses
        if len(spec.allocations) != size:
            wrong = f"{spec.cidr} has {size} addresses, and {len(spec.allocations)} entries"
            raise _malformed(self.live, "IPAMBlock", wrong)
        if not all(0 <= number < len(spec.attributes) for number in self._used()):
            raise _malformed(self.live, "IPAMBlock", "an address points at no attribute")


def block_name(network: Network) -> str:
    """As Calico names the block of a range: ``10-244-235-128-26``."""
    return str(network).translate(str.maketrans(".:/", "---"))


# Handles


class _HandleSpec(msgspec.Struct, frozen=True):
    handle_id: str = msgspec.field(name="handleID")
    block: dict[str, int] | None = None
    deleted: bool = False


class _HandleWire(msgspec.Struct, frozen=True):
    spec: _HandleSpec


class Handle:
    """A view of a live handle. Raises ``Malformed``.

    ``counts`` says how many of its addresses are in which range, ``blocks`` how the block of a
    range is called."""

    def __init__(self, live: Json) -> None:
        self.live = live
        self._spec = _read(live, "IPAMHandle", _HandleWire).spec
        self.counts = dict(self._spec.block or {})
        try:
            self.blocks = {cidr: block_name(ip_network(cidr)) for cidr in self.counts}
        except ValueError as error:
            raise _malformed(live, "IPAMHandle", str(error)) from None

    @property
    def name(self) -> str:
        return self._spec.handle_id

    @property
    def deleted(self) -> bool:
        return self._spec.deleted


def handle_name(handle: str) -> str:
    """The name of the object."""
    return handle.lower()


def _read(live: Json, kind: str, wire: type[T]) -> T:
    try:
        return msgspec.convert(live, wire)
    except msgspec.ValidationError as error:
        raise _malformed(live, kind, str(error)) from None


def _malformed(live: Json, kind: str, why: str) -> Malformed:
    metadata = live.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return Malformed(f"{kind} {name or '?'} is not as Calico writes it ({why})")
