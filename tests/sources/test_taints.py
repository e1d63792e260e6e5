"""Whose out-of-service taint it is, and since when it has been seen."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from backstay.apis.core import Node, taints_by
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.model.evidence import OutOfService
from backstay.model.labels import MANAGER, OUT_OF_SERVICE, OUT_OF_SERVICE_OURS
from backstay.seam.tasks import Tasks
from backstay.sim.chance import Chance
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sources.nodes import NodeSource
from backstay.sources.taints import TaintSource
from harness.cluster import ControlPlane
from tests.sim.cluster.stages import play

Json = dict[str, Any]
TAINT = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}


class Watching:
    """A source that follows the nodes of a cluster."""

    def __init__(self, client: KubeClient, tasks: Tasks) -> None:
        self.client = client
        self.nodes = NodeSource(
            client, rng=Chance(1, "nodes"), interval=2.0, window=22.0, on_look=lambda: None
        )
        self.source = TaintSource(client, self.nodes)
        self.following = tasks.spawn(self.nodes.run(), name="nodes")
        tasks.spawn(self.source.run(), name="taints")

    async def taint(self, *, by: str, **meta: Json) -> None:
        patch = {"metadata": meta, "spec": {"taints": [TAINT]}}
        await self.client.merge_patch(NODES, "n1", patch, manager=by)
        await asyncio.sleep(3)

    async def untaint(self) -> None:
        await self.client.merge_patch(NODES, "n1", {"spec": {"taints": None}}, manager="kubectl")

    @property
    def said(self) -> OutOfService | None:
        facts = self.nodes.facts("n1")
        assert facts is not None
        return self.source.testimony(facts).taint

    async def asked(self) -> OutOfService | None:
        facts = self.nodes.facts("n1")
        assert facts is not None
        return (await self.source.ask(facts, ())).taint


def watching(scene: Callable[[Watching], Awaitable[None]], *, before: str = "") -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        client = cluster.client()
        async with Tasks("test") as tasks:
            if before:
                patch = {"spec": {"taints": [TAINT]}}
                await client.merge_patch(NODES, "n1", patch, manager=before)
            seen = Watching(client, tasks)
            await asyncio.sleep(5)
            await scene(seen)

    play(scenario, nodes=1)


@pytest.mark.parametrize(
    ("manager", "person"),
    [
        ("kubectl", True),
        ("kubectl-taint", True),
        ("kubectl-edit", True),
        ("oc", True),
        ("k9s", True),
        ("Mozilla", True),
        ("kubectlish", False),
        ("self-node-remediation", False),
        ("fence-agents-remediation", False),
        ("harvester", False),
        ("kube-controller-manager", False),
        ("python-requests", False),
    ],
)
def test_a_persons_tool_is_told_from_a_program(manager: str, *, person: bool) -> None:
    async def scene(seen: Watching) -> None:
        await seen.taint(by=manager)
        assert seen.said is not None
        assert (seen.said.by, seen.said.person) == (manager, person)
        assert seen.said.seen_at is not None

    watching(scene)


def test_one_that_was_there_at_the_beginning_has_no_age() -> None:
    async def scene(seen: Watching) -> None:
        assert seen.said is not None
        assert (seen.said.person, seen.said.seen_at) == (True, None)
        # That somebody writes the taints anew does not make it younger.
        await seen.taint(by="kubectl-edit")
        assert seen.said.seen_at is None

    watching(scene, before="kubectl-taint")


def test_whoever_writes_other_taints_later_does_not_become_its_author() -> None:
    async def scene(seen: Watching) -> None:
        await seen.taint(by="kubectl-taint")
        more = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
        await seen.client.merge_patch(
            NODES, "n1", {"spec": {"taints": [TAINT, more]}}, manager="kube-controller-manager"
        )
        await asyncio.sleep(3)
        assert seen.said is not None
        assert seen.said.by == "kubectl-taint"

    watching(scene)


def test_our_own_is_nobodys_word() -> None:
    async def scene(seen: Watching) -> None:
        await seen.taint(by=MANAGER, annotations={OUT_OF_SERVICE_OURS: "incident"})
        assert seen.said is None
        assert await seen.asked() is None

    watching(scene)


def test_what_is_taken_off_is_withdrawn_and_an_answer_never_lags() -> None:
    async def scene(seen: Watching) -> None:
        await seen.taint(by="kubectl-taint")
        assert await seen.asked() == seen.said
        await seen.untaint()
        assert await seen.asked() is None
        await asyncio.sleep(3)
        assert seen.said is None

    watching(scene)


def test_right_before_a_deed_nobody_relies_on_what_was_told() -> None:
    async def scene(seen: Watching) -> None:
        await seen.taint(by="kubectl-taint")
        seen.following.cancel()
        await asyncio.sleep(1)
        await seen.untaint()
        assert seen.said is not None
        assert await seen.asked() is None

    watching(scene)


def test_one_that_is_put_on_anew_counts_from_then() -> None:
    async def scene(seen: Watching) -> None:
        await seen.taint(by="self-node-remediation")
        await seen.untaint()
        await asyncio.sleep(3)
        await seen.taint(by="kubectl-taint")
        assert seen.said is not None
        assert seen.said.person

    watching(scene)


@pytest.mark.real
async def test_the_real_kubectl_says_who_it_is(
    client: KubeClient, control_plane: ControlPlane, namespace: str
) -> None:
    name = f"{namespace}-node"
    await client.create(NODES, {"metadata": {"name": name, "labels": {"test": namespace}}})
    try:
        taint = f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute"
        found: list[str] = []
        for _ in range(5):
            # Whoever writes the taints of a node next has its name on all of them: the
            # controller-manager does so once or twice with a node that is new.
            await control_plane.kubectl("taint", "node", name, taint)
            found += taints_by((await client.get(NODES, name)).into(Node))
            await control_plane.kubectl("taint", "node", name, f"{taint}-")
        assert "kubectl-taint" in found
        assert set(found) <= {"kubectl-taint", "kube-controller-manager"}
    finally:
        await client.delete(NODES, name)
