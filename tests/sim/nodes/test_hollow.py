"""Hollow nodes under the real scheduler and the real controllers, with faults."""

from collections.abc import AsyncIterator, Callable

import pytest

from backstay.kube.client import KubeClient
from backstay.kube.errors import NotFound
from backstay.kube.resource import NODES, PODS, Resource
from backstay.sim.nodes.fleet import HollowFleet
from backstay.sim.nodes.truth import What
from backstay.sim.nodes.wire import Json
from harness.connect import FAST_PACE, hollow_nodes, until
from harness.console import Console

pytestmark = pytest.mark.real

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")


class Cluster:
    """Nodes and a namespace of one test; pods made here go to these nodes only."""

    def __init__(self, client: KubeClient, fleet: HollowFleet, namespace: str) -> None:
        self.client = client
        self.fleet = fleet
        self.namespace = namespace

    async def add_nodes(self, count: int) -> list[str]:
        first = len(self.fleet.nodes) + 1
        # The control plane is shared, so names must not be.
        names = [f"{self.namespace}-n{number}" for number in range(first, first + count)]
        self.fleet.add(*names, labels={"test": self.namespace})
        for name in names:
            await until(self.client, NODES, lambda nodes: any(map(is_open, nodes)), name=name)
        return names

    def spec(self, **more: object) -> Json:
        container = {"name": "main", "image": "none"}
        return {
            "containers": [container],
            "nodeSelector": {"test": self.namespace},
            "terminationGracePeriodSeconds": 5,
        } | more

    async def create_pod(self, name: str, **spec: object) -> None:
        body = {"metadata": {"name": name}, "spec": self.spec(**spec)}
        await self.client.create(PODS, body, namespace=self.namespace)
        await self.runs(name)

    async def create_set(self, resource: Resource, name: str, *, replicas: int) -> None:
        labels = {"app": name}
        body = {
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": self.spec()},
            },
        }
        await self.client.create(resource, body, namespace=self.namespace)

    async def delete(self, name: str, *, grace: int | None = None) -> None:
        await self.client.delete(PODS, name, namespace=self.namespace, conditions={"grace": grace})

    async def runs(self, name: str) -> None:
        await self.fleet.ground.until(lambda: bool(self.copies(name)))

    def copies(self, name: str) -> list[str]:
        return self.fleet.copies(self.namespace, name)

    async def pod(self, name: str) -> Json:
        return (await self.client.get(PODS, name, namespace=self.namespace)).json()

    async def until_pod(self, name: str, holds: Callable[[Json], bool]) -> Json:
        (pod,) = await until(
            self.client,
            PODS,
            lambda pods: any(map(holds, pods)),
            namespace=self.namespace,
            name=name,
        )
        return pod

    async def ready(self, name: str) -> Json:
        return await self.until_pod(name, lambda pod: says(pod, "Ready") == "True")

    async def gone(self, name: str) -> None:
        await until(self.client, PODS, lambda pods: not pods, namespace=self.namespace, name=name)

    async def node_says(self, name: str, ready: str) -> None:
        await until(self.client, NODES, lambda nodes: says(nodes[0], "Ready") == ready, name=name)

    async def cordon(self, name: str) -> None:
        await self.client.merge_patch(NODES, name, {"spec": {"unschedulable": True}})


def says(body: Json, kind: str) -> str:
    conditions = body["status"].get("conditions") or ()
    return next((str(each["status"]) for each in conditions if each["type"] == kind), "")


def restarts(pod: Json) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


def is_open(node: Json) -> bool:
    """Ready, and without the taints that a new node bears at first."""
    return says(node, "Ready") == "True" and not node["spec"].get("taints")


@pytest.fixture
async def cluster(client: KubeClient, namespace: str) -> AsyncIterator[Cluster]:
    async with hollow_nodes(client, pace=FAST_PACE) as fleet:
        yield Cluster(client, fleet, namespace)


async def test_a_deployment_is_scheduled_and_runs_on_hollow_nodes(cluster: Cluster) -> None:
    nodes = await cluster.add_nodes(2)
    await cluster.create_set(DEPLOYMENTS, "web", replicas=4)
    pods = await until(
        cluster.client,
        PODS,
        lambda pods: len(pods) == 4 and all(says(pod, "Ready") == "True" for pod in pods),
        namespace=cluster.namespace,
    )
    said = {(pod["metadata"]["uid"], pod["spec"]["nodeName"]) for pod in pods}
    assert {(each.uid, each.node) for each in cluster.fleet.truth()} == said
    assert {node for _, node in said} == set(nodes)


