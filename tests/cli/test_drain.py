"""``backstay drain``: what it evicts, what it refuses, what it says."""

import json
from typing import Any

import pytest

from tests.support.small_cluster import Json, SmallCluster

USUAL = ("--ignore-daemonsets", "--grace-period=0")
"""There is no kubelet here that could end a pod by and by."""


def pod(name: str, *, owner: str | None = "ReplicaSet", **more: Any) -> Json:
    labels = {"app": "web", **more.pop("labels", {})}
    meta: Json = {"name": name, "namespace": "default", "labels": labels}
    if owner is not None:
        meta["ownerReferences"] = [
            {
                "apiVersion": "apps/v1", "kind": owner, "name": "it", "uid": "u-it",
                "controller": True,
            }
        ]  # fmt: skip
    spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "example/web"}], **more}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


async def start(cluster: SmallCluster, *pods: Json) -> None:
    await cluster.node("n1", ready="True")
    await cluster.node("n2", ready="True")
    for kind in ("ReplicaSet", "DaemonSet"):
        template = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "example/web"}]},
        }
        selector = {"matchLabels": {"app": "web"}}
        await cluster.put({
            "apiVersion": "apps/v1", "kind": kind,
            "metadata": {"name": "it", "namespace": "default", "uid": "u-it"},
            "spec": {"selector": selector, "template": template},
        })  # fmt: skip
    uids = {
        each["kind"]: each["metadata"]["uid"]
        for kind in ("replicasets.apps", "daemonsets.apps")
        for each in (
            {**stored, "kind": "ReplicaSet" if "replica" in kind else "DaemonSet"}
            for stored in cluster.storage(kind)
        )
    }
    for each in pods:
        for owner in each["metadata"].get("ownerReferences") or ():
            owner["uid"] = uids[owner["kind"]]
        await cluster.put(each)
        name = each["metadata"]["name"]
        path = f"/api/v1/namespaces/default/pods/{name}/status"
        await cluster.change(path, {"status": each["status"]})


async def protect(cluster: SmallCluster, *, allowed: int) -> None:
    """A budget that is counted, with so many disruptions left."""
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    await cluster.put({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    })  # fmt: skip
    counted = {
        "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1,
        "expectedPods": 1, "observedGeneration": 1,
    }  # fmt: skip
    await cluster.change(f"{path}/web/status", {"status": counted})


def is_cordoned(cluster: SmallCluster, name: str) -> bool:
    (node,) = [each for each in cluster.storage("nodes") if each["metadata"]["name"] == name]
    return bool((node.get("spec") or {}).get("unschedulable"))


async def test_everything_leaves_but_what_belongs_to_the_node(cluster: SmallCluster) -> None:
    await start(cluster, pod("a"), pod("b"), pod("agent", owner="DaemonSet"))
    said = await cluster.run("admin", "drain", "n1", *USUAL)
    assert said.code == 0, said.err
    assert cluster.names("pods") == ["agent"]
    assert is_cordoned(cluster, "n1")
    assert not is_cordoned(cluster, "n2")
    assert "node/n1 cordoned" in said.err
    assert "pod/default/a has left" in said.err
    assert "drained" in said.out


async def test_what_the_options_do_not_allow_keeps_everybody(cluster: SmallCluster) -> None:
    await start(cluster, pod("a"), pod("alone", owner=None))
    said = await cluster.run("admin", "drain", "n1", *USUAL)
    assert said.code == 1
    assert cluster.names("pods") == ["a", "alone"]
    assert "Nothing would make another one: it has no controller. NEXT: --force" in said.err
    assert "node/n1 refused" in said.err


@pytest.mark.parametrize(
    ("what", "flag", "sentence"),
    [
        (pod("it", owner="DaemonSet"), "--ignore-daemonsets", "DaemonSet default/it"),
        (pod("it", owner=None), "--force", "has no controller"),
        (
            pod("it", volumes=[{"name": "tmp", "emptyDir": {}}]),
            "--delete-emptydir-data",
            "keeps data in tmp",
        ),
    ],
)
async def test_each_refusal_names_the_flag_that_lifts_it(
    cluster: SmallCluster, what: Json, flag: str, sentence: str
) -> None:
    await start(cluster, what)
    refused = await cluster.run("admin", "drain", "n1", "--grace-period=0")
    assert refused.code == 1
    assert sentence in refused.err
    assert f"NEXT: {flag}" in refused.err
    said = await cluster.run("admin", "drain", "n1", "--grace-period=0", flag)
    assert said.code == 0, said.err


