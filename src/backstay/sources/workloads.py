"""Workloads: from the pods of a node to what a person would call the things that run there.

Three steps, apart because they differ in what they cost and in how fresh they must be:

* ``read_pods``: one live list of the node's pods. What is deleted later is named by its uid and
  version in exactly this list.
* ``describe``: the slower look-ups behind them (``lookups.py``).
* ``assemble``: pure. A launcher pod and the pods that plug volumes into it become one virtual
  machine; a StatefulSet's pod becomes a workload of its own; so does every other pod. What belongs
  to the node itself (DaemonSets, static pods) is left out, and so is the launcher that a finished
  migration left behind.

Labels and owner references are written by tenants. A launcher is one by its controller, and its
guest only the one with the very uid that the controller has.
"""

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from backstay.apis.apps import REPLICA_SETS, STATEFUL_SETS
from backstay.apis.kubevirt import INSTANCES, VIRTUAL_MACHINES, InstanceRow, VirtualMachineRow
from backstay.apis.machines import INSTANCE_SETS, POOLS, waits_for_heartbeats
from backstay.apis.pods import HELD_POD_PROJECTION, HeldPod, Owner
from backstay.kube.client import KubeClient
from backstay.kube.projection import Unreadable
from backstay.kube.resource import PODS, Resource
from backstay.model.guest import Guest
from backstay.model.labels import (
    HOTPLUG_VALUE,
    IGNORE_FAIL_OVER,
    LAUNCHER,
    PROTECT,
    TMAX_PROTECT,
)
from backstay.model.policy import PIRAEUS, OptIn
from backstay.model.workload import PodRef, Volume, Workload, WorkloadKind
from backstay.sources.addresses import Asker, Holder, addresses_of
from backstay.sources.lookups import Details, Wanted, beside, look_up, machine_of

_TIMEOUT = 10.0
_LEFT = "Succeeded"
_ENDED = (_LEFT, "Failed")


