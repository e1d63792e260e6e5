"""Rest: LINSTOR's answers, as JSON, from what a controller knows.

They have the fields and the gaps of the real ones (1.33.3): what is unknown is left out, and so is
all that is empty; a replica whose satellite is OFFLINE has neither state nor connections, and one
of which an ONLINE satellite has told nothing yet has an empty state; a tie-breaker is also
diskless. An error is a list of return codes. To ask for a name that no resource can have is one.
"""

import re
import uuid
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any
from urllib.parse import parse_qs

from backstay.sim.linstor.controller import Controller
from backstay.sim.linstor.database import Definition, Props
from backstay.sim.linstor.replicas import Disk, Kind, Role, Sight

VERSION = {
    "version": "1.33.3",
    "git_hash": "0000000000000000000000000000000000000000",
    "build_time": "2026-01-01T00:00:00+00:00",
    "rest_api_version": "1.27.0",
}

_ERROR = -(1 << 62)
IMPOSSIBLE_NAME, DEFINITION_NOT_FOUND, GROUP_NOT_FOUND = 202, 301, 317
ACCESS_DENIED, UNKNOWN_ERROR, SIGN_IN_FAILED, CREDENTIALS_MISSING = 412, 998, 10000, 10001
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{1,47}")

_FLAGS = {
    Kind.DISKFUL: (),
    Kind.DISKLESS: ("DISKLESS", "DRBD_DISKLESS"),
    Kind.TIE_BREAKER: ("DISKLESS", "DRBD_DISKLESS", "TIE_BREAKER"),
}
_GONE = ("INACTIVE", "EVICTED")
CREATED = 1_700_000_000_000
_NOW = "2026-01-01T00:00:00Z"
_SIZE = 1_048_576
_FIRST_MINOR, _FIRST_PORT = 1000, 7000

Json = dict[str, Any]
Found = tuple[int, Any]


def refused(code: int, message: str) -> list[Json]:
    """The body of an error."""
    return [{"ret_code": _ERROR | code, "message": message, "created_at": _NOW}]


