"""``backstay config show`` and ``backstay storm release``: what holds, and who has said so."""

import json

import pytest

from backstay.apis.maintenance import NODE_MAINTENANCES
from backstay.apis.maintenance_definition import maintenance_definition
from tests.cli.test_arm import configured, set_uid, spec, stateful_pod
from tests.support.small_cluster import Json, SmallCluster

CRD = "apiextensions.k8s.io/v1"


async def kind(cluster: SmallCluster, plural: str, group: str, name: str, scope: str) -> None:
    await cluster.put({
        "apiVersion": CRD, "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group, "scope": scope, "names": {"plural": plural, "kind": name},
            "versions": [{
                "name": "v1", "served": True, "storage": True,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": True,
                }},
            }],
        },
    })  # fmt: skip


async def policy(cluster: SmallCluster, name: str, **spec: object) -> None:
    await cluster.put({
        "apiVersion": "backstay.dev/v1alpha1", "kind": "AvailabilityPolicy",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })  # fmt: skip


async def told(cluster: SmallCluster, *arguments: str) -> Json:
    said = await cluster.run("viewer", "config", "show", *arguments, "--output", "json")
    assert said.code == 0, said.err
    found: Json = json.loads(said.out)
    return found


def values(found: Json) -> dict[str, tuple[str, str]]:
    return {each["setting"]: (each["value"], each["origin"]) for each in found["settings"]}


async def test_without_a_configuration_everything_is_the_default(cluster: SmallCluster) -> None:
    await cluster.node("n1", ready="True")
    found = await told(cluster)
    assert "only observes" in found["about"]
    assert {origin for _, origin in values(found).values()} == {"default", "default for 1 nodes"}


async def test_what_the_configuration_says_is_told_from_the_defaults(
    cluster: SmallCluster,
) -> None:
    await configured(cluster, mode="Armed", proof={"weakest": "Observed"}, limits={"attempts": 5})
    found = values(await told(cluster))
    assert found["proof.weakest"] == ("Observed", "BackstayConfig cluster")
    assert found["limits.attempts"] == ("5", "BackstayConfig cluster")
    assert found["defaults.onKubeletLoss"] == ("Leave", "default")


async def test_the_terms_of_a_workload_say_who_has_set_them(cluster: SmallCluster) -> None:
    await cluster.node("n1", ready="True")
    await stateful_pod(cluster, "n1")
    await configured(cluster, mode="Armed", proof={"weakest": "Confirmed"})
    await policy(cluster, "careless", minimumProof="Presumed", priority=7)
    found = await told(cluster, "pod/default/db-0")
    assert set_uid(cluster)
    assert values(found)["minimumProof"] == ("Confirmed", "BackstayConfig cluster")
    assert values(found)["priority"] == ("7", "AvailabilityPolicy default/careless")
    assert found["notes"] == [
        "AvailabilityPolicy default/careless asks for minimumProof Presumed, and the cluster "
        "grants Confirmed"
    ]


async def test_a_label_or_an_annotation_of_the_piraeus_ha_controller_is_named(
    cluster: SmallCluster,
) -> None:
    await cluster.node("n1", ready="True")
    await stateful_pod(cluster, "n1")
    path = "/api/v1/namespaces/default/pods/db-0"
    label = {"linstor.csi.linbit.com/on-storage-lost": "remove"}
    await cluster.change(path, {"metadata": {"labels": label}})
    found = values(await told(cluster, "pod/default/db-0"))
    said = "its label linstor.csi.linbit.com/on-storage-lost"
    assert found["protect"] == ("true", said)
    spared = {"drbd.linbit.com/ignore-fail-over": ""}
    await cluster.change(path, {"metadata": {"annotations": spared}})
    found = values(await told(cluster, "pod/default/db-0"))
    assert found["protect"] == ("false", "its annotation drbd.linbit.com/ignore-fail-over")


async def test_the_table_fits_a_terminal(cluster: SmallCluster) -> None:
    await cluster.node("n1", ready="True")
    said = await cluster.run("viewer", "config", "show")
    assert said.code == 0
    assert max(map(len, said.out.splitlines())) <= 80
    assert "limits.nodesDown" in said.out


@pytest.mark.parametrize(
    ("about", "sentence"),
    [
        ("node/n1", "A node has no terms of its own: name a VM or a pod."),
        ("pod/default/nobody", "There is no pod default/nobody."),
        ("whatever", "'whatever' is none of"),
    ],
)
async def test_what_has_no_terms_is_one_sentence(
    cluster: SmallCluster, about: str, sentence: str
) -> None:
    said = await cluster.run("viewer", "config", "show", about)
    assert said.code == 1
    assert sentence in said.err
    assert "Traceback" not in said.err


async def test_a_job_that_somebody_else_does_is_left_to_him(cluster: SmallCluster) -> None:
    await kind(cluster, "nodehealthchecks", "remediation.medik8s.io", "NodeHealthCheck", "Cluster")
    await cluster.put({
        "apiVersion": "remediation.medik8s.io/v1", "kind": "NodeHealthCheck",
        "metadata": {"name": "workers"},
    })  # fmt: skip
    said = await cluster.run("operator", "arm", "--yes")
    assert "failover: left to Node Health Check" in said.err
    armed = spec(cluster)
    assert armed is not None
    assert armed["owners"] == {"failover": "Foreign", "fencing": "Foreign"}


