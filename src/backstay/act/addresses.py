"""Taking back addresses that a dead node's pods hold, as Calico itself would have done it.

::

    find the block ─▶ compare handle, owner and sequence ─▶ write the block ─▶ count the handle down
                      └── any of them differs: it is somebody else's, and left alone

* Exactly these addresses: the handle is that of the dead pod's container, and the owner is that
  pod, in that namespace, on that node. All addresses of that handle go, in both families.
* A block is written whole, at the version that was read. After a conflict everything is compared
  anew; an address whose sequence number is another one by then was given away meanwhile.
* A handle whose addresses are gone is marked as deleted before it is deleted, and so is an empty
  block that belongs to no node: Calico's own way to have nobody else use it in between.
* Nothing here stands in anybody's way. Whatever fails is told with the address, and is bounded in
  time; the caller goes on.
"""

import asyncio
import contextlib
import copy
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address, ip_network

from backstay.act.leave import Leave
from backstay.apis.calico import (
    DEFAULT_NETWORK,
    Address,
    Attribute,
    Block,
    Handle,
    Ipam,
    Json,
    Malformed,
    Settings,
    block_name,
    find_ipam,
    handle_name,
    read_settings,
)
from backstay.kube.client import KubeClient
from backstay.kube.errors import Conflict, KubeError, NotFound, OutcomeUnknown, ServerTimeout
from backstay.kube.resource import Resource
from backstay.model.addresses import AddressClaim, AddressOutcome, Fate
from backstay.model.labels import MANAGER
from backstay.model.moments import time_text
from backstay.seam.tasks import side_by_side

_log = logging.getLogger("backstay.addresses")

_TRIES = 10
_AT_ONCE = 16
_PATIENCE = 10.0
"""Seconds for all of it: the workloads wait for us, and can do without."""

_LOOK_AGAIN = (Conflict, NotFound, OutcomeUnknown, ServerTimeout)
"""Somebody else was faster, or it is not known what came of it."""

_SIZES = {4: (26, *range(20, 33)), 6: (122, *range(116, 129))}
"""The lengths that a block's prefix can have, the usual one first."""

_OF_MACHINES = ".vmi."
"""In the handle of an address that Calico keeps for a virtual machine and not for a pod."""

_BUSY = "others kept writing to its records"
_ELSEWHERE = "Calico does not keep its records in this API"
_SLOW = "it took too long"
_GIVEN_ANEW = "it was given away anew meanwhile"


async def release(
    client: KubeClient, claims: Sequence[AddressClaim], *, leave: Leave, at: datetime
) -> tuple[AddressOutcome, ...]:
    """What became of each address. Raises nothing that the API could cause, nor a ``leave`` that is
    taken back."""
    wishes = [_Wish(claim, ip_address(each)) for claim in claims for each in claim.addresses]
    because = _SLOW
    try:
        async with asyncio.timeout(_PATIENCE):
            because = await _carry_out(client, wishes, leave=leave, at=at)
    except (KubeError, Malformed) as error:
        because = _in_words(error)
    except TimeoutError:
        pass
    return tuple(wish.outcome or wish.ended(Fate.LEFT, because) for wish in wishes)


async def _carry_out(
    client: KubeClient, wishes: list["_Wish"], *, leave: Leave, at: datetime
) -> str:
    """Why those that have no outcome afterwards have none."""
    ipam = await find_ipam(client)
    if ipam is None:
        return _ELSEWHERE
    settings = await read_settings(client, ipam)
    work = _Release(client, ipam, settings, leave=leave, at=at)
    await work.run(wishes)
    return _BUSY


@dataclass
class _Wish:
    """One address of one claim. ``sequence`` is the number under which it was first seen to be
    this pod's, and ``handle`` the handle; ``sent`` says that its release was sent, whatever came
    of it."""

    claim: AddressClaim
    address: Address
    handle: str = ""
    sequence: int | None = None
    sent: bool = False
    outcome: AddressOutcome | None = None

    def ended(self, fate: Fate, because: str = "", seconds: int = 0) -> AddressOutcome:
        self.outcome = AddressOutcome(
            claim=self.claim, address=str(self.address), fate=fate, because=because, seconds=seconds
        )
        return self.outcome


