"""``backstay uninstall``: everything of ours, nothing else, and a word about what is left."""

import json

import msgspec
import pytest

from backstay.apis.definitions import definitions
from backstay.apis.maintenance import NODE_MAINTENANCES
from backstay.apis.maintenance_definition import maintenance_definition
from backstay.cli.manifests import beyond_piraeus
from backstay.model.labels import (
    COMPONENT,
    DRAIN_TAINT,
    EXCLUDE,
    MAINTENANCE,
    MAINTENANCE_FINALIZER,
    OUT_OF_SERVICE,
    OUT_OF_SERVICE_OURS,
    TAINT,
)
from backstay.model.maintenance import Marks
from tests.support import piraeus
from tests.support.small_cluster import SmallCluster

QUESTION = "Remove all of this? [y/N]: "
KINDS = "customresourcedefinitions.apiextensions.k8s.io"
ROLES = "clusterroles.rbac.authorization.k8s.io"


async def in_use(cluster: SmallCluster) -> None:
    """A node with our taint and somebody else's, a configuration, an incident, a lease."""
    taints = [
        {"key": "example.com/theirs", "effect": "NoExecute", "value": "v"},
        {"key": TAINT, "effect": "NoSchedule"},
    ]
    await cluster.node("n1")
    await cluster.change("/api/v1/nodes/n1", {"spec": {"taints": taints}})
    ours = "backstay.dev/v1alpha1"
    await cluster.put({
        "apiVersion": ours, "kind": "BackstayConfig", "metadata": {"name": "cluster"}, "spec": {},
    })  # fmt: skip
    await cluster.put({
        "apiVersion": ours, "kind": "Incident", "metadata": {"name": "n1-a"},
        "spec": {"node": "n1", "nodeUID": "u", "bootID": "b", "lastRenewal": ""},
    })  # fmt: skip
    await cluster.put({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "backstay-controller", "namespace": "backstay-system"}, "spec": {},
    })  # fmt: skip
    for name, labels in (("frames-n1-a", {COMPONENT: "backstay"}), ("theirs", {})):
        await cluster.put({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
        })  # fmt: skip


def taints(cluster: SmallCluster) -> list[str]:
    (node,) = cluster.storage("nodes")
    return [taint["key"] for taint in node["spec"].get("taints", ())]


async def test_everything_of_ours_goes_and_what_others_made_stays(cluster: SmallCluster) -> None:
    await in_use(cluster)
    said = await cluster.run("admin", "uninstall", "--yes")
    assert said.code == 0, said.out
    assert cluster.names(KINDS) == []
    assert cluster.names(ROLES) == []
    assert cluster.names("configmaps") == ["theirs"]
    assert "backstay-system" not in cluster.names("namespaces")
    assert "kube-node-lease" in cluster.names("namespaces")
    assert taints(cluster) == ["example.com/theirs"]
    (node,) = cluster.storage("nodes")
    assert node["spec"]["taints"][0]["value"] == "v"
    assert "Not ours, so it stays: ClusterRoleBinding people-backstay-viewer" in said.err


async def test_the_manifest_of_the_piraeus_ha_controller_stays_as_it_was(
    cluster: SmallCluster,
) -> None:
    for document in [*piraeus.manifest("piraeus:v0"), *beyond_piraeus()]:
        await cluster.put(document)
    said = await cluster.run("admin", "uninstall", "--yes")
    assert said.code == 0, said.out
    assert cluster.names(ROLES) == [piraeus.ACCOUNT]
    assert cluster.names("roles.rbac.authorization.k8s.io") == [piraeus.ACCOUNT]
    assert cluster.names("serviceaccounts") == [piraeus.ACCOUNT]
    assert cluster.names("deployments.apps") == [piraeus.NAME]
    assert piraeus.ACCOUNT in cluster.names("namespaces")


@pytest.mark.parametrize("ours", [True, False])
async def test_of_the_out_of_service_taint_only_our_own_is_taken_off(
    cluster: SmallCluster, *, ours: bool
) -> None:
    await cluster.node("n1")
    out = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
    noted = {OUT_OF_SERVICE_OURS: "n1-a"} if ours else {"example.com/note": "x"}
    patch = {"metadata": {"annotations": noted}, "spec": {"taints": [out]}}
    await cluster.change("/api/v1/nodes/n1", patch)
    done = await cluster.run("admin", "uninstall", "--yes")
    assert done.code == 0, done.err
    assert taints(cluster) == ([] if ours else [OUT_OF_SERVICE])


async def test_the_controllers_rights_go_before_its_taints(cluster: SmallCluster) -> None:
    await in_use(cluster)
    said = await cluster.run("admin", "uninstall")
    order = [line.strip() for line in said.err.splitlines()]
    rights = order.index("ClusterRoleBinding backstay-controller")
    taint = order.index(f"taint {TAINT} on Node n1")
    kinds = order.index("CustomResourceDefinition incidents.backstay.dev")
    assert rights < taint < order.index("Incident n1-a") < kinds


