"""What becomes of a dead node's volume when somebody deletes its attachment: one story, told on the
embedded cluster and on a real control plane.

How a volume goes from a node that is out of service is told in ``test_node_death.py``.
"""

import asyncio

import pytest

from backstay.kube.client import KubeClient
from backstay.kube.resource import EVENTS, NODES, PODS
from backstay.seam.tasks import Tasks
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.world import World
from harness.connect import FAST_PACE, hollow_nodes, until
from tests.sim.cluster.node_death import (
    ATTACHMENTS,
    STATEFUL_SETS,
    VOLUMES,
    Listener,
    Stage,
    attach,
    database,
    disk,
    set_attachment,
)

REFUSED = "FailedAttachVolume"


class Detaching:
    """A replica whose volume is for one node at a time, on a node that dies. The attacher's part
    is played by the story."""

    def __init__(self, stage: Stage, listener: Listener) -> None:
        self.stage = stage
        self.listener = listener
        self.first, self.second = stage.first.name, stage.second.name

    async def run_on_the_first(self) -> None:
        stage, listener = self.stage, self.listener
        await stage.client.create(VOLUMES, disk(stage))
        await self._close(self.second, closed=True)
        await stage.client.create(STATEFUL_SETS, database(stage), namespace=stage.namespace)
        await listener.until_attachment(self.first, (self.first, False, ""))
        await attach(stage, self.first)
        await listener.until("pods", "db-0", (self.first, "Running", "True", "", ""))
        await self._close(self.second, closed=False)

    async def _close(self, node: str, *, closed: bool) -> None:
        await self.stage.client.merge_patch(NODES, node, {"spec": {"unschedulable": closed}})

    async def die(self) -> None:
        """And have somebody delete the pod by force, so that there is a new one elsewhere."""
        gone = (self.first, "Running", "False", "DeletionByTaintManager", "deleting")
        self.stage.first.kill()
        await self.listener.until("pods", "db-0", gone)
        await self.stage.client.delete(
            PODS, "db-0", namespace=self.stage.namespace, conditions={"grace": 0}
        )
        await self.listener.until("pods", "db-0", (self.second, "Pending", "False", "", ""))

    async def until_refused(self) -> None:
        await until(
            self.stage.client,
            EVENTS,
            lambda events: any(each["reason"] == REFUSED for each in events),
            namespace=self.stage.namespace,
            timeout=self.stage.timeout,
        )

    async def delete_attachment(self) -> None:
        listed = (await self.stage.client.list(ATTACHMENTS)).json()["items"]
        (old,) = (each for each in listed if each["spec"]["nodeName"] == self.first)
        meta = old["metadata"]
        await self.stage.client.delete(
            ATTACHMENTS,
            meta["name"],
            conditions={"uid": meta["uid"], "resource_version": meta["resourceVersion"]},
        )
        await self.listener.until_attachment(self.first, (self.first, True, "deleting"))

    async def let_the_attacher_do_its_part(self) -> None:
        await set_attachment(self.stage, self.first, {"metadata": {"finalizers": None}})
        await self.listener.until_attachment(self.first, ("gone",))


async def tell(stage: Stage) -> tuple[float, float]:
    """When the old attachment was gone, and when there was a new one."""
    listener, loop = Listener(stage), asyncio.get_running_loop()
    async with Tasks("story") as tasks:
        listener.listen(tasks)
        story = Detaching(stage, listener)
        await story.run_on_the_first()
        before = len(listener.steps)
        await story.die()
        await story.until_refused()
        # With nothing done about it, the old node keeps it: for six minutes, as Kubernetes has it.
        assert listener.attachments(after=before) == []
        await story.delete_attachment()
        await story.let_the_attacher_do_its_part()
        gone = loop.time()
        await listener.until_attachment(story.second, (story.second, False, ""))
        there = loop.time()
        await attach(stage, story.second)
        await listener.until("pods", "db-0", (story.second, "Running", "True", "", ""))
        assert listener.attachments(after=before) == [
            (story.first, (story.first, True, "deleting")),
            (story.first, ("gone",)),
            (story.second, (story.second, False, "")),
            (story.second, (story.second, True, "")),
        ]
        assert stage.truth.most_copies(stage.namespace, "db-0") == 1
        return gone, there


def test_an_attachment_that_somebody_deleted_is_missed_when_the_controller_compares_next() -> None:
    async def scenario(world: World) -> tuple[float, float]:
        cluster = EmbeddedCluster(WorldGround(world))
        for name in ("n1", "n2"):
            cluster.add_node(name, labels={"test": "default"})
        await cluster.settled()
        cluster.control_plane.kill("csi-attacher")
        stage = Stage(cluster.client(), "default", cluster.nodes, cluster.truth, 15)
        return await tell(stage)

    with World(seed=7) as world:
        gone, there = world.run(scenario(world))
    assert 1 < there - gone < 60
    assert there % 60 < 1


@pytest.mark.real
async def test_the_same_on_a_real_control_plane(client: KubeClient, namespace: str) -> None:
    async with hollow_nodes(client, pace=FAST_PACE) as fleet:
        names = [f"{namespace}-n1", f"{namespace}-n2"]
        fleet.add(*names, labels={"test": namespace})
        for name in names:
            await until(
                client, NODES, lambda found: any(not n["spec"].get("taints") for n in found),
                name=name,
            )  # fmt: skip
        await tell(Stage(client, namespace, fleet.nodes, fleet.ground, patience=1, timeout=15))
