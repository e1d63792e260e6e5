"""What others do about a dead node and its volumes, beside us."""

from typing import Any

from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.model.labels import OUT_OF_SERVICE

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
