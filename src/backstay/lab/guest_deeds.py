"""What people and KubeVirt do to guests in a scenario, apart from their VMs."""

from typing import Any

from backstay.apis.kubevirt import INSTANCES
from backstay.apis.machines import MIGRATIONS
from backstay.kube.client import KubeClient


async def delete(client: KubeClient, namespace: str, name: str) -> str:
    """As with kubectl delete vmi."""
    await client.delete(INSTANCES, name, namespace=namespace)
    return f"deletes the VMI {name}"


async def say_failed(client: KubeClient, namespace: str, name: str) -> str:
    """As KubeVirt's controller would, which has not seen it: the guest runs on."""
    failed = {"status": {"phase": "Failed"}}
    await client.merge_patch(
        INSTANCES, name, failed, namespace=namespace, manager="virt-controller"
    )
    return f"says that the guest {name} has failed"


async def cancel_migrations(client: KubeClient, namespace: str, name: str) -> str:
    listed: dict[str, Any] = (await client.list(MIGRATIONS, namespace=namespace)).json()
    found = [each["metadata"]["name"] for each in listed["items"]
             if each["spec"]["vmiName"] == name]  # fmt: skip
    for each in found:
        await client.delete(MIGRATIONS, each, namespace=namespace)
    return f"cancels the migration of {name}" if found else ""
