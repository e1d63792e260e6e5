"""The embedded cluster goes through a node's death and return as a real control plane does.

The steps are those that were recorded on the real one, and are checked there too.
"""

from typing import Any

import pytest

from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.world import World
from harness.connect import FAST_PACE, hollow_nodes, until
from tests.sim.cluster.node_death import Stage, Told, tell

PATIENCE = 15

UNREACHABLE = "unreachable:NoSchedule"
EXPELLING = "unreachable:NoExecute"
OUT = "out-of-service:NoExecute"


async def on_embedded(world: World, *, force_delete: bool = False) -> tuple[Stage, Told]:
    cluster = EmbeddedCluster(WorldGround(world))
    for name in ("n1", "n2"):
        cluster.add_node(name, labels={"test": "default"})
    await cluster.settled()
    # Its part is played by the story.
    cluster.control_plane.kill("csi-attacher")
    stage = Stage(cluster.client(), "default", cluster.nodes, cluster.truth, PATIENCE)
    return stage, await tell(stage, force_delete=force_delete)


async def on_real(client: KubeClient, namespace: str) -> tuple[Stage, Told]:
    async with hollow_nodes(client, pace=FAST_PACE) as fleet:
        names = [f"{namespace}-n1", f"{namespace}-n2"]
        fleet.add(*names, labels={"test": namespace})
        for name in names:
            await until(client, NODES, lambda nodes: any(map(_is_open, nodes)), name=name)
        stage = Stage(client, namespace, fleet.nodes, fleet.ground, patience=1, timeout=15)
        return stage, await tell(stage, force_delete=True)


def _is_open(node: dict[str, Any]) -> bool:
    return not node["spec"].get("taints")


def in_a_world(seed: int = 7, *, force_delete: bool = False) -> tuple[Stage, Told]:
    with World(seed=seed) as world:
        return world.run(on_embedded(world, force_delete=force_delete))


def check_steps(stage: Stage, told: Told, *, force_delete: bool) -> None:
    """What holds on both."""
    listener, first, second = told.listener, stage.first.name, stage.second.name
    unknown = ("Unknown", "NodeStatusUnknown")
    assert listener.of("nodes", first, after=told.before_death) == [
        (*unknown, ()),
        (*unknown, (UNREACHABLE,)),
        (*unknown, (UNREACHABLE, EXPELLING)),
        (*unknown, (UNREACHABLE, EXPELLING, OUT)),
        ("True", "KubeletReady", (UNREACHABLE, EXPELLING, OUT)),
        ("True", "KubeletReady", (EXPELLING, OUT)),
        ("True", "KubeletReady", (OUT,)),
        ("True", "KubeletReady", ()),
    ]
    evicted = [
        (first, "Running", "False", "", ""),
        (first, "Running", "False", "DeletionByTaintManager", ""),
        (first, "Running", "False", "DeletionByTaintManager", "deleting"),
    ]
    failed = (first, "Failed", "False", "DeletionByTaintManager", "deleting")
    collected = evicted if force_delete else [*evicted, failed]
    assert listener.of("pods", "bare", after=told.before_death) == [*collected, ("gone",)]
    assert listener.of("pods", "db-0", after=told.before_death) == [
        *collected,
        ("gone",),
        ("", "Pending", "", "", ""),
        (second, "Pending", "", "", ""),
        (second, "Pending", "False", "", ""),
        (second, "Running", "True", "", ""),
    ]
    web = listener.of("pods", "web-*", after=told.before_death)
    assert web[: web.index(evicted[-1]) + 4] == [
        *evicted,
        ("", "Pending", "", "", ""),
        (second, "Pending", "", "", ""),
        (second, "Running", "True", "", ""),
    ]
    here = [s for s in listener.of("pods", "agent-*", after=told.before_death) if s[0] != second]
    # Its controller and the eviction both want it gone, and either may be first.
    assert here[0] == (first, "Running", "False", "", "")
    assert here[2] == (first, "Running", "False", "DeletionByTaintManager", "deleting")
    assert here[-4:] == [
        ("gone",),
        ("", "Pending", "", "", ""),
        (first, "Pending", "", "", ""),
        (first, "Running", "True", "", ""),
    ]
    assert listener.attachments(after=told.before_death) == [
        (first, (first, True, "deleting")),
        (first, ("gone",)),
        (second, (second, False, "")),
        (second, (second, True, "")),
    ]
    assert stage.truth.most_copies(stage.namespace, "db-0") == 1


def test_the_embedded_cluster_goes_through_the_recorded_steps() -> None:
    stage, told = in_a_world()
    check_steps(stage, told, force_delete=False)


@pytest.mark.real
async def test_a_real_control_plane_goes_through_the_same_steps(
    client: KubeClient, namespace: str
) -> None:
    stage, told = await on_real(client, namespace)
    check_steps(stage, told, force_delete=True)


def test_a_forced_deletion_leads_to_the_same_steps_on_the_embedded_cluster() -> None:
    stage, told = in_a_world(force_delete=True)
    check_steps(stage, told, force_delete=True)
