"""What the provider of a silent node's machine says of it."""

import asyncio
from collections.abc import Awaitable, Callable

from backstay.drivers.provider import InstanceState, ProviderFailed
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.model.evidence import ProviderState
from backstay.model.node import NodeFacts
from backstay.seam.tasks import Tasks
from backstay.sim.chance import Chance
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sources.nodes import NodeSource
from backstay.sources.provider import ProviderSource
from tests.sim.cluster.stages import play

INTERVAL = 60.0


class Told:
    """A provider that says what it was told to say."""

    name = "Acme"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.says = InstanceState(True, "the machine is stopped")
        self.fails = False

    def knows(self, provider_id: str) -> bool:
        return provider_id.startswith("acme:///")

    async def state(self, provider_id: str) -> InstanceState:
        self.asked.append(provider_id)
        if self.fails:
            raise ProviderFailed("it does not answer")
        return self.says


class Watching:
    def __init__(self, client: KubeClient, tasks: Tasks) -> None:
        self.client = client
        self.provider = Told()
        self.nodes = NodeSource(
            client, rng=Chance(1, "nodes"), interval=2.0, window=22.0, on_look=lambda: None
        )
        self.source = ProviderSource(client, self.nodes, self.provider, interval=INTERVAL)
        tasks.spawn(self.nodes.run(), name="nodes")
        tasks.spawn(self.source.run(), name="provider")

    @property
    def node(self) -> NodeFacts:
        facts = self.nodes.facts("n1")
        assert facts is not None
        return facts

    async def watch(self) -> None:
        self.source.watch([self.node])
        await asyncio.sleep(3)

    @property
    def said(self) -> ProviderState | None:
        return self.source.testimony(self.node).provider


def watching(scene: Callable[[Watching], Awaitable[None]], *, known: str = "acme:///i-1") -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        client = cluster.client()
        await client.merge_patch(NODES, "n1", {"spec": {"providerID": known or None}})
        async with Tasks("test") as tasks:
            seen = Watching(client, tasks)
            await asyncio.sleep(5)
            await scene(seen)

    play(scenario, nodes=1)


def test_nobody_is_asked_about_a_node_that_is_well() -> None:
    async def scene(seen: Watching) -> None:
        await asyncio.sleep(2 * INTERVAL)
        assert seen.provider.asked == []
        assert seen.said is None

    watching(scene)


def test_a_silent_node_is_asked_about_by_the_name_that_its_provider_gave_it() -> None:
    async def scene(seen: Watching) -> None:
        before = asyncio.get_running_loop().time()
        await seen.watch()
        assert seen.provider.asked == ["acme:///i-1"]
        assert seen.said is not None
        assert (seen.said.off, seen.said.source) == (True, "Acme")
        assert seen.said.observed_at >= before

    watching(scene)


def test_a_node_of_another_provider_is_not_asked_about() -> None:
    async def scene(seen: Watching) -> None:
        await seen.watch()
        assert (seen.provider.asked, seen.said) == ([], None)

    watching(scene, known="other:///i-1")


def test_the_hint_of_a_shutdown_has_it_asked_at_once_and_is_no_answer() -> None:
    async def scene(seen: Watching) -> None:
        seen.provider.says = InstanceState(False, "the machine is running")
        await seen.watch()
        taint = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
        await seen.client.merge_patch(NODES, "n1", {"spec": {"taints": [taint]}})
        await asyncio.sleep(3)
        assert len(seen.provider.asked) == 2
        assert seen.said is not None
        assert not seen.said.off

    watching(scene)


def test_right_before_a_deed_it_is_asked_anew_and_a_failure_takes_back_what_was_said() -> None:
    async def scene(seen: Watching) -> None:
        await seen.watch()
        first = seen.said
        again = (await seen.source.ask(seen.node, ())).provider
        assert first is not None
        assert again is not None
        assert again.observed_at > first.observed_at
        seen.provider.fails = True
        assert (await seen.source.ask(seen.node, ())).provider is None
        assert "Acme cannot be asked about n1: it does not answer" in seen.source.trouble

    watching(scene)


def test_what_was_said_of_one_boot_is_not_said_of_the_next() -> None:
    async def scene(seen: Watching) -> None:
        await seen.watch()
        assert seen.said is not None
        seen.source.watch([])
        assert seen.said is None

    watching(scene)
