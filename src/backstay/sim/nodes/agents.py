"""Agents: programs other than the kubelet that live on a node, as virt-handler does.

An agent is a function that takes an ``AgentContext`` and works until it is stopped. It lives and
dies with its node: a loss of power ends it, a freeze stops it wherever it stands, a cut leaves it
alone with its containers. A new boot begins it anew. The kubelet is another program: when that is
killed, containers and agents go on.

In a ``World`` an agent is a process of its own and dies as processes die; on an ordinary loop it
is a task that is cancelled, also by a freeze, after which it is begun anew. So it keeps what
outlives it where a real one does: in the API, and in the containers.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

from backstay.kube.client import KubeClient
from backstay.seam import Seams
from backstay.sim.nodes.runtime import Runtime
from backstay.sim.nodes.truth import Truth


@dataclass(frozen=True)
class AgentContext:
    """What an agent has: the node that it is on, for one boot.

    ``runtime`` is the machine's: ``running`` says what containers there are, ``changed`` waits
    until some start or stop, and ``stop`` is for those that end by themselves, which the kubelet
    then notices. ``client`` and ``seams`` go over the node's own network. ``reaches`` says whether
    another node of that name could be talked to now, as the end of a connection to it would show.
    """

    node: str
    boot_id: str
    client: KubeClient
    runtime: Runtime
    truth: Truth
    seams: Seams
    reaches: Callable[[str], bool]


Agent: TypeAlias = Callable[[AgentContext], Coroutine[Any, Any, None]]