async def test_a_job_can_be_claimed(cluster: SmallCluster) -> None:
    await kind(cluster, "nodehealthchecks", "remediation.medik8s.io", "NodeHealthCheck", "Cluster")
    await cluster.put({
        "apiVersion": "remediation.medik8s.io/v1", "kind": "NodeHealthCheck",
        "metadata": {"name": "workers"},
    })  # fmt: skip
    said = await cluster.run("operator", "arm", "--yes", "--own", "failover")
    assert "failover: Backstay, although Node Health Check does it too" in said.err
    armed = spec(cluster)
    assert armed is not None
    assert armed["owners"] == {"failover": "Ours", "fencing": "Foreign"}
    assert "failover is ours, and Node Health Check does it too" in (await told(cluster))["notes"]


async def test_a_program_that_is_installed_but_idle_takes_no_job(cluster: SmallCluster) -> None:
    await kind(cluster, "settings", "longhorn.io", "Setting", "Namespaced")
    await cluster.put({
        "apiVersion": "longhorn.io/v1", "kind": "Setting", "value": "do-nothing",
        "metadata": {"name": "node-down-pod-deletion-policy", "namespace": "default"},
    })  # fmt: skip
    said = await cluster.run("operator", "arm", "--yes")
    assert "Longhorn: force-deletes pods" in said.err
    assert "installed but idle" in said.err
    armed = spec(cluster)
    assert armed is not None
    assert "owners" not in armed


@pytest.mark.parametrize("where", ["value", "default"])
async def test_a_setting_that_deletes_pods_is_named_by_doctor(
    cluster: SmallCluster, where: str
) -> None:
    await kind(cluster, "settings", "longhorn.io", "Setting", "Namespaced")
    await cluster.put({
        "apiVersion": "longhorn.io/v1", "kind": "Setting",
        where: "delete-both-statefulset-and-deployment-pod",
        "metadata": {"name": "node-down-pod-deletion-policy", "namespace": "default"},
    })  # fmt: skip
    said = await cluster.run("viewer", "doctor", "--output", "json")
    checks = {each["check"]: each for each in json.loads(said.out)}
    assert checks["others"]["result"] == "warning"
    assert "Longhorn" in checks["others"]["detail"]


async def deploy(cluster: SmallCluster, image: str, *, replicas: int = 1) -> None:
    labels = {"app": "x"}
    await cluster.put({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "fail", "namespace": "default"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": image}]},
            },
        },
    })  # fmt: skip


@pytest.mark.parametrize("replicas", [0, 1])
async def test_a_controller_is_known_by_its_image(cluster: SmallCluster, replicas: int) -> None:
    image = "registry.example/tools/kubevirt-node-fail-controller:v1@sha256:abc"
    await deploy(cluster, image, replicas=replicas)
    said = await cluster.run("operator", "arm", "--yes")
    assert "KubeVirt node-fail controller" in said.err
    assert ("installed but idle" in said.err) is (replicas == 0)


@pytest.mark.parametrize("installed", [False, True])
async def test_maintenance_is_left_to_the_operator_and_not_to_its_kind(
    cluster: SmallCluster, installed: bool
) -> None:
    await cluster.put(maintenance_definition())
    await cluster.put({
        "apiVersion": NODE_MAINTENANCES.api_version, "kind": NODE_MAINTENANCES.kind,
        "metadata": {"name": "it"}, "spec": {"nodeName": "n1"},
    })  # fmt: skip
    if installed:
        await deploy(cluster, "registry.example/medik8s/node-maintenance-operator:v0.20.1")
    said = await cluster.run("operator", "arm", "--yes")
    assert said.code == 0, said.err
    armed = spec(cluster)
    assert armed is not None
    assert (armed.get("owners") or {}) == ({"maintenance": "Foreign"} if installed else {})


async def test_a_storm_is_released_for_a_time_with_a_reason(cluster: SmallCluster) -> None:
    said = await cluster.run("operator", "storm", "release", "--reason", "rack b is off", "--yes")
    assert said.code == 0, said.err
    released = spec(cluster)
    assert released is not None
    assert released["stormRelease"]["reason"] == "rack b is off"
    assert released["stormRelease"]["by"] == "olaf"
    assert released["stormRelease"]["until"] in said.out


async def test_a_storm_is_released_by_nobody_who_is_not_there(cluster: SmallCluster) -> None:
    said = await cluster.run("operator", "storm", "release", "--reason", "x")
    assert said.code == 1
    assert "Nobody is here to be asked" in said.err
    assert spec(cluster) is None


async def test_a_storm_is_never_released_for_good(cluster: SmallCluster) -> None:
    arguments = ["storm", "release", "--reason", "x", "--yes", "--for", "13h"]
    said = await cluster.run("operator", *arguments)
    assert said.code == 1
    assert "not between 1m and 12h" in said.err