async def test_it_lists_first_and_asks(cluster: SmallCluster) -> None:
    await in_use(cluster)
    said = await cluster.at_terminal("admin", "uninstall", answers=[(QUESTION, "n\n")])
    assert said.code == 1
    assert "Namespace backstay-system, with everything in it" in said.out
    assert "Nobody will go on with what is under way: n1-a" in said.out
    assert len(cluster.names(KINDS)) == len(definitions())
    assert TAINT in taints(cluster)


async def test_a_script_must_say_yes(cluster: SmallCluster) -> None:
    said = await cluster.run("admin", "uninstall")
    assert said.code == 1
    assert "NEXT: backstay uninstall --yes" in said.err
    assert len(cluster.names(KINDS)) == len(definitions())


async def test_what_may_not_be_removed_is_named_and_the_rest_goes(cluster: SmallCluster) -> None:
    await in_use(cluster)
    await cluster.put({
        "apiVersion": "backstay.dev/v1alpha1", "kind": "DeathConfirmation",
        "metadata": {"name": "n1"},
        "spec": {"node": "n1", "nodeUID": "u", "bootID": "b", "lastRenewal": ""},
    })  # fmt: skip
    said = await cluster.run("confirmer", "uninstall", "--yes", "-o", "json")
    assert said.code == 1
    left = {removal["what"]: removal["left"] for removal in json.loads(said.out)}
    assert left["DeathConfirmation n1"] == ""
    assert 'cannot patch resource "nodes"' in left[f"taint {TAINT} on Node n1"]
    assert 'cannot delete resource "incidents"' in left["Incident n1-a"]
    assert cluster.names("deathconfirmations.backstay.dev") == []
    assert TAINT in taints(cluster)


async def test_it_can_be_run_again_where_it_was_cut_off(cluster: SmallCluster) -> None:
    await in_use(cluster)
    await cluster.run("confirmer", "uninstall", "--yes")
    said = await cluster.run("admin", "uninstall", "--yes")
    assert said.code == 0, said.out
    said = await cluster.run("admin", "uninstall", "--yes")
    assert (said.code, said.out) == (0, "There is nothing of Backstay on this cluster.\n")


async def test_a_taint_that_somebody_puts_on_meanwhile_survives(cluster: SmallCluster) -> None:
    await in_use(cluster)

    async def another() -> None:
        (node,) = cluster.storage("nodes")
        more = [*node["spec"]["taints"], {"key": "example.com/new", "effect": "NoSchedule"}]
        await cluster.change("/api/v1/nodes/n1", {"spec": {"taints": more}})

    cluster.just_before("PATCH", another)
    said = await cluster.run("admin", "uninstall", "--yes")
    assert said.code == 0, said.out
    assert taints(cluster) == ["example.com/theirs", "example.com/new"]


async def test_what_was_not_shown_is_not_removed(cluster: SmallCluster) -> None:
    labels = {"app.kubernetes.io/part-of": "backstay"}

    async def another() -> None:
        await cluster.put({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "new", "labels": labels},
        })  # fmt: skip

    said = await cluster.at_terminal(
        "admin", "uninstall", answers=[(QUESTION, "y\n")], meanwhile=another
    )
    assert said.code == 0, said.out
    assert cluster.names(ROLES) == ["new"]


async def test_a_maintenance_is_given_back_and_can_be_deleted(cluster: SmallCluster) -> None:
    await cluster.put(maintenance_definition())
    made = await cluster.put({
        "apiVersion": NODE_MAINTENANCES.api_version, "kind": NODE_MAINTENANCES.kind,
        "metadata": {"name": "it", "finalizers": [MAINTENANCE_FINALIZER]},
        "spec": {"nodeName": "n1"},
    })  # fmt: skip
    marks = Marks(made["metadata"]["uid"], "it", cordon=True, taint=True)
    await cluster.node("n1")
    taints = [
        {"key": DRAIN_TAINT, "effect": "NoSchedule"}, {"key": "theirs", "effect": "NoSchedule"},
    ]  # fmt: skip
    annotations = {MAINTENANCE: msgspec.json.encode(marks).decode()}
    await cluster.change(
        "/api/v1/nodes/n1",
        {
            "metadata": {"annotations": annotations, "labels": {EXCLUDE: "true"}},
            "spec": {"unschedulable": True, "taints": taints},
        },
    )
    said = await cluster.run("admin", "uninstall", "--yes")
    assert said.code == 0, said.out
    assert "what a maintenance has put on Node n1" in said.err
    (node,) = cluster.storage("nodes")
    assert not node["spec"].get("unschedulable")
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["theirs"]
    assert MAINTENANCE not in (node["metadata"].get("annotations") or {})
    assert node["metadata"]["labels"][EXCLUDE] == "true", "it was there before"
    assert cluster.storage(NODE_MAINTENANCES.label) == [], "they go with their kind, which is ours"
