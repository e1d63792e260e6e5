"""Providers: what the provider of a silent node's machine says of it.

It is asked every few seconds while the node is silent, and at once where Kubernetes' own taint for
a machine that was shut down comes: that taint lags, and is a hint and no more. What counts is an
answer that was asked for after suspicion began (``decide/proof.py``).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NoReturn

import msgspec

from backstay.apis.core import NodeRow
from backstay.drivers.provider import Provider, ProviderFailed
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError
from backstay.kube.projection import Meta
from backstay.kube.resource import NODES
from backstay.model.evidence import ProviderState, Testimony
from backstay.model.node import NodeFacts
from backstay.model.workload import Workload
from backstay.sources.nodes import NodeSource

_HINT = "node.cloudprovider.kubernetes.io/shutdown"
_TIMEOUT = 5.0


class _Spec(msgspec.Struct, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")


class _Node(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: _Spec = _Spec()


class ProviderSource:
    """See the module; a ``Source``. It asks every ``interval`` seconds."""

    name = "provider"

    def __init__(
        self, client: KubeClient, nodes: NodeSource, provider: Provider, *, interval: float
    ) -> None:
        self.trouble = ""
        self._client = client
        self._provider = provider
        self._interval = interval
        self._watched: Mapping[str, NodeFacts] = {}
        self._instances: dict[str, str] = {}
        self._said: dict[str, ProviderState] = {}
        self._answered_at: float | None = None
        self._news = asyncio.Event()
        nodes.cache.subscribe(self._changed)

    def age(self, now: float) -> float | None:
        if not self._watched or self._answered_at is None:
            return None
        return now - self._answered_at

    async def run(self) -> NoReturn:
        while True:
            self._news.clear()
            for node in self._watched.values():
                await self._look(node)
            try:
                async with asyncio.timeout(self._interval if self._watched else None):
                    await self._news.wait()
            except TimeoutError:
                continue

    def watch(self, nodes: Sequence[NodeFacts]) -> None:
        self._watched = {node.name: node for node in nodes}
        boots = {_boot(node) for node in nodes}
        self._said = {boot: said for boot, said in self._said.items() if boot in boots}
        self._instances = {
            uid: name for uid, name in self._instances.items() if uid in {n.uid for n in nodes}
        }
        self._news.set()

    def testimony(self, node: NodeFacts) -> Testimony:
        return Testimony(provider=self._said.get(_boot(node)))

    async def ask(self, node: NodeFacts, workloads: Sequence[Workload]) -> Testimony:
        if node.name not in self._watched:
            return Testimony()
        await self._look(node)
        return self.testimony(node)

    def _changed(self, old: NodeRow | None, new: NodeRow | None) -> None:
        came = old is None or not _is_hinted(old)
        if came and new is not None and new.key in self._watched and _is_hinted(new):
            self._news.set()

    async def _look(self, node: NodeFacts) -> None:
        """What was said before is dropped if it cannot be had again."""
        started = asyncio.get_running_loop().time()
        try:
            instance = await self._instance_of(node)
            if not self._provider.knows(instance):
                return
            state = await self._provider.state(instance)
        except (ProviderFailed, KubeError, msgspec.MsgspecError) as error:
            self._said.pop(_boot(node), None)
            self.trouble = f"{self._provider.name} cannot be asked about {node.name}: {error}"
            return
        self.trouble = ""
        self._answered_at = started
        self._said[_boot(node)] = ProviderState(
            source=self._provider.name,
            instance=instance,
            off=state.off,
            detail=state.detail,
            observed_at=started,
        )

    async def _instance_of(self, node: NodeFacts) -> str:
        if node.uid not in self._instances:
            live = (await self._client.get(NODES, node.name, timeout=_TIMEOUT)).into(_Node)
            if live.metadata.uid != node.uid:
                return ""
            self._instances[node.uid] = live.spec.provider_id
        return self._instances[node.uid]


def _boot(node: NodeFacts) -> str:
    return f"{node.uid}/{node.boot_id}"


def _is_hinted(row: NodeRow) -> bool:
    return any(taint.startswith(f"{_HINT}:") for taint in row.taints)
