"""Disks: which replicas have the data, as LINSTOR's controller last heard of it.

A replica whose satellite is not heard says nothing of its disks: None, and neither good nor bad. A
list that cannot be read is unreadable as a whole: the replica that is missing may be the only one.
"""

import msgspec

from backstay.drivers.linstor.wire import Unreadable
from backstay.model.drbd import DiskSight

_DISKLESS = frozenset({"DISKLESS", "DRBD_DISKLESS", "TIE_BREAKER", "NVME_INITIATOR"})


class _Connection(msgspec.Struct, frozen=True):
    connected: bool = False


class _Drbd(msgspec.Struct, frozen=True):
    connections: dict[str, _Connection] | None = None


class _Layer(msgspec.Struct, frozen=True):
    type: str = ""
    drbd: _Drbd | None = None


class _State(msgspec.Struct, frozen=True):
    disk_state: str | None = None


class _Volume(msgspec.Struct, frozen=True):
    volume_number: int = 0
    state: _State | None = None


class _Resource(msgspec.Struct, frozen=True):
    name: str
    node_name: str
    flags: list[str] | None = None
    layer_object: _Layer | None = None
    volumes: list[_Volume] | None = None


_RESOURCES = msgspec.json.Decoder(list[_Resource])


def disks_from(body: bytes) -> tuple[DiskSight, ...]:
    """Of the replicas that have a disk and are replicated by DRBD."""
    try:
        wire = _RESOURCES.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Unreadable("the list of resources cannot be read") from None
    return tuple(
        DiskSight(
            resource=each.name.lower(),
            node=each.node_name.lower(),
            states=tuple((v.state or _State()).disk_state for v in each.volumes or ()),
            connected=_connected(each),
        )
        for each in wire
        if _is_drbd(each) and _DISKLESS.isdisjoint(flag.upper() for flag in each.flags or ())
    )


def _connected(resource: _Resource) -> frozenset[str] | None:
    drbd = (resource.layer_object or _Layer()).drbd
    if drbd is None or drbd.connections is None:
        return None
    return frozenset(peer.lower() for peer, each in drbd.connections.items() if each.connected)


def _is_drbd(resource: _Resource) -> bool:
    return (resource.layer_object or _Layer()).type.upper() == "DRBD"
