"""Recovered: what has become of a workload that was taken from a dead node.

It runs elsewhere, and then is ready; another has taken its place; or it is about to run, or nobody
will start it: its VM was deleted or stopped while its node lay dead. Where a guest takes its time,
its VM is looked at as well: KubeVirt says there what it waits for.
"""

from collections.abc import Collection, Iterable, Iterator

import msgspec

from backstay.apis.apps import REPLICA_SETS, STATEFUL_SETS
from backstay.apis.arrivals import Arriving
from backstay.apis.core import Pod, PodRow, pod_row
from backstay.apis.kubevirt import (
    INSTANCES,
    VIRTUAL_MACHINES,
    Instance,
    InstanceRow,
    VirtualMachine,
    VirtualMachineRow,
    instance_row,
    virtual_machine_row,
)
from backstay.apis.machines import INSTANCE_SETS, POOLS, GuestSet
from backstay.kube.client import KubeClient
from backstay.kube.errors import Forbidden, KubeError, NotFound
from backstay.kube.events import ObjectRef
from backstay.kube.resource import PODS
from backstay.model.incident import PhaseTime, WorkloadRecord
from backstay.model.policy import PIRAEUS, OptIn
from backstay.model.workload import Workload, WorkloadKind
from backstay.seam.tasks import side_by_side
from backstay.sources.workloads import guest_of, opted_in, protection

_PARALLEL = 16
_MOST_PHASES = 8

_GUESTS = (WorkloadKind.VIRTUAL_MACHINE, WorkloadKind.INSTANCE)
_FINAL = frozenset({"Succeeded", "Failed"})
_SETS = {each.kind: each for each in (INSTANCE_SETS, POOLS, REPLICA_SETS)}


class Whereabouts(msgspec.Struct, frozen=True):
    """``node`` is where it runs again. ``unwanted`` says why nobody will start it. ``phases`` are
    KubeVirt's own words; ``objects`` are what its owner would look at.

    ``replicas`` is how many its set has again, if others have taken its place. ``machine`` is the
    VM of a guest that does not run, as it stands now, and ``word`` what KubeVirt says of it.
    """

    node: str = ""
    unwanted: str = ""
    ready: bool = False
    paused: bool = False
    replicas: int | None = None
    machine: Workload | None = None
    word: str = ""
    phases: tuple[PhaseTime, ...] = ()
    objects: tuple[ObjectRef, ...] = ()


async def whereabouts(
    client: KubeClient,
    records: Iterable[WorkloadRecord],
    *,
    away_from: str,
    closely: Collection[str] = (),
    opt_in: OptIn = PIRAEUS,
) -> dict[str, Whereabouts]:
    """Of each workload that runs again, or never will, by ``Workload.key``; of the others those
    that are to be looked at ``closely``, and the rest is left out. ``opt_in`` is by which labels a
    VM is protected that does not run."""
    found: dict[str, Whereabouts] = {}
    failures: list[KubeError] = []

    async def find(record: WorkloadRecord) -> None:
        try:
            seen = await _where(client, record, closely=record.workload in closely)
        except KubeError as error:
            failures.append(error)
            return
        if seen.machine is not None:
            seen = msgspec.structs.replace(seen, machine=opted_in(seen.machine, opt_in))
        known = seen.unwanted or seen.machine is not None or seen.replicas is not None
        if known or seen.node not in ("", away_from):
            found[record.workload] = seen

    await side_by_side(records, find, at_once=_PARALLEL)
    if failures and not found:
        raise failures[0]
    return found


async def _where(client: KubeClient, record: WorkloadRecord, *, closely: bool) -> Whereabouts:
    kind, namespace, name = record.workload.split("/", 2)
    if kind in _GUESTS:
        return await _where_guest(client, record, closely=closely)
    try:
        pod = pod_row((await client.get(PODS, name, namespace=namespace)).into(Pod))
    except NotFound:
        return await _replaced(client, record) or Whereabouts()
    if pod.phase != "Running" or pod.uid in record.uids:
        return Whereabouts()
    return Whereabouts(pod.node, ready=pod.ready, objects=tuple(_of_pod(pod)))