class _Release:
    """One batch, in which each block is written once."""

    def __init__(
        self, client: KubeClient, ipam: Ipam, settings: Settings, *, leave: Leave, at: datetime
    ) -> None:
        self._ipam = ipam
        self._records = _Records(client, leave)
        self._rest = settings.ip_cooldown_seconds
        self._strict = settings.strict_affinity
        self._at = time_text(at)
        self._blocks: dict[str, Block | None] = {}
        self._handles: dict[str, Handle] = {}
        self._reading = asyncio.Lock()

    async def run(self, wishes: list[_Wish]) -> None:
        """Adds to the wishes what else is under the same handles."""
        await self._add_all_of_the_handles(wishes)
        by_block: dict[str, list[_Wish]] = {}
        for wish in wishes:
            try:
                name = await self._locate(wish.address)
            except (KubeError, Malformed) as error:
                wish.ended(Fate.LEFT, _in_words(error))
                continue
            if name is None:
                wish.ended(Fate.FREE)
            else:
                by_block.setdefault(name, []).append(wish)
        emptied: set[str] = set()
        for name, within in by_block.items():
            emptied |= await self._free(name, within)
        await _each(sorted(emptied), self._settle)

    # Finding them

    async def _add_all_of_the_handles(self, wishes: list[_Wish]) -> None:
        """A handle names the blocks of all its addresses, also of those that no annotation has."""
        claims = {wish.claim.container: wish.claim for wish in wishes if wish.claim.container}
        known = {(wish.claim.container, wish.address) for wish in wishes}

        async def look(container: str) -> None:
            handle = await self._handle(f"{DEFAULT_NETWORK}.{container}")
            if handle is not None:
                self._handles[handle.name] = handle
            for name in handle.blocks.values() if handle else ():
                block = await self._block(name)
                found = map(block.address, block.held_by(handle.name)) if block and handle else ()
                wishes.extend(
                    _Wish(claims[container], address)
                    for address in found
                    if (container, address) not in known
                )

        await _each(sorted(claims), look)

    async def _locate(self, address: Address) -> str | None:
        """The name of the block that it is in; None if there is none."""
        guesses = (
            block_name(ip_network(f"{address}/{size}", strict=False))
            for size in dict.fromkeys(_SIZES[address.version])
        )
        for name in (*self._blocks, *guesses):
            block = await self._block(name)
            if block is not None and block.ordinal(address) is not None:
                return name
        return None

    async def _block(self, name: str, *, again: bool = False) -> Block | None:
        async with self._reading:
            if again or name not in self._blocks:
                live = await self._records.read(self._ipam.blocks, name)
                block = None if live is None else Block(live)
                self._blocks[name] = None if block is None or block.deleted else block
        return self._blocks[name]

    async def _handle(self, handle: str) -> Handle | None:
        live = await self._records.read(self._ipam.handles, handle_name(handle))
        found = None if live is None else Handle(live)
        return None if found is None or found.deleted or found.name != handle else found

    # Blocks

    async def _free(self, name: str, wishes: list[_Wish]) -> set[str]:
        """The handles of which it has released something."""
        try:
            for attempt in range(_TRIES):
                block = await self._block(name, again=attempt > 0)
                mine = {o: wish for wish in wishes if (o := self._judge(block, wish)) is not None}
                if block is None or not mine:
                    break
                if await self._write(name, block, list(mine.values()), sorted(mine)):
                    break
        except (KubeError, Malformed) as error:
            for wish in wishes:
                if wish.outcome is None:
                    wish.ended(Fate.LEFT, _in_words(error))
        done = (Fate.RELEASED, Fate.COOLING)
        return {w.handle for w in wishes if w.handle and w.outcome and w.outcome.fate in done}

    def _judge(self, block: Block | None, wish: _Wish) -> int | None:
        """Its place in the block if it may be released; else its outcome is known."""
        ordinal = None if block is None else block.ordinal(wish.address)
        attribute = None if block is None or ordinal is None else block.attribute(ordinal)
        if attribute is None or block is None or ordinal is None:
            wish.ended(Fate.RELEASED if wish.sent else Fate.FREE)
        elif attribute.released_at is not None:
            wish.ended(Fate.COOLING, seconds=self._rest)
        elif _is_kept(attribute, wish.claim):
            wish.ended(Fate.KEPT)
        elif attribute.owner != wish.claim.owner or not wish.claim.has_handle(attribute.handle):
            wish.ended(Fate.LEFT, _whose(attribute))
        elif wish.sequence not in (None, block.sequence(ordinal)):
            wish.ended(Fate.LEFT, _GIVEN_ANEW)
        elif self._strict:
            wish.ended(Fate.BOUND)
        else:
            wish.sequence, wish.handle = block.sequence(ordinal), attribute.handle
            return ordinal
        return None

    async def _write(
        self, name: str, block: Block, wishes: list[_Wish], ordinals: list[int]
    ) -> bool:
        """False if somebody else was faster, or nobody knows: then all is compared again."""
        live = _without(block, ordinals, resting=self._at if self._rest else "")
        left = Block(live)
        for wish in wishes:
            wish.sent = True
        try:
            if left.is_empty and not left.has_affinity:
                await self._records.delete(self._ipam.blocks, live)
                self._blocks[name] = None
            else:
                self._blocks[name] = Block(await self._records.write(self._ipam.blocks, live))
        except _LOOK_AGAIN:
            return False
        for wish in wishes:
            wish.ended(Fate.COOLING if self._rest else Fate.RELEASED, seconds=self._rest)
        return True

    # Handles

    async def _settle(self, name: str) -> None:
        """Counts a handle down to what the blocks say that it still has."""
        for _ in range(_TRIES):
            handle = self._handles.pop(name, None) or await self._handle(name)
            if handle is None:
                return
            counts = {cidr: left for cidr in handle.blocks if (left := self._count(handle, cidr))}
            if counts == handle.counts:
                return
            live = copy.deepcopy(handle.live)
            live["spec"]["block"] = counts
            try:
                if counts:
                    await self._records.write(self._ipam.handles, live)
                else:
                    await self._records.delete(self._ipam.handles, live)
            except _LOOK_AGAIN:
                continue
            return

    def _count(self, handle: Handle, cidr: str) -> int:
        """As the handle says where the block was not looked at."""
        name = handle.blocks[cidr]
        if name not in self._blocks:
            return handle.counts[cidr]
        block = self._blocks[name]
        return 0 if block is None else len(block.held_by(handle.name))


