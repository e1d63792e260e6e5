"""Where pods are put, and what is said of those that fit nowhere."""

import asyncio
from typing import Any

import pytest

from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES, PODS
from backstay.sim.cluster.claims import LOCAL, storage_class
from backstay.sim.cluster.embedded import EmbeddedCluster
from harness.connect import FAST_PACE, hollow_nodes, until
from tests.sim.cluster.stages import (
    CLAIMS,
    CLASSES,
    Cast,
    Json,
    claim,
    play,
    pod,
    pod_with_claim,
    said,
)


def place(*bodies: Json, nodes: int = 3) -> list[str]:
    """Where pods end up that are made one after the other; empty for nowhere."""

    async def scenario(cluster: EmbeddedCluster) -> list[str]:
        cast = Cast(cluster)
        for body in bodies:
            await cast.create(body)
            await asyncio.sleep(1)
        return [cast.pod(b["metadata"]["name"])["spec"].get("nodeName", "") for b in bodies]

    return play(scenario, nodes=nodes)


def required(kind: str, rules: Any) -> Json:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": rules}}


def node_affinity(**term: Any) -> Json:
    return required("nodeAffinity", {"nodeSelectorTerms": [term]})


def why(pod: Json) -> str:
    conditions = pod["status"]["conditions"]
    return next(str(c["message"]) for c in conditions if c["type"] == "PodScheduled")


def test_pods_are_spread_over_the_emptiest_nodes() -> None:
    assert place(*(pod(f"web-{n}") for n in range(4))) == ["n1", "n2", "n3", "n1"]


def test_a_node_selector_is_honoured() -> None:
    assert place(pod(nodeSelector={"kubernetes.io/hostname": "n3"})) == ["n3"]


@pytest.mark.parametrize(
    ("kind", "key"),
    [("matchFields", "metadata.name"), ("matchExpressions", "kubernetes.io/hostname")],
)
def test_node_affinity_is_honoured(kind: str, key: str) -> None:
    term = {kind: [{"key": key, "operator": "In", "values": ["n2"]}]}
    assert place(pod(affinity=node_affinity(**term))) == ["n2"]


def test_a_term_without_requirements_selects_nothing() -> None:
    assert place(pod(affinity=node_affinity())) == [""]


