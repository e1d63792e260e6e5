"""Network fences of ours: put up, lifted, and cleared away.

A fence bears the incident and the node that it was put up for, by which it can be told from
anybody else's. To delete one does not lift it, so it is lifted first, and deleted when the storage
has said that it takes the node back.
"""

import hashlib

from backstay.apis.csiaddons import CLUSTER_ID, FENCED, NETWORK_FENCES, UNFENCED
from backstay.kube.client import KubeClient
from backstay.model.fences import FenceOrder, FenceSight
from backstay.model.labels import COMPONENT, FENCED_NODE, INCIDENT, MANAGER


def fence_name(order: FenceOrder, *, node: str, incident: str) -> str:
    """The same for the same order, so that it is not given twice."""
    whole = "/".join((incident, order.driver, order.cluster))
    return f"backstay-{node[:200]}-{hashlib.sha256(whole.encode()).hexdigest()[:10]}"


async def raise_fence(
    client: KubeClient,
    order: FenceOrder,
    *,
    node: str,
    node_uid: str,
    incident: str,
    not_after: float,
) -> None:
    """Raises ``Conflict`` if it is there already."""
    namespace, _, secret = order.secret.partition("/")
    body = {
        "apiVersion": NETWORK_FENCES.api_version,
        "kind": NETWORK_FENCES.kind,
        "metadata": {
            "name": fence_name(order, node=node, incident=incident),
            "labels": {COMPONENT: "backstay"},
            "annotations": {INCIDENT: incident, FENCED_NODE: node_uid},
        },
        "spec": {
            "driver": order.driver,
            "fenceState": FENCED,
            "cidrs": [_as_cidr(each) for each in order.addresses],
            "secret": {"name": secret, "namespace": namespace},
            "parameters": {CLUSTER_ID: order.cluster} if order.cluster else {},
        },
    }
    await client.create(NETWORK_FENCES, body, manager=MANAGER, not_after=not_after)


async def lift(client: KubeClient, fence: FenceSight, *, not_after: float) -> None:
    patch = {
        "metadata": {"resourceVersion": fence.version},
        "spec": {"fenceState": UNFENCED},
    }
    await client.merge_patch(
        NETWORK_FENCES, fence.name, patch, manager=MANAGER, not_after=not_after
    )


async def remove(client: KubeClient, fence: FenceSight, *, not_after: float) -> None:
    await client.delete(
        NETWORK_FENCES,
        fence.name,
        conditions={"uid": fence.uid, "resource_version": fence.version},
        not_after=not_after,
    )


def _as_cidr(address: str) -> str:
    if "/" in address:
        return address
    return f"{address}/128" if ":" in address else f"{address}/32"
