"""LINSTOR's JSON as values: replicas, definitions, satellites, and what may be promoted.

* What LINSTOR leaves out is unknown: ``None``, and neither true nor false. It leaves out the state
  of every replica whose satellite it does not hear.
* Unknown fields and flags, and numbers of any size, are no trouble. A member of a list that cannot
  be read is: a list that is short by one would look complete, and the one that is missing may be
  the one that objects. ``Unreadable`` then.
* What is about something else than was asked for is unreadable, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

QUORUM = "DrbdOptions/Resource/quorum"
TWO_PRIMARIES = "DrbdOptions/Net/allow-two-primaries"
OPTIONS = (QUORUM, TWO_PRIMARIES)
"""The settings on which it rests whether a replica that is alone can write."""

_QUORATE = frozenset({"majority", "all"})

_DISKLESS = frozenset({"DISKLESS", "DRBD_DISKLESS", "TIE_BREAKER", "NVME_INITIATOR"})
_YES, _NO = frozenset({"yes", "true"}), frozenset({"no", "false"})

T = TypeVar("T")

Pairs = Mapping[frozenset[str], Mapping[str, str]]
"""What of ``OPTIONS`` is set for the connection between two nodes."""


class Unreadable(ValueError):
    """Not what it should be; the message completes a sentence."""


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One resource on one node, as LINSTOR's controller last heard of it.

    ``drbd``: whether DRBD is its top layer; if not, nothing below is known. ``connections`` has
    the peers by name and whether the replica is connected to them, as it sees it itself. None:
    it reports nothing; a peer that is not in it: nothing is reported of that one. ``own`` is what
    of ``OPTIONS`` is set for this replica alone. ``up_to_date``: its disk has all that was written.
    """

    resource: str
    node: str
    drbd: bool
    diskful: bool
    flags: frozenset[str] = frozenset()
    in_use: bool | None = None
    may_promote: bool | None = None
    up_to_date: bool | None = None
    connections: Mapping[str, bool] | None = None
    own: Mapping[str, str] = {}


class Definition(msgspec.Struct, frozen=True):
    """What is set for a resource itself; ``group`` is where more is set, if it is in one."""

    resource: str
    group: str
    props: Mapping[str, str]


class Satellite(msgspec.Struct, frozen=True, kw_only=True):
    """LINSTOR's own agent on a node. ``status`` is the controller's word for its connection,
    ``own`` what of ``OPTIONS`` is set for all replicas of this node."""

    node: str
    online: bool
    status: str
    evicted: bool
    own: Mapping[str, str] = {}


class Promotion(msgspec.Struct, frozen=True):
    """Whether a replica could become primary; None where LINSTOR has stopped hearing of it."""

    resource: str
    node: str
    may_promote: bool | None


class Options(msgspec.Struct, frozen=True):
    """What is in effect for a resource, wherever it is set.

    ``quorum`` is DRBD's word in lower case ("majority", "all", "off", a number), and empty where
    nothing is set. ``two_primaries``: where nothing is set DRBD says no; None is a setting that
    is neither yes nor no.
    """

    quorum: str
    two_primaries: bool | None


class Refusal(msgspec.Struct, frozen=True):
    """What LINSTOR says when it does not do something."""

    ret_code: int
    message: str = ""


# As they are on the wire


class _Connection(msgspec.Struct, frozen=True):
    connected: bool | None = None
    message: str | None = None


class _DrbdVolume(msgspec.Struct, frozen=True):
    disk_state: str | None = None


class _Drbd(msgspec.Struct, frozen=True):
    drbd_volumes: list[_DrbdVolume] | None = None
    connections: dict[str, _Connection] | None = None
    may_promote: bool | None = None


class _Layer(msgspec.Struct, frozen=True):
    type: str = ""
    drbd: _Drbd | None = None


class _State(msgspec.Struct, frozen=True):
    in_use: bool | None = None


class _Resource(msgspec.Struct, frozen=True):
    name: str
    node_name: str
    flags: list[str] | None = None
    layer_object: _Layer | None = None
    state: _State | None = None
    props: dict[str, str] | None = None


class _Definition(msgspec.Struct, frozen=True):
    name: str
    props: dict[str, str] | None = None
    resource_group_name: str | None = None


class _Group(msgspec.Struct, frozen=True):
    name: str
    props: dict[str, str] | None = None


