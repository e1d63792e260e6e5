"""Exports: volumes that LINSTOR's driver serves over NFS.

One node at a time has the device of such a volume open, and is Primary: that of the NFS server.
Pods mount it over the network wherever they are, and open nothing. The truth about who can write
is therefore another one than for a device:

* What a pod has begun to write waits for a server, and is completed as soon as there is one, on
  whichever node (in a cluster drbd-reactor starts it, where DRBD lets it). So whatever runs can
  write, as with any storage that fences nobody.
* What becomes of the replica on the pod's own node, if there is one, does not matter. DRBD may have
  shut that node out, be it that the server was there: nothing in DRBD keeps its pods from writing
  on through the next one.
"""

from collections.abc import Callable, Iterator

from backstay.sim.linstor.drbd import Drbd, Refused

Reaches = Callable[[str, str], bool]
"""Whether pods on the one node can talk to a pod on the other."""


class Exports:
    """See the module. Resources are added with the node whose server has them at first."""

    def __init__(self, drbd: Drbd, *, reaches: Reaches) -> None:
        self._drbd = drbd
        self._reaches = reaches
        self._servers: dict[str, str] = {}

    def __contains__(self, resource: str) -> bool:
        return resource in self._servers

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._servers))

    def add(self, resource: str, server: str) -> None:
        self._servers[resource] = server

    def forget(self, resource: str) -> None:
        self._servers.pop(resource, None)

    def is_served(self, resource: str) -> bool:
        return self._drbd.can_write(resource, self._servers[resource])

    def mount(self, resource: str, node: str) -> bool:
        """Whether the node has it then. A server opens the device when it is first asked for."""
        server = self._servers[resource]
        return self._reaches(node, server) and self.serve(resource, server)

    def serve(self, resource: str, server: str) -> bool:
        """From this node, unless DRBD refuses it; whether it serves then."""
        try:
            self._drbd.promote(resource, server)
        except Refused:
            return False
        self._servers[resource] = server
        return self.is_served(resource)
