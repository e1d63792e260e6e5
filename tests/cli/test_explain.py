"""``backstay explain``: the whole story of a node, a VM or a pod."""

import json

import pytest

from tests.support import objects as some
from tests.support.furnished import Furnished
from tests.support.small_cluster import SmallCluster


@pytest.fixture
async def furnished(cluster: SmallCluster) -> Furnished:
    """Two healthy nodes; the VM and the StatefulSet's pod are on n2."""
    made = Furnished(cluster)
    await made.begin()
    for name in ("n2", "n3"):
        await made.node(name)
    await made.machine(
        "web", node="n2", claims=[some.claim("root")], volumes=[some.volume("pv-root")]
    )
    await made.stateful_pod("db", node="n2")
    return made


async def test_a_node_is_told_with_its_facts_its_evidence_and_its_workloads(
    furnished: Furnished,
) -> None:
    node = await furnished.node("n1", silent=300, heartbeat=320)
    await furnished.machine("lost", node="n1")
    await furnished.confirmation(node)
    said = await furnished.cluster.run("viewer", "explain", "node/n1")
    assert said.code == 2, said.err
    assert "Lost, for 5 min" in said.out
    assert "renewed 5 min ago, as the API says" in said.out
    assert "heartbeat 5 min ago, as the API says" in said.out
    assert "carla confirmed the death" in said.out
    assert "It counts." in said.out
    assert "VM shop/lost" in said.out
    assert "NEXT: backstay arm" in said.out
    assert max(map(len, said.out.splitlines())) <= 80


async def test_a_confirmation_of_another_boot_is_said_not_to_count(furnished: Furnished) -> None:
    node = await furnished.node("n1", silent=300)
    await furnished.confirmation(node, bootID="an-older-one")
    said = await furnished.cluster.run("viewer", "explain", "node/n1")
    assert "It does not count: it was given for another boot of the node." in " ".join(
        said.out.split()
    )


async def test_a_confirmation_that_life_contradicts_is_said_not_to_count(
    furnished: Furnished,
) -> None:
    node = await furnished.node("n1", silent=-5)
    await furnished.confirmation(node, lastRenewal="2026-01-01T00:00:00.000000Z")
    said = await furnished.cluster.run("viewer", "explain", "node/n1")
    words = " ".join(said.out.split())
    assert "It does not count: the node has shown life since." in words
    assert "NEXT: backstay confirm-dead n1 --withdraw" in words


async def test_a_confirmation_is_said_not_to_count_while_guests_are_heard_of(
    furnished: Furnished,
) -> None:
    node = await furnished.node("n1", silent=300, heartbeat=3)
    await furnished.confirmation(node)
    said = await furnished.cluster.run("viewer", "explain", "node/n1", "-o", "json")
    [word] = json.loads(said.out)["evidence"]
    assert word.endswith("It does not count: the node's virt-handler is heard of.")


async def test_a_machine_is_told_check_by_check(furnished: Furnished) -> None:
    await furnished.node("n1", silent=300)
    await furnished.machine("lost", node="n1")
    said = await furnished.cluster.run("viewer", "explain", "vm/shop/lost", "-o", "json")
    assert said.code == 2, said.err
    [answer] = json.loads(said.out)["answers"]
    results = {step["question"]: step["result"] for step in answer["chain"]}
    assert results["is node down?"] == "ok"
    assert results["is it proven?"] == "Hold"
    assert answer["code"] == "ProofMissing"


async def test_a_machine_on_a_healthy_node_is_told_what_would_happen(furnished: Furnished) -> None:
    said = await furnished.cluster.run("viewer", "explain", "vm/shop/web")
    assert said.code == 0, said.err
    assert "VERDICT: Leave (NodeHealthy)" in said.out
    assert "would restart on another node as soon as n2 is proven dead" in " ".join(
        said.out.split()
    )


async def test_a_pod_is_told_as_the_workload_it_belongs_to(furnished: Furnished) -> None:
    for pod, workload in (
        ("db-0", "StatefulSet pod shop/db-0"),
        ("virt-launcher-web-x7k2p", "VM shop/web"),
    ):
        said = await furnished.cluster.run("viewer", "explain", f"pod/shop/{pod}", "-o", "json")
        [answer] = json.loads(said.out)["answers"]
        assert answer["workload"] == workload


