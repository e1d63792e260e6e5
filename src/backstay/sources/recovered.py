"""Recovered: where a workload that was taken from a dead node runs by now."""

import asyncio
from collections.abc import Iterable

from backstay.apis.core import Pod, pod_row
from backstay.apis.kubevirt import INSTANCES, Instance, instance_row
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError, NotFound
from backstay.kube.resource import PODS
from backstay.model.incident import WorkloadRecord
from backstay.model.workload import WorkloadKind

_PARALLEL = 16

_GUESTS = (WorkloadKind.VIRTUAL_MACHINE, WorkloadKind.INSTANCE)


async def whereabouts(
    client: KubeClient, records: Iterable[WorkloadRecord], *, away_from: str
) -> dict[str, str]:
    """The node of each workload that runs again, by ``Workload.key``; the others are left out."""
    turns = asyncio.Semaphore(_PARALLEL)
    found: dict[str, str] = {}
    failures: list[KubeError] = []

    async def find(record: WorkloadRecord) -> None:
        async with turns:
            try:
                node = await _where(client, record)
            except KubeError as error:
                failures.append(error)
                return
        if node and node != away_from:
            found[record.workload] = node

    async with asyncio.TaskGroup() as group:
        for record in records:
            group.create_task(find(record))
    if failures and not found:
        raise failures[0]
    return found


async def _where(client: KubeClient, record: WorkloadRecord) -> str:
    kind, namespace, name = record.workload.split("/", 2)
    try:
        if kind in _GUESTS:
            reply = await client.get(INSTANCES, name, namespace=namespace)
            guest = instance_row(reply.into(Instance))
            return guest.node if guest.phase == "Running" else ""
        pod = pod_row((await client.get(PODS, name, namespace=namespace)).into(Pod))
    except NotFound:
        return ""
    return pod.node if pod.phase == "Running" and pod.uid not in record.uids else ""
