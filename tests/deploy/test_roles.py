"""Who may do what: each role its part, and nothing beyond it, on a real API server and embedded."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from backstay.cli import preflight
from backstay.kube.client import KubeClient
from backstay.settings import Settings
from backstay.sim.api.access import AccessControl, Attempt, User
from tests.support.installed import USERS, Installed, allowed, allowed_path
from tests.support.small_cluster import small_cluster

Deed = tuple[str, ...]
"""Verb, group, resource; then ``namespace=``, ``name=`` or ``subresource=`` where it matters."""


def deeds(group: str, resources: str, verbs: str, **where: str) -> set[Deed]:
    return {
        (verb, group, resource, *(f"{k}={v}" for k, v in sorted(where.items())))
        for resource in resources.split()
        for verb in verbs.split()
    }


OURS = "backstay.dev"
READ = "get list"
WATCH = "get list watch"
STORAGE = deeds("", "persistentvolumeclaims persistentvolumes", READ)
ATTACHMENTS = deeds("storage.k8s.io", "volumeattachments", READ)
OWNERS = deeds("kubevirt.io", "virtualmachines virtualmachineinstances", READ) | deeds(
    "apps", "statefulsets", READ
)
KUBEVIRT = deeds("kubevirt.io", "kubevirts", "list")
MACHINES = (
    deeds("kubevirt.io", "virtualmachineinstancereplicasets", "get")
    | deeds("pool.kubevirt.io", "virtualmachinepools", "get")
    | deeds("kubevirt.io", "virtualmachineinstancemigrations", "list create")
    | deeds("subresources.kubevirt.io", "virtualmachines", "update", subresource="start")
    | deeds("subresources.kubevirt.io", "virtualmachines", "update", subresource="restart")
)
CALICO = ("crd.projectcalico.org", "projectcalico.org")
NETWORK = deeds(CALICO[0], "ipamconfigs", "get") | deeds(CALICO[1], "ipamconfigurations", "get")
OWN_NAMESPACE = {"namespace": "backstay-system"}
OWN_LEASE = {**OWN_NAMESPACE, "name": "backstay-controller"}

OTHERS = {
    "apps": "deployments daemonsets",
    "remediation.medik8s.io": "nodehealthchecks",
    "self-node-remediation.medik8s.io": "selfnoderemediations",
    "fence-agents-remediation.medik8s.io": "fenceagentsremediations",
    "machine.openshift.io": "machinehealthchecks",
    "nodemaintenance.medik8s.io": "nodemaintenances",
    "ceph.rook.io": "cephclusters",
    "harvesterhci.io": "settings",
    "longhorn.io": "settings",
}
"""Where traces of whoever else acts on dead nodes are looked for."""


def of_others(verbs: str) -> set[Deed]:
    found = (deeds(group, resources, verbs) for group, resources in OTHERS.items())
    return set[Deed]().union(*found)


VIEWING = (
    of_others("list")
    | deeds("", "nodes pods", WATCH)
    | STORAGE
    | ATTACHMENTS
    | OWNERS
    | KUBEVIRT
    | NETWORK
    | deeds(CALICO[0], "ipamhandles", "get")
    | deeds(CALICO[1], "ipamhandles", "get")
    | deeds("coordination.k8s.io", "leases", READ)
    | deeds("coordination.k8s.io", "leases", READ, namespace="kube-node-lease")
    | deeds("coordination.k8s.io", "leases", READ, namespace="backstay-system")
    | deeds("coordination.k8s.io", "leases", READ, **OWN_LEASE)
    | deeds(OURS, "backstayconfigs availabilitypolicies deathconfirmations incidents", WATCH)
)
DRAINING = (
    deeds("", "pods", "create", subresource="eviction")
    | deeds("policy", "poddisruptionbudgets", "list watch")
    | deeds("apps", "daemonsets", "get")
    | deeds("subresources.kubevirt.io", "virtualmachineinstances", "update", subresource="evacuate")
    | deeds("nodemaintenance.medik8s.io", "nodemaintenances", f"{WATCH} patch")
    | deeds("nodemaintenance.medik8s.io", "nodemaintenances", "patch", subresource="status")
)
MAY: Mapping[str, set[Deed]] = {
    "controller": (
        deeds("", "nodes", f"{WATCH} patch")
        | deeds("", "pods", f"{WATCH} delete")
        | DRAINING
        | deeds("", "persistentvolumeclaims persistentvolumes", "get")
        | deeds("storage.k8s.io", "volumeattachments", "list delete")
        | deeds("csiaddons.openshift.io", "networkfences", "list create patch delete")
        | deeds("csiaddons.openshift.io", "csiaddonsnodes", "list")
        | deeds("kubevirt.io", "virtualmachines", "get")
        | deeds("kubevirt.io", "virtualmachineinstances", READ)
        | deeds("apps", "statefulsets replicasets", "get")
        | KUBEVIRT
        | MACHINES
        | NETWORK
        | deeds(CALICO[0], "ipamblocks ipamhandles", "get update delete")
        | deeds(CALICO[1], "ipamblocks ipamhandles", "get update delete")
        | deeds("", "events", "create patch")
        | deeds("coordination.k8s.io", "leases", READ, namespace="kube-node-lease")
        | deeds("coordination.k8s.io", "leases", "list watch create patch", **OWN_NAMESPACE)
        | deeds("coordination.k8s.io", "leases", f"{WATCH} create patch", **OWN_LEASE)
        | deeds("discovery.k8s.io", "endpointslices", WATCH, namespace="default")
        | deeds(OURS, "backstayconfigs availabilitypolicies deathconfirmations", WATCH)
        | deeds(OURS, "incidents", f"{WATCH} create delete")
        | deeds("", "configmaps", f"{READ} create patch delete", namespace="backstay-system")
        | deeds(OURS, "incidents deathconfirmations", "patch", subresource="status")
        | deeds("authentication.k8s.io", "tokenreviews", "create")
        | deeds("authorization.k8s.io", "subjectaccessreviews", "create")
    ),
    "viewer": VIEWING,
    "operator": VIEWING | deeds(OURS, "backstayconfigs", "create update patch"),
    "confirmer": VIEWING | deeds(OURS, "deathconfirmations", "create delete"),
    "replayer": VIEWING | deeds("", "configmaps", "get", namespace="backstay-system"),
    "metrics-reader": set(),
    "stranger": set(),
}
PATHS: Mapping[str, set[str]] = {"metrics-reader": {"/metrics", "/status"}}
"""What each role may get of what is no resource; nobody else may."""

VERBS = "get list watch create update patch delete deletecollection"
EVERYTHING = (
    deeds("", "nodes pods secrets configmaps events serviceaccounts namespaces", VERBS)
    | deeds("", "configmaps secrets", VERBS, namespace="backstay-system")
    | deeds("", "persistentvolumeclaims persistentvolumes", VERBS)
    | deeds("", "pods", "create", subresource="eviction")
    | deeds("", "pods", "create get", subresource="exec")
    | deeds("", "nodes", "update patch", subresource="status")
    | deeds("", "serviceaccounts", "create", subresource="token")
    | deeds("", "users serviceaccounts groups", "impersonate")
    | deeds("apps", "deployments replicasets statefulsets", VERBS)
    | of_others(VERBS)
    | deeds("nodemaintenance.medik8s.io", "nodemaintenances", "update patch", subresource="status")
    | deeds("policy", "poddisruptionbudgets", VERBS)
    | deeds("subresources.kubevirt.io", "virtualmachineinstances", "update", subresource="evacuate")
    | deeds("subresources.kubevirt.io", "virtualmachineinstances", "update", subresource="pause")
    | deeds("storage.k8s.io", "volumeattachments", VERBS)
    | deeds("csiaddons.openshift.io", "networkfences csiaddonsnodes", VERBS)
    | deeds("kubevirt.io", "virtualmachines virtualmachineinstances kubevirts", VERBS)
    | deeds("kubevirt.io", "virtualmachineinstancereplicasets", VERBS)
    | deeds("kubevirt.io", "virtualmachineinstancemigrations", VERBS)
    | deeds("kubevirt.io", "virtualmachines", "update patch", subresource="status")
    | deeds("pool.kubevirt.io", "virtualmachinepools", VERBS)
    | {
        (verb, "subresources.kubevirt.io", "virtualmachines", f"subresource={name}")
        for verb in ("get", "update")
        for name in ("start", "stop", "restart", "migrate", "addvolume")
    }
    | deeds(CALICO[0], "ipamblocks ipamhandles ipamconfigs ippools", VERBS)
    | deeds(CALICO[1], "ipamblocks ipamhandles ipamconfigurations ippools", VERBS)
    | deeds("coordination.k8s.io", "leases", VERBS)
    | deeds("coordination.k8s.io", "leases", VERBS, namespace="kube-node-lease")
    | deeds("coordination.k8s.io", "leases", VERBS, namespace="backstay-system")
    | deeds("coordination.k8s.io", "leases", VERBS, **OWN_LEASE)
    | deeds("discovery.k8s.io", "endpointslices", VERBS, namespace="default")
    | deeds("rbac.authorization.k8s.io", "clusterroles clusterrolebindings", f"{VERBS} bind")
    | deeds("admissionregistration.k8s.io", "validatingadmissionpolicies", VERBS)
    | deeds("authentication.k8s.io", "tokenreviews", "create")
    | deeds("authorization.k8s.io", "subjectaccessreviews", "create")
    | deeds("authorization.k8s.io", "localsubjectaccessreviews", "create", namespace="default")
    | deeds("apiextensions.k8s.io", "customresourcedefinitions", VERBS)
    | deeds(OURS, "backstayconfigs availabilitypolicies deathconfirmations incidents", VERBS)
    | deeds(OURS, "incidents deathconfirmations", "get update patch", subresource="status")
)


async def may(client: KubeClient, deed: Deed) -> bool:
    verb, group, resource, *where = deed
    return await allowed(client, verb, group, resource, **dict(w.split("=") for w in where))


@pytest.mark.real
@pytest.mark.parametrize("role", sorted(MAY))
async def test_a_role_can_do_exactly_its_part(installed: Installed, role: str) -> None:
    expected = MAY[role]
    assert expected <= EVERYTHING, "what is allowed must be asked"
    async with installed.client(role) as client:
        granted = {deed for deed in EVERYTHING if await may(client, deed)}
    assert granted == expected


@pytest.mark.parametrize("role", sorted(MAY))
async def test_the_embedded_api_reads_the_roles_alike(tmp_path: Path, role: str) -> None:
    async with small_cluster(tmp_path) as cluster:
        control = AccessControl(cluster.server, {})
        granted = {deed for deed in EVERYTHING if control.allows(User(USERS[role]), attempt(deed))}
    assert granted == MAY[role]


ASKED_PATHS = ("/metrics", "/status", "/logs", "/debug/pprof", "/metrics/slis")


@pytest.mark.real
@pytest.mark.parametrize("role", sorted(MAY))
async def test_only_a_metrics_reader_may_get_the_paths_of_a_controller(
    installed: Installed, role: str
) -> None:
    async with installed.client(role) as client:
        granted = {path for path in ASKED_PATHS if await allowed_path(client, "get", path)}
        assert not await allowed_path(client, "post", "/metrics")
    assert granted == PATHS.get(role, set())


@pytest.mark.parametrize("role", sorted(MAY))
async def test_the_embedded_api_reads_paths_alike(tmp_path: Path, role: str) -> None:
    async with small_cluster(tmp_path) as cluster:
        rbac, user = cluster.server.rbac, User(USERS[role])
        granted = {path for path in ASKED_PATHS if rbac.allows_path(user, "get", path)}
        assert not rbac.allows_path(user, "post", "/metrics")
    assert granted == PATHS.get(role, set())


def attempt(deed: Deed) -> Attempt:
    verb, group, resource, *where = deed
    about = dict(w.split("=") for w in where)
    subresource = about.pop("subresource", "")
    if subresource:
        resource = f"{resource}/{subresource}"
    return Attempt(verb, group, resource, **about)


@pytest.mark.real
async def test_the_controller_may_do_all_that_it_asks_for_at_its_start(
    installed: Installed,
) -> None:
    settings = Settings(identity="controller", host="0.0.0.0")
    async with installed.client("controller") as client:
        await preflight.check(client, settings)
