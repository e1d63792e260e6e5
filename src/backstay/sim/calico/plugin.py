"""The plugin that each node asks for addresses: Calico's CNI plugin with its IPAM.

* A pod that asks for addresses by name (``ipAddrs``) gets those or none; another one gets the next
  free one of each family from a block of its node, which claims a block when it has none.
* An address of another node's block may be asked for too, unless ``strictAffinity`` is set.
* Whose an address is, is written under a handle: the network's name and the sandbox's. With
  ``persistence`` the addresses of a guest are kept under the name of its VM instead, and the
  next launcher of that VM takes them over.
* Every object is written at the version that was read, and read again after a conflict; a handle
  is raised before its block is written, and lowered after.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

import msgspec

from backstay.kube.client import KubeClient
from backstay.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from backstay.kube.resource import PODS
from backstay.seam.clock import WallClock
from backstay.sim.calico.blocks import (
    Address,
    Json,
    Network,
    Taken,
    address_at,
    attribute_of,
    belongs_to,
    counted,
    given,
    name_of,
    network_of,
    new_block,
    new_handle,
    owned,
    place,
    places_of,
    rested,
    taken_back,
)
from backstay.sim.calico.definitions import V1, Group, named
from backstay.sim.nodes.network import Refused, Sandbox

NETWORK = "k8s-pod-network"
ANNOTATION = "cni.projectcalico.org/"

_RETRIES = 100
_VMI = "VirtualMachineInstance"


@dataclass(frozen=True)
class Pools:
    """Of each family, the range and the length of a block's prefix; None for no such addresses."""

    v4: tuple[str, int] | None = ("10.244.0.0/16", 26)
    v6: tuple[str, int] | None = None

    def each(self) -> Iterator[tuple[Network, int]]:
        for pool in (self.v4, self.v6):
            if pool is not None:
                yield ip_network(pool[0]), pool[1]

    def block_of(self, address: Address) -> Network:
        """Raises ``Refused`` where no pool has it."""
        for pool, size in self.each():
            if address.version == pool.version and address in pool:
                return ip_network(f"{address}/{size}", strict=False)
        raise Refused("The provided IP address is not in a configured pool")


DUAL = Pools(v6=("fd00:10:244::/112", 122))


