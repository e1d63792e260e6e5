"""Database: what LINSTOR was told, which outlives its controllers.

Names are stored in lower case here and shown as they were first written, which may be in upper
case. Settings are flat lists of properties at five levels, the first of which that has one decides:
the replica, the resource definition, its resource group, the node, the controller. What is in
effect is given to DRBD whenever it changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from backstay.sim.linstor.drbd import Drbd
from backstay.sim.linstor.replicas import Kind, Options

QUORUM = "DrbdOptions/Resource/quorum"
ON_NO_QUORUM = "DrbdOptions/Resource/on-no-quorum"
OUTDATED_PRIMARY = "DrbdOptions/Resource/on-suspended-primary-outdated"
TWO_PRIMARIES = "DrbdOptions/Net/allow-two-primaries"
DEFAULT_GROUP = "DfltRscGrp"

Props = dict[str, str]


@dataclass
class Definition:
    """``has_drbd`` is false for one that is nothing but a local disk; ``number`` is its own.
    ``own`` is what was set for its replica on a node alone, ``between`` what was set for the
    connection of two."""

    name: str
    number: int
    group: str = DEFAULT_GROUP
    props: Props = field(default_factory=dict)
    has_drbd: bool = True
    own: dict[str, Props] = field(default_factory=dict)
    between: dict[frozenset[str], Props] = field(default_factory=dict)


class Database:
    """See the module. ``drbd`` carries out what is in it."""

    def __init__(self, drbd: Drbd) -> None:
        self.drbd = drbd
        self.nodes: dict[str, str] = {}
        """By name, as it is shown."""
        self.definitions: dict[str, Definition] = {}
        self.groups: dict[str, Props] = {}
        self.props: Props = {}
        self.evicted: set[str] = set()
        """The nodes whose satellites LINSTOR has given up on, and no longer tries to reach."""
        self.node_props: dict[str, Props] = {}
        self.between: dict[frozenset[str], Props] = {}
        """Of connections between nodes, whatever the resource."""
        self._defined = 0
        self._group_names: dict[str, str] = {}
        self.add_group(DEFAULT_GROUP, {})

    # Telling it

    def add_node(self, name: str) -> None:
        self.nodes[name.lower()] = name

    def add_group(self, name: str, props: Mapping[str, str]) -> None:
        self.groups[name.lower()] = dict(props)
        self._group_names[name.lower()] = name

    def define(
        self,
        name: str,
        replicas: Mapping[str, Kind],
        *,
        group: str = DEFAULT_GROUP,
        props: Mapping[str, str] | None = None,
        has_drbd: bool = True,
    ) -> None:
        """A resource and all its replicas, which DRBD has at once."""
        self._defined += 1
        made = Definition(name, self._defined, group, dict(props or {}), has_drbd)
        self.definitions[name.lower()] = made
        placed = {node.lower(): kind for node, kind in replicas.items()}
        self.drbd.create(name.lower(), placed, self.options(made))
        self._configure(name.lower())

    def forget(self, name: str) -> None:
        del self.definitions[name.lower()]
        self.drbd.delete(name.lower())

    def evict(self, node: str) -> None:
        """Gives up on its satellite, which has been OFFLINE for long; replicas elsewhere go on
        without those there, which are not told."""
        self.evicted.add(node)
        for name, resource in self.drbd.resources.items():
            if node in resource.replicas and self.definitions[name].has_drbd:
                self.drbd.disown(name, node)

    def set_property(
        self, key: str, value: str | None, *, resource: str = "", node: str = ""
    ) -> None:
        """Of a resource, of a node, of the replica of the one on the other, or of the controller;
        None takes it away."""
        props = self._props(resource.lower(), node.lower())
        props.pop(key, None)
        if value is not None:
            props[key] = value
        for name in [resource.lower()] if resource else self.definitions:
            self._configure(name)

    def allow_two_primaries_between(self, one: str, other: str, *, resource: str = "") -> None:
        """On the connection of two nodes, of one resource or of all that are on both."""
        place = self.definitions[resource.lower()] if resource else self
        place.between[frozenset({one.lower(), other.lower()})] = {TWO_PRIMARIES: "yes"}
        for name in [resource.lower()] if resource else self.definitions:
            self._configure(name)

    def _props(self, resource: str, node: str) -> Props:
        if resource and node:
            return self.definitions[resource].own.setdefault(node, {})
        if resource:
            return self.definitions[resource].props
        return self.node_props.setdefault(node, {}) if node else self.props

    def _configure(self, name: str) -> None:
        definition = self.definitions[name]
        own = {node: self.options(definition, node) for node in self.nodes}
        self.drbd.configure(name, self.options(definition), own)

    # Asking it

    def shown(self, node: str) -> str:
        return self.nodes.get(node, node)

    def shown_group(self, name: str) -> str:
        return self._group_names.get(name.lower(), name)

    def options(self, definition: Definition, node: str = "") -> Options:
        """What DRBD is given there; where nothing is set, its own defaults."""
        effective = {
            **self.props,
            **self.node_props.get(node, {}),
            **self.groups.get(definition.group.lower(), {}),
            **definition.props,
            **definition.own.get(node, {}),
        }
        fails = effective.get(ON_NO_QUORUM) == "io-error"
        forces = effective.get(OUTDATED_PRIMARY, "force-secondary") == "force-secondary"
        return Options(
            quorum=effective.get(QUORUM, "off"),
            on_no_quorum="io-error" if fails else "suspend-io",
            allow_two_primaries=effective.get(TWO_PRIMARIES) == "yes"
            or self._has_a_pair_that_allows_two(definition),
            outdated_primary="force-secondary" if forces else "disconnect",
        )

    def _has_a_pair_that_allows_two(self, definition: Definition) -> bool:
        pairs = (*definition.between, *self.between)
        resource = self.drbd.resources.get(definition.name.lower()) if pairs else None
        return resource is not None and any(pair <= resource.replicas.keys() for pair in pairs)