async def test_the_incident_is_told_with_its_timeline(furnished: Furnished) -> None:
    node = await furnished.node("n1", silent=300)
    moments = [
        {"at": "2030-01-01T02:11:00Z", "code": "NodeSuspect", "sentence": "n1 was silent."},
        {"at": "2030-01-01T02:11:18Z", "code": "NodeLost", "sentence": "n1 was lost."},
    ]
    await furnished.incident(node, state="Lost", timeline=moments)
    said = await furnished.cluster.run("viewer", "explain", "node/n1")
    assert "INCIDENT n1-1" in said.out
    assert said.out.index("n1 was silent.") < said.out.index("n1 was lost.")


async def test_a_machine_that_is_not_running_has_nothing_to_fail_over(furnished: Furnished) -> None:
    halted = some.machine("off", strategy="Halted")
    await furnished.cluster.put({**halted, "metadata": {"name": "off", "namespace": "shop"}})
    said = await furnished.cluster.run("viewer", "explain", "vm/shop/off")
    assert said.code == 0
    assert said.out == "VM shop/off runs on no node, so there is nothing to fail over.\n"


async def test_a_pod_of_the_node_itself_has_nothing_to_fail_over(furnished: Furnished) -> None:
    owners = some.owned_by("DaemonSet", "agent")
    await furnished.pod(some.pod("agent-x", node="n2", owners=owners))
    said = await furnished.cluster.run("viewer", "explain", "pod/shop/agent-x")
    assert said.code == 0
    assert "belongs to n2 itself" in said.out


async def test_what_there_is_not_is_one_sentence_with_near_names(furnished: Furnished) -> None:
    said = await furnished.cluster.run("viewer", "explain", "vm/shap/web")
    assert (said.code, said.out) == (1, "")
    assert said.err == "Error: There is no VM shap/web. Did you mean shop/web?\n"
    said = await furnished.cluster.run("viewer", "explain", "pod/shop/db-1")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("Error: There is no pod shop/db-1. Did you mean shop/db-0")


async def test_a_node_in_maintenance_is_told_with_what_is_in_the_way(furnished: Furnished) -> None:
    """Of a workload only what concerns it."""
    ours = {
        "pod": "shop/db-0", "code": "BudgetExhausted", "next": "kubectl describe pdb db -n shop",
        "sentence": "shop/db-0 may not go yet.",
    }  # fmt: skip
    theirs = {"pod": "shop/other", "code": "TwoBudgets", "next": "x", "sentence": "Other cannot."}
    await furnished.maintenance(
        "n2", phase="Running", sentence="2 pods still have to leave n2.", blockers=[theirs, ours]
    )
    said = await furnished.cluster.run("viewer", "explain", "node/n2")
    assert "IN THE WAY ON n2 (2)\n  - Other cannot.\n  - shop/db-0 may not go yet." in said.out
    assert said.out.endswith("NEXT: x\nNEXT: kubectl describe pdb db -n shop\n")
    said = await furnished.cluster.run("viewer", "explain", "pod/shop/db-0")
    assert "IN THE WAY ON n2 (1)\n  - shop/db-0 may not go yet." in said.out
    assert "NEXT: x" not in said.out
    said = await furnished.cluster.run("viewer", "explain", "node/n3", "-o", "json")
    assert json.loads(said.out)["maintenances"] == []


async def test_what_a_nodes_device_was_asked_for_is_told(furnished: Furnished) -> None:
    node = await furnished.node("n1", silent=300)
    asked = {"offs": 2, "ons": 1, "epoch": 3, "seconds": 30.0, "at": "2026-11-19T03:00:00Z"}
    await furnished.incident(node, state="Lost", code="x", sentence="y", power=asked)
    said = await furnished.cluster.run("viewer", "explain", "node/n1")
    words = " ".join(said.out.split())
    assert "power asked to go off 2 times and on 1 time, last at 2026-11-19T03:00:00Z" in words