async def test_a_deleted_pod_ends_and_the_truth_agrees(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    await cluster.create_pod("web")
    await cluster.delete("web")
    await cluster.gone("web")
    assert cluster.copies("web") == []
    assert [entry.what for entry in cluster.fleet.ground.log] == [What.STARTED, What.STOPPED]


async def test_a_killed_node_runs_nothing_at_once_and_its_stateful_pod_hangs_for_ever(
    cluster: Cluster,
) -> None:
    (first,) = await cluster.add_nodes(1)
    await cluster.create_set(STATEFUL_SETS, "db", replicas=1)
    await cluster.create_set(DEPLOYMENTS, "web", replicas=1)
    await cluster.fleet.ground.until(lambda: len(cluster.fleet.truth()) == 2)
    (second,) = await cluster.add_nodes(1)

    cluster.fleet[first].kill()
    assert cluster.fleet.truth() == []

    await cluster.node_says(first, "Unknown")
    # The controllers have replaced what they may replace, on the other node ...
    await cluster.fleet.ground.until(lambda: len(cluster.fleet[second].truth) == 1)
    # ... which is not the StatefulSet's pod.
    old = await cluster.pod("db-0")
    assert old["spec"]["nodeName"] == first
    assert cluster.copies("db-0") == []
    await cluster.until_pod("db-0", lambda pod: "deletionTimestamp" in pod["metadata"])


async def test_a_frozen_node_is_given_up_while_its_pods_run_on_until_it_thaws(
    cluster: Cluster,
) -> None:
    frozen, _ = await cluster.add_nodes(2)
    await cluster.create_pod("web", nodeName=frozen)
    cluster.fleet[frozen].freeze()
    await cluster.delete("web")
    await cluster.node_says(frozen, "Unknown")
    assert cluster.copies("web") == [frozen]

    cluster.fleet[frozen].thaw()
    await cluster.node_says(frozen, "True")
    await cluster.gone("web")
    assert cluster.copies("web") == []


async def test_a_reboot_starts_what_is_wanted_and_never_what_is_marked_for_deletion(
    cluster: Cluster,
) -> None:
    (name,) = await cluster.add_nodes(1)
    await cluster.create_pod("wanted")
    await cluster.create_pod("marked")
    await cluster.create_pod("once", restartPolicy="Never")
    node = cluster.fleet[name]
    before = node.boot_id
    node.kill()
    await cluster.delete("marked")
    started = len(cluster.fleet.ground.log)

    node.reboot()
    await cluster.runs("wanted")
    await cluster.gone("marked")
    await cluster.until_pod("once", lambda pod: bool(pod["status"]["phase"] == "Failed"))
    await until(
        cluster.client,
        NODES,
        lambda nodes: nodes[0]["status"]["nodeInfo"]["bootID"] == node.boot_id,
        name=name,
    )
    assert node.boot_id not in (None, before)
    new = {(entry.name, entry.what) for entry in cluster.fleet.ground.log[started:]}
    assert new == {
        ("wanted", What.STARTED),
        ("marked", What.REFUSED),
        ("once", What.REFUSED),
    }


async def test_a_force_deleted_pod_on_a_cut_off_node_runs_twice_until_the_cut_heals(
    cluster: Cluster,
) -> None:
    """The very danger that Backstay exists for: the API sees one copy, and there are two."""
    (cut,) = await cluster.add_nodes(1)
    await cluster.create_set(STATEFUL_SETS, "db", replicas=1)
    await cluster.runs("db-0")
    await cluster.cordon(cut)
    (other,) = await cluster.add_nodes(1)
    # A pod that finds the new node shows that the scheduler has heard of the cordon before it.
    await cluster.create_pod("scout", nodeSelector={"kubernetes.io/hostname": other})

    cluster.fleet[cut].cut_off()
    await cluster.delete("db-0", grace=0)
    await cluster.fleet.ground.until(lambda: cluster.copies("db-0") == [cut, other])

    cluster.fleet[cut].heal()
    await cluster.fleet.ground.until(lambda: cluster.copies("db-0") == [other])
    assert cluster.fleet.ground.most_copies(cluster.namespace, "db-0") == 2


async def test_a_cut_off_node_restarts_what_exits_and_tells_afterwards(cluster: Cluster) -> None:
    (name,) = await cluster.add_nodes(1)
    await cluster.create_pod("web")
    await cluster.ready("web")
    node = cluster.fleet[name]
    node.cut_off()
    node.exit(cluster.namespace, "web", code=1)
    assert cluster.copies("web") == []
    await cluster.runs("web")
    node.heal()
    await cluster.until_pod("web", lambda pod: restarts(pod) == 1)


async def test_settled_nodes_and_pods_are_not_written_to_again(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    await cluster.create_pod("web")
    ready = await cluster.ready("web")
    # A second pod makes the kubelet look through all of them and the node post again.
    await cluster.create_pod("other")
    await cluster.ready("other")
    after = await cluster.pod("web")
    assert after["metadata"]["resourceVersion"] == ready["metadata"]["resourceVersion"]


async def test_a_fleet_takes_its_nodes_off_the_api_when_it_ends(
    client: KubeClient, namespace: str
) -> None:
    async with hollow_nodes(client, pace=FAST_PACE) as fleet:
        (name,) = await Cluster(client, fleet, namespace).add_nodes(1)
    with pytest.raises(NotFound):
        await client.get(NODES, name)


async def test_the_console_shows_where_the_truth_and_the_api_differ(cluster: Cluster) -> None:
    (name,) = await cluster.add_nodes(1)
    await cluster.create_pod("web")
    await cluster.ready("web")
    console = Console(cluster.fleet, cluster.client)
    assert await console.answer(f"cut {name}") == f"{name} is cut off; pods that run on: 1."
    await cluster.delete("web", grace=0)
    pod = f"{cluster.namespace}/web "
    (row,) = [line for line in (await console.answer("truth")).splitlines() if pod in line]
    assert row.split()[2:] == [name, "gone"]
    (row,) = [line for line in (await console.answer("nodes")).splitlines() if name in line]
    assert row.split() == [name, "cut", "off", "True", "1"]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("", ""),
        ("explode n1", "There is no command 'explode': type help."),
        ("kill", "kill takes one node: kill n1."),
        ("kill n9", "There is no node 'n9': there are none at all."),
    ],
)
async def test_the_console_answers_a_mistake_with_one_sentence(
    client: KubeClient, line: str, answer: str
) -> None:
    async with hollow_nodes(client) as fleet:
        assert await Console(fleet, client).answer(line) == answer
