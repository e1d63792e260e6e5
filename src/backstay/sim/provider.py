"""A provider of the embedded cluster's machines, which knows whether they are on.

A node's providerID is ``sim:///`` and its name. What stands still is *suspended*, and not off.
"""

from collections.abc import Callable, Mapping

from backstay.drivers.provider import InstanceState
from backstay.sim.nodes.node import Node

SCHEME = "sim:///"


class SimProvider:
    """A ``Provider``. ``told`` hears of every answer."""

    name = "the provider"

    def __init__(self, nodes: Mapping[str, Node], told: Callable[[str, bool], None]) -> None:
        self._nodes = nodes
        self._told = told

    def knows(self, provider_id: str) -> bool:
        return provider_id.removeprefix(SCHEME) in self._nodes

    async def state(self, provider_id: str) -> InstanceState:
        name = provider_id.removeprefix(SCHEME)
        node = self._nodes[name]
        off = node.boot_id is None
        self._told(name, off)
        word = "stopped" if off else "suspended" if node.frozen else "running"
        return InstanceState(off, f"the machine is {word}")
