"""Look-ups: what stands behind a node's pods, as far as the API tells.

A decision about a pod needs to know the guest, the StatefulSet and the volumes behind it. They
hardly ever change, so they are read apart from the pods: one by one for a node that may be dying
(``describe``), or all at once for a picture of the whole cluster (``describe_all``).

* What is not there is left out; what could not be read is left out too, and ``unread`` says why.
  The two are never mixed up: that nobody starts a guest again is a fact only if it was read.
* Nothing here is fatal. Once the API is out of reach nothing more is asked, so that a node's
  hundred look-ups do not become a hundred timeouts.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec

from backstay.apis.apps import (
    STATEFUL_SET_PROJECTION,
    STATEFUL_SETS,
    StatefulSet,
    StatefulSetRow,
    stateful_set_row,
)
from backstay.apis.kubevirt import (
    INSTANCE_PROJECTION,
    INSTANCES,
    VIRTUAL_MACHINE_PROJECTION,
    VIRTUAL_MACHINES,
    Instance,
    InstanceRow,
    VirtualMachine,
    VirtualMachineRow,
    instance_row,
    virtual_machine_row,
)
from backstay.apis.machines import KUBEVIRT_PROJECTION, KUBEVIRTS
from backstay.apis.storage import (
    CLAIM_PROJECTION,
    CLAIMS,
    VOLUME_PROJECTION,
    VOLUMES,
    ClaimRow,
    ClaimWire,
    VolumeRow,
    VolumeWire,
    claim_row,
    volume_row,
)
from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.kube.projection import Page, Projection, Row
from backstay.kube.resource import Resource
from backstay.seam.tasks import side_by_side

W = TypeVar("W")
R = TypeVar("R", bound=Row)

_AT_ONCE = 16
_TIMEOUT = 10.0
_PAGE = 1000


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, by key (``namespace/name``, or the name alone)."""

    instances: Mapping[str, InstanceRow] = {}
    machines: Mapping[str, VirtualMachineRow] = {}
    stateful_sets: Mapping[str, StatefulSetRow] = {}
    claims: Mapping[str, ClaimRow] = {}
    volumes: Mapping[str, VolumeRow] = {}
    kubevirt: str = ""
    """Which release of it there is, if it says so."""
    unread: Mapping[str, str] = {}
    """Why something could not be read, by ``plural/key``, or by ``plural`` for a whole kind."""

    def why_unread(self, resource: Resource, key: str) -> str:
        """Empty if it was read, or is known not to be there."""
        return self.unread.get(f"{resource.plural}/{key}") or self.unread.get(resource.plural, "")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The keys to begin with. Machines and volumes follow from what is found."""

    instances: frozenset[str] = frozenset()
    stateful_sets: frozenset[str] = frozenset()
    claims: frozenset[str] = frozenset()


async def look_up(client: KubeClient, wanted: Wanted, *, timeout: float = _TIMEOUT) -> Details:
    """Reads what is wanted and what stands behind it, each object by itself."""
    reader = _Reader(client, timeout)
    async with asyncio.TaskGroup() as group:
        found_instances = group.create_task(
            reader.each(INSTANCES, Instance, instance_row, wanted.instances)
        )
        found_sets = group.create_task(
            reader.each(STATEFUL_SETS, StatefulSet, stateful_set_row, wanted.stateful_sets)
        )
    instances = found_instances.result()
    claims = wanted.claims | {key for row in instances.values() for key in claims_of(row)}
    async with asyncio.TaskGroup() as group:
        found_machines = group.create_task(
            reader.each(
                VIRTUAL_MACHINES,
                VirtualMachine,
                virtual_machine_row,
                filter(None, map(machine_of, instances.values())),
            )
        )
        found_claims = group.create_task(reader.each(CLAIMS, ClaimWire, claim_row, claims))
    bound = {row.volume for row in found_claims.result().values() if row.volume}
    return Details(
        instances=instances,
        machines=found_machines.result(),
        stateful_sets=found_sets.result(),
        claims=found_claims.result(),
        volumes=await reader.each(VOLUMES, VolumeWire, volume_row, bound),
        kubevirt=await reader.release() if instances else "",
        unread=reader.unread,
    )


async def describe_all(client: KubeClient, *, timeout: float = 30.0) -> Details:
    """The same for a whole cluster: every kind is listed once."""
    reader = _Reader(client, timeout)
    return Details(
        instances=await reader.all(INSTANCES, INSTANCE_PROJECTION),
        machines=await reader.all(VIRTUAL_MACHINES, VIRTUAL_MACHINE_PROJECTION),
        stateful_sets=await reader.all(STATEFUL_SETS, STATEFUL_SET_PROJECTION),
        claims=await reader.all(CLAIMS, CLAIM_PROJECTION),
        volumes=await reader.all(VOLUMES, VOLUME_PROJECTION),
        kubevirt=await reader.release(),
        unread=reader.unread,
    )


async def list_all(
    client: KubeClient,
    resource: Resource,
    projection: Projection[W, R],
    *,
    namespace: str | None = None,
    timeout: float = 30.0,
) -> Page[R]:
    """Every object of a kind, page by page; if a token runs out on the way, at once."""
    try:
        return await _in_pages(client, resource, projection, namespace, timeout)
    except errors.Gone:
        reply = await client.list(resource, namespace=namespace, timeout=timeout)
        return projection.page(reply.body, call=reply.call)


def machine_of(instance: InstanceRow) -> str | None:
    """The key of the virtual machine that controls an instance."""
    owner = instance.owner
    if owner is None or (owner.group, owner.kind) != (VIRTUAL_MACHINES.group, "VirtualMachine"):
        return None
    return beside(instance.key, owner.name)


def claims_of(instance: InstanceRow) -> list[str]:
    return [beside(instance.key, claim) for claim in instance.claims]


def beside(key: str, name: str) -> str:
    """The key of something in the same namespace."""
    return f"{key.partition('/')[0]}/{name}"


async def _in_pages(
    client: KubeClient,
    resource: Resource,
    projection: Projection[W, R],
    namespace: str | None,
    timeout: float,
) -> Page[R]:
    rows: list[R] = []
    unreadable = []
    token: str | None = None
    while True:
        reply = await client.list(
            resource, namespace=namespace, limit=_PAGE, token=token, timeout=timeout
        )
        page = projection.page(reply.body, call=reply.call)
        rows += page.rows
        unreadable += page.unreadable
        token = page.token
        if token is None:
            return Page(rows, unreadable, page.version, None)


class _Reader:
    """Reads, and keeps account of what could not be read."""

    def __init__(self, client: KubeClient, timeout: float) -> None:
        self.unread: dict[str, str] = {}
        self._client = client
        self._timeout = timeout
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._out_of_reach = ""

    async def each(
        self, resource: Resource, wire: type[W], row: Callable[[W], R], keys: Iterable[str]
    ) -> dict[str, R]:
        one = partial(self._one, resource, wire, row)
        found = await side_by_side(sorted(set(keys)), one, at_once=_AT_ONCE)
        return {each.key: each for each in found if each is not None}

    async def all(self, resource: Resource, projection: Projection[Any, R]) -> dict[str, R]:
        if self._out_of_reach:
            self.unread[resource.plural] = self._out_of_reach
            return {}
        try:
            page = await list_all(self._client, resource, projection, timeout=self._timeout)
        except errors.NotFound:
            return {}
        except errors.KubeError as error:
            self._note(resource.plural, error)
            return {}
        for bad in page.unreadable:
            self.unread[f"{resource.plural}/{bad.key}"] = bad.why
        return {each.key: each for each in page.rows}

    async def release(self) -> str:
        """Of KubeVirt. That it cannot be read stands in nobody's way."""
        if self._out_of_reach:
            return ""
        try:
            reply = await self._client.list(KUBEVIRTS, timeout=self._timeout)
            page = KUBEVIRT_PROJECTION.page(reply.body, call=reply.call)
        except errors.KubeError:
            return ""
        return next((row.release for row in page.rows if row.release), "")

    async def _one(
        self, resource: Resource, wire: type[W], row: Callable[[W], R], key: str
    ) -> R | None:
        """None if it is not there, or could not be read."""
        namespace, _, name = key.rpartition("/")
        async with self._turns:
            if self._out_of_reach:
                self.unread[f"{resource.plural}/{key}"] = self._out_of_reach
                return None
            try:
                reply = await self._client.get(
                    resource, name, namespace=namespace or None, timeout=self._timeout
                )
                return row(reply.into(wire))
            except errors.NotFound:
                return None
            except (errors.KubeError, msgspec.MsgspecError, ValueError) as error:
                # The name of a claim in somebody's object may be no name at all (ValueError).
                self._note(f"{resource.plural}/{key}", error)
                return None

    def _note(self, what: str, error: Exception) -> None:
        self.unread[what] = str(error)
        if isinstance(error, errors.Unreachable | errors.OutcomeUnknown):
            self._out_of_reach = str(error)
