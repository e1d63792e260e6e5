"""Taints: somebody has put Kubernetes' out-of-service taint on a node.

By convention that is a person's word that the node is off. But other programs put it on as well,
when they have come to believe it; whose taint it is shows in the name of whoever wrote it last
before we saw it (``apis/managers.py``).

* A person's tool (kubectl, oc, k9s, a browser): a person vouches for it.
* Anything else, also what nobody knows: another program's word, which counts like silence.
* Our own is neither.

It counts from when we saw it come. One that was there when we began to look may be older than the
node's last sign of life, and says nothing. Once it is taken off, it says nothing any more.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import msgspec

from backstay.apis.core import Node, NodeRow, node_row, taints_by
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError, NotFound
from backstay.kube.resource import NODES
from backstay.model.evidence import OutOfService, Testimony
from backstay.model.labels import MANAGER
from backstay.model.node import NodeFacts
from backstay.model.workload import Workload
from backstay.sources.nodes import NodeSource

_PEOPLES = ("oc", "k9s", "Mozilla")
"""What people use besides kubectl; a browser is where consoles and dashboards run."""

_KUBECTL = "kubectl"
"""Its own name, or with the command behind a dash: ``kubectl-taint``."""

_TIMEOUT = 5.0
_RETRY = 1.0


@dataclass
class _Sight:
    """``author`` is None until we have asked for it."""

    seen_at: float | None
    author: tuple[str, ...] | None = None


class TaintSource:
    """See the module; a ``Source``."""

    name = "taints"

    def __init__(self, client: KubeClient, nodes: NodeSource) -> None:
        self.trouble = ""
        self._client = client
        self._seen: dict[str, _Sight] = {}
        self._news = asyncio.Event()
        nodes.cache.subscribe(self._changed)

    def age(self, now: float) -> float | None:
        """Nodes are watched anyway, and how old that view is, is told elsewhere."""
        return None

    async def run(self) -> NoReturn:
        """Asks at once who has written what is new: the next to write taints hides it."""
        while True:
            await self._news.wait()
            self._news.clear()
            for name in [name for name, sight in self._seen.items() if sight.author is None]:
                await self._read(name)
            if self.trouble:
                await asyncio.sleep(_RETRY)
                self._news.set()

    def watch(self, nodes: Sequence[NodeFacts]) -> None:
        """All are looked after: it costs nothing."""

    def testimony(self, node: NodeFacts) -> Testimony:
        sight = self._seen.get(node.name)
        if sight is None or sight.author is None:
            return Testimony()
        by, person = ", ".join(sight.author) or "somebody", _are_people(sight.author)
        return Testimony(taint=OutOfService(by=by, person=person, seen_at=sight.seen_at))

    async def ask(self, node: NodeFacts, workloads: Sequence[Workload]) -> Testimony:
        """By a quorum read: one that was taken off meanwhile must not count."""
        if node.name not in self._seen:
            return Testimony()
        row = await self._read(node.name)
        there = row is not None and row.uid == node.uid and _is_foreign(row)
        return self.testimony(node) if there else Testimony()

    async def _read(self, name: str) -> NodeRow | None:
        try:
            reply = await self._client.get(NODES, name, timeout=_TIMEOUT)
            live = reply.into(Node)
        except NotFound:
            return None
        except (KubeError, msgspec.MsgspecError) as error:
            self.trouble = f"{name} cannot be read: {error}"
            return None
        self.trouble = ""
        row, sight = node_row(live), self._seen.get(name)
        if sight is not None and sight.author is None and _is_foreign(row):
            sight.author = taints_by(live)
        return row

    def _changed(self, old: NodeRow | None, new: NodeRow | None) -> None:
        same = old is not None and new is not None and old.uid == new.uid
        if old is not None and not (same and new is not None and _is_foreign(new)):
            self._seen.pop(old.key, None)
        if new is None or not _is_foreign(new) or new.key in self._seen:
            return
        came = same and old is not None and not _is_foreign(old)
        self._seen[new.key] = _Sight(asyncio.get_running_loop().time() if came else None)
        self._news.set()


def _is_foreign(row: NodeRow) -> bool:
    return bool(row.out_of_service) and row.out_of_service != MANAGER


def _are_people(managers: tuple[str, ...]) -> bool:
    """Whether nobody but people's tools has written it."""
    return bool(managers) and all(
        name in _PEOPLES or name == _KUBECTL or name.startswith(f"{_KUBECTL}-") for name in managers
    )
