"""From what a person names to where it runs."""

import click

from backstay.apis.kubevirt import (
    INSTANCES,
    VIRTUAL_MACHINE_PROJECTION,
    VIRTUAL_MACHINES,
    Instance,
    instance_row,
)
from backstay.apis.pods import HELD_POD_PROJECTION, PodWire, held_pod
from backstay.cli.session import Session
from backstay.cli.subject import Kind, Subject, unknown
from backstay.kube import errors
from backstay.kube.resource import PODS
from backstay.model.workload import Workload, WorkloadKind
from backstay.sources.lookups import list_all


async def node_of(session: Session, about: Subject) -> str | None:
    """The node; None for a guest that is not running. Raises for what there is not."""
    match about.kind:
        case Kind.NODE:
            return about.name
        case Kind.POD:
            return await _node_of_pod(session, about)
        case Kind.VM:
            return await _node_of_machine(session, about)


async def _node_of_pod(session: Session, about: Subject) -> str | None:
    try:
        reply = await session.client.get(PODS, about.name, namespace=about.namespace)
    except errors.NotFound:
        page = await list_all(session.client, PODS, HELD_POD_PROJECTION, namespace=about.namespace)
        raise unknown(about, (row.key for row in page.rows)) from None
    return held_pod(reply.into(PodWire)).node or None


async def _node_of_machine(session: Session, about: Subject) -> str | None:
    """Guests and machines share their names; a guest may also be there without a machine."""
    client, namespace = session.client, about.namespace
    try:
        reply = await client.get(INSTANCES, about.name, namespace=namespace)
        return instance_row(reply.into(Instance)).node or None
    except errors.NotFound:
        known = await _machines(session)
    if f"{namespace}/{about.name}" not in known:
        raise unknown(about, known)
    return None


async def _machines(session: Session) -> list[str]:
    try:
        page = await list_all(session.client, VIRTUAL_MACHINES, VIRTUAL_MACHINE_PROJECTION)
    except errors.NotFound:
        raise click.ClickException("KubeVirt is not installed here: there are no VMs.") from None
    return [row.key for row in page.rows]


def is_meant(about: Subject, workload: Workload) -> bool:
    """Whether a person who names ``about`` speaks of this workload."""
    if about.namespace != workload.namespace:
        return False
    if about.kind is Kind.POD:
        return any(pod.name == about.name for pod in workload.pods)
    guests = (WorkloadKind.VIRTUAL_MACHINE, WorkloadKind.INSTANCE)
    return workload.kind in guests and workload.name == about.name