async def _where_guest(client: KubeClient, record: WorkloadRecord, *, closely: bool) -> Whereabouts:
    kind, namespace, name = record.workload.split("/", 2)
    instance = None
    try:
        reply = await client.get(INSTANCES, name, namespace=namespace)
    except NotFound:
        closely = True
    else:
        instance, arriving = instance_row(reply.into(Instance)), reply.into(Arriving)
        if arriving.running_on:
            return _guest(arriving, paused=instance.paused)
        closely = closely or instance.phase in _FINAL
    if kind == WorkloadKind.VIRTUAL_MACHINE:
        seen = await _machine(client, record, instance) if closely else Whereabouts()
        if not seen.unwanted:
            return seen
        replaced = await _replaced(client, record)
        return seen if replaced is None else replaced
    gone = instance is None or instance.phase in _FINAL
    return (await _replaced(client, record) if gone else None) or Whereabouts()


def _guest(guest: Arriving, *, paused: bool) -> Whereabouts:
    meta, owner = guest.metadata, guest.owner
    resource, name, uid = INSTANCES, meta.name, meta.uid
    if owner is not None and owner.kind == VIRTUAL_MACHINES.kind:
        resource, name, uid = VIRTUAL_MACHINES, owner.name, owner.uid
    return Whereabouts(
        guest.running_on,
        ready=guest.ready,
        paused=paused,
        phases=tuple(PhaseTime(phase, at) for phase, at in guest.transitions[:_MOST_PHASES]),
        objects=(ObjectRef.to(resource, namespace=meta.namespace or "", name=name, uid=uid),),
    )


def _of_pod(pod: PodRow) -> Iterator[ObjectRef]:
    yield ObjectRef.to(PODS, namespace=pod.namespace, name=pod.name, uid=pod.uid)
    if pod.owner_kind == STATEFUL_SETS.kind:
        yield ObjectRef.to(
            STATEFUL_SETS, namespace=pod.namespace, name=pod.owner_name, uid=pod.owner_uid
        )


async def _machine(
    client: KubeClient, record: WorkloadRecord, instance: InstanceRow | None
) -> Whereabouts:
    """The VM of a guest that does not run."""
    _, namespace, name = record.workload.split("/", 2)
    try:
        reply = await client.get(VIRTUAL_MACHINES, name, namespace=namespace)
    except NotFound:
        return Whereabouts(unwanted="it was deleted")
    machine = virtual_machine_row(reply.into(VirtualMachine))
    if instance is None:
        if machine.run_strategy == "Halted":
            return Whereabouts(unwanted="it was stopped")
        # It may have been made, and what was asked for forgotten, between the two reads.
        instance = await _instance(client, namespace, name)
    return Whereabouts(machine=_as_workload(machine, instance), word=machine.word)


async def _instance(client: KubeClient, namespace: str, name: str) -> InstanceRow | None:
    try:
        reply = await client.get(INSTANCES, name, namespace=namespace)
    except NotFound:
        return None
    return instance_row(reply.into(Instance))


def _as_workload(machine: VirtualMachineRow, instance: InstanceRow | None) -> Workload:
    """The VM itself, of which nothing is on any node that we look at."""
    namespace, _, name = machine.key.partition("/")
    labels = [machine.template_labels, machine.labels]
    return Workload(
        kind=WorkloadKind.VIRTUAL_MACHINE,
        namespace=namespace,
        name=name,
        node="",
        pods=(),
        uid=machine.uid,
        run_strategy=machine.run_strategy,
        label=protection(*labels).protect,
        labels={**machine.template_labels, **machine.labels},
        guest=guest_of(instance, machine),
    )


async def _replaced(client: KubeClient, record: WorkloadRecord) -> Whereabouts | None:
    """Whether the set that it belonged to has all of its replicas; None if that is gone too, was
    never there, or may not be read with the rights of an older installation."""
    kind, _, key = record.replaced_by.partition("/")
    resource = _SETS.get(kind)
    if resource is None:
        return None
    namespace, _, name = key.partition("/")
    try:
        reply = await client.get(resource, name, namespace=namespace)
    except (NotFound, Forbidden):
        return None
    found = reply.into(GuestSet)
    return Whereabouts(replicas=found.wanted) if found.is_complete else Whereabouts()