class NodePods(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of a node at one moment. ``unreadable`` are there as well, but nothing is known of
    them: they belong to no workload and are never touched."""

    node: str
    pods: tuple[HeldPod, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


async def read_pods(client: KubeClient, node: str, *, timeout: float = _TIMEOUT) -> NodePods:
    """One live list (a quorum read). Raises ``KubeError``."""
    reply = await client.list(PODS, fields=f"spec.nodeName={node}", timeout=timeout)
    page = HELD_POD_PROJECTION.page(reply.body, call=reply.call)
    return NodePods(node=node, pods=tuple(page.rows), unreadable=tuple(page.unreadable))


async def describe(
    client: KubeClient, pods: NodePods, *, opt_in: OptIn = PIRAEUS, timeout: float = _TIMEOUT
) -> Details:
    """What stands behind the pods that may be ours to move; the others are not looked up."""
    helped = {pod.owner.uid for pod in pods.pods if pod.owner and _holds_volumes(pod)}
    ours = [pod for pod in pods.pods if pod.uid in helped or _may_be_ours(pod, opt_in)]
    return await look_up(client, _wanted(ours), timeout=timeout)


def assemble(
    node: str, pods: NodePods, details: Details, *, opt_in: OptIn = PIRAEUS
) -> tuple[Workload, ...]:
    """The workloads of the node, in the order of their keys. ``opt_in`` says which are protected by
    labels that are not ours."""
    here = [pod for pod in pods.pods if not _is_the_nodes_own(pod)]
    launchers = [pod for pod in here if is_launcher(pod)]
    helpers = _helpers(here, launchers)
    helping = {helper.uid for each in helpers.values() for helper in each}
    found = [
        _with_remains(_guest(node, each, helpers, details), each) for each in _by_guest(launchers)
    ]
    found += [
        _stateful(node, pod, details) if _is_stateful(pod) else _other(node, pod, details)
        for pod in here
        if not is_launcher(pod) and pod.uid not in helping
    ]
    rows = {pod.uid: pod for pod in here}
    found = [
        _with_addresses(opted_in(each, opt_in), rows[each.pods[0].uid], details) for each in found
    ]
    return tuple(sorted(found, key=lambda workload: workload.key))


def is_launcher(pod: HeldPod) -> bool:
    return _is_controlled_by(pod, INSTANCES)


# What a pod is


def _is_the_nodes_own(pod: HeldPod) -> bool:
    owner = pod.owner
    return pod.mirror or (
        owner is not None and (owner.group, owner.kind) in (("apps", "DaemonSet"), ("", "Node"))
    )


def _is_stateful(pod: HeldPod) -> bool:
    return _is_controlled_by(pod, STATEFUL_SETS)


def _is_controlled_by(pod: HeldPod, resource: Resource) -> bool:
    owner = pod.owner
    return owner is not None and (owner.group, owner.kind) == (resource.group, resource.kind)


def _plugs_volumes(pod: HeldPod) -> bool:
    """Whether it holds the hot-plugged volumes of a launcher, which is its owner."""
    owner = pod.owner
    labelled = pod.labels.get(LAUNCHER) == HOTPLUG_VALUE
    return labelled and owner is not None and (owner.group, owner.kind) == ("", "Pod")


def _holds_volumes(pod: HeldPod) -> bool:
    """Whether it has not ended either, though its launcher may have."""
    return _plugs_volumes(pod) and pod.phase not in _ENDED


def _helpers(
    pods: Sequence[HeldPod], launchers: Sequence[HeldPod]
) -> dict[str, tuple[HeldPod, ...]]:
    """By the uid of the launcher; one whose launcher is gone has none to help."""
    helpers: dict[str, tuple[HeldPod, ...]] = {launcher.uid: () for launcher in launchers}
    for pod in pods:
        if _plugs_volumes(pod) and pod.owner and pod.owner.uid in helpers:
            helpers[pod.owner.uid] += (pod,)
    return helpers


def _by_guest(launchers: Sequence[HeldPod]) -> list[list[HeldPod]]:
    """The launchers of each guest. One of which all that is there has shut down, or led it away, is
    left out."""
    guests: dict[str, list[HeldPod]] = {}
    for launcher in launchers:
        guests.setdefault(_owner(launcher).uid, []).append(launcher)
    return [each for each in guests.values() if any(pod.phase != _LEFT for pod in each)]


def _may_be_ours(pod: HeldPod, opt_in: OptIn) -> bool:
    if _is_the_nodes_own(pod) or pod.phase in _ENDED:
        return False
    kinds = is_launcher(pod) or _plugs_volumes(pod) or _is_stateful(pod)
    return kinds or protection(pod.labels).protect is True or opt_in.selects(pod.labels)


def _wanted(pods: Iterable[HeldPod]) -> Wanted:
    instances, stateful_sets, claims = set(), set(), set()
    for pod in pods:
        claims |= {beside(pod.key, claim) for claim in pod.claims}
        if pod.owner and is_launcher(pod):
            instances.add(beside(pod.key, pod.owner.name))
        elif pod.owner and _is_stateful(pod):
            stateful_sets.add(beside(pod.key, pod.owner.name))
    return Wanted(
        instances=frozenset(instances),
        stateful_sets=frozenset(stateful_sets),
        claims=frozenset(claims),
    )


# What a workload is


def _guest(
    node: str,
    launchers: Sequence[HeldPod],
    helpers: Mapping[str, Sequence[HeldPod]],
    details: Details,
) -> Workload:
    """Its launchers and their helpers. Without its instance it is known by name only."""
    here = [pod for pod in launchers if pod.phase != _LEFT]
    lasting = [pod for pod in here if pod.phase not in _ENDED]
    pods = (*(lasting or here), *(helper for each in here for helper in helpers[each.uid]))
    launcher = pods[0]
    owner = _owner(launcher)
    key = beside(launcher.key, owner.name)
    instance = details.instances.get(key)
    if instance is None or instance.uid != owner.uid:
        bare = _workload(WorkloadKind.INSTANCE, owner.name, node, pods, details)
        unread = details.why_unread(INSTANCES, key) if instance is None else ""
        return msgspec.structs.replace(bare, uid=owner.uid, restarts=bool(unread), unread=unread)
    machine = _machine_behind(instance, details)
    labels = [instance.labels, machine.labels] if machine else [instance.labels]
    found = msgspec.structs.replace(
        _workload(
            WorkloadKind.INSTANCE, owner.name, node, pods, details,
            claims=instance.claims, labels=labels,
        ),
        uid=instance.uid,
        restarts=instance.owner is not None,
        runs_on=_elsewhere(instance, node),
        pinned_by=_pin(node, launcher) or _of_the_host(instance, node),
        guest=guest_of(instance, machine, release=details.kubevirt),
    )  # fmt: skip
    return _as_machine(found, instance, machine, details)


def _with_remains(guest: Workload, launchers: Sequence[HeldPod]) -> Workload:
    ended = () if guest.ended else tuple(pod for pod in launchers if pod.phase in _ENDED)
    return msgspec.structs.replace(guest, remains=tuple(map(_reference, ended)))


def guest_of(
    instance: InstanceRow | None, machine: VirtualMachineRow | None, *, release: str = ""
) -> Guest:
    """What KubeVirt will do about it turns on this. A machine may have no instance at present."""
    maker = machine.owner if machine else instance.owner if instance else None
    guest = Guest(
        asked=machine.asked if machine else (),
        failures=machine.failures if machine else 0,
        retry_after=machine.retry_after if machine else "",
        needs_recovery=machine is not None and machine.needs_recovery,
        replaced_by=_replacing(machine.key if machine else instance.key if instance else "", maker),
        slow=release if waits_for_heartbeats(release) else "",
        gone=instance is None,
    )
    if instance is None:
        return guest
    return msgspec.structs.replace(
        guest,
        phase=instance.phase,
        going=instance.deleting,
        migratable=instance.migratable,
        immovable=instance.immovable,
        starts_paused=instance.starts_paused,
    )


def _replacing(key: str, owner: Owner | None) -> str:
    """What makes another in its place, rather than the same one again."""
    if owner is None:
        return ""
    for each in (INSTANCE_SETS, POOLS):
        if (owner.group, owner.kind) == (each.group, each.kind):
            return f"{owner.kind}/{beside(key, owner.name)}"
    return ""


def _machine_behind(instance: InstanceRow, details: Details) -> VirtualMachineRow | None:
    machine = details.machines.get(machine_of(instance) or "")
    if machine is None or instance.owner is None or machine.uid != instance.owner.uid:
        return None
    return machine


def _as_machine(
    guest: Workload, instance: InstanceRow, machine: VirtualMachineRow | None, details: Details
) -> Workload:
    """Known as its virtual machine, if it has one."""
    key = machine_of(instance)
    if key is None or instance.owner is None:
        return guest
    unread = "" if machine else details.why_unread(VIRTUAL_MACHINES, key)
    return msgspec.structs.replace(
        guest,
        kind=WorkloadKind.VIRTUAL_MACHINE,
        name=key.rpartition("/")[2],
        uid=instance.owner.uid,
        run_strategy=machine.run_strategy if machine else "",
        restarts=not machine.deleting if machine else bool(unread),
        # Who deletes a machine alone, and lets its instance run on, does not want that to go.
        leaving=machine is not None and machine.deleting and instance.deleting,
        unread=unread,
    )


def _stateful(node: str, pod: HeldPod, details: Details) -> Workload:
    """One replica. Its owner reference alone says that somebody creates it anew; the set, if it
    could be read, may say otherwise."""
    owner = _owner(pod)
    key = beside(pod.key, owner.name)
    found = details.stateful_sets.get(key)
    if found is None:
        restarts = bool(details.why_unread(STATEFUL_SETS, key))
    else:
        restarts = found.uid == owner.uid and found.wants(pod.name)
    paths = [other for other in pod.others if other.startswith("hostPath ")]
    kept = f"it keeps data in {paths[0].removeprefix('hostPath ')} on {node}" if paths else ""
    workload = _workload(WorkloadKind.STATEFUL_SET, pod.name, node, (pod,), details)
    pinned_by = workload.pinned_by or kept
    return msgspec.structs.replace(
        workload,
        restarts=restarts,
        pinned_by=pinned_by,
        set_name=owner.name,
        set_uid=owner.uid,
    )


def _other(node: str, pod: HeldPod, details: Details) -> Workload:
    workload = _workload(WorkloadKind.OTHER, pod.name, node, (pod,), details)
    if _plugs_volumes(pod):
        # Its launcher has been released already: what it still holds is in that guest's way.
        return msgspec.structs.replace(workload, restarts=False, label=True, pinned_by="")
    owner = pod.owner
    replaced = owner is not None and _is_controlled_by(pod, REPLICA_SETS)
    return msgspec.structs.replace(
        workload,
        restarts=owner is not None,
        replaced_by=f"{REPLICA_SETS.kind}/{beside(pod.key, owner.name)}"
        if owner and replaced
        else "",
    )


def _workload(
    kind: WorkloadKind,
    name: str,
    node: str,
    pods: Sequence[HeldPod],
    details: Details,
    *,
    claims: Sequence[str] = (),
    labels: Sequence[Mapping[str, str]] = (),
) -> Workload:
    """What all kinds have in common; ``claims`` and ``labels`` are those beyond the pods' own."""
    first = pods[0]
    said = protection(
        *(pod.labels for pod in pods), *labels, spared=any(pod.spared for pod in pods)
    )
    mounted = dict.fromkeys([*(claim for pod in pods for claim in pod.claims), *claims])
    # To mark one that has ended would be to remove it at once: Kubernetes grants it no grace.
    lasting = [pod for pod in pods if pod.phase not in _ENDED]
    return Workload(
        kind=kind,
        namespace=first.namespace,
        name=name,
        node=node,
        uid=first.uid,
        pods=tuple(map(_reference, lasting or pods)),
        volumes=tuple(
            _volume(node, beside(first.key, claim), details, plugged=claim not in first.claims)
            for claim in mounted
        ),
        also_writes=tuple(dict.fromkeys(other for pod in pods for other in pod.others)),
        label=said.protect,
        labelled_by=said.by,
        labels=dict(ChainMap(*(dict(each) for each in reversed(labels)), dict(first.labels))),
        pinned_by=_pin(node, first),
        ended=not lasting,
        priority=max(pod.priority for pod in pods),
    )


def _reference(pod: HeldPod) -> PodRef:
    return PodRef(
        pod.namespace, pod.name, pod.uid, pod.version,
        marked=pod.deleting, graceless=pod.graceless,
    )  # fmt: skip


def _volume(node: str, key: str, details: Details, *, plugged: bool) -> Volume:
    """As much as is known: a claim that was not found, or is not bound, has a name only."""
    name = key.rpartition("/")[2]
    claim = details.claims.get(key)
    if claim is None:
        return Volume(claim=name, plugged=plugged)
    volume = details.volumes.get(claim.volume)
    bound = volume is not None and (
        volume.local or any(binding.names(node) for binding in volume.bindings)
    )
    return Volume(
        claim=name,
        pv=claim.volume,
        driver=volume.driver if volume else "",
        access_modes=claim.access_modes,
        block=claim.block,
        only_on=node if bound else "",
        cluster=volume.cluster if volume else "",
        secret=volume.secret if volume else "",
        handle=volume.handle if volume else "",
        exported=volume is not None and volume.exported,
        plugged=plugged,
    )


class Protection(msgspec.Struct, frozen=True):
    """``protect`` is None where nothing is said; ``by`` is what says so, in words."""

    protect: bool | None = None
    by: str = ""


def protection(*labels: Mapping[str, str], spared: bool = False) -> Protection:
    """What labels say. Ours come first, and among them "no": to leave something alone is the
    mistake that can be made good."""
    ours = {each.get(PROTECT, "").lower() for each in labels}
    for word, protect in (("false", False), ("true", True)):
        if word in ours:
            return Protection(protect, f"its label {PROTECT}")
    if spared:
        return Protection(False, f"its annotation {IGNORE_FAIL_OVER}")
    if any(each.get(TMAX_PROTECT, "").lower() == "true" for each in labels):
        return Protection(True, f"its label {TMAX_PROTECT}")
    return Protection()


def opted_in(workload: Workload, opt_in: OptIn) -> Workload:
    """Asked last, and of all labels together: a selector can also ask for what is not there."""
    if workload.label is not None or not opt_in.selects(workload.labels):
        return workload
    return msgspec.structs.replace(workload, label=True, labelled_by=opt_in.by)


def _with_addresses(workload: Workload, pod: HeldPod, details: Details) -> Workload:
    askers = _askers(pod, details) if is_launcher(pod) else ()
    if not pod.network and not askers:
        return workload
    holder = Holder(
        namespace=pod.namespace,
        pod=pod.name,
        node=workload.node,
        annotations=pod.network,
        guest=workload.name if is_launcher(pod) else "",
    )
    found = addresses_of(str(workload), holder, askers)
    return msgspec.structs.replace(workload, addresses=found.claims, notes=found.notes)


def _askers(launcher: HeldPod, details: Details) -> tuple[Asker, ...]:
    """What else of a guest can ask for addresses by name."""
    owner = _owner(launcher)
    instance = details.instances.get(beside(launcher.key, owner.name))
    if instance is None or instance.uid != owner.uid:
        return ()
    place = f"-n {launcher.namespace}"
    asking = [Asker(
        thing=f"The VMI {instance.key}", object=f"vmi {owner.name} {place}",
        value=instance.addresses,
    )]  # fmt: skip
    if (machine := _machine_behind(instance, details)) is not None:
        thing, name = f"The VM {machine.key}", f"vm {machine.key.rpartition('/')[2]} {place}"
        asking += [
            Asker(thing=f"The template of {thing[4:]}", object=name, value=machine.addresses),
            Asker(thing=thing, object=name, value=machine.own_addresses, effective=False),
        ]
    return tuple(asker for asker in asking if asker.value)


def _owner(pod: HeldPod) -> Owner:
    assert pod.owner is not None, f"{pod.key} was told apart by its owner"
    return pod.owner


def _elsewhere(instance: InstanceRow, node: str) -> str:
    """Where the guest runs while the launcher here is the other end of a migration."""
    return instance.node if instance.node not in ("", node) else ""


def _pin(node: str, pod: HeldPod) -> str:
    """A launcher's helpers are made for its node, wherever that is, and pin nothing."""
    bound = any(binding.names(node) for binding in pod.bindings)
    return f"it may be scheduled to {node} only" if bound else ""


def _of_the_host(instance: InstanceRow, node: str) -> str:
    if instance.host_disks:
        return f"its disk {instance.host_disks[0]} is a file on {node}"
    return f"it uses the device {instance.devices[0]} of {node}" if instance.devices else ""
