"""What people do about the maintenance of nodes in a scenario."""

import asyncio

from backstay.apis.maintenance import NODE_MAINTENANCES
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.lab.drain_stage import BUDGETS
from backstay.model.labels import EXCLUDE
from backstay.sim.api.store import Store


async def exclude(client: KubeClient, node: str) -> str:
    await client.merge_patch(NODES, node, {"metadata": {"labels": {EXCLUDE: "true"}}})
    return f"excludes {node} from remediation"


async def maintain(client: KubeClient, node: str) -> str:
    """One more, also where there is one."""
    spec = {"nodeName": node, "reason": "it gets more memory"}
    body = {"metadata": {"generateName": f"{node}-"}, "spec": spec}
    await client.create(NODE_MAINTENANCES, body)
    return f"asks for the maintenance of {node}"


async def end(client: KubeClient, store: Store, node: str, *, apart: float) -> str:
    """All that there are, one after the other, so many seconds apart."""
    objects = [each.object for each in store.all(NODE_MAINTENANCES.label)]
    meant = [each["metadata"] for each in objects if each["spec"]["nodeName"] == node]
    meant.sort(key=lambda each: str(each["creationTimestamp"]))
    found = [each["name"] for each in meant if not each.get("deletionTimestamp")]
    for number, name in enumerate(found):
        await asyncio.sleep(apart if number else 0.0)
        await client.delete(NODE_MAINTENANCES, name)
    return f"ends the maintenance of {node}" if found else ""


async def delete_budget(client: KubeClient, namespace: str, name: str) -> str:
    """Also that of the set which the replica ``db-0`` belongs to."""
    listed = (await client.list(BUDGETS, namespace=namespace)).json()["items"]
    names = [each["metadata"]["name"] for each in listed]
    found = [each for each in names if name == each or name.startswith(f"{each}-")]
    for each in found:
        await client.delete(BUDGETS, each, namespace=namespace)
    return f"deletes the disruption budget {found[0]}" if found else ""