class _Node(msgspec.Struct, frozen=True):
    name: str
    flags: list[str] | None = None
    connection_status: str = ""
    props: dict[str, str] | None = None


class _Pair(msgspec.Struct, frozen=True):
    node_a: str
    node_b: str
    props: dict[str, str] | None = None


class _Event(msgspec.Struct, frozen=True):
    resource_name: str
    node_name: str
    may_promote: bool | None = None


class _Version(msgspec.Struct, frozen=True):
    version: str


_RESOURCES = msgspec.json.Decoder(list[_Resource])
_DEFINITION = msgspec.json.Decoder(_Definition)
_DEFINITIONS = msgspec.json.Decoder(list[msgspec.Raw])
_GROUP = msgspec.json.Decoder(_Group)
_PROPERTIES = msgspec.json.Decoder(dict[str, str])
_NODES = msgspec.json.Decoder(list[_Node])
_PAIRS = msgspec.json.Decoder(list[_Pair])
_EVENT = msgspec.json.Decoder(_Event)
_VERSION = msgspec.json.Decoder(_Version)
_REFUSALS = msgspec.json.Decoder(list[Refusal] | Refusal)


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes, what: str) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Unreadable(f"{what} cannot be read") from None


def replicas_from(body: bytes, resource: str) -> tuple[Replica, ...]:
    """All replicas of ``resource``; none if it has none."""
    what = f"the list of the replicas of {resource}"
    replicas = tuple(_replica(each) for each in _decoded(_RESOURCES, body, what))
    if any(replica.resource != resource for replica in replicas):
        raise Unreadable(f"{what} has others in it")
    if len({replica.node for replica in replicas}) < len(replicas):
        raise Unreadable(f"{what} has a node twice")
    return replicas


def _replica(wire: _Resource) -> Replica:
    layer = wire.layer_object or _Layer()
    drbd = (layer.drbd or _Drbd()) if layer.type.upper() == "DRBD" else None
    flags = frozenset(flag.upper() for flag in wire.flags or ())
    return Replica(
        resource=wire.name.lower(),
        node=wire.node_name.lower(),
        drbd=drbd is not None,
        diskful=not flags & _DISKLESS,
        flags=flags,
        in_use=wire.state.in_use if wire.state else None,
        may_promote=drbd.may_promote if drbd else None,
        up_to_date=_is_up_to_date(drbd) if drbd else None,
        connections=_connections(drbd) if drbd else None,
        own=_own(wire.props),
    )


def _own(props: Mapping[str, str] | None) -> Mapping[str, str]:
    return {key: props[key].strip().lower() for key in OPTIONS if key in props} if props else {}


def _is_up_to_date(drbd: _Drbd) -> bool | None:
    """None unless it is told of all of its volumes."""
    states = [each.disk_state for each in drbd.drbd_volumes or ()]
    if not states or None in states:
        return None
    return all(state == "UpToDate" for state in states)


def _connections(drbd: _Drbd) -> Mapping[str, bool] | None:
    if drbd.connections is None:
        return None
    found: dict[str, bool] = {}
    for peer, wire in drbd.connections.items():
        if wire.connected is None and wire.message is None:
            continue
        # Where its two halves disagree, the connection is there: that is the careful answer.
        connected = bool(wire.connected) or (wire.message or "").lower() == "connected"
        found[peer.lower()] = connected or found.get(peer.lower(), False)
    return found


def definition_from(body: bytes, resource: str) -> Definition:
    what = f"the definition of {resource}"
    definition = _definition(_decoded(_DEFINITION, body, what))
    if definition.resource != resource:
        raise Unreadable(f"{what} is that of another")
    return definition


def definitions_from(body: bytes) -> dict[str, Definition]:
    """Those that can be read, by name: what is wrong with one is no reason to doubt another."""
    found: dict[str, Definition] = {}
    for raw in _decoded(_DEFINITIONS, body, "the list of definitions"):
        try:
            definition = _definition(_decoded(_DEFINITION, bytes(raw), "a definition"))
        except Unreadable:
            continue
        found[definition.resource] = definition
    return found


def _definition(wire: _Definition) -> Definition:
    return Definition(wire.name.lower(), wire.resource_group_name or "", wire.props or {})


