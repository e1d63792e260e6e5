"""``backstay arm`` and ``backstay disarm``: what they show, ask and write."""

import json
from pathlib import Path

import click
import pytest

from backstay.cli.disarm import command as disarm
from tests.support.small_cluster import Json, SmallCluster, small_cluster

CONFIGS = "backstayconfigs.backstay.dev"
PATH = "/apis/backstay.dev/v1alpha1/backstayconfigs"
QUESTION = "Arm Backstay? [y/N]: "


def spec(cluster: SmallCluster) -> Json | None:
    found = cluster.storage(CONFIGS)
    return dict(found[0]["spec"]) if found else None


async def configured(cluster: SmallCluster, **spec: object) -> None:
    await cluster.put({
        "apiVersion": "backstay.dev/v1alpha1", "kind": "BackstayConfig",
        "metadata": {"name": "cluster"}, "spec": spec,
    })  # fmt: skip


async def stateful_pod(cluster: SmallCluster, node: str) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u"}
    await cluster.put({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "db"}}, "serviceName": "db",
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    })  # fmt: skip
    await cluster.put({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "db-0", "namespace": "default", "labels": {"app": "db"},
            "ownerReferences": [owner | {"uid": set_uid(cluster), "controller": True}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    })  # fmt: skip


def set_uid(cluster: SmallCluster) -> str:
    (found,) = cluster.storage("statefulsets.apps")
    return str(found["metadata"]["uid"])


async def test_arming_asks_and_writes_the_mode(cluster: SmallCluster) -> None:
    await cluster.node("n1", ready="True")
    said = await cluster.at_terminal("operator", "arm", answers=[(QUESTION, "y\n")])
    assert said.code == 0, said.out
    assert spec(cluster) == {"mode": "Armed"}
    assert "Backstay is armed" in said.out


@pytest.mark.parametrize("typed", ["n\n", "\n"])
async def test_without_a_yes_nothing_is_armed(cluster: SmallCluster, typed: str) -> None:
    said = await cluster.at_terminal("operator", "arm", answers=[(QUESTION, typed)])
    assert said.code == 1
    assert "Nothing was changed." in said.out
    assert spec(cluster) is None


async def test_a_script_must_say_yes(cluster: SmallCluster) -> None:
    said = await cluster.run("operator", "arm")
    assert said.code == 1
    assert "NEXT: backstay arm --yes" in said.err
    assert spec(cluster) is None


async def test_the_preview_counts_what_each_node_would_lose(cluster: SmallCluster) -> None:
    await cluster.node("n1", ready="True")
    await stateful_pod(cluster, "n1")
    async with cluster.alive("n1"):
        said = await cluster.run("operator", "arm", "--yes")
    assert said.code == 0, said.err
    assert ["n1", "1", "0", "0", "0"] in [line.split() for line in said.err.splitlines()]


async def test_the_preview_says_that_nodes_would_be_switched_off(cluster: SmallCluster) -> None:
    await configured(cluster, mode="Observe", fencing={"power": {"enabled": True}})
    said = await cluster.run("operator", "arm", "--yes")
    assert said.code == 0, said.err
    assert "is switched off through its BMC" in " ".join(said.err.split())


async def test_the_preview_names_what_would_be_acted_on_at_once(cluster: SmallCluster) -> None:
    node = await cluster.node("n1")
    await cluster.node("n2", ready="True")
    await stateful_pod(cluster, "n1")
    await cluster.put({
        "apiVersion": "backstay.dev/v1alpha1", "kind": "DeathConfirmation",
        "metadata": {"name": "n1"},
        "spec": {
            "node": "n1", "nodeUID": node["metadata"]["uid"], "bootID": "boot-of-n1",
            "lastRenewal": "2020-01-01T00:00:00.000000Z",
        },
    })  # fmt: skip
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
    await cluster.change(path, {"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}})
    async with cluster.alive("n2"):
        said = await cluster.run("operator", "arm", "--yes")
    assert "At once these would be taken from their dead nodes:" in said.err
    assert "StatefulSet pod default/db-0 on n1" in said.err


async def test_others_that_act_on_dead_nodes_are_named(cluster: SmallCluster) -> None:
    await cluster.put({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "nodehealthchecks.remediation.medik8s.io"},
        "spec": {
            "group": "remediation.medik8s.io", "scope": "Cluster",
            "names": {"plural": "nodehealthchecks", "kind": "NodeHealthCheck"},
            "versions": [{
                "name": "v1alpha1", "served": True, "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    })  # fmt: skip
    said = await cluster.run("operator", "arm", "--yes")
    assert "Node Health Check" in said.err


async def test_arming_ends_a_disarming_and_keeps_the_rest(cluster: SmallCluster) -> None:
    disarmed = {"until": "2999-01-01T00:00:00Z", "reason": "works"}
    protect = {"virtualMachines": False, "statefulSets": True}
    await configured(cluster, mode="Armed", disarmed=disarmed, protect=protect)
    said = await cluster.run("operator", "arm", "--yes")
    assert said.code == 0, said.err
    assert "disarmed until 2999-01-01T00:00:00Z: works" in said.err
    assert spec(cluster) == {"mode": "Armed", "protect": protect}


async def test_who_is_armed_is_not_asked_again(cluster: SmallCluster) -> None:
    await configured(cluster, mode="Armed")
    said = await cluster.run("operator", "arm")
    assert said.code == 0
    assert "armed already" in said.out


async def test_a_configuration_that_changed_while_the_person_thought_is_left_alone(
    cluster: SmallCluster,
) -> None:
    await configured(cluster, mode="Observe")

    async def happens() -> None:
        patch = {"spec": {"protect": {"virtualMachines": False}}}
        await cluster.change(f"{PATH}/cluster", patch)

    said = await cluster.at_terminal(
        "operator", "arm", answers=[(QUESTION, "y\n")], meanwhile=happens
    )
    assert said.code == 1
    assert "Somebody else has changed the configuration meanwhile" in said.out
    assert (spec(cluster) or {})["mode"] == "Observe"


@pytest.mark.parametrize("arguments", [("arm", "--yes"), ("disarm", "--for=1h", "--reason=x")])
@pytest.mark.parametrize("role", ["viewer", "confirmer"])
async def test_who_is_no_operator_is_told_what_is_missing(
    cluster: SmallCluster, role: str, arguments: tuple[str, ...]
) -> None:
    said = await cluster.run(role, *arguments)
    assert said.code == 1
    assert 'cannot create resource "backstayconfigs"' in said.err
    assert spec(cluster) is None


@pytest.mark.parametrize("arguments", [("arm", "--yes"), ("disarm", "--for=1h", "--reason=x")])
async def test_on_a_cluster_without_our_kinds_it_says_how_to_install_them(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    async with small_cluster(tmp_path, with_kinds=False) as cluster:
        said = await cluster.run("admin", *arguments)
    assert said.code == 1
    assert "NEXT: backstay crds | kubectl apply -f -" in said.err


async def test_disarming_says_until_when_why_and_who(cluster: SmallCluster) -> None:
    await configured(cluster, mode="Armed")
    arguments = ("disarm", "--for", "2h", "--reason", "kernel updates", "-o", "json")
    said = await cluster.run("operator", *arguments)
    assert said.code == 0, said.err
    found = spec(cluster) or {}
    assert found["mode"] == "Armed"
    assert found["disarmed"] == {
        "until": json.loads(said.out)["until"],
        "reason": "kernel updates",
        "by": "olaf",
    }


async def test_to_disarm_what_only_observes_says_so(cluster: SmallCluster) -> None:
    said = await cluster.run("operator", "disarm", "--for", "30m", "--reason", "works")
    assert said.code == 0, said.err
    assert "It was not armed" in said.out
    assert (spec(cluster) or {})["mode"] == "Observe"


@pytest.mark.parametrize("length", ["2", "2x", "0h", "31d", "-1h", "1h30m", "99999999d", ""])
def test_what_is_no_sensible_time_is_refused(length: str) -> None:
    with pytest.raises(click.BadParameter, match=r"30m|30d"):
        disarm.main([f"--for={length}", "--reason=works"], standalone_mode=False)


async def test_a_disarming_needs_a_reason(cluster: SmallCluster) -> None:
    for more in ((), ("--reason", " ")):
        said = await cluster.run("operator", "disarm", "--for", "1h", *more)
        assert said.code == 1
        assert "--reason" in said.err
