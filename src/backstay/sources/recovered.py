"""Recovered: what has become of a workload that was taken from a dead node.

It runs elsewhere, and then is ready, or is about to, or nobody will start it: its VM was deleted
or stopped while its node lay dead.
"""

import asyncio
from collections.abc import Iterable, Iterator

import msgspec

from backstay.apis.apps import STATEFUL_SETS
from backstay.apis.arrivals import Arriving
from backstay.apis.core import Pod, PodRow, pod_row
from backstay.apis.kubevirt import (
    INSTANCES,
    VIRTUAL_MACHINES,
    VirtualMachine,
    virtual_machine_row,
)
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError, NotFound
from backstay.kube.events import ObjectRef
from backstay.kube.resource import PODS, Resource
from backstay.model.incident import PhaseTime, WorkloadRecord
from backstay.model.workload import WorkloadKind

_PARALLEL = 16
_MOST_PHASES = 8

_GUESTS = (WorkloadKind.VIRTUAL_MACHINE, WorkloadKind.INSTANCE)


class Whereabouts(msgspec.Struct, frozen=True):
    """``node`` is where it runs again. ``unwanted`` says why nobody will start it. ``phases`` are
    KubeVirt's own words; ``objects`` are what its owner would look at."""

    node: str = ""
    unwanted: str = ""
    ready: bool = False
    phases: tuple[PhaseTime, ...] = ()
    objects: tuple[ObjectRef, ...] = ()


async def whereabouts(
    client: KubeClient, records: Iterable[WorkloadRecord], *, away_from: str
) -> dict[str, Whereabouts]:
    """Of each workload that runs again, or never will, by ``Workload.key``; the others are left
    out."""
    turns = asyncio.Semaphore(_PARALLEL)
    found: dict[str, Whereabouts] = {}
    failures: list[KubeError] = []

    async def find(record: WorkloadRecord) -> None:
        async with turns:
            try:
                seen = await _where(client, record)
            except KubeError as error:
                failures.append(error)
                return
        if seen.unwanted or seen.node not in ("", away_from):
            found[record.workload] = seen

    async with asyncio.TaskGroup() as group:
        for record in records:
            group.create_task(find(record))
    if failures and not found:
        raise failures[0]
    return found


async def _where(client: KubeClient, record: WorkloadRecord) -> Whereabouts:
    kind, namespace, name = record.workload.split("/", 2)
    try:
        if kind in _GUESTS:
            reply = await client.get(INSTANCES, name, namespace=namespace)
            return _guest(reply.into(Arriving))
        pod = pod_row((await client.get(PODS, name, namespace=namespace)).into(Pod))
    except NotFound:
        is_vm = kind == WorkloadKind.VIRTUAL_MACHINE
        return Whereabouts(unwanted=await _unwanted(client, namespace, name) if is_vm else "")
    if pod.phase != "Running" or pod.uid in record.uids:
        return Whereabouts()
    return Whereabouts(pod.node, ready=pod.ready, objects=tuple(_of_pod(pod)))


def _guest(guest: Arriving) -> Whereabouts:
    meta, owner = guest.metadata, guest.owner
    resource, name, uid = INSTANCES, meta.name, meta.uid
    if owner is not None and owner.kind == VIRTUAL_MACHINES.kind:
        resource, name, uid = VIRTUAL_MACHINES, owner.name, owner.uid
    return Whereabouts(
        guest.running_on,
        ready=guest.ready,
        phases=tuple(PhaseTime(phase, at) for phase, at in guest.transitions[:_MOST_PHASES]),
        objects=(_reference(resource, meta.namespace or "", name, uid),),
    )


def _of_pod(pod: PodRow) -> Iterator[ObjectRef]:
    yield _reference(PODS, pod.namespace, pod.name, pod.uid)
    if pod.owner_kind == STATEFUL_SETS.kind:
        yield _reference(STATEFUL_SETS, pod.namespace, pod.owner_name, pod.owner_uid)


def _reference(resource: Resource, namespace: str, name: str, uid: str) -> ObjectRef:
    return ObjectRef(
        api_version=resource.api_version,
        kind=resource.kind,
        namespace=namespace,
        name=name,
        uid=uid,
    )


async def _unwanted(client: KubeClient, namespace: str, name: str) -> str:
    """Why a VM without an instance gets none; empty if it will get one."""
    try:
        reply = await client.get(VIRTUAL_MACHINES, name, namespace=namespace)
    except NotFound:
        return "it was deleted"
    machine = virtual_machine_row(reply.into(VirtualMachine))
    return "it was stopped" if machine.run_strategy == "Halted" else ""