async def test_a_node_that_is_not_there_is_found_out_before_anything(cluster: SmallCluster) -> None:
    await start(cluster, pod("a"))
    said = await cluster.run("admin", "drain", "n1", "n9", *USUAL)
    assert said.code == 1
    assert "There is no node 'n9' in this cluster." in said.err
    assert not is_cordoned(cluster, "n1")
    assert cluster.names("pods") == ["a"]


async def test_nodes_are_named_or_selected(cluster: SmallCluster) -> None:
    await start(cluster, pod("a"))
    for wrong in ((), ("n1", "-l", "a=b")):
        assert (await cluster.run("admin", "drain", *wrong)).code == 1
    await cluster.change("/api/v1/nodes/n1", {"metadata": {"labels": {"rack": "7"}}})
    said = await cluster.run("admin", "drain", "--selector", "rack=7", *USUAL)
    assert said.code == 0, said.err
    assert cluster.names("pods") == []
    assert not is_cordoned(cluster, "n2")


async def test_a_budget_that_allows_nothing_is_named_when_time_is_over(
    cluster: SmallCluster,
) -> None:
    await start(cluster, pod("a"))
    await protect(cluster, allowed=0)
    said = await cluster.run("admin", "drain", "n1", *USUAL, "--timeout=2s")
    assert said.code == 1
    assert "its disruption budget default/web allows no disruption" in said.err
    assert "NEXT: kubectl describe pdb web -n default" in said.err
    assert "not drained within 2 s" in said.out
    assert cluster.names("pods") == ["a"]


async def test_without_evictions_nobody_asks_the_budget(cluster: SmallCluster) -> None:
    await start(cluster, pod("a"))
    await protect(cluster, allowed=0)
    said = await cluster.run("admin", "drain", "n1", *USUAL, "--disable-eviction")
    assert said.code == 0, said.err
    assert cluster.names("pods") == []


@pytest.mark.parametrize("how", ["client", "server"])
async def test_a_dry_run_shows_what_would_be_and_changes_nothing(
    cluster: SmallCluster, how: str
) -> None:
    await start(cluster, pod("a"), pod("agent", owner="DaemonSet", labels={"app": "agent"}))
    said = await cluster.run("admin", "drain", "n1", *USUAL, f"--dry-run={how}")
    assert said.code == 0, said.err
    assert "n1 would be drained: 1 to leave, in about 30 s; 0 in the way." in said.out
    assert "default/a: It is evicted." in said.out
    assert "default/agent: It stays" in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    assert cluster.names("pods") == ["a", "agent"]
    assert not is_cordoned(cluster, "n1")


async def test_the_preflight_has_the_answers_of_the_api(cluster: SmallCluster) -> None:
    await start(cluster, pod("a"))
    await protect(cluster, allowed=0)
    said = await cluster.run("admin", "drain", "n1", *USUAL, "--dry-run=server", "-o", "json")
    assert said.code == 1
    (outcome,) = json.loads(said.out)
    assert outcome["result"] == "would be blocked"
    (blocker,) = outcome["blockers"]
    assert blocker["code"] == "BudgetExhausted"
    assert "needs 1 healthy pods and has 1 currently" in blocker["sentence"]
    assert cluster.names("pods") == ["a"]


async def test_the_result_for_programs_is_alone_on_standard_output(cluster: SmallCluster) -> None:
    await start(cluster, pod("a"))
    said = await cluster.run("admin", "drain", "n1", *USUAL, "-o", "json")
    (outcome,) = json.loads(said.out)
    assert (outcome["node"], outcome["result"], outcome["cordoned"]) == ("n1", "drained", True)
    assert outcome["pending"] == []


async def test_an_interrupt_says_how_things_stand_and_what_stays(cluster: SmallCluster) -> None:
    await start(cluster, pod("a"))
    await protect(cluster, allowed=0)
    said = await cluster.at_terminal(
        "admin", "drain", "n1", *USUAL, answers=[("allows no disruption", "\x03")]
    )
    assert said.code == 130
    assert "0 of 1 pods have left n1." in said.out
    assert "n1 stays cordoned. NEXT: kubectl uncordon n1" in said.out


async def test_who_may_not_evict_is_told_so(cluster: SmallCluster) -> None:
    await start(cluster, pod("a"))
    said = await cluster.run("viewer", "drain", "n1", *USUAL)
    assert said.code == 1
    assert "forbidden" in said.err.lower()
    assert cluster.names("pods") == ["a"]