def test_pods_that_shun_each_other_are_kept_apart() -> None:
    """As the target of a migration and its source."""
    term = {
        "labelSelector": {"matchLabels": {"app": "vm"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    apart = required("podAntiAffinity", [term])
    labels = {"app": "vm"}
    bodies = [pod(f"vm-{n}", labels=labels, affinity=apart) for n in range(3)]
    assert place(*bodies, nodes=2) == ["n1", "n2", ""]


def test_a_pod_that_is_shunned_by_those_that_are_there_goes_elsewhere() -> None:
    term = {
        "labelSelector": {"matchLabels": {"app": "web"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    hermit = pod("hermit", affinity=required("podAntiAffinity", [term]))
    assert place(hermit, pod("web", labels={"app": "web"}), nodes=1) == ["n1", ""]


def test_pods_that_belong_together_are_put_together() -> None:
    term = {
        "labelSelector": {"matchLabels": {"app": "db"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    lover = pod("web", affinity=required("podAffinity", [term]))
    assert place(pod("a"), pod("db", labels={"app": "db"}), lover) == ["n1", "n2", "n2"]


def test_a_full_node_takes_no_more() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        for number in range(111):
            await cast.create(pod(f"web-{number}"))
        await cast.until(lambda: said(cast.get("pods", "web-110"), "PodScheduled") == "False")
        assert why(cast.pod("web-110")) == "0/1 nodes are available: 1 Too many pods."
        await cast.delete("web-5")
        await cast.runs("web-110")

    play(scenario, nodes=1)


def test_a_pod_that_fits_nowhere_is_placed_as_soon_as_something_has_changed() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.cordon("n1")
        await cast.create(pod())
        await cast.until(lambda: said(cast.pod(), "PodScheduled") == "False")
        await cast.cordon("n1", on=False)
        await cast.runs(on="n1")
        assert said(cast.pod(), "PodScheduled") == "True"

    play(scenario, nodes=1)


def test_nothing_is_placed_on_a_node_that_fell_silent() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        cluster.nodes["n1"].kill()
        await cast.until(lambda: "unreachable:NoSchedule" in cast.taints("n1"), 120)
        for number in range(3):
            await cast.create(pod(f"web-{number}"))
        await asyncio.sleep(1)
        assert {p["spec"]["nodeName"] for p in cast.all("pods")} == {"n2"}

    play(scenario, nodes=2)


def test_until_then_it_is_taken_for_a_node_like_any_other() -> None:
    """Seen: a pod that is deleted too early is put back on the same dead node."""

    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        cluster.nodes["n1"].kill()
        await cast.create(pod())
        await asyncio.sleep(1)
        assert cast.pod()["spec"]["nodeName"] == "n1"

    play(scenario, nodes=2)


def test_a_pod_waits_for_its_claim_and_goes_where_its_local_disk_is() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(storage_class("local", driver=LOCAL, waits=True), CLASSES)
        await cast.create(pod("busy", nodeName="n1"))
        await cast.create(claim("disk", storageClassName="local"), CLAIMS)
        await asyncio.sleep(5)
        assert [c["status"]["phase"] for c in cast.all("persistentvolumeclaims")] == ["Pending"]
        await cast.create(pod_with_claim("disk"))
        assert await cast.runs() == "n2"
        await cast.delete("web", grace=0)
        await cast.cordon("n2")
        await cast.create(pod_with_claim("disk"))
        await cast.until(lambda: said(cast.pod(), "PodScheduled") == "False")
        assert why(cast.pod()) == (
            "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, "
            "1 node(s) were unschedulable."
        )

    play(scenario, nodes=2)


def test_a_pod_without_its_claim_says_so() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(pod_with_claim("disk"))
        await cast.until(lambda: said(cast.pod(), "PodScheduled") == "False")
        words = '0/3 nodes are available: persistentvolumeclaim "disk" not found.'
        assert why(cast.pod()) == words
        await cast.create(claim("disk"), CLAIMS)
        await cast.runs()

    play(scenario)


def test_a_pod_waits_for_a_claim_that_nobody_provides_for() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(claim("disk", storageClassName="unknown"), CLAIMS)
        await cast.create(pod_with_claim("disk"))
        await cast.until(lambda: said(cast.pod(), "PodScheduled") == "False")
        assert why(cast.pod()) == (
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."
        )

    play(scenario)


# The same words on both


async def _refusals(client: KubeClient, namespace: str, node: str) -> list[str]:
    """What is said of pods that do not fit on a node of ours, up to the first full stop."""
    ours = {"kubernetes.io/hostname": node}
    found = [
        await _refused(client, namespace, pod("elsewhere", nodeSelector={**ours, "no": "where"})),
        await _refused(client, namespace, pod_with_claim("none", "claimless", nodeSelector=ours)),
    ]
    taint = {"key": "test", "value": "yes", "effect": "NoSchedule"}
    await client.merge_patch(NODES, node, {"spec": {"taints": [taint]}})
    await until(client, NODES, lambda nodes: bool(nodes[0]["spec"].get("taints")), name=node)
    found.append(await _refused(client, namespace, pod("unwelcome", nodeSelector=ours)))
    await client.merge_patch(NODES, node, {"spec": {"unschedulable": True}})
    await until(client, NODES, lambda nodes: len(nodes[0]["spec"]["taints"]) == 2, name=node)
    found.append(await _refused(client, namespace, pod("closed", nodeSelector=ours)))
    return found


async def _refused(client: KubeClient, namespace: str, body: Json) -> str:
    await client.create(PODS, body, namespace=namespace)
    (seen,) = await until(
        client,
        PODS,
        lambda pods: any(said(p, "PodScheduled") == "False" for p in pods),
        namespace=namespace,
        name=body["metadata"]["name"],
    )
    return why(seen).partition(". ")[0].removesuffix(".")


def test_a_refusal_is_in_the_words_that_were_seen_on_the_real_one() -> None:
    async def scenario(cluster: EmbeddedCluster) -> list[str]:
        return await _refusals(cluster.client(), "default", "n1")

    assert play(scenario, nodes=1) == REFUSALS


@pytest.mark.real
async def test_a_refusal_of_the_real_one_is_in_these_words(
    client: KubeClient, namespace: str
) -> None:
    async with hollow_nodes(client, pace=FAST_PACE) as fleet:
        (node,) = fleet.add(f"{namespace}-n1")
        await until(
            client,
            NODES,
            lambda nodes: any(not n["spec"].get("taints") for n in nodes),
            name=node.name,
        )
        assert await _refusals(client, namespace, node.name) == REFUSALS


REFUSALS = [
    "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector",
    '0/1 nodes are available: persistentvolumeclaim "none" not found',
    "0/1 nodes are available: 1 node(s) had untolerated taint(s)",
    "0/1 nodes are available: 1 node(s) were unschedulable",
]