def group_props_from(body: bytes, group: str) -> Mapping[str, str]:
    what = f"the resource group {group!r}"
    wire = _decoded(_GROUP, body, what)
    if wire.name.lower() != group.lower():
        raise Unreadable(f"{what} is another")
    return wire.props or {}


def properties_from(body: bytes) -> Mapping[str, str]:
    return _decoded(_PROPERTIES, body, "the list of the controller's properties")


def pairs_from(body: bytes) -> Pairs:
    """What is set for connections, by the two nodes of each. Those of a resource are all listed,
    those of nodes only where something is set."""
    found = _decoded(_PAIRS, body, "the list of connections")
    return {
        frozenset({each.node_a.lower(), each.node_b.lower()}): _own(each.props) for each in found
    }


def with_pairs(options: Options, of_resource: Pairs, of_nodes: Pairs) -> Options:
    """What is in effect where a connection may have a setting of its own. DRBD takes whether two
    primaries are allowed connection by connection, so one that allows it is enough."""
    settings = [
        each[TWO_PRIMARIES]
        for pair, own in of_resource.items()
        for each in (own, of_nodes.get(pair, {}))
        if TWO_PRIMARIES in each
    ]
    return Options(options.quorum, _any([options.two_primaries, *map(_yes_or_no, settings)]))


def options_from(layers: Sequence[Mapping[str, str]]) -> Options:
    """What is in effect, from the props of the resource, then its group, then the controller."""
    quorum = _first(layers, QUORUM) or ""
    return Options(quorum.lower(), _yes_or_no(_first(layers, TWO_PRIMARIES)))


def weakest(
    options: Options, replicas: Iterable[Replica], satellites: Iterable[Satellite]
) -> Options:
    """What binds the replica that is bound least, because settings of its own overrule the others.

    LINSTOR lets those of a replica overrule all others, and those of a node the controller's. That
    a node's count for nothing where the resource or its group has the same is not relied on.
    """
    own = {each.node: [each.own] for each in replicas}
    for each in satellites:
        if each.node in own:
            own[each.node].append(each.own)
    settings = [each for both in own.values() for each in both]
    quorums = {options.quorum, *(each[QUORUM] for each in settings if QUORUM in each)}
    unbound = sorted(quorums - _QUORATE)
    bound = options.quorum if len(quorums) == 1 else "majority"
    allowed = [_yes_or_no(each[TWO_PRIMARIES]) for each in settings if TWO_PRIMARIES in each]
    return Options(unbound[0] if unbound else bound, _any([options.two_primaries, *allowed]))


def _any(answers: Sequence[bool | None]) -> bool | None:
    """Whether one of them is yes; None if one may be."""
    if True in answers:
        return True
    return None if None in answers else False


def _yes_or_no(setting: str | None) -> bool | None:
    if setting is None or setting.lower() in _NO:
        return False
    return True if setting.lower() in _YES else None


def _first(layers: Sequence[Mapping[str, str]], key: str) -> str | None:
    return next((layer[key].strip() for layer in layers if key in layer), None)


def satellites_from(body: bytes) -> tuple[Satellite, ...]:
    what = "the list of nodes"
    satellites = tuple(_satellite(each) for each in _decoded(_NODES, body, what))
    if len({satellite.node for satellite in satellites}) < len(satellites):
        raise Unreadable(f"{what} has one twice")
    return satellites


def _satellite(wire: _Node) -> Satellite:
    status = wire.connection_status.upper()
    evicted = "EVICTED" in {flag.upper() for flag in wire.flags or ()}
    return Satellite(
        node=wire.name.lower(),
        online=status == "ONLINE",
        status=status,
        evicted=evicted,
        own=_own(wire.props),
    )


def promotion_from(data: bytes) -> Promotion:
    wire = _decoded(_EVENT, data, "an event")
    return Promotion(wire.resource_name.lower(), wire.node_name.lower(), wire.may_promote)


def version_from(body: bytes) -> str:
    return _decoded(_VERSION, body, "the version").version


def refusals_from(body: bytes) -> tuple[Refusal, ...]:
    """What LINSTOR says in a body that is its own; nothing if that is somebody else's."""
    try:
        found = _decoded(_REFUSALS, body, "a refusal")
    except Unreadable:
        return ()
    return tuple(found) if isinstance(found, list) else (found,)
