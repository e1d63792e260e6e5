"""Devices: storage that has a say of its own in who uses a volume on a node.

Most has none: what is attached to a node can be mounted there. Replicated storage opens a device on
one node at a time, and refuses while it is open elsewhere or while it cannot know. A pod then waits
for its volume, as one does in ``ContainerCreating``. The device is open until the last pod of the
node that has it has ended, or until the node has no power.
"""

from collections.abc import Collection
from typing import Protocol

from backstay.sim.nodes.runtime import Mount


class Devices(Protocol):
    """What every kubelet of a cluster asks, and what hears of the faults of its nodes."""

    def open(self, node: str, uid: str, mounts: tuple[Mount, ...]) -> bool:
        """All of them for one pod, or none of those that it did not have already."""
        ...

    def is_stuck(self, node: str, uid: str) -> bool:
        """Whether a write of the pod is neither completed nor refused: until it is, the process
        that waits for it cannot be ended, by no signal."""
        ...

    def keep(self, node: str, uids: Collection[str]) -> None:
        """Closes what no pod but these has open on the node."""
        ...

    def node_changed(self, node: str) -> None:
        """It has power now or has none any more, or its network was cut or is there again."""
        ...
