"""Asking a pod to leave: with its own grace, and never without any unless somebody says so."""

import pytest

from backstay.act.evictions import delete, evict
from backstay.kube.client import KubeClient
from backstay.kube.errors import NotFound
from backstay.kube.resource import PODS
from backstay.model.drain import PodSight
from backstay.sim.cluster.embedded import EmbeddedCluster
from tests.sim.cluster.stages import play

NAMESPACE = "default"


async def pod(cluster: EmbeddedCluster, client: KubeClient, *, grace: int) -> PodSight:
    """One that runs on a node which is cut off since."""
    spec = {
        "nodeName": "n1", "terminationGracePeriodSeconds": grace,
        "containers": [{"name": "main", "image": "example/app"}],
    }  # fmt: skip
    await client.create(PODS, {"metadata": {"name": "app"}, "spec": spec}, namespace=NAMESPACE)
    await cluster.until(lambda: bool(cluster.truth.running("n1")))
    cluster.nodes["n1"].cut_off()
    live = (await client.get(PODS, "app", namespace=NAMESPACE)).json()["metadata"]
    return PodSight(
        key=f"{NAMESPACE}/app", uid=live["uid"], version=live["resourceVersion"],
        namespace=NAMESPACE, name="app", node="n1", grace=grace,
    )  # fmt: skip


@pytest.mark.parametrize("verb", [evict, delete])
@pytest.mark.parametrize("grace", [0, 1, 30])
def test_a_pod_of_a_node_that_is_cut_off_stays_in_the_api(verb: object, grace: int) -> None:
    async def story(cluster: EmbeddedCluster) -> None:
        client = cluster.client()
        asked = await pod(cluster, client, grace=grace)
        await (evict if verb is evict else delete)(client, asked)
        live = (await client.get(PODS, "app", namespace=NAMESPACE)).json()["metadata"]
        assert live["deletionGracePeriodSeconds"] == max(grace, 1)

    play(story, nodes=1)


def test_who_asks_for_no_grace_gets_none() -> None:
    async def story(cluster: EmbeddedCluster) -> None:
        client = cluster.client()
        asked = await pod(cluster, client, grace=30)
        await evict(client, asked, grace=0)
        with pytest.raises(NotFound):
            await client.get(PODS, "app", namespace=NAMESPACE)

    play(story, nodes=1)
