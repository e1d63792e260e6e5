"""Recovered: what has become of a workload that was taken from a dead node.

It runs elsewhere, or is about to, or nobody will start it: its VM was deleted or stopped while
its node lay dead.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from backstay.apis.core import Pod, pod_row
from backstay.apis.kubevirt import (
    INSTANCES,
    VIRTUAL_MACHINES,
    Instance,
    VirtualMachine,
    instance_row,
    virtual_machine_row,
)
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError, NotFound
from backstay.kube.resource import PODS
from backstay.model.incident import WorkloadRecord
from backstay.model.workload import WorkloadKind

_PARALLEL = 16

_GUESTS = (WorkloadKind.VIRTUAL_MACHINE, WorkloadKind.INSTANCE)


class Whereabouts(msgspec.Struct, frozen=True):
    """``node`` is where it runs again. ``unwanted`` says why nobody will start it."""

    node: str = ""
    unwanted: str = ""


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
            guest = instance_row(reply.into(Instance))
            return Whereabouts(guest.node if guest.phase == "Running" else "")
        pod = pod_row((await client.get(PODS, name, namespace=namespace)).into(Pod))
    except NotFound:
        is_vm = kind == WorkloadKind.VIRTUAL_MACHINE
        return Whereabouts(unwanted=await _unwanted(client, namespace, name) if is_vm else "")
    return Whereabouts(pod.node if pod.phase == "Running" and pod.uid not in record.uids else "")


async def _unwanted(client: KubeClient, namespace: str, name: str) -> str:
    """Why a VM without an instance gets none; empty if it will get one."""
    try:
        reply = await client.get(VIRTUAL_MACHINES, name, namespace=namespace)
    except NotFound:
        return "it was deleted"
    machine = virtual_machine_row(reply.into(VirtualMachine))
    return "it was stopped" if machine.run_strategy == "Halted" else ""
