"""Addresses of a node's pods: which ones each holds, and whether its successor will ask for them.

``addresses_of`` is pure: it reads annotations, which the pods, guests and machines of a node come
with anyway. ``network_forecast`` asks Calico what would become of them if their node died.

* What a pod holds is said by Calico's own annotations on it (``containerID``, ``podIPs``).
* Who asks for addresses by name (``ipAddrs``) may say so on the pod, on the instance, in the
  machine's template, or on the machine itself. KubeVirt passes on all but the last; the KubeVirt
  node-fail controller of tmax had people write it there, so it is read there too.
* All of them are written by people. One that cannot be read is said, and holds nothing else up.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address, ip_interface

import msgspec

from backstay.apis.calico import (
    ASKED,
    CONTAINER,
    DEFAULT_NETWORK,
    POD_IP,
    POD_IPS,
    Ipam,
    Settings,
    find_ipam,
    handle_name,
    read_settings,
)
from backstay.kube.client import KubeClient
from backstay.kube.errors import NotFound
from backstay.model.addresses import AddressClaim
from backstay.model.reasons import Reason, Why
from backstay.model.workload import Workload

_MOST_SHOWN = 60

Annotations = Mapping[str, str]


class Unreadable(Exception):
    """What is wrong with an annotation."""


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """Where ``ipAddrs`` stands. ``thing`` is it in words, ``object`` as kubectl is told of it;
    ``effective`` is False where Calico never comes to see it."""

    thing: str
    object: str
    value: str
    effective: bool = True


class Addresses(msgspec.Struct, frozen=True):
    """Of one workload. ``notes`` are what is worth knowing of them before anything dies."""

    claims: tuple[AddressClaim, ...] = ()
    notes: tuple[Why, ...] = ()


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A pod and its annotations, and the name of the guest in it, if there is one."""

    namespace: str
    pod: str
    node: str
    annotations: Annotations
    guest: str = ""


def addresses_of(workload: str, holder: Holder, askers: Iterable[Asker]) -> Addresses:
    """``workload`` is what it is called in sentences; ``askers`` are those besides the pod."""
    notes: list[Why] = []
    own = _of_the_pod(holder)
    pinned = _pinned(workload, (own, *askers), notes)
    if not pinned:
        return Addresses(notes=tuple(notes))
    try:
        claim = _claim(workload, holder, pinned)
    except Unreadable as error:
        return Addresses(notes=(*notes, _unreadable(workload, own, error)))
    return Addresses((claim,) if claim.addresses else (), tuple(notes))


def _pinned(workload: str, askers: Iterable[Asker], notes: list[Why]) -> tuple[str, ...]:
    """All that anybody asks for; what nobody heeds, or nobody can read, is noted."""
    heeded: dict[str, None] = {}
    unheeded: dict[str, Asker] = {}
    for asker in askers:
        if not asker.value:
            continue
        try:
            asked = _asked(asker.value)
        except Unreadable as error:
            notes.append(_unreadable(workload, asker, error))
            continue
        if asker.effective:
            heeded.update(dict.fromkeys(asked))
        else:
            unheeded.update(dict.fromkeys(asked, asker))
    for address, asker in unheeded.items():
        if address not in heeded:
            about = {"addresses": address, "object": asker.object}
            notes.append(Reason.AddressHasNoEffect.because(workload=workload, **about))
    return (*heeded, *(address for address in unheeded if address not in heeded))


def _unreadable(workload: str, asker: Asker, error: Unreadable) -> Why:
    if not asker.effective:
        return Reason.AddressHasNoEffect.because(
            workload=workload, addresses=_shown(asker.value), object=asker.object
        )
    return Reason.AddressUnreadable.because(
        workload=workload, thing=asker.thing, object=asker.object, because=str(error)
    )


def _of_the_pod(holder: Holder) -> Asker:
    name = f"pod {holder.pod} -n {holder.namespace}"
    value = holder.annotations.get(ASKED, "")
    return Asker(thing=f"The pod {holder.namespace}/{holder.pod}", object=name, value=value)


def _asked(value: str) -> tuple[str, ...]:
    try:
        found = msgspec.json.decode(value, type=list[str])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Unreadable(f"{_shown(value)} is not a JSON list of addresses") from None
    return tuple(_plain(each) for each in found)


def _claim(workload: str, holder: Holder, pinned: tuple[str, ...]) -> AddressClaim:
    """Calico empties its annotations when it takes the addresses back."""
    said = holder.annotations
    held = said.get(POD_IPS) or said.get(POD_IP) or ""
    container = said.get(CONTAINER, "")
    if not container.isalnum() and container:
        raise Unreadable(f"{_shown(container)} is not the name of a container")
    return AddressClaim(
        workload=workload,
        namespace=holder.namespace,
        pod=holder.pod,
        node=holder.node,
        container=container,
        addresses=tuple(_held(each) for each in held.split(",") if each.strip()),
        pinned=pinned,
        guest=holder.guest,
    )


def _plain(text: str) -> str:
    """As everybody writes it: there are many ways to write the same IPv6 address."""
    try:
        return str(ip_address(text.strip()))
    except ValueError:
        raise Unreadable(f"{_shown(text)} is not an address") from None


def _held(text: str) -> str:
    """Calico writes it with the size of its network: ``10.244.1.5/32``."""
    try:
        return str(ip_interface(text.strip()).ip)
    except ValueError:
        raise Unreadable(f"{_shown(text)} is not an address") from None


def _shown(value: str) -> str:
    return repr(value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}...")


# Before anything dies


async def network_forecast(
    client: KubeClient, workloads: Iterable[Workload]
) -> dict[str, Workload]:
    """Those of which there is something to say, by their keys, with notes that say it.

    Raises ``KubeError`` and ``Malformed``.
    """
    asking = [each for each in workloads if any(c.will_be_asked_for for c in each.addresses)]
    ipam = await find_ipam(client) if asking else None
    if ipam is None:
        return {}
    settings = await read_settings(client, ipam)
    if settings.strict_affinity:
        asking = [each for each in asking if await _is_held_by_pods(client, ipam, each)]
    elif not settings.ip_cooldown_seconds:
        return {}
    return {each.key: _with_forecast(each, settings) for each in asking}


def _with_forecast(workload: Workload, settings: Settings) -> Workload:
    addresses = " and ".join(each for claim in workload.addresses for each in claim.addresses)
    if settings.strict_affinity:
        why = Reason.AddressBound.because(
            workload=workload, addresses=addresses, node=workload.node
        )
    else:
        seconds = settings.ip_cooldown_seconds
        why = Reason.AddressRests.because(addresses=addresses, seconds=seconds)
    return msgspec.structs.replace(workload, notes=(*workload.notes, why))


async def _is_held_by_pods(client: KubeClient, ipam: Ipam, workload: Workload) -> bool:
    """And not by the virtual machine, from which Calico hands it on to any node."""
    for claim in workload.addresses:
        name = handle_name(f"{DEFAULT_NETWORK}.{claim.container}")
        try:
            await client.get(ipam.handles, name)
        except NotFound:
            return False
    return True
