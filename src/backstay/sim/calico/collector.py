"""The collector of leaked addresses, a part of calico-kube-controllers.

Every half of ``grace`` it looks at all addresses. One whose pod is no longer in the API is a leak;
one that has been a leak for ``grace`` (15 minutes by default) is given back, and at once if the
whole node is gone from the API. What is kept for a VM is a leak when the VM is gone.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from backstay.seam.clock import WallClock
from backstay.sim.api.controller import Controller
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations
from backstay.sim.api.store import Commit
from backstay.sim.calico.blocks import attribute_of, counted, network_of, taken_back
from backstay.sim.calico.definitions import V1, Group
from backstay.sim.cluster.desk import NODES, PODS, Desk

GRACE = 900.0

_VMS = "virtualmachines.kubevirt.io"
_KEPT = ".vmi."


class AddressCollector(Controller[None]):
    """All its work is one round."""

    def __init__(
        self, operations: Operations, wall: WallClock, *, group: Group = V1, grace: float = GRACE
    ) -> None:
        super().__init__(operations.store)
        self._desk = Desk(operations, "calico-kube-controllers")
        self._wall = wall
        self._group = group
        self._grace = grace
        self._leaked_since: dict[tuple[str, int, str], float] = {}

    def begin(self) -> None:
        self._leaked_since.clear()
        self.add(None)

    def hear(self, commit: Commit) -> None:
        """Nothing makes it look sooner."""

    def work(self, key: None) -> None:
        self.add_after(None, self._grace / 2)
        now = asyncio.get_running_loop().time()
        leaks = {}
        for block, ordinal, attribute in list(self._allocated()):
            if self._is_used(attribute):
                continue
            name, handle = block["metadata"]["name"], str(attribute["handle_id"])
            since = self._leaked_since.get((name, ordinal, handle), now)
            leaks[name, ordinal, handle] = since
            if now - since >= self._grace or self._node_is_gone(attribute):
                self._give_back(block, ordinal, handle)
        self._leaked_since = leaks

    def _allocated(self) -> Iterator[tuple[Object, int, Mapping[str, Any]]]:
        for block in self._desk.all(self._group.blocks.label):
            for ordinal in range(network_of(block).num_addresses):
                attribute = attribute_of(block, ordinal)
                if attribute is not None and attribute.get("handle_id"):
                    yield block, ordinal, attribute

    def _is_used(self, attribute: Mapping[str, Any]) -> bool:
        handle, owner = str(attribute["handle_id"]), attribute.get("secondary") or {}
        if _KEPT in handle:
            namespace, _, name = handle.partition(_KEPT)[2].partition(".")
            return self._desk.get(_VMS, name, namespace) is not None
        return self._desk.get(PODS, owner.get("pod", ""), owner.get("namespace", "")) is not None

    def _node_is_gone(self, attribute: Mapping[str, Any]) -> bool:
        node = (attribute.get("secondary") or {}).get("node", "")
        return self._desk.get(NODES, node) is None

    def _give_back(self, block: Object, ordinal: int, handle: str) -> None:
        key = ("", block["metadata"]["name"])

        def without(live: Object) -> Object:
            attribute = attribute_of(live, ordinal)
            if attribute is None or attribute.get("handle_id") != handle:
                return live
            return taken_back(live, [ordinal], cooldown=0, now=self._wall.now())

        self._desk.change(self._group.blocks.label, key, without)
        if self._desk.get(self._group.handles.label, handle.lower()) is not None:
            cidr = block["spec"]["cidr"]
            made = self._desk.change(
                self._group.handles.label,
                ("", handle.lower()),
                lambda live: counted(live, cidr, -1),
            )
            if not made["spec"]["block"]:
                self._desk.delete(self._group.handles.label, ("", handle.lower()))
