"""The network of pods, as a kubelet sees it: a plugin that it asks for addresses.

A pod that is to start is given a *sandbox* first. The plugin gives the sandbox its addresses
(``add``), and takes them back when nothing of it runs any more (``remove``). Both need the API,
and a node that is dead does neither: what its sandboxes had stays theirs.

Without a plugin pods have addresses of their node that nobody keeps account of.
"""

from dataclasses import dataclass
from typing import Protocol

from backstay.kube.client import KubeClient
from backstay.sim.nodes.wire import Pod


class Refused(Exception):
    """The plugin has no address for a sandbox, for now. It is asked again later."""


@dataclass(frozen=True)
class Sandbox:
    """``container`` is what the runtime calls it."""

    pod: Pod
    container: str
    addresses: tuple[str, ...] = ()


class PodNetwork(Protocol):
    """What every kubelet of a cluster asks; each brings the client of its own node."""

    async def add(self, client: KubeClient, node: str, sandbox: Sandbox) -> tuple[str, ...]:
        """Its addresses. Raises ``Refused`` and ``KubeError``; then nothing was given."""
        ...

    async def remove(self, client: KubeClient, node: str, sandbox: Sandbox) -> None:
        """Takes back whatever it has. Raises ``KubeError``."""
        ...
