"""What others do about a dead node and its volumes, beside us."""

from typing import Any

from backstay.apis.csiaddons import NETWORK_FENCES
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.model.labels import OUT_OF_SERVICE
from backstay.sim.cluster.claims import DRIVER

REMEDIATOR = "self-node-remediation"
"""A program that puts nodes out of service by itself."""

_KUBECTL = "kubectl-taint"

Json = dict[str, Any]


async def put_out_of_service(client: KubeClient, node: str) -> str:
    """As a person does."""
    done = await _put_on(client, node, manager=_KUBECTL)
    return f"puts {node} out of service" if done else ""


async def remediate(client: KubeClient, node: str) -> str:
    """As a program does that takes silence for death."""
    done = await _put_on(client, node, manager=REMEDIATOR)
    return f"is put out of service by {REMEDIATOR}" if done else ""


async def put_back(client: KubeClient, node: str) -> str:
    """Whoever's it is."""
    live = (await client.get(NODES, node)).json()
    left = [taint for taint in _taints(live) if taint["key"] != OUT_OF_SERVICE]
    if left == _taints(live):
        return ""
    await client.merge_patch(NODES, node, {"spec": {"taints": left or None}}, manager=_KUBECTL)
    return f"takes the out-of-service taint off {node}"


async def fence(client: KubeClient, node: str) -> str:
    """As Rook does, by the addresses that it knows the node by."""
    live = (await client.get(NODES, node)).json()
    found = live["status"].get("addresses") or ()
    cidrs = [f"{each['address']}/32" for each in found if each["type"] == "InternalIP"]
    body = {
        "apiVersion": NETWORK_FENCES.api_version,
        "kind": NETWORK_FENCES.kind,
        "metadata": {"name": f"{node}-rbd-rook-ceph", "labels": {"cephClusterUID": "c0ffee"}},
        "spec": {
            "driver": DRIVER,
            "fenceState": "Fenced",
            "cidrs": cidrs,
            "secret": {"name": "rook-csi-rbd-provisioner", "namespace": "rook-ceph"},
            "parameters": {},
        },
    }
    await client.create(NETWORK_FENCES, body)
    return "is fenced by Rook"


async def _put_on(client: KubeClient, node: str, *, manager: str) -> bool:
    live = (await client.get(NODES, node)).json()
    if any(taint["key"] == OUT_OF_SERVICE for taint in _taints(live)):
        return False
    taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
    patch = {"spec": {"taints": [*_taints(live), taint]}}
    await client.merge_patch(NODES, node, patch, manager=manager)
    return True


def _taints(node: Json) -> list[Json]:
    return node["spec"].get("taints") or []