class Calico:
    """See the module. One for a cluster; the client is that of the node which asks."""

    def __init__(
        self,
        wall: WallClock,
        *,
        group: Group = V1,
        pools: Pools | None = None,
        persistence: bool = False,
    ) -> None:
        self.group = group
        self.pools = pools or Pools()
        self.persistence = persistence
        self._wall = wall

    # What a kubelet asks for

    async def add(self, client: KubeClient, node: str, sandbox: Sandbox) -> tuple[str, ...]:
        meta = await self._metadata(client, sandbox)
        handle, owner = self._handle(meta, sandbox), _owner(meta, node)
        addresses = await self._taken_over(client, handle, owner)
        if not addresses:
            addresses = await self._assigned(client, node, meta, handle, owner)
        said = {
            f"{ANNOTATION}containerID": sandbox.container,
            f"{ANNOTATION}podIP": _with_size(addresses[0]),
            f"{ANNOTATION}podIPs": ",".join(map(_with_size, addresses)),
        }
        patch = {"metadata": {"uid": meta["uid"], "annotations": said}}
        await client.merge_patch(PODS, meta["name"], patch, namespace=meta["namespace"])
        return tuple(map(str, addresses))

    async def remove(self, client: KubeClient, node: str, sandbox: Sandbox) -> None:
        """By its handle. What is kept for a VM is only no longer this pod's."""
        await self.release(client, f"{NETWORK}.{sandbox.container}")
        if not self.persistence:
            return
        pod = (sandbox.pod.namespace, sandbox.pod.name)
        for block in await self._blocks(client):
            mine = [
                ordinal
                for ordinal in range(network_of(block).num_addresses)
                if _is_owned_by(attribute_of(block, ordinal), pod)
            ]
            if mine:
                await self._own(client, block, mine, {})

    async def release(self, client: KubeClient, handle: str) -> None:
        """All addresses of a handle."""
        found = await self._find_handle(client, handle)
        for cidr in found["spec"]["block"] if found else ():
            count = await self._take_back(client, ip_network(cidr), handle)
            await self._count(client, handle, cidr, -count)

    # Assigning

    async def _assigned(
        self, client: KubeClient, node: str, meta: Json, handle: str, owner: Mapping[str, str]
    ) -> list[Address]:
        asked = _asked((meta.get("annotations") or {}).get(f"{ANNOTATION}ipAddrs"))
        wanted: Iterable[Address | Network] = asked or [pool for pool, _ in self.pools.each()]
        try:
            return [await self._assign(client, node, each, handle, owner) for each in wanted]
        except (Refused, KubeError):
            # All or nothing, as with a plugin that is called for one address at a time.
            await self.release(client, handle)
            raise

    async def _assign(
        self,
        client: KubeClient,
        node: str,
        wanted: Address | Network,
        handle: str,
        owner: Mapping[str, str],
    ) -> Address:
        """One by name, or the next of a pool."""
        settings = await self.settings(client)
        strict = bool(settings.get("strictAffinity"))
        for _ in range(_RETRIES):
            try:
                block = await self._suitable(client, node, wanted)
                free = rested(block, cooldown=_cooldown(settings), now=self._wall.now())
                ordinal = (
                    place(free, wanted)
                    if isinstance(wanted, Address)
                    else free["spec"]["unallocated"][0]
                )
                made = given(free, ordinal, handle=handle, owner=owner, node=node, strict=strict)
                await self._count(client, handle, made["spec"]["cidr"], +1)
                try:
                    await client.replace(self.group.blocks, made["metadata"]["name"], made)
                except Conflict:
                    await self._count(client, handle, made["spec"]["cidr"], -1)
                    continue
                return address_at(made, ordinal)
            except Taken as taken:
                raise Refused(str(taken)) from None
            except (Conflict, AlreadyExists):
                await asyncio.sleep(0)
        raise Refused("Max retries hit - excessive concurrent IPAM requests")

    async def _suitable(self, client: KubeClient, node: str, wanted: Address | Network) -> Json:
        """The block of an address, or one of the node's with room; made if there is none."""
        blocks = await self._blocks(client)
        if isinstance(wanted, Address):
            network = self.pools.block_of(wanted)
            found = [block for block in blocks if network_of(block) == network]
            return found[0] if found else await self._claim(client, node, network)
        own = [
            block
            for block in blocks
            if belongs_to(block, node) and block["spec"]["unallocated"]
            and network_of(block).version == wanted.version
        ]  # fmt: skip
        if own:
            return own[0]
        taken = {network_of(block) for block in blocks}
        [size] = [size for pool, size in self.pools.each() if pool == wanted]
        free = (each for each in wanted.subnets(new_prefix=size) if each not in taken)
        return await self._claim(client, node, next(free))

    async def _claim(self, client: KubeClient, node: str, network: Network) -> Json:
        sequence = int(self._wall.now().timestamp() * 1e9)
        body = new_block(network, node=node, sequence=sequence)
        return (await client.create(self.group.blocks, named(self.group.blocks, body))).json()

    # Keeping addresses with a VM

    async def _taken_over(
        self, client: KubeClient, handle: str, owner: Mapping[str, str]
    ) -> list[Address]:
        """What is kept under the handle already: it is this pod's from now on."""
        found = []
        for block in await self._blocks(client) if self.persistence else ():
            if ordinals := places_of(block, handle):
                await self._own(client, block, ordinals, owner)
                found += [address_at(block, ordinal) for ordinal in ordinals]
        return sorted(found, key=lambda address: address.version)

    async def _own(
        self, client: KubeClient, block: Json, ordinals: list[int], owner: Mapping[str, str]
    ) -> None:
        made = owned(block, ordinals, owner)
        await client.replace(self.group.blocks, made["metadata"]["name"], made)

    def _handle(self, meta: Json, sandbox: Sandbox) -> str:
        guest = next(
            (each for each in meta.get("ownerReferences") or () if each["kind"] == _VMI), None
        )
        if guest is None or not self.persistence:
            return f"{NETWORK}.{sandbox.container}"
        return f"{NETWORK}.vmi.{meta['namespace']}.{guest['name']}"

    # The API

    async def settings(self, client: KubeClient) -> Json:
        try:
            found = (await client.get(self.group.settings, "default")).json()
        except NotFound:
            return {}
        return dict(found["spec"])

    async def _metadata(self, client: KubeClient, sandbox: Sandbox) -> Json:
        pod = sandbox.pod
        found = (await client.get(PODS, pod.name, namespace=pod.namespace)).json()["metadata"]
        if found["uid"] != pod.uid:
            raise Refused(f"the pod {pod.key} was replaced")
        return dict(found)

    async def _blocks(self, client: KubeClient) -> list[Json]:
        items = (await client.list(self.group.blocks)).json()["items"]
        return [block for block in items if not block["spec"].get("deleted")]

    async def _take_back(self, client: KubeClient, network: Network, handle: str) -> int:
        """How many addresses it were."""
        settings = await self.settings(client)
        for _ in range(_RETRIES):
            try:
                block = (await client.get(self.group.blocks, name_of(network))).json()
            except NotFound:
                return 0
            ordinals = places_of(block, handle)
            if not ordinals:
                return 0
            made = taken_back(block, ordinals, cooldown=_cooldown(settings), now=self._wall.now())
            try:
                await client.replace(self.group.blocks, name_of(network), made)
            except Conflict:
                continue
            return len(ordinals)
        return 0

    async def _count(self, client: KubeClient, handle: str, cidr: str, change: int) -> None:
        """A handle without addresses is marked as deleted, and then deleted."""
        for _ in range(_RETRIES if change else 0):
            try:
                found = await self._find_handle(client, handle)
                if found is None and change < 0:
                    return
                made = counted(found or new_handle(handle), cidr, change)
                if not made["spec"]["block"]:
                    await self._delete_handle(client, made)
                elif found is None:
                    await client.create(self.group.handles, named(self.group.handles, made))
                else:
                    await client.replace(self.group.handles, handle.lower(), made)
            except (Conflict, AlreadyExists, NotFound):
                await asyncio.sleep(0)
            else:
                return

    async def _find_handle(self, client: KubeClient, handle: str) -> Json | None:
        """Whoever comes across one that is marked as deleted deletes it."""
        try:
            found = (await client.get(self.group.handles, handle.lower())).json()
        except NotFound:
            return None
        if found["spec"].get("deleted"):
            await self._delete_handle(client, found)
            return None
        return found

    async def _delete_handle(self, client: KubeClient, handle: Json) -> None:
        handle["spec"]["deleted"] = True
        name = handle["metadata"]["name"]
        marked = (await client.replace(self.group.handles, name, handle)).json()["metadata"]
        await client.delete(
            self.group.handles,
            name,
            conditions={"uid": marked["uid"], "resource_version": marked["resourceVersion"]},
        )


def _owner(meta: Json, node: str) -> dict[str, str]:
    return {"pod": meta["name"], "namespace": meta["namespace"], "node": node}


def _is_owned_by(attribute: Mapping[str, Any] | None, pod: tuple[str, str]) -> bool:
    said = (attribute or {}).get("secondary") or {}
    return (said.get("namespace"), said.get("pod")) == pod


def _asked(annotation: str | None) -> list[Address]:
    """Raises ``Refused`` for what nobody can read, as the plugin fails then."""
    if not annotation:
        return []
    try:
        return [ip_address(each) for each in msgspec.json.decode(annotation, type=list[str])]
    except (msgspec.MsgspecError, ValueError):
        raise Refused(f"failed to parse {ANNOTATION}ipAddrs") from None


def _with_size(address: Address) -> str:
    return f"{address}/{address.max_prefixlen}"


def _cooldown(settings: Json) -> int:
    return int(settings.get("ipCooldownSeconds") or 0)