class _Records:
    """Calico's objects in the API."""

    def __init__(self, client: KubeClient, leave: Leave) -> None:
        self._client = client
        self._leave = leave

    async def read(self, resource: Resource, name: str) -> Json | None:
        """By a quorum read; None if it is not there."""
        try:
            return (await self._client.get(resource, name)).json()
        except NotFound:
            return None
        except ValueError as error:
            raise Malformed(str(error)) from None

    async def write(self, resource: Resource, live: Json) -> Json:
        """At the version that it has."""
        name = live["metadata"]["name"]
        reply = await self._client.replace(
            resource, name, live, manager=MANAGER, not_after=self._leave()
        )
        return reply.json()

    async def delete(self, resource: Resource, live: Json) -> None:
        """In two steps, of which the first is the one that counts: from then on everybody takes it
        for gone, and whoever comes across it next deletes it."""
        live["spec"]["deleted"] = True
        marked = (await self.write(resource, live))["metadata"]
        with contextlib.suppress(KubeError):
            await self._client.delete(
                resource,
                marked["name"],
                conditions={"uid": marked["uid"], "resource_version": marked["resourceVersion"]},
                not_after=self._leave(),
            )


def _without(block: Block, ordinals: Sequence[int], *, resting: str) -> Json:
    """The block without these addresses. ``resting`` is the moment from which on they are to rest
    before they are free; empty if they are free at once."""
    live = copy.deepcopy(block.live)
    spec = live["spec"]
    allocations, attributes = spec["allocations"], spec["attributes"]
    sequences = spec.get("sequenceNumberForAllocation") or {}
    number = spec.get("sequenceNumber", 0)
    if resting:
        attributes.append({"releasedAt": resting})
    for ordinal in ordinals:
        if resting:
            allocations[ordinal] = len(attributes) - 1
            sequences[str(ordinal)] = number
        else:
            allocations[ordinal] = None
            spec["unallocated"].append(ordinal)
            sequences.pop(str(ordinal), None)
    used = sorted({each for each in allocations if each is not None})
    renumbered = {old: new for new, old in enumerate(used)}
    spec["attributes"] = [attributes[each] for each in used]
    spec["allocations"] = [None if each is None else renumbered[each] for each in allocations]
    spec["sequenceNumberForAllocation"] = sequences
    spec["sequenceNumber"] = number + 1
    return live


def _is_kept(attribute: Attribute, claim: AddressClaim) -> bool:
    """A long name is shortened in a handle, beyond recognition."""
    shortened = attribute.owner == claim.owner and _OF_MACHINES in attribute.handle
    return shortened or claim.is_its_guests(attribute.handle)


def _whose(attribute: Attribute) -> str:
    namespace, pod, node = attribute.owner
    if not pod:
        return f"it is held under the name {attribute.handle!r}"
    return f"it belongs to the pod {namespace}/{pod} on {node or 'no node'}"


def _in_words(error: Exception) -> str:
    return str(error).rstrip(".")


async def _each(names: Sequence[str], verb: Callable[[str], Awaitable[None]]) -> None:
    """What goes wrong with one is nothing to the others, and no reason to stop."""

    async def one(name: str) -> None:
        try:
            await verb(name)
        except (KubeError, Malformed) as error:
            _log.info("the handle of %s was left as it is: %s", name, error)

    await side_by_side(names, one, at_once=_AT_ONCE)