class Rest:
    """See the module."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._database = controller.database
        self._tells: dict[str, Callable[[Definition], Any]] = {
            "": _definition,
            "resources": lambda each: list(self._replicas(each)),
            "resource-connections": lambda each: list(self._between(each)),
        }

    def get(self, path: str, query: str) -> Found:
        """Status and body."""
        match path.strip("/").split("/"):
            case ["v1", "controller", "version"]:
                return 200, VERSION
            case ["v1", "controller", "properties"]:
                return 200, self._database.props
            case ["v1", "nodes"]:
                return 200, [self._node(name) for name in self._database.nodes]
            case ["v1", "view", "resources"]:
                return 200, self._view(query)
            case ["v1", "resource-groups", group]:
                return self._group(group)
            case ["v1", "resource-definitions"]:
                return self._definitions(query)
            case ["v1", "resource-definitions", name, *what] if "/".join(what) in self._tells:
                return self._about(name, self._tells["/".join(what)])
            case ["v1", "node-connections"]:
                return 200, list(self._between_nodes())
        return 404, refused(UNKNOWN_ERROR, f"Path '{path}' not found on server.")

    def _about(self, name: str, tell: Callable[[Definition], Any]) -> Found:
        if not _NAME.fullmatch(name):
            return _impossible(name)
        found = self._database.definitions.get(name.lower())
        if found is None:
            message = f"Resource definition '{name}' not found."
            return 404, refused(DEFINITION_NOT_FOUND, message)
        return 200, tell(found)

    def _group(self, name: str) -> Found:
        props = self._database.groups.get(name.lower())
        if props is None:
            return 404, refused(GROUP_NOT_FOUND, f"Resource group '{name}' not found.")
        return 200, {
            "name": self._database.shown_group(name),
            **_if_any(props=props),
            "select_filter": {"place_count": 2},
            "uuid": _uuid("group", name.lower()),
        }

    def _definitions(self, query: str) -> Found:
        """Of those that are asked for, as far as there are any."""
        wanted = _wanted(query, "resource_definitions")
        for name in wanted if isinstance(wanted, set) else ():
            if not _NAME.fullmatch(name):
                return _impossible(name)
        everything = self._database.definitions
        return 200, [_definition(each) for name, each in everything.items() if name in wanted]

    def _view(self, query: str) -> list[Json]:
        resources, nodes = _wanted(query, "resources"), _wanted(query, "nodes")
        return [
            {**replica, "volumes": [_volume(replica)]}
            for name, definition in self._database.definitions.items()
            if name in resources
            for replica in self._replicas(definition)
            if replica["node_name"].lower() in nodes
        ]

    def _node(self, name: str) -> Json:
        shown = self._database.shown(name)
        number = list(self._database.nodes).index(name) + 1
        interface = {
            "name": "default",
            "address": f"10.0.0.{number % 250}",
            "satellite_port": 3366,
            "satellite_encryption_type": "PLAIN",
            "is_active": True,
            "uuid": _uuid("interface", name),
        }
        return {
            "name": shown,
            "type": "SATELLITE",
            "props": {
                "CurStltConnName": "default",
                "NodeUname": shown,
                **self._database.node_props.get(name, {}),
            },
            "net_interfaces": [interface],
            **({"flags": ["DELETE", "EVICTED"]} if name in self._database.evicted else {}),
            "connection_status": "ONLINE" if self._controller.is_online(name) else "OFFLINE",
            "uuid": _uuid("node", name),
            "storage_providers": ["DISKLESS", "LVM_THIN"],
            "resource_layers": ["DRBD", "STORAGE"],
        }

    def _replicas(self, definition: Definition) -> Iterator[Json]:
        key = definition.name.lower()
        replicas = self._database.drbd.resources[key].replicas
        for node_id, (node, replica) in enumerate(replicas.items()):
            sight = self._controller.sight(key, node)
            flags = [*_FLAGS[replica.kind], *(_GONE if replica.disowned else ())]
            has_disk = replica.kind is Kind.DISKFUL
            storage = _storage_layer(definition.name) if has_disk else None
            layer = (
                self._drbd_layer(definition.number, node_id, sight, storage)
                if definition.has_drbd
                else storage or {"type": "STORAGE"}
            )
            yield {
                "name": definition.name,
                "node_name": self._database.shown(node),
                **_if_any(props=definition.own.get(node), flags=flags),
                "layer_object": layer,
                **self._state(node, sight),
                "uuid": _uuid("resource", f"{key}/{node}"),
                "create_timestamp": CREATED,
            }

    def _between(self, definition: Definition) -> Iterator[Json]:
        """Every two of its replicas, whether something is set for them or not."""
        replicas = self._database.drbd.resources[definition.name.lower()].replicas
        for one, other in combinations(replicas, 2):
            yield self._pair(one, other, definition.between.get(frozenset({one, other})))

    def _between_nodes(self) -> Iterator[Json]:
        """Those of which something is set."""
        for pair, props in self._database.between.items():
            one, other = sorted(pair)
            yield self._pair(one, other, props)

    def _pair(self, one: str, other: str, props: Props | None) -> Json:
        shown = self._database.shown
        return {"node_a": shown(one), "node_b": shown(other), **_if_any(props=props)}

    def _state(self, node: str, sight: Sight | None) -> Json:
        if sight is not None:
            return {"state": {"in_use": sight.role is Role.PRIMARY}}
        return {"state": {}} if self._controller.is_online(node) else {}

    def _drbd_layer(
        self, number: int, node_id: int, sight: Sight | None, storage: Json | None
    ) -> Json:
        port, minor = _FIRST_PORT + number, _FIRST_MINOR + number
        volume: Json = {
            "drbd_volume_definition": {"volume_number": 0, "minor_number": minor},
            "device_path": f"/dev/drbd{minor}",
        }
        drbd: Json = {
            "drbd_resource_definition": {
                "peer_slots": 7, "al_stripes": 1, "al_stripe_size_kib": 32, "port": port,
                "transport_type": "IP", "secret": "none", "down": False,
            },
            "node_id": node_id, "tcp_ports": [port], "peer_slots": 7, "al_stripes": 1,
            "al_size": 32, "drbd_volumes": [volume],
        }  # fmt: skip
        if sight is not None:
            volume["disk_state"] = sight.disk
            drbd["connections"] = {
                self._database.shown(peer): {"connected": link == "Connected", "message": link}
                for peer, link in sight.connections.items()
            }
            drbd["promotion_score"] = sight.promotion_score
            drbd["may_promote"] = sight.may_promote
        children = {"children": [storage]} if storage else {}
        return {**children, "type": "DRBD", "drbd": drbd}


def _impossible(name: str) -> Found:
    return 500, refused(IMPOSSIBLE_NAME, f"The specified resource name '{name}' is invalid.")


def _if_any(**fields: Any) -> Json:
    """Those that are not empty."""
    return {name: value for name, value in fields.items() if value}


def _definition(definition: Definition) -> Json:
    layers: list[Json] = [{"type": "STORAGE"}]
    if definition.has_drbd:
        data = {"port": _FIRST_PORT, "secret": "none", "transport_type": "IP", "down": False}
        layers.insert(0, {"type": "DRBD", "data": data})
    return {
        "name": definition.name,
        **_if_any(props=definition.props),
        "layer_data": layers,
        "uuid": _uuid("definition", definition.name),
        "resource_group_name": definition.group,
    }


def _storage_layer(name: str) -> Json:
    volume = {
        "volume_number": 0,
        "device_path": f"/dev/vg/{name}_00000",
        "allocated_size_kib": _SIZE,
        "usable_size_kib": _SIZE,
    }
    return {"type": "STORAGE", "storage": {"storage_volumes": [volume]}}


def _volume(replica: Json) -> Json:
    layer = replica["layer_object"].get("drbd")
    drbd = layer["drbd_volumes"][0] if layer else {}
    disk = drbd.get("disk_state")
    diskless = "DISKLESS" in replica.get("flags", ())
    return {
        "volume_number": 0,
        "storage_pool_name": "DfltDisklessStorPool" if diskless else "pool",
        "provider_kind": "DISKLESS" if diskless else "LVM_THIN",
        **({"device_path": drbd["device_path"]} if drbd else {}),
        "allocated_size_kib": 0 if disk == Disk.DISKLESS else _SIZE,
        "usable_size_kib": _SIZE,
        **({"state": {"disk_state": disk}} if disk else {}),
        "uuid": _uuid("volume", replica["uuid"]),
    }


class _Everything:
    """What a list contains that was not given."""

    def __contains__(self, _: object) -> bool:
        return True


def _wanted(query: str, key: str) -> _Everything | set[str]:
    given = parse_qs(query).get(key)
    return {each.lower() for each in given} if given else _Everything()


def _uuid(kind: str, name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{kind}/{name}"))
