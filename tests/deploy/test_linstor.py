"""deploy/linstor.yaml and linstor-rights.yaml: the names and rights of the Piraeus HA controller,
and beside them, under names of our own, as few more as it takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backstay import __version__
from backstay.apis.backstay import CONFIG_NAME
from backstay.cli.manifests import beyond_piraeus, drop_in
from backstay.cli.piraeus import LEASE, NAMESPACE, PORT
from backstay.cli.preflight import Need, needs
from backstay.cli.run import command as run
from backstay.drivers.linstor.access import access_from
from backstay.model.labels import COMPONENT
from backstay.record.endpoints import OPEN
from backstay.sim.api.access import AccessControl, Attempt, User
from tests.deploy.test_manifests import printed
from tests.deploy.test_roles import EVERYTHING, READ, VERBS, WATCH, Deed, attempt, deeds
from tests.support import piraeus
from tests.support.small_cluster import SmallCluster, small_cluster

ACCOUNT = User(piraeus.USER)
RIGHTS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def only(kind: str) -> dict[str, Any]:
    (found,) = [each for each in drop_in() if each["kind"] == kind]
    return found


def theirs(kind: str) -> dict[str, Any]:
    (found,) = [each for each in piraeus.manifest("any") if each["kind"] == kind]
    return found


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = only("Deployment")["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize(
    "document", drop_in(), ids=lambda m: f"{m['kind']}-{m['metadata'].get('namespace', '')}"
)
def test_everything_carries_our_label(document: dict[str, Any]) -> None:
    assert document["metadata"]["labels"][COMPONENT] == "backstay"


def test_what_was_there_is_replaced_because_the_names_are_the_same() -> None:
    deployment = only("Deployment")
    assert only("Namespace")["metadata"]["name"] == NAMESPACE
    assert only("ServiceAccount")["metadata"] | {"labels": None} == {
        "name": "ha-controller", "namespace": NAMESPACE, "labels": None,
    }  # fmt: skip
    assert deployment["metadata"]["name"] == "piraeus-ha-controller"
    assert deployment["metadata"]["namespace"] == NAMESPACE
    assert deployment["spec"]["replicas"] == 3
    selector = {"app.kubernetes.io/name": "piraeus-ha-controller"}
    assert deployment["spec"]["selector"] == {"matchLabels": selector}
    (apart,) = pod()["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert apart["topologyKey"] == "kubernetes.io/hostname"


def test_an_update_goes_through_on_as_many_nodes_as_there_are_replicas() -> None:
    how = only("Deployment")["spec"]["strategy"]["rollingUpdate"]
    assert how == {"maxSurge": 0, "maxUnavailable": 1}


def test_it_is_started_with_the_arguments_that_were_there() -> None:
    (container,) = pod()["containers"]
    name, *arguments = container["args"]
    assert {*arguments} > {
        *theirs("Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    }
    given = run.make_context(name, arguments).params
    assert given["leader_election"] is True
    (mount,) = container["volumeMounts"]
    assert given["recorder"] == mount["mountPath"]
    assert container["image"] == f"backstay:{__version__}"
    (port,) = container["ports"]
    assert port["containerPort"] == PORT
    probes = [container[f"{each}Probe"]["httpGet"] for each in ("liveness", "readiness")]
    assert {probe["path"] for probe in probes} == {*OPEN}
    assert {probe["port"] for probe in probes} == {PORT}


def test_linstor_is_where_it_was() -> None:
    (container,) = pod()["containers"]
    told = {each["name"]: each.get("value", "") for each in container["env"]}
    assert access_from(told).controllers == ("http://piraeus-op-cs.default.svc:3370",)


def test_it_is_armed_and_protects_only_what_is_labelled() -> None:
    config = only("BackstayConfig")
    assert config["metadata"]["name"] == CONFIG_NAME
    assert config["spec"] == {
        "mode": "Armed", "protect": {"virtualMachines": False, "statefulSets": False},
    }  # fmt: skip


def test_backstay_manifests_prints_them_with_an_image_of_your_own() -> None:
    said = printed("manifests", "--linstor", "--image", "registry.example/backstay:1")
    assert said.count("image: registry.example/backstay:1") == 1
    assert "name: piraeus-ha-controller" in said


def test_what_is_beyond_has_names_of_its_own_and_no_namespace() -> None:
    """So that neither file changes what the other has brought, nor takes it away."""
    beyond = beyond_piraeus()
    rights = [each for each in beyond if each["kind"] != "BackstayConfig"]
    assert all(each["metadata"]["name"].startswith("backstay-ha-controller") for each in rights)
    kinds = {each["kind"] for each in beyond}
    assert not kinds & {"Namespace", "ServiceAccount", "Deployment"}
    names = [identity(each) for each in drop_in()]
    assert len(names) == len(set(names))


def identity(document: dict[str, Any]) -> tuple[str, str, str]:
    meta = document["metadata"]
    return document["kind"], meta.get("namespace", ""), meta["name"]


def test_the_roles_of_the_old_names_are_the_old_ones() -> None:
    for kind in RIGHTS:
        ours = next(each for each in drop_in() if each["kind"] == kind and of_the_old_names(each))
        assert {**ours, "metadata": None} == {**theirs(kind), "metadata": None}
        assert identity(ours) == identity(theirs(kind))


def of_the_old_names(document: dict[str, Any]) -> bool:
    return bool(document["metadata"]["name"] == "ha-controller")


def of_our_names(document: dict[str, Any]) -> bool:
    return not of_the_old_names(document)


async def granted(
    cluster: SmallCluster, among: set[Deed], those: Callable[[dict[str, Any]], bool] = bool
) -> set[Deed]:
    """What ``those`` documents allow the account to do."""
    await cluster.put(only("Namespace"))
    for document in filter(those, drop_in()):
        if document["kind"] in RIGHTS:
            await cluster.put(document)
    control = AccessControl(cluster.server, {})
    return {deed for deed in among if control.allows(ACCOUNT, attempt(deed))}


HERE = {"namespace": NAMESPACE}
LEASES = "coordination.k8s.io"
AMONG = (
    EVERYTHING
    | deeds("", "configmaps secrets pods", VERBS, **HERE)
    | deeds(LEASES, "leases", VERBS, **HERE)
    | deeds(LEASES, "leases", VERBS, name=LEASE, **HERE)
)
OF_PIRAEUS = (
    deeds("", "pods", "list watch delete")
    | deeds("", "pods", "list watch delete", **HERE)
    | deeds("storage.k8s.io", "volumeattachments", "list watch delete")
    | deeds("", "events", "create")
    | deeds("", "persistentvolumeclaims", "list watch")
    | deeds(LEASES, "leases", "create get update", **HERE)
    | deeds(LEASES, "leases", "create get update", name=LEASE, **HERE)
)
BEYOND = (
    deeds("", "pods", "get")
    | deeds("", "pods", "get", **HERE)
    | deeds("", "events", "patch")
    | deeds("", "persistentvolumeclaims persistentvolumes", "get")
    | deeds("", "nodes", f"{WATCH} patch")
    | deeds("apps", "statefulsets replicasets", "get")
    | deeds("kubevirt.io", "virtualmachines virtualmachineinstances", "get")
    | deeds("kubevirt.io", "virtualmachineinstancereplicasets", "get")
    | deeds("kubevirt.io", "virtualmachineinstances virtualmachineinstancemigrations", "list")
    | deeds("kubevirt.io", "kubevirts", "list")
    | deeds("pool.kubevirt.io", "virtualmachinepools", "get")
    | deeds("csiaddons.openshift.io", "networkfences csiaddonsnodes", "list")
    | deeds("backstay.dev", "backstayconfigs availabilitypolicies deathconfirmations", WATCH)
    | deeds("backstay.dev", "incidents", f"{WATCH} create delete")
    | deeds("backstay.dev", "incidents deathconfirmations", "patch", subresource="status")
    | deeds(LEASES, "leases", "list watch patch", **HERE)
    | deeds(LEASES, "leases", "list watch patch", name=LEASE, **HERE)
    | deeds(LEASES, "leases", READ, namespace="kube-node-lease")
    | deeds("discovery.k8s.io", "endpointslices", WATCH, namespace="default")
    | deeds("", "configmaps", f"{READ} create patch delete", **HERE)
    | deeds("authentication.k8s.io", "tokenreviews", "create")
    | deeds("authorization.k8s.io", "subjectaccessreviews", "create")
)


async def test_under_the_old_names_it_may_do_what_it_could_and_nothing_else(tmp_path: Path) -> None:
    async with small_cluster(tmp_path) as cluster:
        assert await granted(cluster, AMONG, of_the_old_names) == OF_PIRAEUS


async def test_beyond_that_it_may_do_its_part_and_nothing_else(tmp_path: Path) -> None:
    async with small_cluster(tmp_path) as cluster:
        assert await granted(cluster, AMONG, of_our_names) == BEYOND


async def test_it_may_do_all_that_it_asks_for_at_its_start(tmp_path: Path) -> None:
    async with small_cluster(tmp_path) as cluster:
        await granted(cluster, set())
        control = AccessControl(cluster.server, {})
        refused = [
            need
            for need in needs(NAMESPACE, LEASE, reachable=True)
            if not control.allows(ACCOUNT, _attempt(need))
        ]
    assert refused == []


def _attempt(need: Need) -> Attempt:
    resource = need.resource.plural + (f"/{need.subresource}" if need.subresource else "")
    return Attempt(
        need.verb, need.resource.group, resource, namespace=need.namespace, name=need.name
    )
