"""csi-addons: network fences, and a storage that refuses whom it is told to refuse.

It stands for the controller that carries fences out and for the sidecars of the made-up driver
``csi.example``. As the real one does, it keeps one result for both directions, does not lift a
fence that is deleted, and knows nothing of who put one up. It knows a node by the address that the
sidecar there has told (``report_address``), where one has, and else by the node's own: over a
network that is for storage alone, a node that is refused at its own address writes on.

``refuses`` are clusters of the driver for which the storage answers with an error.
"""

import ipaddress
from collections.abc import Collection, Iterator
from typing import Any

from backstay.apis.csiaddons import ADDONS_NODES, CLUSTER_ID, NETWORK_FENCES
from backstay.kube.client import KubeClient
from backstay.kube.resource import Resource
from backstay.sim.api.controller import Controller
from backstay.sim.api.operations import Operations, Write
from backstay.sim.api.requests import Target
from backstay.sim.api.server import ApiServer
from backstay.sim.api.store import Commit
from backstay.sim.cluster.claims import DRIVER
from backstay.sim.cluster.desk import NODES, VOLUMES, Desk, Json, is_deleting
from backstay.sim.nodes.truth import Truth

NAME = "csi-addons"
_FINALIZER = "csiaddons.openshift.io/network-fence"
_TAKES = 0.5
"""Seconds until the storage has done it."""

Object = dict[str, Any]


def install(server: ApiServer) -> None:
    """Has an embedded API serve its kinds, and says that the driver can fence."""
    info = server.kinds.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert info is not None
    for resource in (NETWORK_FENCES, ADDONS_NODES):
        server.operations.create(Target(info), _definition(resource), Write(NAME))


def sidecar(node: str) -> Object:
    """What tells that the driver is on a node."""
    driver = {"name": DRIVER, "endpoint": "pod://sidecar", "nodeID": node}
    return _whole(ADDONS_NODES, {"metadata": {"name": node}, "spec": {"driver": driver}})


async def report_address(client: KubeClient, node: str, address: str) -> None:
    """The sidecar on a node tells that the storage knows the node by this address."""
    details = [{"id": node, "cidrs": [f"{address}/32"]}]
    told = [{"networkFenceClassName": DRIVER, "ClientDetails": details}]
    status = {"status": {"networkFenceClientStatus": told}}
    await client.create(ADDONS_NODES, sidecar(node), namespace="default")
    await client.merge_patch(ADDONS_NODES, node, status, namespace="default", subresource="status")


class FenceController(Controller[str]):
    """Works on fences."""

    def __init__(
        self, operations: Operations, *, truth: Truth, refuses: Collection[str] = ()
    ) -> None:
        super().__init__(operations.store)
        self._desk = Desk(operations, NAME, version=NETWORK_FENCES.version)
        self._truth = truth
        self._refuses = frozenset(refuses)

    def begin(self) -> None:
        """Its sidecar has told of itself, if it is there for the first time."""
        if not list(self._desk.all(ADDONS_NODES.label)):
            self._desk.create(ADDONS_NODES.label, sidecar("controller"), "default")
        for fence in self._desk.all(NETWORK_FENCES.label):
            self.add(fence["metadata"]["name"])

    def hear(self, commit: Commit) -> None:
        if commit.storage == NETWORK_FENCES.label and not commit.deleted:
            self.add_after(commit.after.object["metadata"]["name"], _TAKES)

    def work(self, key: str) -> None:
        fence = self._desk.get(NETWORK_FENCES.label, key)
        if fence is None:
            return
        place, finalizers = ("", key), fence["metadata"].get("finalizers") or []
        if is_deleting(fence):
            left = [each for each in finalizers if each != _FINALIZER]
            if left != finalizers:
                self._desk.change(NETWORK_FENCES.label, place, lambda obj: _with(obj, left))
            return
        if _FINALIZER not in finalizers:
            wanted = [*finalizers, _FINALIZER]
            self._desk.change(NETWORK_FENCES.label, place, lambda obj: _with(obj, wanted))
        status = self._carry_out(fence)
        if fence.get("status") != status:
            self._desk.change(
                NETWORK_FENCES.label, place, lambda obj: {**obj, "status": status}, status=True
            )

    def _carry_out(self, fence: Json) -> Object:
        spec = fence["spec"]
        cluster = (spec.get("parameters") or {}).get(CLUSTER_ID, "")
        if spec["driver"] != DRIVER or cluster in self._refuses:
            return {"result": "Failed", "message": f"rpc error: unknown cluster {cluster!r}"}
        fenced = spec["fenceState"] == "Fenced"
        volumes = list(self._volumes(cluster))
        for node in self._nodes(spec["cidrs"]):
            tell = self._truth.bar if fenced else self._truth.admit
            if any(self._truth.is_barred(node, each) is not fenced for each in volumes):
                tell(node, volumes, why=f"{'fenced' if fenced else 'unfenced'} by {NAME}")
        done = "fencing" if fenced else "unfencing"
        return {"result": "Succeeded", "message": f"{done} operation successful"}

    def _nodes(self, cidrs: list[str]) -> Iterator[str]:
        networks = [ipaddress.ip_network(each) for each in cidrs]
        for node in self._desk.all(NODES):
            known = [ipaddress.ip_network(each) for each in self._addresses(node)]
            if any(each.network_address in network for each in known for network in networks):
                yield node["metadata"]["name"]

    def _addresses(self, node: Json) -> list[str]:
        """By which the storage knows the node."""
        told = [
            cidr
            for each in self._desk.all(ADDONS_NODES.label)
            if each["spec"]["driver"]["nodeID"] == node["metadata"]["name"]
            for status in (each.get("status") or {}).get("networkFenceClientStatus") or ()
            for client in status["ClientDetails"]
            for cidr in client["cidrs"]
        ]
        found = (node.get("status") or {}).get("addresses") or ()
        return told or [each["address"] for each in found if each["type"] == "InternalIP"]

    def _volumes(self, cluster: str) -> Iterator[str]:
        for volume in self._desk.all(VOLUMES):
            source = volume["spec"].get("csi") or {}
            attributes = source.get("volumeAttributes") or {}
            if source.get("driver") == DRIVER and attributes.get(CLUSTER_ID, "") == cluster:
                yield volume["metadata"]["name"]


def _with(obj: Object, finalizers: list[str]) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "finalizers": finalizers}}


def _whole(resource: Resource, body: Object) -> Object:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def _definition(resource: Resource) -> Object:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {
        "plural": resource.plural,
        "singular": resource.kind.lower(),
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
    }
    return {
        "metadata": {"name": resource.label},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": names,
            "versions": [version],
        },
    }
